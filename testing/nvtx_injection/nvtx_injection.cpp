// A tool for NVTX that records ranges: loaded by NVTX through NVTX_INJECTION64_PATH.
#include "testing/nvtx_injection/nvtx_injection.hpp"

#include <nvtx3/nvToolsExt.h>

#include <list>
#include <mutex>

#define HIPPO_INJECTION_API extern "C" __attribute__((visibility("default")))

using hippogriff::testing::NvtxRecord;

namespace {

struct State {
  std::mutex mutex;
  std::list<std::string> domains;  // handles point at their names
  std::list<std::string> strings;
  std::vector<NvtxRecord> records;
};

State& state() {
  static State instance;
  return instance;
}

// The records of ranges that are open on this thread, as places in State::records.
std::vector<std::size_t>& open_ranges() {
  thread_local std::vector<std::size_t> stack;
  return stack;
}

template <typename Handle>
Handle keep(std::list<std::string>& texts, const char* text) {
  const std::lock_guard lock(state().mutex);
  texts.emplace_back(text);
  return reinterpret_cast<Handle>(&texts.back());
}

nvtxDomainHandle_t NVTX_API create_domain(const char* name) {
  return keep<nvtxDomainHandle_t>(state().domains, name);
}

nvtxStringHandle_t NVTX_API register_string(nvtxDomainHandle_t, const char* text) {
  return keep<nvtxStringHandle_t>(state().strings, text);
}

int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  NvtxRecord record;
  record.domain = *reinterpret_cast<const std::string*>(domain);
  if (attributes->messageType == NVTX_MESSAGE_TYPE_REGISTERED) {
    record.name = *reinterpret_cast<const std::string*>(attributes->message.registered);
  }
  if (attributes->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64) {
    record.payload = attributes->payload.ullValue;
  }
  const std::lock_guard lock(state().mutex);
  open_ranges().push_back(state().records.size());
  state().records.push_back(std::move(record));
  return static_cast<int>(open_ranges().size()) - 1;
}

int NVTX_API pop(nvtxDomainHandle_t) {
  if (open_ranges().empty()) {
    return NVTX_NO_PUSH_POP_TRACKING;
  }
  const std::lock_guard lock(state().mutex);
  state().records.at(open_ranges().back()).ended = true;
  open_ranges().pop_back();
  return static_cast<int>(open_ranges().size());
}

}  // namespace

// NVTX looks for this name.
// NOLINTNEXTLINE(readability-identifier-naming)
HIPPO_INJECTION_API int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0 ||
      size <= NVTX_CBID_CORE2_DomainCreateA) {
    return 0;
  }
  const auto set = [table](unsigned index, auto* function) {
    *table[index] = reinterpret_cast<NvtxFunctionPointer>(function);
  };
  set(NVTX_CBID_CORE2_DomainCreateA, &create_domain);
  set(NVTX_CBID_CORE2_DomainRegisterStringA, &register_string);
  set(NVTX_CBID_CORE2_DomainRangePushEx, &push);
  set(NVTX_CBID_CORE2_DomainRangePop, &pop);
  return 1;
}

HIPPO_INJECTION_API void nvtx_injection_records(std::vector<NvtxRecord>* records) {
  const std::lock_guard lock(state().mutex);
  *records = state().records;
}

HIPPO_INJECTION_API void nvtx_injection_clear() {
  const std::lock_guard lock(state().mutex);
  state().records.clear();
}

HIPPO_INJECTION_API int nvtx_injection_registrations(const char* name) {
  const std::lock_guard lock(state().mutex);
  int count = 0;
  for (const std::string& text : state().strings) {
    count += text == name ? 1 : 0;
  }
  return count;
}
