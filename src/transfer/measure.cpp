// Each rate by the same calls that the lanes make, long enough to settle, short enough to wait for.
#include "transfer/measure.hpp"

#include "base/size_limit.hpp"
#include "storage/atomic_file.hpp"
#include "storage/drives.hpp"
#include "transfer/cost_model.hpp"
#include "transfer/direct_queue.hpp"
#include "transfer/outlook.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <numeric>
#include <thread>

namespace hippogriff {

namespace {

constexpr std::uint64_t chunk_bytes = Pinbuffer::slot_bytes;
// A drive that needs twice the requests gives nearly twice as much for them; others vary by this.
constexpr double worthwhile_depth = 1.10;
constexpr std::uint64_t file_bytes_min = std::uint64_t{64} << 20;  // of a quarter of what is free
constexpr std::uint64_t file_bytes_max = std::uint64_t{1} << 30;
constexpr std::uint64_t window_bytes = std::uint64_t{32} << 20;
constexpr std::uint64_t written_bytes_max = std::uint64_t{128} << 20;
constexpr std::chrono::milliseconds registrar_patience{2000};
constexpr std::uint64_t copies_ahead = 64;  // between waits: their gaps must not count
constexpr std::chrono::milliseconds step_time{400};

double process_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Rate faster(const Rate& left, const Rate& right) {
  return right.bytes_per_second > left.bytes_per_second ? right : left;
}

// Runs `step(bytes moved so far)`, which returns the bytes it moved, until the time is over.
template <typename Step>
Rate rate_of(Step&& step) {
  const auto begin = Clock::now();
  const double cpu_begin = process_cpu_seconds();
  std::uint64_t bytes = 0;
  do {
    bytes += step(bytes);
  } while (Clock::now() - begin < step_time);
  const double seconds = seconds_between(begin, Clock::now());
  const auto moved = static_cast<double>(bytes);
  return {moved / seconds, (process_cpu_seconds() - cpu_begin) / moved};
}

// Pinned memory for as long as it lives.
class PinnedMemory {
 public:
  PinnedMemory(Device& device, std::size_t size_bytes)
      : device_(device), memory_(device.allocate_pinned(size_bytes)) {
    std::fill_n(memory_, size_bytes, std::byte{0x5a});
  }

  ~PinnedMemory() { device_.release_pinned(memory_); }

  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  [[nodiscard]] std::byte* data() const { return memory_; }

 private:
  Device& device_;
  std::byte* memory_;
};

// The rate of `step`, which `undo` makes possible again. The best of a few: a virtual machine's
// host may have to find memory for pages that the machine never used before.
template <typename Step, typename Undo>
Rate best_rate(Step&& step, Undo&& undo) {
  constexpr int turns = 4;
  Rate best;
  for (int turn = 0; turn < turns; ++turn) {
    const auto begin = Clock::now();
    const double cpu_begin = process_cpu_seconds();
    const auto moved = static_cast<double>(step());
    const double seconds = seconds_between(begin, Clock::now());
    best = faster(best, {moved / seconds, (process_cpu_seconds() - cpu_begin) / moved});
    undo();
  }
  return best;
}

class Measurement {
 public:
  Measurement(Runtime& runtime, DeviceState& state, const std::string& directory)
      : runtime_(runtime),
        device_(*state.device),
        pinned_(device_, EngineShape::channels_max * chunk_bytes),
        path_(directory + "/hippogriff-calibration.tmp"),
        stream_(device_.create_stream()),
        event_(device_.create_event()) {}

  void link(Calibration& calibration) {
    const DeviceAddress memory = device_.allocate(8 * chunk_bytes);
    try {
      calibration.link.to_device = copies([&](std::uint64_t at) {
        stream_->copy_to_device(memory + at, pinned_.data() + at, chunk_bytes);
      });
      calibration.link.to_host = copies([&](std::uint64_t at) {
        stream_->copy_to_host(pinned_.data() + at, memory + at, chunk_bytes);
      });
      constexpr int small_copies = 200;
      const auto begin = Clock::now();
      for (int index = 0; index < small_copies; ++index) {
        stream_->copy_to_device(memory, pinned_.data(), 4096);
        finish();
      }
      calibration.link.latency_seconds = seconds_between(begin, Clock::now()) / small_copies;
    } catch (...) {
      device_.release(memory);
      throw;
    }
    device_.release(memory);
  }

