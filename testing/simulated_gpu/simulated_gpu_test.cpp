// Kernels over arrays in storage on a simulated GPU: lanes that part and meet, memory as weak as
// C++ allows, a controller that answers in any order; all of it again from the seed.
#include "testing/simulated_gpu/simulated_array.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace hippogriff::simulated {
namespace {

using ondemand::NvmeStatus;
using Thread = SimulatedArray::Thread;

// Seeds of a test: more by the environment, from another first one.
std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// One lane of a kernel: what it does, and the elements that it saw wrong.
class Lane {
 public:
  explicit Lane(const Thread& thread)
      : cache_(thread.array.cache()),
        thread_(thread),
        random_(thread.number + thread.array.options().seed * 64) {}

  [[nodiscard]] std::uint64_t size() const { return thread_.array.options().elements; }

  [[nodiscard]] const SimulatedLanes& warp() const { return thread_.warp; }

  [[nodiscard]] std::uint64_t threads() const { return thread_.array.thread_count(); }

  [[nodiscard]] std::uint64_t ways() const { return cache_.places.ways; }

  [[nodiscard]] std::uint32_t bit() const { return 1U << warp().lane(); }

  [[nodiscard]] std::uint64_t any() { return random_.below(size()); }

  // Of so many elements one that no other lane of the warp has.
  [[nodiscard]] std::uint64_t any_own(std::uint64_t count) {
    const std::uint64_t lanes = warp().size();
    return random_.below(count / lanes) * lanes + warp().lane();
  }

  // As view[i] of a kernel (coalesced_read).
  std::uint64_t read(std::uint64_t index) {
    std::uint64_t value = 0;
    const SimulatedLanes all = together();
    const bool there = ondemand::peek(cache_, index * sizeof value, value);
    const std::uint32_t missing = all.vote(!there);
    if (missing != 0) {
      if (!there) {
        note(ondemand::access_together<false>(
            cache_, all.part(missing), index * sizeof value, value));
      }
      all.meet();
    }
    return value;
  }

  void write(std::uint64_t index, std::uint64_t value) {
    note(ondemand::access_together<true>(cache_, together(), index * sizeof value, value));
  }

  void prefetch(std::uint64_t index) {
    const SimulatedLanes all = together();
    const std::uint64_t line = index * sizeof(std::uint64_t) >> cache_.line_shift;
    static_cast<void>(cache_.ask_ahead(all, line, all.with_same(line).leads()));
  }

  // By the whole warp, as are the two below; the range is the same for all.
  void prefetch_range(std::uint64_t first, std::uint64_t count) {
    ondemand::prefetch_bytes(cache_, warp(), first * 8, count * 8);
  }

  // What lies in memory that is the warp's own.
  void read_range(std::uint64_t first, std::uint64_t count, std::uint64_t* to) {
    note(ondemand::read_bytes(
        cache_, warp(), first * 8, count * 8, reinterpret_cast<unsigned char*>(to)));
  }

  void write_range(std::uint64_t first, std::uint64_t count, const std::uint64_t* from) {
    note(ondemand::write_bytes(
        cache_, warp(), first * 8, count * 8, reinterpret_cast<const unsigned char*>(from)));
  }

  void expect(std::uint64_t value, std::uint64_t wanted) { right_ = right_ && value == wanted; }

  void note(NvmeStatus status) { right_ = right_ && status == NvmeStatus::success; }

  [[nodiscard]] bool right() const { return right_; }

  // Lanes of the warp part at random: some are here together, as __activemask would say.
  SimulatedLanes together() {
    const std::uint64_t common = ++calls_ * 977 + thread_.warp_number * 131;
    const std::uint64_t parts = 1 + ondemand::spread(common) % 3;
    const auto part_of = [&](std::uint32_t lane) {
      return ondemand::spread(common * 31 + lane) % parts;
    };
    std::uint32_t mask = 0;
    for (std::uint32_t lane = 0; lane < thread_.array.options().lanes; ++lane) {
      mask |= part_of(lane) == part_of(warp().lane()) ? 1U << lane : 0U;
    }
    return warp().part(mask);
  }

