// The entries of a safetensors header as writers write them, found without a JSON parser.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hippogriff {

// One tensor. The views are parts of the text.
struct TensorEntry {
  std::string_view name;
  std::string_view kind;         // dtype and shape: BF16","shape":[4096,11008]
  std::uint64_t data_begin = 0;  // bytes from the beginning of the data
  std::uint64_t data_end = 0;
};

// Takes entries one after the other, from bytes that anybody may have written: each is
// "name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}, without a blank, begins in the data
// where the one before ends, has a name of printable ASCII without escapes and a shape of 1 KiB at
// most. What looks otherwise is not taken: it may still be JSON. Whether dtype and shape are right,
// and make so many bytes, is for who reads them.
class TensorEntries {
 public:
  // `position` is where in the text the first one begins, and `data_begin` where its data does.
  TensorEntries(std::string_view text, std::size_t position, std::uint64_t data_begin);

  // Nothing where no more follows that looks as it should.
  [[nodiscard]] std::optional<TensorEntry> next();

  // Behind the last one and the comma after it.
  [[nodiscard]] std::size_t position() const { return position_; }

 private:
  std::string_view text_;
  std::size_t position_;
  std::uint64_t data_end_;
  bool ended_ = false;  // no comma came
};

}  // namespace hippogriff
