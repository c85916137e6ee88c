// Which clients show anything, so that nobody looks at all of their boards.
#include "node/shown_records.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace hippogriff::node {

namespace {

constexpr std::uint64_t unshown_max = 1'000'000;

std::uint64_t bit_of(std::uint32_t client) {
  return std::uint64_t{1} << (client % 64);
}

}  // namespace

void show_client(ShowingBits& showing, std::uint32_t client) noexcept {
  std::atomic<std::uint64_t>& word = showing.at(client / 64);
  if ((word.load(std::memory_order_relaxed) & bit_of(client)) == 0) {
    word.fetch_or(bit_of(client), std::memory_order_release);
  }
}

void hide_client(ShowingBits& showing, std::uint32_t client) noexcept {
  showing.at(client / 64).fetch_and(~bit_of(client), std::memory_order_release);
}

std::vector<std::uint32_t> clients_that_show(const ShowingBits& showing) {
  std::vector<std::uint32_t> clients;
  for (std::uint32_t word = 0; word < showing.size(); ++word) {
    std::uint64_t left = showing.at(word).load(std::memory_order_acquire);
    for (; left != 0; left &= left - 1) {
      clients.push_back(word * 64 + static_cast<std::uint32_t>(std::countr_zero(left)));
    }
  }
  return clients;
}

std::string read_drive(const DriveName& letters) {
  std::array<char, drive_name_max> written{};
  for (std::size_t index = 0; index < letters.size(); ++index) {
    const std::uint64_t word = letters.at(index).load(std::memory_order_acquire);
    std::memcpy(written.data() + index * sizeof word, &word, sizeof word);
  }
  std::string name;
  for (const char letter : written) {
    if (letter == '\0') {
      break;
    }
    name += letter > ' ' && letter <= '~' ? letter : '?';
  }
  return name;
}

void write_drive(DriveName& letters, std::string_view name) noexcept {
  std::array<std::uint64_t, std::tuple_size_v<DriveName>> words{};
  std::memcpy(words.data(), name.data(), std::min(name.size(), drive_name_max));
  for (std::size_t index = 0; index < words.size(); ++index) {
    letters.at(index).store(words.at(index), std::memory_order_release);
  }
}

std::uint64_t read_unshown(const std::atomic<std::uint64_t>& unshown) noexcept {
  const std::uint64_t count = unshown.load(std::memory_order_relaxed);
  return count <= unshown_max ? count : 0;
}

}  // namespace hippogriff::node
