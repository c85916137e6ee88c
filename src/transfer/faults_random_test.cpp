// Random faults of storage and device, round after round on one runtime, by every route and in both
// directions; each round's seed is printed when it fails.
#include "testing/effort.hpp"
#include "testing/faulty_runtime_fixture.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace hippogriff {
namespace {

constexpr std::uint64_t struck_bytes = 12 * mebibyte + 4321;
constexpr std::size_t transfers_at_once = 3;

std::uint64_t first_seed() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): read before any thread starts
  const char* text = std::getenv("HIPPOGRIFF_TEST_SEED");
  return text == nullptr ? std::random_device()() : std::strtoull(text, nullptr, 10);
}

class RandomFaultsTest : public ::testing::TestWithParam<bool> {
 protected:
  RandomFaultsTest() { write_whole(input_, content_); }

  struct OneTransfer {
    std::shared_ptr<Transfer> transfer;
    DeviceAddress memory;
    std::string output;
  };

  void make_faults(std::mt19937_64& random) {
    const auto rarely = [&random] { return random() % 3 == 0 ? 0.05 : 0.0; };
    on_.plan->randomize({.seed = random(),
                         .error = rarely(),
                         .try_again = rarely(),
                         .shorten = 4 * rarely(),
                         .delay = rarely()});
    on_.device_faults->randomise({.seed = random(),
                                  .failure_probability = rarely() / 2,
                                  .later_failure_probability = rarely(),
                                  .delay_probability = rarely()});
    const std::array fractions = {0.0, 0.5, 1.0};
    if (random() % 2 == 0) {
      on_.plan->add({.point = FaultPoint::residency,
                     .kind = FaultKind::residency_wrong,
                     .times = random() % 100,
                     .fraction = fractions.at(random() % fractions.size())});
    }
  }

  Submission random_submission(std::mt19937_64& random, OneTransfer& one) {
    Submission submission;
    submission.offset = random() % struck_bytes;
    submission.size = 1 + random() % (struck_bytes - submission.offset);
    const std::array routes = {Route::automatic, Route::pipelined, Route::parked, Route::mapped};
    submission.address = one.memory;
    if (random() % 2 == 0) {
      submission.path = input_;
      submission.route = routes.at(random() % 4);
      std::memset(device_bytes(one.memory), 0x5A, struck_bytes);
    } else {
      submission.direction = Direction::recv;
      submission.path = one.output;
      submission.route = routes.at(random() % 3);
      std::memcpy(device_bytes(one.memory), content_.data() + submission.offset, submission.size);
      write_whole(one.output, blank_);
    }
    return submission;
  }

  void check(const OneTransfer& one) {
    const Range extent = one.transfer->request().extent;
    if (one.transfer->request().direction == Direction::send) {
      expect_all_but_missing(
          *one.transfer, device_bytes(one.memory), content_.data() + extent.offset);
      return;
    }
    const auto output = read_whole(one.output);
    if (one.transfer->replaces_a_file() && one.transfer->failed()) {
      EXPECT_TRUE(output == blank_) << "a failed transfer has changed the file";
      return;
    }
    ASSERT_GE(output.size(), extent.end());
    expect_all_but_missing(
        *one.transfer, output.data() + extent.offset, content_.data() + extent.offset);
  }

  void run_round(std::uint64_t seed) {
    SCOPED_TRACE("HIPPOGRIFF_TEST_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);
    std::vector<OneTransfer> all;
    for (std::size_t index = 0; index < transfers_at_once; ++index) {
      all.push_back({nullptr,
                     on_.state().allocate(struck_bytes),
                     folder_.file("out" + std::to_string(index))});
    }
    std::vector<Submission> submissions;
    for (OneTransfer& one : all) {
      submissions.push_back(random_submission(random, one));
    }
    make_faults(random);
    for (std::size_t index = 0; index < all.size(); ++index) {
      try {
        all.at(index).transfer = on_.runtime->submit(submissions.at(index));
      } catch (const Error& error) {
        EXPECT_NE(error.failure().status, Status::internal) << error.what();
      }
    }
    if (random() % 4 == 0 && all.front().transfer != nullptr) {
      all.front().transfer->cancel();
    }
    for (const OneTransfer& one : all) {
      if (one.transfer != nullptr) {
        ASSERT_TRUE(one.transfer->wait(no_hang)) << "the transfer hangs";
        EXPECT_NE(one.transfer->status(), Status::internal) << one.transfer->failure_message();
        failed_ += one.transfer->failed() ? 1 : 0;
        ++ran_;
      }
    }
    on_.stop_faults();
    for (const OneTransfer& one : all) {
      if (one.transfer != nullptr) {
        check(one);
      }
      EXPECT_TRUE(on_.runtime->free(one.memory));
    }
    EXPECT_EQ(on_.state().engine->parked_bytes(), 0U);
    EXPECT_TRUE(on_.device_faults->wait_until_unregistered(no_hang));
    EXPECT_EQ(on_.device_faults->outstanding().allocations, 0);
  }

  const TemporaryFolder folder_;
  const std::string input_ = folder_.file("input");
  const std::vector<std::byte> content_ = random_bytes(struck_bytes, 77);
  const std::vector<std::byte> blank_ = std::vector<std::byte>(struck_bytes, std::byte{0x5A});
  FaultyRuntime on_{test_settings(), GetParam() ? linked_device() : plain_device()};
  int failed_ = 0;
  int ran_ = 0;
};

TEST_P(RandomFaultsTest, every_round_ends_says_what_is_missing_and_leaves_a_whole_runtime) {
  const std::uint64_t seed = first_seed();
  std::printf("first seed %llu\n", static_cast<unsigned long long>(seed));
  constexpr std::uint64_t rounds = rounds_of(40);
  for (std::uint64_t round = 0; round < rounds && !HasFatalFailure(); ++round) {
    run_round(seed + round);
  }
  EXPECT_GT(failed_, 0) << "no fault has struck";
  EXPECT_LT(failed_, ran_) << "no transfer got through";
}

INSTANTIATE_TEST_SUITE_P(Devices,
                         RandomFaultsTest,
                         ::testing::Values(true, false),
                         [](const auto& test) { return test.param ? "linked" : "plain"; });

}  // namespace
}  // namespace hippogriff