 private:
  const ondemand::Cache& cache_;
  const Thread& thread_;
  Random random_;
  std::uint64_t calls_ = 0;
  bool right_ = true;
};

// Runs `kernel` with a Lane for each thread: what went wrong.
std::string run(SimulatedArray& array, const std::function<void(Lane&, const Thread&)>& kernel) {
  std::uint64_t wrong = 0;
  std::string failure = array.launch([&](const Thread& thread) {
    Lane lane(thread);
    kernel(lane, thread);
    wrong += lane.right() ? 0 : 1;
  });
  if (failure.empty() && wrong != 0) {
    failure = std::to_string(wrong) + " threads saw what is not in the array";
  }
  return failure;
}

void flush(Lane& lane, const Thread& thread) {
  const std::uint32_t places = thread.array.cache().places.place_count();
  const std::uint32_t lanes = lane.warp().size();
  const auto first = static_cast<std::uint32_t>(thread.warp_number) * lanes;
  for (std::uint32_t place = first; place < places; place += thread.array.options().warps * lanes) {
    lane.note(thread.array.cache().flush_places(lane.warp(), place));
  }
}

void expect_stored(const SimulatedArray& array, std::uint64_t count, std::uint64_t shift) {
  for (std::uint64_t i = 0; i < array.stored().size(); ++i) {
    ASSERT_EQ(array.stored()[i], element(i, i < count ? shift : 0)) << "element " << i;
  }
}

// Seeds one after the other; the rest of the test is for one.
void for_seeds(std::uint64_t count, const std::function<void(SimulatedArray&)>& test) {
  const std::uint64_t first = number_from("HIPPOGRIFF_SIMULATION_SEED", 1);
  const std::uint64_t seeds = number_from("HIPPOGRIFF_SIMULATION_SEEDS", count);
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    const ArrayOptions options = ArrayOptions::of(seed);
    SCOPED_TRACE(::testing::PrintToString(options));
    SimulatedArray array(options);
    test(array);
    if (::testing::Test::HasFailure()) {
      return;
    }
  }
}

void ask(Lane& lane, const Thread& thread) {
  for (int round = 0; round < 2; ++round) {
    lane.prefetch(lane.any());
    const std::uint64_t first = thread.warp_number * 500 % lane.size();
    lane.prefetch_range(first, std::min<std::uint64_t>(400, lane.size() - first));
  }
}

void ask_and_read(Lane& lane, const Thread& /*thread*/) {
  for (int round = 0; round < 4; ++round) {
    const std::uint64_t first = lane.any();
    const std::uint64_t second = lane.any();
    lane.prefetch(first);
    lane.prefetch(second);
    lane.prefetch(lane.any());
    lane.expect(lane.read(second), element(second));
    lane.expect(lane.read(first), element(first));
  }
}

TEST(SimulatedGpu, lanes_that_ask_ahead_and_read_see_what_is_stored) {
  for_seeds(60, [](SimulatedArray& array) {
    EXPECT_EQ(run(array, ask), "");
    EXPECT_EQ(run(array, ask_and_read), "");
  });
}

// Every thread writes its own elements, asks for what it writes next, and reads what it wrote a
// while ago: by then its line is written to the file, or is being written.
void write_and_read(Lane& lane, const Thread& thread, std::uint64_t rounds, std::uint64_t shift) {
  const std::uint64_t step = thread.array.thread_count();
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::uint64_t mine = round * step + thread.number;
    lane.write(mine, element(mine, shift));
    if (round + 1 < rounds) {
      lane.prefetch(mine + step);
    }
    if (round >= 2) {
      lane.expect(lane.read(mine - 2 * step), element(mine - 2 * step, shift));
    }
  }
}

TEST(SimulatedGpu, lanes_that_write_and_read_leave_what_memory_would_hold) {
  for_seeds(60, [](SimulatedArray& array) {
    if (!array.options().writable) {
      return;
    }
    constexpr std::uint64_t shift = 5;
    const std::uint64_t step = array.thread_count();
    const std::uint64_t rounds = std::min<std::uint64_t>(array.options().elements / step, 60);
    EXPECT_EQ(
        run(array,
            [&](Lane& lane, const Thread& thread) { write_and_read(lane, thread, rounds, shift); }),
        "");
    EXPECT_EQ(run(array, flush), "");
    expect_stored(array, rounds * step, shift);
  });
}

// The part of an array that is a warp's.
struct Part {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  std::uint64_t shift = 0;            // of what is written
  std::vector<std::uint64_t> memory;  // read into
  std::vector<std::uint64_t> fresh;   // written
};

