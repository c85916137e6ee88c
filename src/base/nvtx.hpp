// Ranges on the timeline of NVIDIA's profilers (Nsight Systems), in the domain "hippogriff".
#pragma once

#include <cstdint>

#if HIPPOGRIFF_HAS_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace hippogriff {

#if HIPPOGRIFF_HAS_NVTX

inline nvtxDomainHandle_t nvtx_domain() noexcept {
  // Never destroyed: ranges may end while the process does.
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("hippogriff");
  return domain;
}

// A range's name, handed to the profiler once. Keep it in a `static const` beside its use.
class NvtxName {
 public:
  explicit NvtxName(const char* text) noexcept
      : handle_(nvtxDomainRegisterStringA(nvtx_domain(), text)) {}

  [[nodiscard]] nvtxStringHandle_t handle() const noexcept { return handle_; }

 private:
  nvtxStringHandle_t handle_;
};

// A range from construction to destruction on one thread, with the bytes it moves as its payload.
// Without a profiler it costs two tests of a pointer.
class NvtxRange {
 public:
  NvtxRange(const NvtxName& name, std::uint64_t size_bytes) noexcept {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    attributes.payload.ullValue = size_bytes;
    attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    attributes.message.registered = name.handle();
    nvtxDomainRangePushEx(nvtx_domain(), &attributes);
  }

  ~NvtxRange() { nvtxDomainRangePop(nvtx_domain()); }

  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

#else  // built without NVTX: the same names, nothing done

class NvtxName {
 public:
  explicit constexpr NvtxName(const char* /*text*/) noexcept {}
};

class NvtxRange {
 public:
  constexpr NvtxRange(const NvtxName& /*name*/, std::uint64_t /*size_bytes*/) noexcept {}

  constexpr ~NvtxRange() {}  // NOLINT(modernize-use-equals-default): unused ranges draw no warning

  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

#endif

}  // namespace hippogriff
