// Jobs that a crew takes, refuses and tells of; and those of an array.
#include "array/copy_crew.hpp"

#include "testing/array_fixture.hpp"
#include "testing/crew.hpp"
#include "testing/eventually.hpp"

#include <hippogriff/array/warp.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>

namespace hippogriff::ondemand {
namespace {

constexpr std::uint64_t crew_bytes = std::uint64_t{1} << 20;

class CopyCrewTest : public ::testing::Test {
 protected:
  CopyCrewTest() : bytes_(pattern(0, crew_bytes)) {
    std::ofstream(folder_.file("copied"), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes_.data()),
               static_cast<std::streamsize>(bytes_.size()));
    file_ = make_faulty_storage(make_system_storage(), plan_)
                ->open(folder_.file("copied"), FileAccess::read);
  }

  [[nodiscard]] CopyJob job(std::uint64_t offset, std::size_t size) {
    return {.file = file_.get(),
            .offset = offset,
            .pieces = {{&to_[offset], size / 2}, {&to_[offset + size / 2], size - size / 2}},
            .size_bytes = size,
            .finished = &finished_};
  }

  // Takes what is finished until there are so many.
  [[nodiscard]] std::vector<CopyJob*> wait_for(std::size_t count) {
    std::vector<CopyJob*> all;
    EXPECT_TRUE(testing::eventually([&] {
      for (CopyJob* job = finished_.take_all(); job != nullptr; job = job->next) {
        all.push_back(job);
      }
      return all.size() >= count;
    }));
    return all;
  }

  TemporaryFolder folder_;
  std::vector<std::byte> bytes_;
  std::vector<std::byte> to_ = std::vector<std::byte>(crew_bytes);
  std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();
  std::shared_ptr<File> file_;
  FinishedCopies finished_;
};

TEST_F(CopyCrewTest, copies_what_it_takes_and_leaves_the_rest_to_the_giver) {
  CopyCrew crew({.threads = 3});
  std::vector<CopyJob> jobs;
  for (std::uint64_t offset = 0; offset < crew_bytes; offset += 4096) {
    jobs.push_back(job(offset, 4096));
  }
  std::size_t given = 0;
  for (CopyJob& each : jobs) {
    if (crew.try_give(each)) {
      ++given;
    } else {
      ASSERT_EQ(file_->read_cached_pieces(each.pieces, each.offset, File::PageCache::unknown),
                each.size_bytes);
    }
  }
  EXPECT_GE(given, 3U);
  for (const CopyJob* each : wait_for(given)) {
    EXPECT_EQ(each->count, 4096U);
    EXPECT_EQ(each->failure.status, Status::ok);
  }
  EXPECT_EQ(to_, bytes_);
}

// Jobs of one thread, and how often each came back.
class Giver {
 public:
  static constexpr std::size_t job_count = 2000;

  explicit Giver(const std::function<CopyJob(std::size_t)>& make) {
    for (std::size_t i = 0; i < job_count; ++i) {
      jobs_.push_back(make(i));
      jobs_.back().tag = i;
      jobs_.back().finished = &finished_;
    }
  }

