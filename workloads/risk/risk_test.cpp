// The device's year losses are those of the contracts, and a broken file is no trial.
#include "workloads/risk/risk.hpp"

#include "workloads/sharing/device.hpp"
#include "workloads/sharing/fasta.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string_view>

namespace {

Options small(std::vector<std::string_view> words = {}) {
  words.insert(words.end(), {"--trials", "300", "--events", "50", "--checks", "1000"});
  return {words, risk_options()};
}

Trials trials_of(const std::string& text, std::uint32_t catalogue) {
  const ScratchFile file = make_scratch_file();
  std::fputs(text.c_str(), file.get());
  rewind_to_read(file.get());
  return read_trials(file.get(), catalogue);
}

TEST(Risk, host_agrees_with_the_book_in_every_trial) {
  for (const std::string_view seed : {"1", "2", "3"}) {
    const Result result = run_risk(small({"--device", "host", "--check", "--seed", seed}));
    EXPECT_EQ(result.checked, 300U);
    EXPECT_EQ(result.wrong, 0U);
  }
}

TEST(Risk, gpu_agrees_with_the_book_and_with_the_host) {
  if (gpu_count() == 0) {
    GTEST_SKIP() << "there is no GPU here";
  }
  const Result result = run_risk(small({"--device", "cuda:0", "--check"}));
  EXPECT_EQ(result.wrong, 0U);
  EXPECT_EQ(result.checksum, run_risk(small({"--device", "host"})).checksum);
}

TEST(Risk, memory_beyond_the_data_changes_no_answer) {
  const Result least = run_risk(small({"--device", "host"}));
  const Result more = run_risk(small({"--device", "host", "--memory", "8MiB"}));
  EXPECT_EQ(least.memory_bytes, least.data_bytes);
  EXPECT_EQ(more.memory_bytes, 8U << 20U);
  EXPECT_EQ(least.checksum, more.checksum);
  EXPECT_THROW(run_risk(small({"--device", "host", "--memory", "1KiB"})), std::invalid_argument);
}

TEST(Risk, terms_pay_what_is_beyond_the_deductible_up_to_the_limit) {
  const Terms terms{10, 100};
  EXPECT_EQ(terms.paid(9), 0);
  EXPECT_EQ(terms.paid(10), 0);
  EXPECT_EQ(terms.paid(11), 1);
  EXPECT_EQ(terms.paid(110), 100);
  EXPECT_EQ(terms.paid(111), 100);
}

TEST(Risk, year_done_by_hand) {
  Portfolio portfolio;
  portfolio.catalogue = 3;
  portfolio.tables = {{{0, 100}, {2, 50}}, {{2, 80}}};
  portfolio.table_terms = {{10, 1000}, {0, 60}};
  portfolio.layers = {{0, 2, {20, 80}, {30, 90}}};
  // Event 0: 90, of which 70. Event 1: nothing. Event 2: 40 + 60, of which 80. Of 150 are 90 paid.
  EXPECT_EQ(year_loss_by_the_book(portfolio, trials_of("0,1,2\n", 3), 0), 90);
  EXPECT_EQ(year_loss_by_the_book(portfolio, trials_of("0\n", 3), 0), 40);
  EXPECT_EQ(year_loss_by_the_book(portfolio, trials_of("\n", 3), 0), 0);
}

TEST(Risk, probable_maximum_loss_is_exceeded_or_met_once_in_so_many_years) {
  std::vector<Money> losses;
  for (Money loss = 1; loss <= 100; ++loss) {
    losses.push_back(loss * 37 % 101);
  }
  EXPECT_EQ(probable_maximum_loss(losses, 100), 100);
  EXPECT_EQ(probable_maximum_loss(losses, 10), 91);
  EXPECT_EQ(probable_maximum_loss(losses, 1), 1);
}

TEST(Risk, rarer_years_are_worse) {
  const Options options({"--trials", "2000", "--device", "host"}, risk_options());
  const ScratchFile file = make_scratch_file();
  const Portfolio portfolio = make_portfolio(options);
  write_trials(file.get(), options);
  rewind_to_read(file.get());
  const Trials trials = read_trials(file.get(), portfolio.catalogue);
  std::vector<Money> losses;
  for (std::size_t trial = 0; trial < trials.count(); ++trial) {
    losses.push_back(year_loss_by_the_book(portfolio, trials, trial));
  }
  const Money in_ten = probable_maximum_loss(losses, 10);
  const Money in_hundred = probable_maximum_loss(losses, 100);
  EXPECT_GT(in_ten, probable_maximum_loss(losses, 2));
  EXPECT_GT(in_hundred, in_ten);
  EXPECT_GT(probable_maximum_loss(losses, 1000), in_hundred);
}

TEST(Risk, text_that_is_no_trial_is_refused) {
  EXPECT_EQ(trials_of("1,2\n\n0\n", 3).first_event, (std::vector<std::uint64_t>{0, 2, 2, 3}));
  for (const char* text : {"3\n", "-1\n", "1;2\n", "one\n", "1,2", ",1\n", "99999999999\n"}) {
    EXPECT_THROW(trials_of(text, 3), std::runtime_error) << text;
  }
}

TEST(Options, words_that_are_no_options_are_refused) {
  const std::vector<std::vector<std::string_view>> refused = {
      {"dance"}, {"--trials"}, {"--trials", "0"}, {"--trials", "many"}, {"--memory", "1TB"}};
  for (const auto& words : refused) {
    EXPECT_THROW(Options(words, risk_options()), std::invalid_argument) << words[0];
  }
  EXPECT_EQ(Options({"--memory", "3MiB"}, risk_options()).number("memory"), 3U << 20U);
  EXPECT_THROW(resolve_device("cuda:999"), std::invalid_argument);
  EXPECT_THROW(resolve_device("nowhere"), std::invalid_argument);
}

}  // namespace
