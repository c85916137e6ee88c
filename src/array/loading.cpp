// The choice, and transfers into the cache's lines, which lie there as in the array.
#include "array/loading.hpp"

#include "transfer/runtime.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <utility>

namespace hippogriff::ondemand {

namespace {

// A device that is the host gets its pages as they are written.
constexpr double new_pages_bytes_per_second = 3e9;
constexpr double stripe_seconds = 12e-6;  // each is a transfer
constexpr std::size_t under_way_max = 16;
constexpr std::chrono::milliseconds look_interval{20};
constexpr std::size_t memory_piece_bytes = std::size_t{64} << 20;  // 1 ms of a link, 20 of a core
constexpr std::chrono::milliseconds end_patience_min{2'000};       // of a drive that is well
constexpr std::chrono::milliseconds end_patience_max{10'000};

// By the router; files one after the other.
std::optional<double> predicted_seconds(StorageArray& array, Runtime& runtime) {
  const Backing& backing = array.backing();
  const auto bytes = static_cast<double>(backing.size_bytes);
  double seconds =
      array.device().info().can.host_addressable ? bytes / new_pages_bytes_per_second : 0;
  if (backing.stripe_bytes != 0) {
    seconds += stripe_seconds * bytes / static_cast<double>(backing.stripe_bytes);
  }
  try {
    DeviceState& state = runtime.locate(array.lines()).state;
    const std::size_t files = backing.stripe_bytes == 0 ? 1 : backing.files.size();
    for (std::size_t i = 0; i < files; ++i) {
      const Range extent{backing.file_offset, backing.layout().bytes_in(backing.size_bytes, i)};
      if (extent.size != 0) {
        const auto seen = runtime.outlook(state, *backing.files[i].file, {.extent = extent});
        seconds += seen.decision.choice().seconds;
      }
    }
    return seconds;
  } catch (const Error&) {
    return std::nullopt;  // no route is possible, or none allowed
  }
}

// Asks now and then whether to go on.
class Interruption {
 public:
  Interruption(const StorageArray& array, const std::function<bool()>& wanted)
      : array_(array), wanted_(wanted) {}

  // Throws Error(cancelled).
  void look() {
    if (Clock::now() < next_look_) {
      return;
    }
    next_look_ = Clock::now() + look_interval;
    if (wanted_ && wanted_()) {
      throw Error({.status = Status::cancelled,
                   .operation = "load array",
                   .object = array_.backing().name});
    }
  }

 private:
  const StorageArray& array_;
  const std::function<bool()>& wanted_;
  Clock::time_point next_look_;
};

void load_memory(StorageArray& array, const std::function<bool()>& interrupted) {
  Device& device = array.device();
  Interruption interruption(array, interrupted);
  const DeviceScope scope(device);
  const bool here = device.info().can.host_addressable;
  const auto stream = here ? nullptr : device.create_stream();
  std::span<const std::byte> left = array.backing().memory;
  for (DeviceAddress to = array.lines(); !left.empty();) {
    const auto piece = left.first(std::min(left.size(), memory_piece_bytes));
    if (here) {
      std::memcpy(reinterpret_cast<void*>(to.value), piece.data(), piece.size());
    } else {
      stream->copy_to_device(to, piece.data(), piece.size());
      if (!wait_for(*stream, device_patience)) {
        throw Error({.status = Status::timed_out,
                     .operation = "load array " + array.backing().name,
                     .object = device.info().name,
                     .detail = "the device did not take it"});
      }
    }
    to.value += piece.size();
    left = left.subspan(piece.size());
    interruption.look();
  }
}

// Transfers of one array. Those that are left when it ends are cancelled. Where one does not end, a
// drive being stuck, the array keeps the memory that it may write to.
class Loads {
 public:
  Loads(StorageArray& array, Runtime& runtime, const std::function<bool()>& interrupted)
      : array_(array), runtime_(runtime), interruption_(array, interrupted) {}

  ~Loads() {
    for (const auto& transfer : under_way_) {
      transfer->cancel();
    }
    const auto end =
        Clock::now() + std::clamp(array_.wait_limit(), end_patience_min, end_patience_max);
    for (const auto& transfer : under_way_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
      if (!transfer->wait_released(std::max(left, std::chrono::milliseconds(0)))) {
        array_.keep_memory();
      }
    }
  }

  Loads(const Loads&) = delete;
  Loads& operator=(const Loads&) = delete;
  Loads(Loads&&) = delete;
  Loads& operator=(Loads&&) = delete;

  void begin(const FilePart& part, DeviceAddress to) {
    if (under_way_.size() == under_way_max) {
      finish_one();
    }
    under_way_.push_back(runtime_.submit({.fd = part.file->file->fd(),
                                          .address = to,
                                          .offset = part.offset,
                                          .size = part.size_bytes}));
  }

  void finish() {
    while (!under_way_.empty()) {
      finish_one();
    }
  }

 private:
  void finish_one() {
    interruption_.look();  // also where each transfer ends at once
    const std::shared_ptr<Transfer> transfer = under_way_.front();
    const std::chrono::milliseconds patience = array_.wait_limit();
    std::uint64_t before = transfer->bytes_done();
    auto since = Clock::now();
    while (!transfer->wait(std::min(look_interval, patience))) {
      interruption_.look();
      const std::uint64_t done = transfer->bytes_done();
      if (done != before) {
        before = done;
        since = Clock::now();
      } else if (Clock::now() - since >= patience) {
        throw Error({.status = Status::timed_out,
                     .operation = "load array",
                     .object = transfer->file().facts().path,
                     .detail = "nothing came for " + std::to_string(patience.count()) + " ms"});
      }
    }
    if (transfer->failed()) {
      throw Error(transfer->failure());
    }
    under_way_.pop_front();
  }

  StorageArray& array_;
  Runtime& runtime_;
  Interruption interruption_;
  std::deque<std::shared_ptr<Transfer>> under_way_;
};

void load_files(StorageArray& array, Runtime& runtime, const std::function<bool()>& interrupted) {
  const Backing& backing = array.backing();
  Loads loads(array, runtime, interrupted);
  for (std::uint64_t offset = 0; offset < backing.size_bytes;) {
    const FilePart part = backing.part_at(offset, backing.size_bytes - offset, 0);
    loads.begin(part, {array.lines().value + offset});
    offset += part.size_bytes;
  }
  loads.finish();
}

}  // namespace

std::string seconds_text(double seconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2g s", seconds);
  return text.data();
}

LoadKind load_kind_of(std::string_view name) {
  if (name == "auto") {
    return LoadKind::automatic;
  }
  if (name == "all") {
    return LoadKind::all;
  }
  if (name != "none") {
    throw_invalid("open array",
                  "load is \"" + std::string(name) + "\", not \"auto\", \"all\" or \"none\"");
  }
  return LoadKind::none;
}

LoadChoice choose_load(const LoadFacts& facts) {
  if (!facts.fits) {
    if (facts.kind == LoadKind::all) {
      throw_invalid("open array",
                    "all of its " + std::to_string(facts.size_bytes) +
                        " bytes do not fit into a cache of " + std::to_string(facts.cache_bytes) +
                        " (in sets of eight lines): take a larger cache, or load \"auto\"");
    }
    return {false, "it is larger than the cache"};
  }
  if (facts.is_new) {
    return {false, "a new array has nothing to load"};
  }
  if (facts.kind != LoadKind::automatic) {
    return {facts.kind == LoadKind::all, "asked for"};
  }
  if (facts.in_memory) {
    return {false, "it is memory of this process, which may change it"};
  }
  if (!facts.predicted) {
    return {false, "nobody can say how long it would take to load all of it"};
  }
  if (*facts.predicted > unnoticed_load_seconds) {
    return {false,
            "all of it fits into the cache, but would take about " +
                seconds_text(*facts.predicted) + " to load: what is touched comes, and stays"};
  }
  return {true,
          "all of it fits into the cache, and takes about " + seconds_text(*facts.predicted) +
              " to load"};
}

void load_at_opening(StorageArray& array,
                     Runtime& runtime,
                     LoadKind kind,
                     const std::function<bool()>& interrupted) {
  const Backing& backing = array.backing();
  const bool fits = array.cache().places.whole;
  const bool predicts =
      fits && !backing.is_new && !backing.in_memory() && kind == LoadKind::automatic;
  LoadChoice choice =
      choose_load({.kind = kind,
                   .size_bytes = array.size_bytes(),
                   .cache_bytes = array.cache_bytes(),
                   .fits = fits,
                   .is_new = backing.is_new,
                   .in_memory = backing.in_memory(),
                   .predicted = predicts ? predicted_seconds(array, runtime) : std::nullopt});
  bool ended = false;
  const std::function<bool()> asks = [&] { return ended = interrupted && interrupted(); };
  try {
    if (choice.loads) {
      if (backing.in_memory()) {
        load_memory(array, asks);
      } else {
        load_files(array, runtime, asks);
      }
      array.mark_loaded();
    }
  } catch (const Error& error) {
    // Nobody may use what a transfer may still write to.
    if (kind == LoadKind::all || ended || array.keeps_memory()) {
      throw;
    }
    choice = {false, std::string("loading all of it failed: ") + error.what()};
  }
  array.explain_loading(std::move(choice.why));
}

}  // namespace hippogriff::ondemand
