// Proteins from the seed, and the table of a query's words.
#include "workloads/proteins/blosum62.hpp"
#include "workloads/proteins/proteins.hpp"
#include "workloads/sharing/random.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace {

constexpr int pair_score_max = 11;  // of two amino acids
constexpr std::size_t pair_count = std::size_t{amino_acid_count} * amino_acid_count;

// How often each amino acid is in nature, of a thousand, in the order of `amino_acids`.
constexpr std::array<std::uint32_t, amino_acid_count> frequencies = {
    78, 51, 45, 54, 19, 43, 63, 74, 22, 51, 91, 57, 22, 39, 52, 71, 58, 13, 32, 65};

std::string letters_of_thousand() {
  std::string letters;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    letters.append(frequencies[i], amino_acids[i]);
  }
  return letters;
}

char random_letter(Random& random) {
  static const std::string letters = letters_of_thousand();
  return letters[random.below(letters.size())];
}

std::string random_protein(Random& random, std::size_t letters) {
  std::string protein(letters, ' ');
  for (char& letter : protein) {
    letter = random_letter(random);
  }
  return protein;
}

// Of a hundred letters thirty are changed, one is lost and one is new.
std::string changed(Random& random, const std::string& protein) {
  std::string result;
  for (const char letter : protein) {
    const std::uint32_t dice = random.below(100);
    if (dice == 0) {
      continue;
    }
    result += dice < 31 ? random_letter(random) : letter;
    if (dice == 99) {
      result += random_letter(random);
    }
  }
  return result;
}

Random random_of(const Options& options, std::uint64_t kind, std::uint64_t number) {
  return Random((options.number("seed") * 2 + kind) ^ ((number + 1) * 0x9E3779B97F4A7C15ULL));
}

int pair_score(std::size_t a, std::size_t b) {
  return blosum62[a * amino_acid_count + b];
}

// Notes the place q with the words that begin with `pair` and are alike to the query's word there.
void add_words(const Protein& query,
               std::uint32_t q,
               std::size_t pair,
               std::vector<std::vector<std::uint32_t>>& places) {
  const int of_pair = pair_score(pair / amino_acid_count, query[q]) +
                      pair_score(pair % amino_acid_count, query[q + 1]);
  if (of_pair + pair_score_max < word_score_min) {
    return;
  }
  for (std::size_t third = 0; third < amino_acid_count; ++third) {
    if (of_pair + pair_score(third, query[q + 2]) >= word_score_min) {
      places[pair * amino_acid_count + third].push_back(q);
    }
  }
}

}  // namespace

std::string make_query(const Options& options, std::uint64_t number) {
  Random random = random_of(options, 0, number);
  return random_protein(random, options.number("query"));
}

std::string make_subject(const Options& options, std::uint64_t number) {
  Random random = random_of(options, 1, number);
  const std::uint64_t mean = options.number("letters");
  std::string subject = random_protein(random, mean / 2 + random.below(mean + 1));
  if (number % 10 == 0) {
    const std::string query = make_query(options, random.below(options.number("queries")));
    const std::size_t size = std::min<std::size_t>(query.size(), 20 + random.below(100));
    const std::string piece = query.substr(random.below(query.size() - size + 1), size);
    subject.insert(random.below(subject.size() + 1), changed(random, piece));
  }
  return subject;
}

Protein encode(std::string_view letters) {
  Protein protein;
  protein.reserve(letters.size());
  for (const char letter : letters) {
    const std::size_t number = amino_acids.find(letter);
    if (number == std::string_view::npos) {
      throw std::runtime_error(std::string("no amino acid: ") + letter);
    }
    protein.push_back(static_cast<std::uint8_t>(number));
  }
  return protein;
}

WordTable make_words(const Protein& query) {
  std::vector<std::vector<std::uint32_t>> places(word_count);
  for (std::uint32_t q = 0; q + word_letters <= query.size(); ++q) {
    for (std::size_t pair = 0; pair < pair_count; ++pair) {
      add_words(query, q, pair, places);
    }
  }
  WordTable table;
  table.first_place.push_back(0);
  for (const auto& of_word : places) {
    table.places.insert(table.places.end(), of_word.begin(), of_word.end());
    table.first_place.push_back(static_cast<std::uint32_t>(table.places.size()));
  }
  return table;
}
