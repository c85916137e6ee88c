// An array in storage, opened for one device: its memory, its queues, its part of the controller.
#pragma once

#include "array/access_counts.hpp"
#include "array/controller.hpp"
#include "array/reuse_watch.hpp"
#include "device/device.hpp"
#include "node/arrays.hpp"

#include <hippogriff/array/cache.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace hippogriff::ondemand {

// Whatever a stream of the device is waited for.
inline constexpr std::chrono::seconds device_patience{60};

struct StorageArrayOptions {
  Backing backing;
  std::shared_ptr<Device> device;
  std::shared_ptr<Controller> controller;
  std::uint64_t cache_bytes = std::uint64_t{64} << 20;  // at least one line
  std::uint32_t line_bytes = 4096;                      // a power of two, 512 to 1 MiB
  std::uint32_t queue_count = 0;                        // 0: as the device needs
  std::uint32_t queue_depth = 0;                        // 0: as the device needs
  std::chrono::milliseconds wait_limit{60'000};         // of each wait of a device's thread
  std::uint64_t counter_base = 0;                       // for tests: where all counters begin
  bool staged = false;  // for tests: as where the host reaches no line
  // Shows it to the machine's other processes until close(); null: it is not shown.
  std::shared_ptr<node::ArrayNotice> notice;
};

// How rows that the library's kernels read for a GPU come, and why, as predicted.
struct RowReads {
  const std::byte* past = nullptr;  // the cache: all of the array, for the device; null: through it
  double hits_enough = 0;           // of 1: from so many on the cache is quicker all the same
  std::string why;                  // a clause for people
  double cache_seconds = 0;         // predicted (read_choice.hpp); 0: the other way cannot be
  double past_seconds = 0;
};

// Lines of the cache, since the array was opened.
struct CacheCounts {
  std::uint64_t misses = 0;
  std::uint64_t overwritten = 0;
  std::uint64_t written_back = 0;
  std::uint64_t accesses = 0;  // lines asked for, about; a cursor asks once for its line
  bool is_counted = true;      // false: others ask, too, of whom nobody knows how often

  // Those of them that no miss answered; 0 where that is not known. Lines asked for ahead that
  // nobody wanted are misses too.
  [[nodiscard]] std::uint64_t hits() const {
    return is_counted ? accesses - std::min(accesses, misses + overwritten) : 0;
  }
};

// Thread-safe, but close() wants CPU threads that use the cache to have ended; waits of a GPU's it
// ends with an error.
class StorageArray {
 public:
  // Throws Error: invalid_argument for options that cannot be, out_of_device_memory and the like.
  explicit StorageArray(StorageArrayOptions options);
  ~StorageArray();
  StorageArray(const StorageArray&) = delete;
  StorageArray& operator=(const StorageArray&) = delete;

  // What threads of the device work with. Valid until close().
  [[nodiscard]] const Cache& cache() const { return cache_; }

  [[nodiscard]] std::uint64_t size_bytes() const { return options_.backing.size_bytes; }

  [[nodiscard]] Device& device() const { return *options_.device; }

  [[nodiscard]] const Backing& backing() const { return options_.backing; }

  [[nodiscard]] std::chrono::milliseconds wait_limit() const { return options_.wait_limit; }

  // Of the lines: what was asked for, or all of the array if that is less, in whole sets.
  [[nodiscard]] std::uint64_t cache_bytes() const {
    return std::uint64_t{cache_.places.place_count()} * options_.line_bytes;
  }

  // Where the lines are: those of a table that is `whole` as in the array.
  [[nodiscard]] DeviceAddress lines() const { return lines_; }

  // Says that all bytes of the array are there, of a table that is `whole`, before anybody uses it.
  void mark_loaded();

  [[nodiscard]] std::uint64_t loaded_bytes() const { return loaded_bytes_; }

  // Says that somebody else may still write into the lines: close() leaves all memory where it is.
  void keep_memory() { kept_ = true; }

  [[nodiscard]] bool keeps_memory() const { return kept_; }

  // Why it was loaded when it was opened, or not: a clause for people.
  void explain_loading(std::string why) { load_reason_ = std::move(why); }

  [[nodiscard]] const std::string& load_reason() const { return load_reason_; }

  // Before anybody uses the array, all of which is in place where rows are read past the cache.
  void choose_reads(RowReads reads);

  [[nodiscard]] const RowReads& row_reads() const { return row_reads_; }

  // Where rows may be read past the cache: which way they take. Null elsewhere.
  [[nodiscard]] ReuseWatch* reuse() { return reuse_ ? &*reuse_ : nullptr; }

  // Rows that were queued past the cache because that was chosen.
  void note_past(std::uint64_t bytes) { past_bytes_.fetch_add(bytes, std::memory_order_relaxed); }

  [[nodiscard]] std::uint64_t past_bytes() const {
    return past_bytes_.load(std::memory_order_relaxed);
  }

  // Whether threads read the backing's memory themselves.
  [[nodiscard]] bool answers_with_addresses() const { return answers_with_addresses_; }