  // Writes the file that the other steps read, by O_DIRECT where that works.
  void drive_write(Calibration& calibration) {
    const PathFacts place = path_facts(directory());
    file_bytes_ = align_down(std::min(file_bytes_max, place.free_bytes / 4), chunk_bytes);
    if (file_bytes_ < file_bytes_min) {
      throw Error({.status = Status::io_error,
                   .operation = "calibrate",
                   .object = directory(),
                   .errno_value = ENOSPC,
                   .detail = "less than 256 MiB are free there"});
    }
    replaced_ = std::make_unique<AtomicFile>(shared_storage(), path_);
    file_ = replaced_->file();
    const bool direct = file_->facts().direct;
    static_assert(DirectQueue::write_bytes * DirectQueue::writes_alone <=
                  EngineShape::channels_max * chunk_bytes);  // pinned_ has no more
    const Rate rate = queued(
        {IoRequest::Kind::write, DirectQueue::write_bytes, DirectQueue::writes_alone}, file_bytes_);
    file_->sync();
    (direct ? calibration.drive.direct_write : calibration.host.cached_write_per_channel) = rate;
    if (!direct) {
      calibration.host.cached_write_max = rate.bytes_per_second;
    }
  }

  void drive_read(Calibration& calibration) {
    if (!file_->facts().direct) {
      return;
    }
    // In turns, and each depth by its best turn: drives that others use too vary by more than
    // depths differ.
    constexpr std::array<std::uint32_t, 4> depths{2, 4, 8, 16};
    static_assert(DirectQueue::read_bytes * DirectQueue::reads_per_depth * depths.back() <=
                  EngineShape::channels_max * chunk_bytes);  // pinned_ has no more
    constexpr std::uint64_t turns = 3;
    const std::uint64_t turn_bytes =
        align_down(file_bytes_ / (turns * depths.size()), DirectQueue::read_bytes);
    std::array<Rate, depths.size()> rates{};
    for (std::uint64_t turn = 0; turn < turns; ++turn) {
      for (std::size_t index = 0; index < depths.size(); ++index) {
        // Each its own part of the file: a virtual machine's host may keep what was read.
        const std::uint64_t part = (turn * depths.size() + index) * turn_bytes;
        const Rate rate = queued({IoRequest::Kind::read,
                                  DirectQueue::read_bytes,
                                  DirectQueue::reads_per_depth * depths[index],
                                  part},
                                 turn_bytes);
        rates[index] = faster(rates[index], rate);
      }
    }
    const Rate best = std::accumulate(rates.begin(), rates.end(), Rate{}, faster);
    // The shallowest that is nearly as fast: what waits in a queue delays others.
    for (std::size_t index = depths.size(); index-- > 0;) {
      if (worthwhile_depth * rates[index].bytes_per_second >= best.bytes_per_second) {
        calibration.drive.depth = depths[index];
      }
    }
    calibration.drive.direct_read = best;
    calibration.drive.latency_seconds = small_read_seconds();
  }

  void page_cache(Calibration& calibration) {
    read_range(0, warm_bytes(), pinned_.data());  // brings it in
    calibration.host.cached_read_per_channel = rate_of([&](std::uint64_t done) {
      return read_range(done % warm_bytes(), chunk_bytes, pinned_.data());
    });
    const std::uint32_t threads = std::clamp(usable_cores(), 1U, EngineShape::channels_max);
    calibration.host.cached_read_max = parallel_read_rate(threads);
  }

  // As the mapped lane does it: windows are registered while those before are copied, and closed
  // when all are there.
  void registration(Calibration& calibration) {
    if (!device_.info().can.registers_read_only || !device_.registers_aside(registrar_patience)) {
      return;
    }
    const bool in_memory = file_->facts().in_memory;
    Rate& rate =
        in_memory ? calibration.link.register_shared_memory : calibration.link.register_pages;
    const DeviceAddress memory = device_.allocate(window_bytes);
    try {
      rate = rate_of(
          [&](std::uint64_t) { return map_windows(memory, {0, warm_bytes()}, FileAccess::read); });
      if (in_memory && device_.info().can.registers_read_write) {
        calibration.link.register_new_pages = new_pages_rate(memory);
      }
    } catch (...) {
      device_.release(memory);
      throw;
    }
    device_.release(memory);
  }

  [[nodiscard]] std::string drive() const { return drive_key(file_->facts()); }

 private:
  template <typename Copy>
  Rate copies(Copy&& copy) {
    return rate_of([&](std::uint64_t) {
      for (std::uint64_t index = 0; index < copies_ahead; ++index) {
        copy(index % 8 * chunk_bytes);
      }
      finish();
      return copies_ahead * chunk_bytes;
    });
  }

