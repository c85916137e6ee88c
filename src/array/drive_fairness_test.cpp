// What processes have of a drive that they share, by the rule that each follows with what the
// others show: a drive that serves requests in turn, computed, so that the numbers are exact. And
// what arrays of a process have of its share.
#include "array/shared_drives.hpp"
#include "testing/array_fixture.hpp"
#include "testing/eventually.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <numeric>
#include <thread>
#include <vector>

namespace hippogriff::ondemand {
namespace {

constexpr std::int64_t least_ns = 100'000;  // of a request that nobody is in the way of
constexpr double step_seconds = 0.1;

enum class Rule : std::uint8_t { none, shared };

// Processes of so many threads, each of which always wants a line.
class DriveOfMany {
 public:
  // It serves so many requests at a time.
  DriveOfMany(double at_once, const std::vector<std::uint64_t>& threads, Rule rule)
      : at_once_(at_once), rule_(rule) {
    for (const std::uint64_t each : threads) {
      processes_.emplace_back(each);
    }
  }

  // Requests a second of each, after five seconds.
  std::vector<double> rates() {
    std::vector<double> last;
    for (int step = 0; step < 50; ++step) {
      last = step_rates();
      now_ns_ += SharedDrives::look_interval_ns;
      serve(last);
      if (rule_ == Rule::shared) {
        look();
      }
    }
    return last;
  }

  [[nodiscard]] double rate_alone(std::size_t process) const {
    return std::min(at_once_, static_cast<double>(processes_[process].threads)) * 1e9 / least_ns;
  }

  [[nodiscard]] double rate_max() const { return at_once_ * 1e9 / least_ns; }

 private:
  struct Process {
    explicit Process(std::uint64_t threads_of_it) : threads(threads_of_it) {}

    std::uint64_t threads;
    std::uint64_t answers = 0;
    SharedDrives drives{1};
  };

  [[nodiscard]] static std::uint64_t at_drive(Process& process) {
    return std::min<std::uint64_t>(process.threads, process.drives.drive("vda").share);
  }

  std::vector<double> step_rates() {
    std::vector<double> rates;
    std::ranges::transform(processes_, std::back_inserter(rates), [](Process& process) {
      return static_cast<double>(at_drive(process));
    });
    const double all = std::accumulate(rates.begin(), rates.end(), 0.0);
    took_ns_ = std::max(1.0, all / at_once_) * least_ns;
    for (double& each : rates) {
      each *= 1e9 / took_ns_;
    }
    return rates;
  }

  void serve(const std::vector<double>& rates) {
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      const auto answers = static_cast<std::uint64_t>(rates[i] * step_seconds);
      processes_[i].answers += answers;
      SharedDrive& drive = processes_[i].drives.drive("vda");
      drive.answers += answers;
      drive.answered_bytes += answers * 4096;
      drive.note_mean(static_cast<std::uint64_t>(took_ns_));
    }
  }

  void look() {
    for (Process& process : processes_) {
      process.drives.look(now_ns_, [&] { return seen_by(process); });
    }
  }

  std::vector<node::SeenArray> seen_by(const Process& one) {
    std::vector<node::SeenArray> seen;
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      Process& each = processes_[i];
      if (&each != &one) {
        seen.push_back({.client = static_cast<std::uint32_t>(i),
                        .pid = 1,
                        .shown = {.drive = "vda", .line_bytes = 4096},
                        .counts = {.in_flight = each.threads,
                                   .drive_answers = each.answers,
                                   .drive_least_ns = each.drives.drive("vda").least_ns},
                        .opened_ns = 1,
                        .counted_ns = now_ns_});
      }
    }
    return seen;
  }

  double at_once_;
  Rule rule_;
  double took_ns_ = least_ns;
  std::int64_t now_ns_ = 0;
  std::deque<Process> processes_;
};

