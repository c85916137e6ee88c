// The device's seeds and alignments are those of the oracles.
#include "workloads/proteins/proteins.hpp"

#include "workloads/proteins/blosum62.hpp"
#include "workloads/sharing/device.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string_view>

namespace {

Options small(std::vector<std::string_view> words = {}) {
  words.insert(words.begin(),
               {"--sequences",
                "60",
                "--letters",
                "60",
                "--queries",
                "3",
                "--query",
                "80",
                "--cutoff",
                "25",
                "--checks",
                "1000"});
  return {words, proteins_options()};
}

int align_in_band(const Protein& query, const Protein& subject, int diagonal) {
  const std::uint64_t of_query[] = {0, query.size()};
  const std::uint64_t of_subject[] = {0, subject.size()};
  const std::uint32_t query_of = 0;
  const std::int32_t seed = diagonal;
  std::int32_t score = -1;
  const BandWork work{{subject.data(), of_subject},
                      {query.data(), of_query},
                      &query_of,
                      &seed,
                      blosum62,
                      &score,
                      gap_open + gap_extend,
                      gap_extend};
  work(0);
  return score;
}

TEST(Proteins, host_agrees_with_the_oracles_in_every_pair) {
  for (const std::string_view seed : {"1", "2", "3"}) {
    const Result result = run_proteins(small({"--device", "host", "--check", "--seed", seed}));
    EXPECT_GT(result.checked, 180U);  // seeds, and then candidates
    EXPECT_EQ(result.wrong, 0U);
  }
}

TEST(Proteins, gpu_agrees_with_the_oracles_and_with_the_host) {
  if (gpu_count() == 0) {
    GTEST_SKIP() << "there is no GPU here";
  }
  const Result result = run_proteins(small({"--device", "cuda:0", "--check"}));
  EXPECT_EQ(result.wrong, 0U);
  EXPECT_EQ(result.checksum, run_proteins(small({"--device", "host"})).checksum);
}

TEST(Proteins, memory_changes_no_answer_however_many_candidates_fit) {
  const Result least = run_proteins(small({"--device", "host"}));
  const Result more = run_proteins(small({"--device", "host", "--memory", "8MiB"}));
  EXPECT_EQ(least.checksum, more.checksum);
  EXPECT_LT(least.memory_bytes, more.memory_bytes);
  EXPECT_THROW(run_proteins(small({"--device", "host", "--memory", "1KiB"})),
               std::invalid_argument);
}

TEST(Proteins, all_candidates_of_a_low_cutoff_are_aligned_in_several_chunks) {
  const Result result = run_proteins(
      small({"--device", "host", "--check", "--cutoff", "11", "--queries", "20", "--query", "60"}));
  EXPECT_GT(result.checked, 1000U);
  EXPECT_EQ(result.wrong, 0U);
}

TEST(Proteins, gap_costs_its_opening_and_its_letters) {
  const Protein query = encode("WWWWWWHHHHHH");
  const Protein subject = encode("WWWWWWAAHHHHHH");
  const int both = 6 * 11 + 6 * 8;
  EXPECT_EQ(align_in_band(query, subject, 0), both - gap_open - 2 * gap_extend);
  EXPECT_EQ(align_in_band(subject, query, 0), both - gap_open - 2 * gap_extend);
  EXPECT_EQ(align_by_matrices(query, subject, 0, band_half), both - gap_open - 2 * gap_extend);
  EXPECT_EQ(align_in_band(query, query, 0), both);
}

TEST(Proteins, band_leaves_out_what_is_far_from_the_diagonal) {
  const Protein query = encode("WWWWWW");
  Protein subject = encode(std::string(60, 'A'));
  subject.insert(subject.end(), query.begin(), query.end());
  EXPECT_EQ(align_in_band(query, subject, 60), 66);
  EXPECT_EQ(align_in_band(query, subject, 60 - band_half), 66);
  EXPECT_EQ(align_in_band(query, subject, 60 - band_half - 6), 0);
  for (int diagonal = -10; diagonal < 80; ++diagonal) {
    EXPECT_EQ(align_in_band(query, subject, diagonal),
              align_by_matrices(query, subject, diagonal, band_half))
        << diagonal;
  }
}

TEST(Proteins, substitution_scores_are_the_same_both_ways) {
  int sum = 0;
  for (int a = 0; a < amino_acid_count; ++a) {
    for (int b = 0; b < amino_acid_count; ++b) {
      EXPECT_EQ(blosum62[a * amino_acid_count + b], blosum62[b * amino_acid_count + a]);
      sum += blosum62[a * amino_acid_count + b];
    }
    EXPECT_GE(blosum62[a * amino_acid_count + a], 4);
  }
  EXPECT_LT(sum, 0);
}

TEST(Proteins, words_alike_are_those_that_score_enough) {
  const WordTable words = make_words(encode("WWWAAA"));
  ASSERT_EQ(words.first_place.size(), std::size_t{word_count} + 1);
  const auto places_of = [&](std::string_view word) {
    const Protein codes = encode(word);
    const std::size_t number = (codes[0] * 20U + codes[1]) * 20U + codes[2];
    return std::vector<std::uint32_t>(words.places.begin() + words.first_place[number],
                                      words.places.begin() + words.first_place[number + 1]);
  };
  EXPECT_EQ(places_of("WWW"), (std::vector<std::uint32_t>{0, 1}));  // 33, and 19 of WWA
  EXPECT_EQ(places_of("AAA"), std::vector<std::uint32_t>{3});       // 12
  EXPECT_EQ(places_of("CCC"), std::vector<std::uint32_t>{});
  EXPECT_TRUE(make_words(encode("WW")).places.empty());
}

TEST(Proteins, letters_that_are_no_amino_acids_are_refused) {
  EXPECT_THROW(encode("ARNB"), std::runtime_error);
  EXPECT_TRUE(encode("").empty());
}

}  // namespace
