// What is measured side by side: limits, hand-written loops, hippogriff, each behind one interface.
#pragma once

#include "transfer/bench_file.hpp"
#include "transfer/reference_device.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

enum class Direction : std::uint8_t { send, recv };

// What is in the page cache before a send; a recv always starts with an empty file.
enum class State : std::uint8_t { cached, cold, half_cached, striped, empty_file };

std::string_view direction_name(Direction direction);
std::string_view state_name(State state);

inline constexpr std::uint64_t stripe_size = std::uint64_t{64} << 20U;

// One row of the results: `size` bytes from the start of the place's file.
struct Case {
  Direction direction = Direction::send;
  State state = State::cached;
  const Place* place = nullptr;
  std::uint64_t size = 0;

  // What set_cached should put into the page cache, and the rest.
  [[nodiscard]] std::vector<Extent> cached() const;
  [[nodiscard]] std::vector<Extent> cold() const;

  // Whether a drive is at work.
  [[nodiscard]] bool slow() const { return !place->in_memory && state != State::cached; }
};

// What every contender works with. The pinned memory is shared by all hand-written ones, which run
// one after the other.
struct Bench {
  ReferenceDevice& device;
  std::uint64_t device_memory;  // as large as the largest case
  std::span<std::byte> pinned;
};

// Throws std::exception when it fails; `run` is timed, nothing else is.
class Contender {
 public:
  virtual ~Contender() = default;
  [[nodiscard]] virtual std::string name() const = 0;

  [[nodiscard]] virtual nlohmann::json parameters() const { return nlohmann::json::object(); }

  // Why it has no part in this case; "" when it has.
  [[nodiscard]] virtual std::string refusal(const Case& what) const = 0;

  // Whether it moves file contents, which are then verified.
  [[nodiscard]] virtual bool moves_contents() const { return true; }

  // Returns what there is to tell about this repetition (a route, say), or null.
  virtual nlohmann::json run(const Case& what) = 0;

  // A first guess of the rate in bytes per second, to plan the time.
  [[nodiscard]] virtual double expected_rate(const Case& what) const = 0;

  // Host memory that it keeps for every transfer to come (a pinbuffer), in bytes, by its own word.
  [[nodiscard]] virtual std::int64_t kept_bytes() const { return 0; }

  // Repetitions of a case that are enough for it.
  [[nodiscard]] virtual unsigned repetitions_max(const Case& /*what*/) const { return 1000; }
};

using Contenders = std::vector<std::unique_ptr<Contender>>;

// How much of the line-up: the sweeps cost time that a quick run has not.
enum class Effort : std::uint8_t { quick, full };

void add_limits(Contenders& to, const Bench& bench, Effort effort);
void add_hand_written(Contenders& to, const Bench& bench, Effort effort);
void add_cufile(Contenders& to, const Bench& bench);
void add_ours(Contenders& to, const Bench& bench, Effort effort);

// What a drive gives at first guess, in bytes per second.
inline constexpr double expected_drive_rate = 1.7e9;

double expected_copy_rate(const Case& what, double cached_rate);

}  // namespace bench