// Of what is due to a process, an even part or all that it can use, the least share anybody has.
double least_of_due(double at_once, const std::vector<std::uint64_t>& threads, Rule rule) {
  DriveOfMany drive(at_once, threads, rule);
  const std::vector<double> rates = drive.rates();
  double least = 1;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    const double even = drive.rate_max() / static_cast<double>(threads.size());
    least = std::min(least, rates[i] / std::min(even, drive.rate_alone(i)));
  }
  return least;
}

TEST(DriveFairness, everybody_has_at_least_a_quarter_of_what_is_due_to_them) {
  const std::vector<std::vector<std::uint64_t>> crowds{
      {64, 4}, {64, 16}, {256, 64}, {64, 64, 4}, {1000, 8}, {300, 300, 300, 300, 4}};
  for (const double at_once : {2.0, 4.0, 8.0, 32.0, 128.0}) {
    for (const auto& threads : crowds) {
      EXPECT_GE(least_of_due(at_once, threads, Rule::shared), 0.25)
          << threads.size() << " processes, the last of " << threads.back() << " threads, "
          << at_once << " at once";
    }
  }
}

TEST(DriveFairness, without_the_rule_who_has_few_threads_has_little) {
  EXPECT_LT(least_of_due(4, {64, 4}, Rule::none), 0.13);
  EXPECT_LT(least_of_due(32, {1000, 8}, Rule::none), 0.1);
}

TEST(DriveFairness, of_equals_is_equal_and_takes_all_that_the_drive_gives) {
  DriveOfMany drive(32, {64, 64, 64}, Rule::shared);
  const std::vector<double> rates = drive.rates();
  for (const double each : rates) {
    EXPECT_NEAR(each, drive.rate_max() / 3, drive.rate_max() / 100);
  }
}

TEST(DriveFairness, a_drive_that_can_take_all_holds_nobody_back) {
  DriveOfMany drive(400, {64, 4, 16}, Rule::shared);
  const std::vector<double> rates = drive.rates();
  for (std::size_t i = 0; i < rates.size(); ++i) {
    EXPECT_NEAR(rates[i], drive.rate_alone(i), 1);
  }
}

// Every second line, so that each is a request.
void write_lines(TestArray& array, std::uint64_t count) {
  constexpr std::uint64_t in_line = 512 / sizeof(std::uint64_t);
  const auto view = array.view<std::uint64_t>();
  for (std::uint64_t line = 0; line < 2 * count; line += 2) {
    for (std::uint64_t i = 0; i < in_line; ++i) {
      ASSERT_EQ(view.write(line * in_line + i, i), NvmeStatus::success);
    }
  }
}

// Both have a request under way at most on each thread of their controller, of 20 ms.
TEST(Controller, gives_arrays_turns_at_what_its_process_may_have_of_a_drive) {
  constexpr std::uint64_t many = 200;
  constexpr std::uint64_t few = 20;
  TestArray first({.size_bytes = many * 1024, .cache_bytes = 1 << 20});
  TestArray second(
      {.size_bytes = few * 1024, .cache_bytes = 1 << 20, .controller = first.controller()});
  if (first.drive() == nullptr) {
    GTEST_SKIP() << "the folder is on no drive";
  }
  first.drive()->each_thread = 1;
  write_lines(first, many);
  write_lines(second, few);
  first.plan().add({.point = FaultPoint::queued_write,
                    .kind = FaultKind::delay,
                    .times = UINT64_MAX,
                    .delay = std::chrono::milliseconds(20)});
  const auto written = [](TestArray& array) { return array.array().served().writes; };
  std::jthread one([&] { first.array().flush(); });
  EXPECT_TRUE(hippogriff::testing::eventually([&] { return written(first) >= 10; }));
  std::uint64_t meanwhile = 0;
  std::jthread other([&] {
    const std::uint64_t before = written(first);
    second.array().flush();
    meanwhile = written(first) - before;
  });
  other.join();
  EXPECT_LT(meanwhile, 60U) << "as many as the other one's; without turns more than 100";
}

}  // namespace
}  // namespace hippogriff::ondemand
