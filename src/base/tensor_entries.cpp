// A cursor that takes what must be there, or says that it is not.
#include "base/tensor_entries.hpp"

#include <algorithm>
#include <cstddef>

namespace hippogriff {

namespace {

// So many digits do not overflow 63 bits.
constexpr std::size_t digits_max = 18;
// Of a shape's lengths: who looks at them takes many times their memory.
constexpr std::size_t shape_bytes_max = 1024;

bool is_figure(char letter) {
  return letter >= '0' && letter <= '9';
}

// Of a name that JSON has as it is, and that anybody can print.
bool is_plain(char letter) {
  return letter >= ' ' && letter <= '~' && letter != '"' && letter != '\\';
}

class Cursor {
 public:
  explicit Cursor(std::string_view rest) : rest_(rest) {}

  [[nodiscard]] std::string_view rest() const { return rest_; }

  bool take(std::string_view wanted) {
    if (!rest_.starts_with(wanted)) {
      return false;
    }
    rest_.remove_prefix(wanted.size());
    return true;
  }

  template <typename Belongs>
  std::string_view take_while(Belongs&& belongs) {
    const auto* const end = std::ranges::find_if_not(rest_, belongs);
    const auto taken = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
    rest_.remove_prefix(taken.size());
    return taken;
  }

  // As JSON has it: without zeros before it.
  std::optional<std::uint64_t> take_number() {
    const std::string_view digits = take_while(is_figure);
    const bool padded = digits.size() > 1 && digits.front() == '0';
    if (digits.empty() || digits.size() > digits_max || padded) {
      return std::nullopt;
    }
    std::uint64_t value = 0;
    for (const char digit : digits) {
      value = 10 * value + static_cast<std::uint64_t>(digit - '0');
    }
    return value;
  }

 private:
  std::string_view rest_;
};

// Capitals, digits and underscores, and numbers with commas: what they mean is not looked at.
bool take_kind(Cursor& cursor) {
  const auto of_dtype = [](char letter) {
    return (letter >= 'A' && letter <= 'Z') || is_figure(letter) || letter == '_';
  };
  const auto of_shape = [](char letter) { return is_figure(letter) || letter == ','; };
  cursor.take_while(of_dtype);
  if (!cursor.take(R"(","shape":[)")) {
    return false;
  }
  return cursor.take_while(of_shape).size() <= shape_bytes_max && cursor.take("]");
}

}  // namespace

TensorEntries::TensorEntries(std::string_view text, std::size_t position, std::uint64_t data_begin)
    : text_(text), position_(std::min(position, text.size())), data_end_(data_begin) {}

std::optional<TensorEntry> TensorEntries::next() {
  Cursor cursor(text_.substr(position_));
  TensorEntry entry;
  if (ended_ || !cursor.take("\"")) {
    return std::nullopt;
  }
  entry.name = cursor.take_while(is_plain);
  if (!cursor.take(R"(":{"dtype":")")) {
    return std::nullopt;
  }
  entry.kind = cursor.rest();
  if (!take_kind(cursor)) {
    return std::nullopt;
  }
  entry.kind.remove_suffix(cursor.rest().size());
  if (!cursor.take(R"(,"data_offsets":[)")) {
    return std::nullopt;
  }
  const auto begin = cursor.take_number();
  if (begin != data_end_ || !cursor.take(",")) {
    return std::nullopt;
  }
  const auto end = cursor.take_number();
  if (!end || *end < data_end_ || !cursor.take("]}")) {
    return std::nullopt;
  }
  ended_ = !cursor.take(",");
  entry.data_begin = data_end_;
  entry.data_end = *end;
  data_end_ = *end;
  position_ = text_.size() - cursor.rest().size();
  return entry;
}

}  // namespace hippogriff
