// The device's matches are those found letter by letter, and other text than reads is refused.
#include "workloads/align/align.hpp"

#include "workloads/sharing/device.hpp"
#include "workloads/sharing/fasta.hpp"

#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

Options small(std::vector<std::string_view> words = {}) {
  words.insert(words.begin(),
               {"--reference", "3000", "--reads", "101", "--batches", "3", "--checks", "1000"});
  return {words, align_options()};
}

std::vector<FastaRecord> records_of(const std::string& text, std::size_t count) {
  const ScratchFile file = make_scratch_file();
  std::fputs(text.c_str(), file.get());
  rewind_to_read(file.get());
  return FastaReader(file.get()).read(count);
}

class AlignMismatches : public testing::TestWithParam<const char*> {};

TEST_P(AlignMismatches, host_agrees_with_the_oracle_in_every_read) {
  const Result result =
      run_align(small({"--device", "host", "--check", "--mismatches", GetParam()}));
  EXPECT_EQ(result.checked, 101U);
  EXPECT_EQ(result.wrong, 0U);
}

TEST_P(AlignMismatches, gpu_agrees_with_the_oracle_and_with_the_host) {
  if (gpu_count() == 0) {
    GTEST_SKIP() << "there is no GPU here";
  }
  const Result result =
      run_align(small({"--device", "cuda:0", "--check", "--mismatches", GetParam()}));
  EXPECT_EQ(result.wrong, 0U);
  EXPECT_EQ(result.checksum,
            run_align(small({"--device", "host", "--mismatches", GetParam()})).checksum);
}

INSTANTIATE_TEST_SUITE_P(ZeroToFive, AlignMismatches, testing::Values("0", "1", "2", "3", "5"));

TEST(Align, batches_and_memory_change_no_answer) {
  const Result three = run_align(small({"--device", "host"}));
  const Result one = run_align(small({"--device", "host", "--batches", "1", "--memory", "1MiB"}));
  EXPECT_EQ(three.checksum, one.checksum);
  EXPECT_EQ(one.memory_bytes, 1U << 20U);
  EXPECT_THROW(run_align(small({"--device", "host", "--memory", "9KiB"})), std::invalid_argument);
}

TEST(Align, reference_of_one_window_and_of_one_letter_is_searched) {
  for (const char* reference : {"25", "26"}) {
    const Result result =
        run_align(small({"--device", "host", "--check", "--reference", reference}));
    EXPECT_EQ(result.wrong, 0U) << reference;
  }
  const std::string all_the_same(100, 'C');
  const WindowIndex index = make_index(all_the_same);
  const std::vector<std::uint64_t> reads = {pack(std::string(25, 'C'))};
  AlignHit hit;
  const AlignWork work{index.windows.data(), index.places.data(), 76, 1, reads.data(), &hit};
  work(0);
  EXPECT_EQ(hit, (AlignHit{76, 0, 0}));
  EXPECT_EQ(hit, align_letter_by_letter(all_the_same, std::string(25, 'C'), 1));
}

TEST(Align, mismatches_are_counted_by_letters_not_bits) {
  const std::string read = "ACGTACGTACGTACGTACGTACGTA";
  std::string other = read;
  EXPECT_EQ(packed_mismatches(pack(read), pack(other)), 0);
  other.front() = 'T';  // two bits differ
  other.back() = 'C';   // one bit differs
  EXPECT_EQ(packed_mismatches(pack(read), pack(other)), 2);
  EXPECT_EQ(packed_mismatches(pack(std::string(25, 'A')), pack(std::string(25, 'T'))), 25);
}

TEST(Align, text_that_is_no_read_is_refused) {
  EXPECT_THROW(pack("ACGT"), std::runtime_error);
  EXPECT_THROW(pack("ACGTACGTACGTACGTACGTACGTN"), std::runtime_error);
}

TEST(Fasta, records_are_read_as_they_were_written) {
  const std::vector<FastaRecord> written = {{"one", std::string(59, 'A')},
                                            {"two", std::string(60, 'C')},
                                            {"empty", ""},
                                            {"long", std::string(1000, 'G')}};
  const ScratchFile file = make_scratch_file();
  write_fasta(file.get(), written);
  rewind_to_read(file.get());
  FastaReader reader(file.get());
  std::vector<FastaRecord> read;
  for (const std::size_t count : std::array<std::size_t, 3>{1, 2, 5}) {
    const std::vector<FastaRecord> more = reader.read(count);
    read.insert(read.end(), more.begin(), more.end());
  }
  EXPECT_TRUE(reader.read(1).empty());
  ASSERT_EQ(read.size(), written.size());
  for (std::size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].name, written[i].name);
    EXPECT_EQ(read[i].letters, written[i].letters);
  }
}

TEST(Fasta, letters_without_a_name_are_refused) {
  EXPECT_THROW(records_of("ACGT\n", 1), std::runtime_error);
  EXPECT_EQ(records_of(">a\nAC\nGT", 1).at(0).letters, "ACGT");
  EXPECT_TRUE(records_of("", 1).empty());
}

}  // namespace
