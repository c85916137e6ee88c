// The two stages of the search, by item: words and ungapped extensions; a banded alignment.
#pragma once

#include "workloads/sharing/work.hpp"

#include <cstddef>
#include <cstdint>

constexpr int word_letters = 3;
constexpr int word_count = 20 * 20 * 20;
constexpr int word_score_min = 11;  // of a word of the query and one of a subject, to be a hit
constexpr int extension_drop = 16;  // an extension ends when its score is so far below its best
constexpr int band_half = 16;       // diagonals on each side of the seed's
constexpr int band = 2 * band_half + 1;

// The best ungapped alignment found from a word hit.
struct Seed {
  std::int32_t score = 0;     // 0: there was no hit
  std::int32_t diagonal = 0;  // place in the subject less place in the query

  friend bool operator==(const Seed&, const Seed&) = default;
};

// Letters of several sequences, one after the other. Sequence i is [first[i], first[i + 1]).
struct Sequences {
  const std::uint8_t* letters;  // numbers of amino acids
  const std::uint64_t* first;
};

// Stage one; an item is a subject. All pointers are the device's.
struct SeedWork {
  Sequences subjects;
  const std::uint8_t* query;
  std::int32_t query_letters;
  const std::uint32_t* first_place;  // by word, and one beyond: where its places begin
  const std::uint32_t* places;       // in the query, of words alike
  const std::int8_t* scores;         // of pairs of amino acids
  Seed* seeds;                       // by subject

  HIPPO_HOST_DEVICE void operator()(std::size_t item) const {
    const std::uint8_t* subject = subjects.letters + subjects.first[item];
    const auto size = static_cast<std::int32_t>(subjects.first[item + 1] - subjects.first[item]);
    Seed best;
    for (std::int32_t s = 0; s + word_letters <= size; ++s) {
      const int word = (subject[s] * 20 + subject[s + 1]) * 20 + subject[s + 2];
      for (std::uint32_t p = first_place[word]; p < first_place[word + 1]; ++p) {
        const auto q = static_cast<std::int32_t>(places[p]);
        const std::int32_t score = extended(subject, size, s, q);
        const std::int32_t diagonal = s - q;
        if (score > best.score || (score == best.score && diagonal < best.diagonal)) {
          best = {score, diagonal};
        }
      }
    }
    seeds[item] = best;
  }

 private:
  [[nodiscard]] HIPPO_HOST_DEVICE std::int32_t score_of(std::uint8_t a, std::uint8_t b) const {
    return scores[a * 20 + b];
  }

  // The word's score and what extending it to the right and then to the left adds.
  [[nodiscard]] HIPPO_HOST_DEVICE std::int32_t extended(const std::uint8_t* subject,
                                                        std::int32_t size,
                                                        std::int32_t s,
                                                        std::int32_t q) const {
    std::int32_t best = 0;
    for (int i = 0; i < word_letters; ++i) {
      best += score_of(subject[s + i], query[q + i]);
    }
    std::int32_t running = best;
    for (std::int32_t i = word_letters; s + i < size && q + i < query_letters; ++i) {
      running += score_of(subject[s + i], query[q + i]);
      best = running > best ? running : best;
      if (best - running > extension_drop) {
        break;
      }
    }
    running = best;
    for (std::int32_t i = 1; i <= s && i <= q; ++i) {
      running += score_of(subject[s - i], query[q - i]);
      best = running > best ? running : best;
      if (best - running > extension_drop) {
        break;
      }
    }
    return best;
  }
};

// Stage two; an item is a candidate: Smith-Waterman with affine gaps, in a band around its seed's
// diagonal. Candidate i is query `queries_of[i]` and sequence i of `subjects`.
struct BandWork {
  Sequences subjects;
  Sequences queries;
  const std::uint32_t* query_of;
  const std::int32_t* diagonals;
  const std::int8_t* scores;
  std::int32_t* alignment_scores;
  std::int32_t gap_first;  // cost of a gap's first letter
  std::int32_t gap_next;   // and of each further

  HIPPO_HOST_DEVICE void operator()(std::size_t item) const {
    const std::uint8_t* subject = subjects.letters + subjects.first[item];
    const auto size = static_cast<std::int32_t>(subjects.first[item + 1] - subjects.first[item]);
    const std::uint64_t query_first = queries.first[query_of[item]];
    const std::uint8_t* query = queries.letters + query_first;
    const auto query_size =
        static_cast<std::int32_t>(queries.first[query_of[item] + 1] - query_first);
    Row row;
    std::int32_t best = 0;
    for (std::int32_t s = 0; s < size; ++s) {
      const std::int32_t first_q = s - diagonals[item] - band_half;
      const std::int32_t of_row = row.next(*this, subject[s], query, query_size, first_q);
      best = of_row > best ? of_row : best;
    }
    alignment_scores[item] = best;
  }

 private:
  static constexpr std::int32_t never = -(1 << 24);

  // One letter of the subject against the query's letters in the band. Cell b of the row before
  // is this row's cell b - 1 of the same letter of the query.
  struct Row {
    std::int32_t score[band + 1] = {};         // of the best alignment that ends here
    std::int32_t in_query_gap[band + 1] = {};  // of the best that ends with a gap in the query

    HIPPO_HOST_DEVICE Row() {
      for (std::int32_t& each : in_query_gap) {
        each = never;
      }
      score[band] = never;
    }

    HIPPO_HOST_DEVICE std::int32_t next(const BandWork& work,
                                        std::uint8_t letter,
                                        const std::uint8_t* query,
                                        std::int32_t query_size,
                                        std::int32_t first_q) {
      std::int32_t best = 0;
      std::int32_t left = never;  // the score of the cell before, when it is in the band
      std::int32_t in_subject_gap = never;
      for (int b = 0; b < band; ++b) {
        const std::int32_t q = first_q + b;
        if (q < 0 || q >= query_size) {
          score[b] = 0;
          in_query_gap[b] = never;
          left = never;
          continue;
        }
        in_query_gap[b] =
            larger(in_query_gap[b + 1] - work.gap_next, score[b + 1] - work.gap_first);
        in_subject_gap = larger(in_subject_gap - work.gap_next, left - work.gap_first);
        std::int32_t value = score[b] + work.scores[letter * 20 + query[q]];
        value = larger(larger(value, 0), larger(in_query_gap[b], in_subject_gap));
        score[b] = value;
        left = value;
        best = larger(best, value);
      }
      return best;
    }

    HIPPO_HOST_DEVICE static std::int32_t larger(std::int32_t a, std::int32_t b) {
      return a > b ? a : b;
    }
  };
};