  // Registers what is left of the backing: where a GPU reads all of it in place from then on. Null
  // where it cannot.
  [[nodiscard]] const std::byte* put_in_place() const {
    const Backing& backing = options_.backing;
    return backing.windows != nullptr ? backing.windows->put_all_in_place() : registered_;
  }

  [[nodiscard]] std::uint64_t device_free_bytes() const;

  // Writes all dirty lines and has the storage keep them. On a device whose memory this thread
  // reaches (host): on others a kernel writes the lines, then sync() does the rest. Waits for lines
  // that are held, up to the wait limit: then timed_out, once it has written and kept the others,
  // and a later flush writes them. Throws Error as check(), or io_error.
  void flush();
  void sync();

  // Throws the first failure of any thread's access since the last clear_failure().
  void check() const;

  // Throws what ended the array, if something has: accesses go on to fail, and nothing is cleared.
  // Throws too, once all else is cleared, what every flush fails with since one was not kept.
  void clear_failure();

  // Throws why an access of the host failed just now: of the latest failures the last one of which
  // the part of the array is the access's.
  [[noreturn]] void throw_failed(NvmeStatus status,
                                 const std::function<bool(const Range&)>& is_its) const;

  [[nodiscard]] ServedCounts served() const { return served_->counts(); }

  // Rows that lie in so many lines are about to be read through the cache: what is read of a cold
  // file around the first ones may be what the others want.
  void begin_gather(std::uint64_t lines) const { served_->begin_gather(lines); }

  // They were read, by who waited for it.
  void end_gather() const { served_->end_gather(); }

  // Whether a read of this copy has failed: others are asked first since.
  [[nodiscard]] bool copy_failed(std::uint64_t copy) const { return served_->copy_failed(copy); }

  // The library's kernels, which do not count, ask for lines: so many, about.
  void note_asked(std::uint64_t lines) { asks_->lines.fetch_add(lines, std::memory_order_relaxed); }

  // Kernels of others may ask, too: how often, is known as soon as one of them counts.
  void note_view() { asks_->others = true; }

  [[nodiscard]] CacheCounts counts();

  // Throws Error(invalid_argument) or Error(unsupported) for what the constructor would refuse, and
  // puts in what was left open. Opens and makes nothing.
  static void check_options(StorageArrayOptions& options);

  // Bytes of the cache's own: words, sets, queues, the spare place; not the lines of
  // cache_bytes() and staging.
  [[nodiscard]] std::uint64_t metadata_bytes() const { return own_bytes_; }

  // Ends all waits and gives the memory back. What is dirty and was not flushed is lost. Waits for
  // kernels on the default stream and on those that wait for it; kernels on others must have ended.
  // Idempotent.
  void close() noexcept;

 private:
  struct Layout;

  // What was asked for. Outlives the array, as what shows it does.
  struct Asks {
    std::atomic<std::uint64_t> lines{0};  // by kernels of the library's
    std::atomic<bool> others{false};
    SeenAccesses seen;  // of what threads count themselves

    // Puts in what kernels asked for: the library's, and those of others that count.
    void tell(CacheCounts& counts) const {
      const std::uint64_t counted = seen.sum();
      counts.accesses = lines + counted;
      counts.is_counted = counted != 0 || !others;
    }
  };

  // Copied from a GPU, into pinned memory: a device that is stuck would hold whoever copies to
  // other memory.
  struct Counted {
    CacheCounters lines;
    std::array<AccessCount, access_counts> accesses;
  };

  [[nodiscard]] bool kernels_ended() noexcept;
  [[nodiscard]] bool windows_closed() const noexcept;
  NvmeStatus write_idle_lines() const;
  void allocate(const Layout& layout);
  void initialize(const Layout& layout);
  void reach_backing();
  [[nodiscard]] std::shared_ptr<FileWindows> windows_of_file() const;
  [[nodiscard]] std::function<void(const ServedCounts&)> shows_counts() const;
  void write_there(DeviceAddress there, std::span<const std::byte> image);
  void give_back();
  [[noreturn]] void throw_kept(std::uint32_t place) const;
  [[noreturn]] void throw_status(NvmeStatus status, const char* operation) const;

  StorageArrayOptions options_;
  Cache cache_;
  std::uint64_t own_bytes_ = 0;
  std::uint64_t loaded_bytes_ = 0;
  std::string load_reason_;
  RowReads row_reads_;
  std::optional<ReuseWatch> reuse_;
  std::atomic<std::uint64_t> past_bytes_{0};
  const std::shared_ptr<Asks> asks_ = std::make_shared<Asks>();
  bool stages_ = false;             // as Controller::stages_for knows
  std::byte* shared_ = nullptr;     // pinned
  std::span<std::uint64_t> shown_;  // in that: what kernels on a GPU count
  Counted* counted_ = nullptr;      // in that, too
  std::mutex counting_;
  DeviceAddress own_;
  DeviceAddress lines_;
  std::byte* registered_ = nullptr;  // of memory that the array stands on
  bool answers_with_addresses_ = true;
  bool attached_ = false;
  bool closed_ = false;
  bool kept_ = false;
  std::shared_ptr<ServedArray> served_;
};

}  // namespace hippogriff::ondemand
