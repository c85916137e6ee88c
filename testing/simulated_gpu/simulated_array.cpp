// Where everything lies, and a controller that answers late and in any order.
#include "testing/simulated_gpu/simulated_array.hpp"

#include "array/queue_memory.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

namespace hippogriff::simulated {

namespace {

constexpr std::uint32_t line_bytes = 512;
constexpr std::uint32_t pending_queues = 1;
constexpr std::uint64_t wait_limit_ns = 100'000'000;  // 10 million steps
constexpr std::uint64_t longest_read_steps = 20'000;

}  // namespace

ArrayOptions ArrayOptions::of(std::uint64_t seed) {
  Random random(seed);
  constexpr std::array<std::uint32_t, 6> caches{1, 3, 8, 16, 64, 512};
  constexpr std::array<std::uint64_t, 5> odds{1, 4, 16, 64, 256};
  ArrayOptions options{.seed = seed};
  options.warps = static_cast<std::uint32_t>(1 + random.below(4));
  options.lanes = static_cast<std::uint32_t>(1 + random.below(8));
  options.elements = 300 + random.below(1500);
  options.lines = caches.at(random.below(caches.size()));
  options.queues = static_cast<std::uint32_t>(1 + random.below(2));
  options.queue_depth = 4U << random.below(3);
  options.counter_base = random.below(3) == 0 ? 0 - random.below(60) : 0;
  options.writable = random.below(2) == 0;
  options.answers_with_addresses = random.below(2) == 0;
  options.switch_odds = odds.at(random.below(odds.size()));
  options.stale_of_16 = random.below(10);
  return options;
}

std::ostream& operator<<(std::ostream& out, const ArrayOptions& options) {
  return out << "seed " << options.seed << ": " << options.warps << " warps of " << options.lanes
             << " lanes, " << options.elements << " elements, a cache of " << options.lines
             << " lines, " << options.queues << " queues of " << options.queue_depth
             << " from ticket " << options.counter_base << (options.writable ? ", writable" : "")
             << (options.answers_with_addresses ? ", addresses" : "") << ", a switch in "
             << options.switch_odds << ", " << options.stale_of_16 << "/16 stale";
}

std::uint64_t element(std::uint64_t index, std::uint64_t shift) {
  return ondemand::spread(index + shift + 0x1234567);
}

SimulatedArray::SimulatedArray(const ArrayOptions& options) : options_(options) {
  set_up();  // how much there is
  memory_.resize(used_ + 128);
  used_ = 0;
  queues_.clear();
  set_up();
}

// Null as long as there is no memory: then it is only counted.
template <typename T>
T* SimulatedArray::place(std::size_t count) {
  const std::size_t begin = (used_ + 127) / 128 * 128;
  used_ = begin + count * sizeof(T);
  if (memory_.empty()) {
    return nullptr;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
  T* there = reinterpret_cast<T*>((address + 127) / 128 * 128 + begin);
  for (std::size_t i = 0; i < count; ++i) {
    new (there + i) T{};
  }
  return there;
}

void SimulatedArray::set_up() {
  const ondemand::QueueLayout layout = ondemand::queue_layout(options_.queue_depth);
  const std::size_t queues = options_.queues + pending_queues;
  const std::uint32_t ways = std::min(options_.lines, ondemand::ways_max);
  const std::uint32_t sets = options_.lines / ways;
  const std::size_t places = std::size_t{sets} * ways;
  cache_.first_queue = {place<unsigned char>(layout.shared_bytes() * queues),
                        place<unsigned char>(layout.own_bytes() * queues),
                        options_.queue_depth};
  cache_.lines = place<unsigned char>((places + 1) * line_bytes);  // and the spare one
  cache_.staging = place<unsigned char>(queues * options_.queue_depth * line_bytes);
  cache_.places = {
      .words = place<std::uint64_t>(places + 1),
      .keys = place<std::uint64_t>(std::max<std::size_t>(places, ondemand::ways_max)),
      .statuses = place<std::uint32_t>(places + 1),
      .sets = place<ondemand::SetState>(sets),
      .counters = place<ondemand::CacheCounters>(1),
      .set_count = sets,
      .ways = ways,
  };
  words_ = place<ondemand::ReachedWords>(1);
  cache_.patience = {words_, wait_limit_ns, place<ondemand::EndingNearby>(1)};
  constexpr std::size_t in_page = 512;
  file_ = place<std::uint64_t>((options_.elements + in_page - 1) / in_page * in_page);
  if (memory_.empty()) {
    return;
  }
  cache_.sticky = &words_->sticky;
  cache_.size_bytes = options_.elements * sizeof(std::uint64_t);
  cache_.line_shift = static_cast<std::uint32_t>(std::countr_zero(line_bytes));
  cache_.queue_count = options_.queues;
  cache_.pending_queue_count = pending_queues;
  cache_.writable = options_.writable;
  for (std::size_t i = 0; i <= places; ++i) {
    cache_.places.words[i] = ondemand::PlaceWord::of(ondemand::no_line, 0);
  }
  for (std::uint64_t i = 0; i < options_.elements; ++i) {
    file_[i] = element(i);
  }
  for (std::uint32_t i = 0; i < queues; ++i) {
    const ondemand::QueuePair pair = cache_.queue(i);
    ondemand::initialize_shared(pair, options_.counter_base, nullptr);
    ondemand::initialize_own(
        reinterpret_cast<std::byte*>(pair.own), options_.queue_depth, options_.counter_base);
    queues_.emplace_back(pair, options_.counter_base);
  }
}

std::string SimulatedArray::launch(const std::function<void(const Thread&)>& kernel) {
  Machine machine(
      {.seed = options_.seed + ++launches_ * 1'000'003, .switch_odds = options_.switch_odds});
  const WeakMemory memory(machine, memory_, options_.stale_of_16);
  std::vector<std::unique_ptr<Warp>> warps;
  std::uint64_t left = thread_count();
  for (std::uint32_t warp = 0; warp < options_.warps; ++warp) {
    warps.push_back(std::make_unique<Warp>());
    for (std::uint32_t lane = 0; lane < options_.lanes; ++lane) {
      const SimulatedLanes lanes(*warps.back(), (1U << options_.lanes) - 1, lane);
      machine.add([this, lanes, warp, lane, &kernel, &left] {
        kernel({*this, lanes, warp, std::uint64_t{warp} * options_.lanes + lane});
        --left;
      });
    }
  }
  machine.add([&] { control(left); });
  machine.run();
  return machine.failure().empty() ? ending() : machine.failure();
}

void SimulatedArray::control(const std::uint64_t& threads_left) {
  while (threads_left != 0 || !under_way_.empty()) {
    for (std::size_t queue = 0; queue < queues_.size(); ++queue) {
      fetch_from(queue);
    }
    answer_what_is_due();
    Machine::running()->yield();
  }
}

void SimulatedArray::fetch_from(std::size_t queue) {
  Machine& machine = *Machine::running();
  for (std::uint32_t left = queues_[queue].waiting(); left != 0; --left) {
    const ondemand::Command command = queues_[queue].fetch();
    const bool reads = command.opcode == static_cast<std::uint8_t>(ondemand::Opcode::read);
    if (reads && options_.answers_with_addresses && machine.random.below(8) != 0) {
      queues_[queue].post(
          command.id,
          {ondemand::NvmeStatus::success, reinterpret_cast<std::uint64_t>(in_file(command))});
    } else {
      under_way_.push_back({.queue = queue,
                            .command = command,
                            .due = machine.steps() + machine.random.below(longest_read_steps)});
    }
  }
}

void SimulatedArray::answer_what_is_due() {
  for (std::size_t i = 0; i < under_way_.size();) {
    if (under_way_[i].due > Machine::running()->steps()) {
      ++i;
      continue;
    }
    const UnderWay next = std::exchange(under_way_[i], under_way_.back());
    under_way_.pop_back();
    answer(next);
  }
}

std::uint64_t* SimulatedArray::in_file(const ondemand::Command& command) const {
  constexpr std::uint64_t in_block = ondemand::block_bytes / sizeof(std::uint64_t);
  return file_ + command.first_block() * in_block;
}

void SimulatedArray::answer(const UnderWay& command) {
  auto* in_memory = reinterpret_cast<std::uint64_t*>(command.command.prp1);
  const bool writes = command.command.opcode == static_cast<std::uint8_t>(ondemand::Opcode::write);
  const std::uint64_t* from = writes ? in_memory : in_file(command.command);
  std::uint64_t* to = writes ? in_file(command.command) : in_memory;
  const std::uint64_t count =
      std::uint64_t{command.command.block_count()} * ondemand::block_bytes / sizeof(std::uint64_t);
  for (std::uint64_t i = 0; i < count; ++i) {
    to[i] = from[i];
  }
  queues_[command.queue].post(command.command.id, {ondemand::NvmeStatus::success, 0});
}

std::string SimulatedArray::ending() const {
  if (words_->ending == static_cast<std::uint32_t>(ondemand::Ending::timed_out)) {
    return "a thread waited longer than the array allows";
  }
  if (words_->ending == static_cast<std::uint32_t>(ondemand::Ending::broken)) {
    return "completion " + std::to_string(words_->wrong.position) +
           " was of a command that was not under way, slot " +
           std::to_string(ondemand::unpack(words_->wrong.word).command) + ", turn " +
           std::to_string(words_->wrong.turn) + ", tail " + std::to_string(words_->wrong.tail);
  }
  return words_->sticky == 0 ? std::string()
                             : "an access failed with status " + std::to_string(words_->sticky);
}

}  // namespace hippogriff::simulated
