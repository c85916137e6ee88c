// The reference, the reads, and the index.
#include "workloads/align/align.hpp"
#include "workloads/sharing/random.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace {

constexpr std::string_view letters_of_dna = "ACGT";
constexpr std::size_t repeat_letters = 200;

std::uint64_t code_of(char letter) {
  const std::size_t code = letters_of_dna.find(letter);
  if (code == std::string_view::npos) {
    throw std::runtime_error(std::string("no letter of DNA: ") + letter);
  }
  return code;
}

}  // namespace

std::string make_reference(const Options& options) {
  Random random(options.number("seed"));
  const std::uint64_t size = options.number("reference");
  std::string reference;
  reference.reserve(size + repeat_letters);
  while (reference.size() < size) {
    if (reference.size() > 2 * repeat_letters && random.below(10 * repeat_letters) == 0) {
      const std::size_t from = random.below(reference.size() - repeat_letters);
      reference += reference.substr(from, repeat_letters);
    } else {
      reference += letters_of_dna[random.below(4)];
    }
  }
  reference.resize(size);
  return reference;
}

std::string make_read(const Options& options, const std::string& reference, std::uint64_t number) {
  Random random(options.number("seed") ^ ((number + 1) * 0x9E3779B97F4A7C15ULL));
  std::string read =
      reference.substr(random.below(reference.size() - read_letters + 1), read_letters);
  const bool own = number % 10 == 9;
  const std::uint64_t changes = own ? 0 : random.below(options.number("mismatches") + 2);
  for (std::uint64_t change = 0; change < changes; ++change) {
    read[random.below(read_letters)] = letters_of_dna[random.below(4)];
  }
  for (char& letter : read) {
    letter = own ? letters_of_dna[random.below(4)] : letter;
  }
  return read;
}

std::uint64_t pack(std::string_view letters) {
  if (letters.size() != read_letters) {
    throw std::runtime_error("a read has " + std::to_string(read_letters) + " letters, not " +
                             std::to_string(letters.size()));
  }
  std::uint64_t packed = 0;
  for (const char letter : letters) {
    packed = (packed << 2U) | code_of(letter);
  }
  return packed;
}

WindowIndex make_index(const std::string& reference) {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> sorted;
  sorted.reserve(reference.size());
  std::uint64_t packed = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    packed =
        ((packed << 2U) | code_of(reference[i])) & ((std::uint64_t{1} << (2 * read_letters)) - 1);
    if (i + 1 >= read_letters) {
      sorted.emplace_back(packed, static_cast<std::uint32_t>(i + 1 - read_letters));
    }
  }
  std::sort(sorted.begin(), sorted.end());
  WindowIndex index;
  for (const auto& [window, place] : sorted) {
    index.windows.push_back(window);
    index.places.push_back(place);
  }
  return index;
}