  // Gives them to the crew, which comes to sleep in between, and takes back what it took.
  void run(CopyCrew& crew) {
    std::size_t given = 0;
    for (std::size_t i = 0; i < job_count; ++i) {
      given += crew.try_give(jobs_[i]) ? 1 : 0;
      take_back();
      if (i % 500 == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
    EXPECT_TRUE(testing::eventually([&] {
      take_back();
      return back_ >= given;
    }));
    EXPECT_EQ(back_, given);
  }

  [[nodiscard]] int times(std::size_t i) const { return times_[i]; }

 private:
  void take_back() {
    const CopyJob* job = finished_.take_all();
    for (; job != nullptr && back_ <= job_count; job = job->next) {  // one that came twice: a ring
      ++back_;
      ++times_[job->tag];
    }
  }

  FinishedCopies finished_;
  std::vector<CopyJob> jobs_;
  std::vector<int> times_ = std::vector<int>(job_count);
  std::size_t back_ = 0;
};

TEST_F(CopyCrewTest, carries_out_once_each_job_of_several_givers) {
  constexpr std::size_t bytes_each = 64;
  std::deque<Giver> givers;
  const auto offset_of = [&](std::size_t giver, std::size_t i) {
    return (giver * Giver::job_count + i) * bytes_each;
  };
  for (std::size_t giver = 0; giver < 3; ++giver) {
    givers.emplace_back([&](std::size_t i) { return job(offset_of(giver, i), bytes_each); });
  }
  CopyCrew crew({.threads = 2});
  {
    std::vector<std::jthread> threads;
    for (Giver& giver : givers) {
      threads.emplace_back([&] { giver.run(crew); });
    }
  }
  std::size_t once = 0;
  std::size_t wrong = 0;
  for (std::size_t giver = 0; giver < givers.size(); ++giver) {
    for (std::size_t i = 0; i < Giver::job_count; ++i) {
      const std::size_t offset = offset_of(giver, i);
      const bool is_copied = std::memcmp(&to_[offset], &bytes_[offset], bytes_each) == 0;
      once += givers[giver].times(i) == 1 ? 1 : 0;
      wrong += givers[giver].times(i) > 1 || (givers[giver].times(i) == 1) != is_copied ? 1 : 0;
    }
  }
  EXPECT_GT(once, 0U);
  EXPECT_EQ(wrong, 0U);
}

TEST_F(CopyCrewTest, wants_nothing_short_and_nothing_without_threads) {
  const CopyCrew crew({.threads = 1, .bytes_min = 4096, .bytes_a_call = 1000});
  EXPECT_FALSE(crew.wants(1, 3095));
  EXPECT_TRUE(crew.wants(1, 3096));
  EXPECT_FALSE(crew.wants(3, 1095));
  EXPECT_TRUE(crew.wants(3, 1096));
  EXPECT_FALSE(CopyCrew({}).wants(1, crew_bytes));
}

TEST_F(CopyCrewTest, finishes_each_of_those_that_are_given_together) {
  CopyCrew crew({.threads = 1});
  std::vector<CopyJob> jobs;
  for (std::uint64_t i = 0; i < 8; ++i) {
    jobs.push_back(job(i * 4096, i == 3 ? 512 : 4096));
  }
  for (std::size_t i = 0; i + 1 < jobs.size(); ++i) {
    jobs[i].with = &jobs[i + 1];
  }
  plan_->add(
      {.point = FaultPoint::read_cached, .kind = FaultKind::error, .after = 2, .errno_value = EIO});
  ASSERT_TRUE(crew.try_give(jobs[0]));
  ASSERT_EQ(wait_for(jobs.size()).size(), jobs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(jobs[i].failure.errno_value, i == 2 ? EIO : 0);
    if (i != 2) {
      EXPECT_EQ(jobs[i].count, jobs[i].size_bytes);
      EXPECT_EQ(std::memcmp(&to_[i * 4096], &bytes_[i * 4096], jobs[i].size_bytes), 0);
    }
  }
}

TEST_F(CopyCrewTest, tells_of_what_could_not_be_copied) {
  CopyCrew crew({.threads = 1});
  plan_->add({.point = FaultPoint::read_cached, .kind = FaultKind::error, .errno_value = EIO});
  CopyJob one = job(4096, 512);
  ASSERT_TRUE(crew.try_give(one));
  ASSERT_EQ(wait_for(1).size(), 1U);
  EXPECT_EQ(one.failure.errno_value, EIO);
}

TEST_F(CopyCrewTest, that_slept_wakes_for_the_next_one) {
  CopyCrew crew({.threads = 2});
  for (int round = 0; round < 5; ++round) {
    CopyJob one = job(0, 4096);
    ASSERT_TRUE(crew.try_give(one));
    ASSERT_EQ(wait_for(1).size(), 1U);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST(CopyCrew, of_an_array_copies_where_there_is_more_than_one_line_to_copy) {
  constexpr std::uint64_t line_bytes = 512;
  constexpr std::uint32_t lanes = 8;
  TestArray array({.cache_bytes = 4096 * line_bytes, .copiers = 2});
  const Cache& cache = array.array().cache();
  const std::vector<std::byte> stored = array.stored();
  std::uint32_t first = 0;
  ASSERT_EQ(array.view<std::uint32_t>().read(line_bytes / 4, first), NvmeStatus::success)
      << "after which the others are taken to be in the page cache";
  array.plan().add(
      {.point = FaultPoint::read_cached, .kind = FaultKind::hold, .times = UINT64_MAX});
  std::atomic<int> right{0};
  std::jthread reads([&] {
    Crew crew(lanes);
    crew.run([&](const Crew::Member& all) {
      const std::uint64_t line = std::uint64_t{2} * all.rank();
      std::uint32_t place = 0;
      bool has_come = false;
      for (int turn = 0; turn < 1000 && all.vote(!has_come) != 0; ++turn) {
        has_come = fetch(cache, all, line, !has_come, place) || has_come;  // Claims may meet.
      }
      if (has_come) {
        right += std::memcmp(cache.bytes_of(place), &stored[line * line_bytes], line_bytes) == 0;
        cache.places.drop(place, false);
      }
    });
  });
  EXPECT_TRUE(testing::eventually([&] { return array.plan().seen(FaultPoint::read_cached) >= 4; }))
      << "all commands are of one queue, whose thread is held by one copy";
  array.plan().release();
  reads.join();
  EXPECT_EQ(right.load(), static_cast<int>(lanes));
}

TEST(CopyCrew, of_an_array_is_not_given_what_is_probably_not_in_the_page_cache) {
  constexpr std::uint64_t line_bytes = 512;
  TestArray array({.cache_bytes = 4096 * line_bytes, .copiers = 2});
  const Cache& cache = array.array().cache();
  array.plan().add(
      {.point = FaultPoint::read_cached, .kind = FaultKind::hold, .times = UINT64_MAX});
  std::jthread reads([&] {
    Crew crew(8);
    crew.run([&](const Crew::Member& all) {
      std::uint32_t place = 0;
      if (fetch(cache, all, std::uint64_t{2} * all.rank(), true, place)) {
        cache.places.drop(place, false);
      }
    });
  });
  EXPECT_TRUE(testing::eventually([&] { return array.plan().seen(FaultPoint::read_cached) >= 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(array.plan().seen(FaultPoint::read_cached), 1U)
      << "the controller's thread looks itself, and is held";
  array.plan().release();
}

// How many of 64 reads of a line ask for nothing before.
std::uint64_t unasked(const std::function<void(TestArray&)>& prepare) {
  TestArray array({});
  prepare(array);
  for (std::uint64_t line = 0; line < 64; ++line) {
    std::uint32_t value = 0;
    EXPECT_EQ(array.view<std::uint32_t>().read(line * 128, value), NvmeStatus::success);
  }
  return array.plan().seen(FaultPoint::read_unasked);
}

TEST(CopyCrew, and_controllers_ask_for_what_is_there_only_until_they_found_it_several_times) {
  EXPECT_EQ(unasked([](TestArray&) {}), 64U - 8U);
  EXPECT_EQ(
      unasked([](TestArray& array) {
        array.plan().add(
            {.point = FaultPoint::read_cached, .kind = FaultKind::shorten, .times = UINT64_MAX});
      }),
      0U);
}

}  // namespace
}  // namespace hippogriff::ondemand