  std::uint64_t map_windows(DeviceAddress memory, Range range, FileAccess access) {
    const bool reads = access == FileAccess::read;
    std::vector<RegisteredWindow> windows;
    try {
      for (std::uint64_t at = range.offset; at < range.end(); at += window_bytes) {
        const auto mapping = file_->map({at, window_bytes}, access);
        windows.emplace_back(
            device_, file_, mapping, reads ? HostAccess::read_only : HostAccess::read_write);
        if (reads) {
          stream_->copy_to_device(memory, mapping.data(), mapping.size());
        } else {
          stream_->copy_to_host(mapping.data(), memory, mapping.size());
        }
      }
      finish();
    } catch (...) {
      if (!drain(*stream_)) {
        std::for_each(windows.begin(), windows.end(), [](auto& window) { window.abandon(); });
      }
      throw;
    }
    return range.size;
  }

  // Pages that a mapping brings into being, behind what the file has.
  Rate new_pages_rate(DeviceAddress memory) {
    const Range behind{file_bytes_, align_down(written_bytes(), window_bytes)};
    const auto step = [&] {
      file_->truncate(behind.end());
      return map_windows(memory, behind, FileAccess::read_write);
    };
    return best_rate(step, [&] { file_->truncate(file_bytes_); });
  }

  // From asking for a page of the file to having it, when the drive does nothing else: the median.
  double small_read_seconds() {
    constexpr std::uint64_t reads = 65;
    constexpr std::uint64_t page_bytes = 4096;
    const auto queue = runtime_.storage().create_queue(1);
    const std::span<std::byte> memory{pinned_.data(), page_bytes};
    std::vector<double> seconds;
    for (std::uint64_t index = 0; index < reads; ++index) {
      // Neither in order nor near each other, which drives foresee.
      const std::uint64_t at = align_down(file_bytes_ / reads * (index * 31 % reads), page_bytes);
      const auto begin = Clock::now();
      queue->submit({.file = file_.get(), .offset = at, .memory = memory, .buffer = memory});
      std::array<IoCompletion, 1> completion{};
      const std::size_t count = queue->reap(completion, std::chrono::seconds(60));
      check(IoRequest::Kind::read, page_bytes, count == 0 ? -ETIMEDOUT : completion[0].result);
      seconds.push_back(seconds_between(begin, Clock::now()));
    }
    std::ranges::nth_element(seconds, seconds.begin() + reads / 2);
    return seconds[reads / 2];
  }

  void finish() {
    stream_->record(*event_);
    if (!wait_for(*event_, device_timeout)) {
      throw Error({.status = Status::device_error,
                   .operation = "calibrate",
                   .object = device_.info().name,
                   .detail = "a copy did not complete in 60 s"});
    }
  }

  // What a queue is kept filled with.
  struct Requests {
    IoRequest::Kind kind = IoRequest::Kind::read;
    std::uint64_t size_bytes = 0;
    std::uint32_t depth = 0;
    std::uint64_t begin = 0;  // in the file
  };

  // As the direct lanes do it: a request's memory is used again as soon as it is back.
  Rate queued(const Requests& requests, std::uint64_t bytes) {
    const auto& [kind, request_bytes, depth, file_begin] = requests;
    const auto queue = runtime_.storage().create_queue(depth);
    std::vector<std::uint64_t> idle;
    for (std::uint64_t slot = 0; slot < depth; ++slot) {
      idle.push_back(slot);
    }
    const auto begin = Clock::now();
    const double cpu_begin = process_cpu_seconds();
    std::uint64_t submitted = 0;
    std::uint64_t moved = 0;
    std::array<IoCompletion, 8> completions{};
    while (moved < bytes) {
      while (submitted < bytes && !idle.empty()) {
        const std::uint64_t slot = idle.back();
        idle.pop_back();
        const std::span<std::byte> memory{pinned_.data() + slot * request_bytes, request_bytes};
        queue->submit({.kind = kind,
                       .file = file_.get(),
                       .direct = file_->facts().direct,
                       .offset = file_begin + submitted,
                       .memory = memory,
                       .tag = slot,
                       .buffer = memory});
        submitted += request_bytes;
      }
      const std::size_t count = queue->reap(completions, std::chrono::seconds(60));
      for (std::size_t index = 0; index < count; ++index) {
        check(kind, request_bytes, completions[index].result);
        idle.push_back(completions[index].tag);
        moved += request_bytes;
      }
      if (count == 0) {
        check(kind, request_bytes, -ETIMEDOUT);
      }
    }
    const double seconds = seconds_between(begin, Clock::now());
    const auto total = static_cast<double>(bytes);
    return {total / seconds, (process_cpu_seconds() - cpu_begin) / total};
  }