std::vector<Part> parts_of(const SimulatedArray& array, std::uint64_t shift) {
  std::vector<Part> parts(array.options().warps);
  const std::uint64_t count = array.options().elements / parts.size();
  for (std::uint64_t number = 0; number < parts.size(); ++number) {
    parts[number] = {number * count, count, shift, std::vector<std::uint64_t>(count), {}};
    for (std::uint64_t i = 0; i < count; ++i) {
      parts[number].fresh.push_back(element(number * count + i, shift));
    }
  }
  return parts;
}

void read_ranges_between_elements(Lane& lane, Part& part) {
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t index = lane.any() % part.count;
    lane.expect(lane.read(part.first + index), element(part.first + index));
    lane.read_range(part.first, part.count, part.memory.data());
    lane.warp().meet();
    lane.expect(part.memory[index], element(part.first + index));
    lane.warp().meet();
  }
}

void write_ranges_between_elements(Lane& lane, const Thread& thread, const Part& part) {
  const std::uint64_t index = part.first + lane.any() % part.count;
  lane.expect(lane.read(index), element(index));
  lane.write_range(part.first, part.count, part.fresh.data());
  lane.warp().meet();
  lane.expect(lane.read(index), element(index, part.shift));
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t mine = part.first + lane.any_own(part.count);
    lane.write(mine, element(mine, part.shift));
    flush(lane, thread);
  }
}

// Lanes come to what all of them do together at any time after accesses of their own.
TEST(SimulatedGpu, warps_that_read_write_and_flush_between_accesses_of_lanes_get_on) {
  for_seeds(60, [](SimulatedArray& array) {
    constexpr std::uint64_t shift = 9;
    std::vector<Part> parts = parts_of(array, shift);
    const bool writes = array.options().writable;
    EXPECT_EQ(run(array,
                  [&](Lane& lane, const Thread& thread) {
                    read_ranges_between_elements(lane, parts[thread.warp_number]);
                    if (writes) {
                      write_ranges_between_elements(lane, thread, parts[thread.warp_number]);
                    }
                  }),
              "");
    EXPECT_EQ(run(array, flush), "");
    expect_stored(array, writes ? parts.size() * parts[0].count : 0, shift);
  });
}

// Each thread for itself, as on a processor: elements of its own by cursors and without, what it
// asks for ahead.
void use_alone(const Thread& thread, bool writes, std::uint64_t shift, std::uint64_t& wrong) {
  const std::uint64_t all = thread.array.thread_count();
  const std::uint64_t each = std::min<std::uint64_t>(thread.array.options().elements / all, 40);
  const hippogriff::array_view<std::uint64_t> view(thread.array.cache(),
                                                   thread.array.options().elements);
  const auto mine = [&](std::uint64_t i) { return i * all + thread.number; };
  for (std::uint64_t i = 0; i < each; ++i) {
    hippogriff::array_cursor<std::uint64_t> cursor(view);
    wrong += cursor[mine(i)] == element(mine(i)) ? 0 : 1;
    if (writes) {
      static_cast<void>(cursor.write(mine(i), element(mine(i), shift)));
      wrong += cursor[mine(i)] == element(mine(i), shift) ? 0 : 1;
    }
    cursor.let_go_all();
    const auto next = view.get_async(mine(each - 1 - i));
    const bool is_written = writes && each - 1 - i <= i;
    wrong += next.value() == element(next.index(), is_written ? shift : 0) ? 0 : 1;
  }
}

TEST(SimulatedGpu, threads_for_themselves_leave_what_memory_would_hold) {
  for_seeds(60, [](SimulatedArray& array) {
    constexpr std::uint64_t shift = 3;
    const bool writes = array.options().writable;
    const std::uint64_t all = array.thread_count();
    std::uint64_t wrong = 0;
    EXPECT_EQ(array.launch([&](const Thread& thread) { use_alone(thread, writes, shift, wrong); }),
              "");
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(run(array, flush), "");
    const std::uint64_t each = std::min<std::uint64_t>(array.options().elements / all, 40);
    expect_stored(array, writes ? each * all : 0, shift);
  });
}

// A cursor of a lane, whose ways through memory the test leads.
class LaneCursor : public ondemand::CursorOver<std::uint64_t, ondemand::LoneLine> {
 public:
  using CursorOver::CursorOver;

  std::uint64_t read(Lane& lane, std::uint64_t index) {
    go(lane, index);
    return (*this)[index];
  }

  void write(Lane& lane, std::uint64_t index, std::uint64_t value) {
    go(lane, index);
    lane.note(CursorOver::write(index, value));
  }

