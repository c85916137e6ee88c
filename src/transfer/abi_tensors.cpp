// The C function that finds the tensors of a header. It needs no runtime.
#include "base/tensor_entries.hpp"
#include "transfer/abi.hpp"

#include <algorithm>
#include <array>
#include <span>

using hippogriff::guarded;
using hippogriff::TensorEntries;
using hippogriff::throw_invalid;

namespace {

// The first view of each of the last kinds: a model's layers have some ten.
class Kinds {
 public:
  std::string_view first_of(std::string_view kind) {
    const auto* const found = std::ranges::find(kinds_, kind);
    if (found != kinds_.end()) {
      return *found;
    }
    kinds_[next_++ % kinds_.size()] = kind;
    return kind;
  }

 private:
  std::array<std::string_view, 16> kinds_;
  std::size_t next_ = 0;
};

}  // namespace

extern "C" {

int hippogriff_find_tensors(hippogriff_tensor_search* search,
                            hippogriff_tensor_entry* entries,
                            size_t capacity,
                            size_t* count) {
  return guarded([&] {
    if (search == nullptr || search->text == nullptr || entries == nullptr || count == nullptr) {
      throw_invalid("find tensors", "search, its text, entries or count is NULL");
    }
    const auto place_of = [search](const char* letter) {
      return static_cast<std::uint64_t>(letter - search->text);
    };
    TensorEntries found({search->text, search->text_bytes}, search->position, search->data_begin);
    Kinds kinds;
    *count = 0;
    for (hippogriff_tensor_entry& stored : std::span(entries, capacity)) {
      const auto entry = found.next();
      if (!entry) {
        break;
      }
      const std::string_view name = entry->name;
      const std::string_view kind = kinds.first_of(entry->kind);
      stored = {.name_begin = place_of(name.data()),
                .name_end = place_of(name.data() + name.size()),
                .kind_begin = place_of(kind.data()),
                .data_begin = entry->data_begin,
                .data_end = entry->data_end};
      search->data_begin = entry->data_end;
      ++*count;
    }
    search->position = found.position();
  });
}

}  // extern "C"
