// The rule, and what keeps a file from being read past the page cache.
#include "array/io_choice.hpp"

#include "base/error.hpp"
#include "base/page_size.hpp"

#include <algorithm>

namespace hippogriff::ondemand {

namespace {

// Of the array's part of every file.
Residency residency_of(const Backing& backing) {
  Residency sum;
  for (std::size_t i = 0; i < backing.files.size(); ++i) {
    const std::uint64_t size = backing.layout().bytes_in(backing.size_bytes, i);
    const auto part = backing.files[i].file->residency({backing.file_offset, size});
    sum.total_bytes += size;
    sum.resident_bytes += part ? part->resident_bytes : 0;
  }
  return sum;
}

// Empty when the file's lines can be moved past the page cache.
std::string why_not_direct(const BackingFile& each, const Backing& backing, std::uint32_t line) {
  const FileFacts& facts = each.file->facts();
  if (!facts.direct) {
    return each.name + ": " + facts.why_not_direct;
  }
  if (facts.direct_alignment > line) {
    return each.name + ": O_DIRECT moves " + counted_bytes(facts.direct_alignment) +
           ", and a line is shorter";
  }
  if (backing.file_offset % facts.direct_alignment != 0) {
    return each.name + ": the array's offset is no multiple of " +
           counted_bytes(facts.direct_alignment);
  }
  return "";
}

// The whole pages within the array's part of the file. The rest goes through the page cache: direct
// and buffered writes in one page could lose bytes.
Range pages_within(const Backing& backing, std::uint64_t index) {
  const std::uint64_t alignment =
      std::max<std::uint64_t>(page_bytes(), backing.files[index].file->facts().direct_alignment);
  const std::uint64_t part_end =
      backing.file_offset + backing.layout().bytes_in(backing.size_bytes, index);
  const std::uint64_t begin = align_up(backing.file_offset, alignment);
  const std::uint64_t end = align_down(part_end, alignment);
  return {begin, end > begin ? end - begin : 0};
}

}  // namespace

IoKind io_kind_of(std::string_view name) {
  if (name == "auto") {
    return IoKind::automatic;
  }
  if (name == "cached") {
    return IoKind::cached;
  }
  if (name == "direct") {
    return IoKind::direct;
  }
  throw_invalid("open array", "io \"" + std::string(name) + "\" is not auto, cached or direct");
}

void choose_io(Backing& backing, const IoWish& wish) {
  if (backing.in_memory()) {
    return;
  }
  bool direct = wish.kind == IoKind::direct;
  backing.io_reason = "asked for";
  if (wish.kind == IoKind::automatic) {
    const Residency residency =
        backing.is_new ? Residency{.resident_bytes = 0, .total_bytes = backing.size_bytes}
                       : residency_of(backing);
    const std::uint64_t cold = residency.total_bytes - residency.resident_bytes;
    direct = cold > wish.available_bytes;
    backing.io_reason = counted_bytes(cold) + " are not in the page cache, which has room for " +
                        counted_bytes(wish.available_bytes);
  }
  for (std::size_t i = 0; direct && i < backing.files.size(); ++i) {
    if (const std::string why = why_not_direct(backing.files[i], backing, wish.line_bytes);
        !why.empty()) {
      direct = false;
      backing.io_reason = why;
    }
  }
  for (std::size_t i = 0; direct && i < backing.files.size(); ++i) {
    backing.files[i].direct = pages_within(backing, i);
    backing.files[i].direct_alignment = backing.files[i].file->facts().direct_alignment;
  }
  backing.is_direct = direct;
}

}  // namespace hippogriff::ondemand
