// What `proteins` answers, the slow way: no table of words, and matrices with every cell.
#include "workloads/proteins/blosum62.hpp"
#include "workloads/proteins/proteins.hpp"

#include <algorithm>
#include <cstdlib>

namespace {

constexpr int never = -(1 << 24);

int pair_score(const Protein& query, std::size_t q, const Protein& subject, std::size_t s) {
  return blosum62[std::size_t{query[q]} * amino_acid_count + subject[s]];
}

// The most that further pairs on the diagonal add to `start`, up to where it drops too far.
int best_onwards(const std::vector<int>& pairs, int start) {
  int running = start;
  int best = start;
  for (const int pair : pairs) {
    running += pair;
    best = std::max(best, running);
    if (running < best - extension_drop) {
      break;
    }
  }
  return best;
}

int score_from(const Protein& query, std::size_t q, const Protein& subject, std::size_t s) {
  int word = 0;
  for (std::size_t i = 0; i < word_letters; ++i) {
    word += pair_score(query, q + i, subject, s + i);
  }
  if (word < word_score_min) {
    return 0;
  }
  std::vector<int> right;
  for (std::size_t i = word_letters; q + i < query.size() && s + i < subject.size(); ++i) {
    right.push_back(pair_score(query, q + i, subject, s + i));
  }
  std::vector<int> left;
  for (std::size_t i = 1; i <= q && i <= s; ++i) {
    left.push_back(pair_score(query, q - i, subject, s - i));
  }
  return best_onwards(left, best_onwards(right, word));
}

}  // namespace

Seed seed_by_all_places(const Protein& query, const Protein& subject) {
  Seed best;
  for (std::size_t s = 0; s + word_letters <= subject.size(); ++s) {
    for (std::size_t q = 0; q + word_letters <= query.size(); ++q) {
      const int score = score_from(query, q, subject, s);
      const int diagonal = static_cast<int>(s) - static_cast<int>(q);
      if (score > best.score || (score > 0 && score == best.score && diagonal < best.diagonal)) {
        best = {score, diagonal};
      }
    }
  }
  return best;
}

// Gotoh's recurrences. Row and column 0 stand for nothing aligned yet.
int align_by_matrices(const Protein& query, const Protein& subject, int diagonal, int half_band) {
  using Matrix = std::vector<std::vector<int>>;
  Matrix score(subject.size() + 1, std::vector<int>(query.size() + 1, 0));
  Matrix gap_in_query(subject.size() + 1, std::vector<int>(query.size() + 1, never));
  Matrix gap_in_subject = gap_in_query;
  int best = 0;
  for (std::size_t s = 1; s <= subject.size(); ++s) {
    for (std::size_t q = 1; q <= query.size(); ++q) {
      const int off = static_cast<int>(s) - static_cast<int>(q) - diagonal;
      if (std::abs(off) > half_band) {
        score[s][q] = never;
        continue;
      }
      gap_in_query[s][q] =
          std::max(gap_in_query[s - 1][q], score[s - 1][q] - gap_open) - gap_extend;
      gap_in_subject[s][q] =
          std::max(gap_in_subject[s][q - 1], score[s][q - 1] - gap_open) - gap_extend;
      score[s][q] = std::max({0,
                              score[s - 1][q - 1] + pair_score(query, q - 1, subject, s - 1),
                              gap_in_query[s][q],
                              gap_in_subject[s][q]});
      best = std::max(best, score[s][q]);
    }
  }
  return best;
}