  void check(IoRequest::Kind kind, std::uint64_t request_bytes, std::int64_t result) const {
    if (result != static_cast<std::int64_t>(request_bytes)) {
      throw_io(kind == IoRequest::Kind::read ? "calibrate: read" : "calibrate: write",
               path_,
               no_offset,
               result < 0 ? static_cast<int>(-result) : EIO);
    }
  }

  std::uint64_t read_range(std::uint64_t offset, std::uint64_t size, std::byte* memory) {
    std::uint64_t got = 0;
    while (got < size) {
      const std::uint64_t step = std::min(size - got, chunk_bytes);
      const std::size_t count = file_->read({memory, step}, offset + got);
      if (count == 0) {
        throw_io("calibrate: read", path_, offset + got, EIO);
      }
      got += count;
    }
    return size;
  }

  // 0 when it fails: the sum then says less than the machine can, never more.
  double one_reader_rate(std::uint32_t index) {
    try {
      const auto read = [&](std::uint64_t done) {
        const std::uint64_t at = (done + index * chunk_bytes) % warm_bytes();
        return read_range(at, chunk_bytes, pinned_.data() + index * chunk_bytes);
      };
      return rate_of(read).bytes_per_second;
    } catch (const Error&) {
      return 0;
    }
  }

  double parallel_read_rate(std::uint32_t threads) {
    std::vector<double> rates(threads, 0);
    std::vector<std::thread> running;
    for (std::uint32_t index = 0; index < threads; ++index) {
      running.emplace_back([this, index, &rates] { rates[index] = one_reader_rate(index); });
    }
    double sum = 0;
    for (std::uint32_t index = 0; index < threads; ++index) {
      running[index].join();
      sum += rates[index];
    }
    return sum;
  }

  [[nodiscard]] std::uint64_t warm_bytes() const {
    return align_down(std::min(file_bytes_, std::uint64_t{256} << 20), window_bytes);
  }

  [[nodiscard]] std::uint64_t written_bytes() const {
    return std::min(file_bytes_, written_bytes_max);
  }

  [[nodiscard]] std::string directory() const { return path_.substr(0, path_.rfind('/')); }

  [[nodiscard]] std::shared_ptr<Storage> shared_storage() const {
    return runtime_.shared_storage();
  }

  Runtime& runtime_;
  Device& device_;
  PinnedMemory pinned_;
  std::string path_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> event_;
  std::unique_ptr<AtomicFile> replaced_;  // never committed: the file vanishes
  std::shared_ptr<File> file_;
  std::uint64_t file_bytes_ = 0;
};

Calibration nothing_measured() {
  Calibration calibration;
  calibration.link.latency_seconds = 0;
  calibration.drive.latency_seconds = 0;
  calibration.drive.depth = 0;
  return calibration;
}

}  // namespace

std::string measure(Runtime& runtime,
                    const std::string& device,
                    const std::string& directory,
                    const MeasureProgress& progress) {
  DeviceState& state = runtime.device(device);
  const DeviceScope scope(*state.device);
  const SizeLimitScope size_limit;
  Measurement measurement(runtime, state, directory.empty() ? "." : directory);
  Calibration calibration = nothing_measured();
  const auto step = [&progress](const char* name, double fraction) {
    if (!progress(name, fraction)) {
      throw Error({.status = Status::cancelled, .operation = "calibrate"});
    }
  };
  step("link", 0);
  measurement.link(calibration);
  step("drive, writing", 0.2);
  measurement.drive_write(calibration);
  step("drive, reading", 0.5);
  measurement.drive_read(calibration);
  step("page cache", 0.8);
  measurement.page_cache(calibration);
  step("registering pages", 0.9);
  measurement.registration(calibration);
  const std::string link = link_key(state.device->info());
  runtime.calibration().put(link, measurement.drive(), calibration);
  runtime.calibration().save();
  step("done", 1);
  CalibrationFile measured;
  const Calibration all = runtime.calibration().get(link, measurement.drive());
  measured.links[link] = all.link;
  measured.drives[measurement.drive()] = all.drive;
  measured.host = all.host;
  measured.host_measured = true;
  measured.host_measured_figures = runtime.calibration().host_measured_figures();
  return format_calibration(measured);
}

}  // namespace hippogriff
