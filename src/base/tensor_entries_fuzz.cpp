// Whatever the text, what is taken of it can be written again and is then the same text.
#include "base/error.hpp"
#include "base/tensor_entries.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), size_bytes);
  hippogriff::TensorEntries entries(text, 0, 0);
  std::string written;
  std::uint64_t data_end = 0;
  while (const auto entry = entries.next()) {
    HIPPO_ASSERT(entry->data_begin == data_end && entry->data_end >= data_end);
    data_end = entry->data_end;
    written.append("\"").append(entry->name).append(R"(":{"dtype":")").append(entry->kind);
    written.append(R"(,"data_offsets":[)").append(std::to_string(entry->data_begin));
    written.append(",").append(std::to_string(data_end)).append("]}");
    written.append(entries.position() > written.size() ? "," : "");
    HIPPO_ASSERT(written == text.substr(0, entries.position()));
  }
  return 0;
}
