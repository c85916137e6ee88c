// The words by which processes of one command find each other at a server. Who knows them was told:
// they are drawn by chance, and stand in the environment of the command, which only its user reads.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hippogriff::noded {

class RunToken {
 public:
  // Throws Error(io_error) when the kernel has no random numbers.
  static RunToken draw();

  // 32 hexadecimal digits, in lower case; nothing for all else.
  static std::optional<RunToken> parse(std::string_view text) noexcept;
  [[nodiscard]] std::string text() const;

  // Takes as long whatever the two have in common.
  bool operator==(const RunToken& other) const noexcept {
    return ((words_[0] ^ other.words_[0]) | (words_[1] ^ other.words_[1])) == 0;
  }

 private:
  std::array<std::uint64_t, 2> words_{};
};

inline constexpr std::size_t run_token_digits = 32;

}  // namespace hippogriff::noded