  void let_go(Lane& lane) { let_go_with(here(lane)); }

 private:
  // Lanes of a GPU find each other where they are. Here they wait to be together, while they keep
  // lines: only where the others can do without these places.
  static SimulatedLanes here(Lane& lane) {
    return lane.threads() <= lane.ways() ? lane.together() : lane.warp().part(lane.bit());
  }

  // As cursors of a kernel (CursorOver::read).
  void go(Lane& lane, std::uint64_t index) {
    const SimulatedLanes same = here(lane).with_same(has(index) ? 1 : 0);
    bool apart = false;
    if (!has(index)) {
      lane.note(go_to(same, index, apart));
    }
  }
};

constexpr std::uint64_t elements_of_line = 512 / sizeof(std::uint64_t);

bool is_walked(std::uint64_t index, std::uint64_t threads) {
  return index % elements_of_line < threads;
}

bool is_written(std::uint64_t index) {
  return element(index) % 2 == 0;
}

// A line each step, an element each thread: some write it, and some let go of it at once.
void walk(Lane& lane, const Thread& thread, bool writes, std::uint64_t shift) {
  const hippogriff::array_view<std::uint64_t> view(thread.array.cache(), lane.size());
  LaneCursor cursor(view);
  const std::uint64_t steps = lane.size() / elements_of_line;
  for (std::uint64_t step = 0; step < steps; ++step) {
    const std::uint64_t i = step * elements_of_line + thread.number;
    if (!writes || !is_written(i)) {
      lane.expect(cursor.read(lane, i), element(i));
    } else {
      cursor.write(lane, i, element(i, shift));
    }
    if (step % 3 == 0) {
      cursor.let_go(lane);
    }
  }
  cursor.let_go(lane);
}

TEST(SimulatedGpu, cursors_of_lanes_leave_what_memory_would_hold) {
  for_seeds(120, [](SimulatedArray& array) {
    constexpr std::uint64_t shift = 3;
    const bool writes = array.options().writable;
    EXPECT_EQ(
        run(array, [&](Lane& lane, const Thread& thread) { walk(lane, thread, writes, shift); }),
        "");
    EXPECT_EQ(run(array, flush), "");
    const std::uint64_t end = array.stored().size() / elements_of_line * elements_of_line;
    for (std::uint64_t i = 0; i < end; ++i) {
      const bool changed = writes && is_walked(i, array.thread_count()) && is_written(i);
      ASSERT_EQ(array.stored()[i], element(i, changed ? shift : 0)) << "element " << i;
    }
  });
}

// Lanes that keep two lines each, whatever the cache has places for, and want others together.
void keep_two(Lane& lane, const Thread& thread, bool writes, std::uint64_t shift) {
  const hippogriff::array_view<std::uint64_t> view(thread.array.cache(), lane.size());
  hippogriff::array_cursor<std::uint64_t> first(view);
  hippogriff::array_cursor<std::uint64_t> second(view);
  const std::uint64_t steps = std::min<std::uint64_t>(lane.size() / lane.threads(), 25);
  const auto mine = [&](std::uint64_t i) { return i * lane.threads() + thread.number; };
  for (std::uint64_t i = 0; i < steps; ++i) {
    lane.expect(first[mine(i)], element(mine(i)));
    if (writes) {
      lane.note(first.write(mine(i), element(mine(i), shift)));
    }
    const std::uint64_t other = steps - 1 - i;
    lane.expect(second[mine(other)], element(mine(other), writes && other <= i ? shift : 0));
    lane.expect(lane.read(mine(i)), element(mine(i), writes ? shift : 0));
  }
}

TEST(SimulatedGpu, lanes_that_keep_more_lines_than_there_are_places_get_on) {
  for_seeds(60, [](SimulatedArray& array) {
    constexpr std::uint64_t shift = 3;
    const bool writes = array.options().writable;
    EXPECT_EQ(run(array,
                  [&](Lane& lane, const Thread& thread) { keep_two(lane, thread, writes, shift); }),
              "");
    EXPECT_EQ(run(array, flush), "");
    const std::uint64_t all = array.thread_count();
    const std::uint64_t steps = std::min<std::uint64_t>(array.stored().size() / all, 25);
    expect_stored(array, writes ? steps * all : 0, shift);
  });
}

}  // namespace
}  // namespace hippogriff::simulated
