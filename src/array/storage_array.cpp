// Sizes, places and first values of an array's memory; its ends.
#include "array/storage_array.hpp"

#include "array/array_queues.hpp"
#include "array/queue_memory.hpp"
#include "base/range.hpp"
#include "node/board.hpp"

#include <hippogriff/array/prefetch.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <list>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace hippogriff::ondemand {

namespace {

constexpr std::chrono::seconds drive_patience{10};
constexpr std::uint64_t registered_page_bytes = 4096;

// Device, file and controller of an array that somebody may still write to: they stay, as its
// memory does.
void keep_for_ever(const StorageArrayOptions& options) noexcept {
  struct Kept {
    std::mutex mutex;
    std::list<StorageArrayOptions> options;
  };

  try {
    static Kept& kept = *new Kept;
    const std::lock_guard lock(kept.mutex);
    kept.options.push_back(options);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "hippogriff: no memory is left for what must stay\n");
  }
}

// Of a cache whose memory this thread reaches.
CacheCounts read_counts(const Cache& cache, SeenAccesses& seen) {
  for (std::uint32_t i = 0; i < access_counts; ++i) {
    seen.see(i, shared_ref<std::uint64_t>(cache.accesses[i].count).load(relaxed));
  }
  return {shared_ref<std::uint64_t>(cache.places.counters->misses).load(relaxed),
          shared_ref<std::uint64_t>(cache.places.counters->overwritten).load(relaxed),
          shared_ref<std::uint64_t>(cache.places.counters->written_back).load(relaxed),
          seen.sum()};
}

}  // namespace

// Offsets in the two parts of memory that are not lines.
struct StorageArray::Layout {
  explicit Layout(const StorageArrayOptions& options)
      : queue(queue_layout(options.queue_depth)),
        queues(options.queue_count + pending_queues(options)) {
    line_count = options.cache_bytes / options.line_bytes;
    ways = static_cast<std::uint32_t>(std::min<std::uint64_t>(line_count, ways_max));
    sets = line_count / ways;
    const std::uint64_t enough =
        align_up((options.backing.size_bytes - 1) / options.line_bytes + 1, ways) / ways;
    whole = enough <= sets;
    sets = std::min(sets, enough);
    line_count = sets * ways;
    const auto place = [](std::uint64_t& end, std::uint64_t bytes) {
      const std::uint64_t begin = end;
      end = align_up(end + bytes, 128);
      return begin;
    };
    place(own_end, queue.own_bytes() * queues);
    counters = place(own_end, sizeof(CacheCounters));
    nearby = place(own_end, sizeof(EndingNearby));
    accesses = place(own_end, sizeof(AccessCount) * access_counts);
    const std::uint64_t places = line_count + 1;  // and the spare one
    words = place(own_end, sizeof(std::uint64_t) * places);
    keys = place(own_end, sizeof(std::uint64_t) * std::max<std::uint64_t>(line_count, ways_max));
    statuses = place(own_end, sizeof(std::uint32_t) * places);
    set_states = place(own_end, sizeof(SetState) * sets);
    place(shared_end, queue.shared_bytes() * queues);
    words_of_all = place(shared_end, sizeof(ReachedWords));
    shown = place(shared_end, shown_accesses_bytes);
    counted = place(shared_end, sizeof(Counted));
    shared_end = align_up(shared_end, registered_page_bytes);
    staging = shared_end;
    if (is_staged(options)) {
      shared_end += std::uint64_t{queues} * options.queue_depth * options.line_bytes;
    }
  }

  QueueLayout queue;
  std::uint32_t queues;
  std::uint64_t line_count = 0;
  std::uint32_t ways = 0;
  std::uint64_t sets = 0;
  bool whole = false;
  std::uint64_t own_end = 0;
  std::uint64_t counters = 0;
  std::uint64_t nearby = 0;
  std::uint64_t accesses = 0;
  std::uint64_t words = 0;
  std::uint64_t keys = 0;
  std::uint64_t statuses = 0;
  std::uint64_t set_states = 0;
  std::uint64_t shared_end = 0;
  std::uint64_t words_of_all = 0;
  std::uint64_t shown = 0;
  std::uint64_t counted = 0;
  std::uint64_t staging = 0;
};

StorageArray::StorageArray(StorageArrayOptions options) : options_(std::move(options)) {
  check_options(options_);
  const Layout layout(options_);
  const DeviceScope scope(*options_.device);
  try {
    allocate(layout);
    initialize(layout);
    if (options_.notice != nullptr) {
      options_.notice->show({.device = node::device_key(options_.device->info().uuid),
                             .drive = served_->options().drive,
                             .size_bytes = size_bytes(),
                             .cache_bytes = cache_bytes(),
                             .line_bytes = options_.line_bytes});
    }
    attached_ = true;  // also in part, should it throw
    options_.controller->attach(served_);
  } catch (...) {
    close();
    throw;
  }
}

StorageArray::~StorageArray() {
  close();
}

void StorageArray::check_options(StorageArrayOptions& options) {
  const std::string operation = "open array " + options.backing.name;
  const std::uint32_t line = options.line_bytes;
  if (!std::has_single_bit(line) || line < (1U << line_shift_min) ||
      line > (1U << line_shift_max)) {
    throw_invalid(
        operation,
        "a line of " + std::to_string(line) + " bytes is not a power of two from 512 to 1048576");
  }
  if (options.backing.size_bytes == 0) {
    throw_invalid(operation, "an array has at least one byte");
  }
  if ((options.backing.size_bytes - 1) / line >= no_line) {
    throw_invalid(operation, "it has more than 2^40 - 1 lines: take longer lines");
  }
  if (options.backing.stripe_bytes % line != 0) {
    throw_invalid(operation,
                  "a stripe of " + std::to_string(options.backing.stripe_bytes) +
                      " bytes is not whole lines of " + std::to_string(line));
  }
  if (options.cache_bytes < line || options.cache_bytes / line > UINT32_MAX / 2) {
    throw_invalid(operation,
                  "a cache of " + std::to_string(options.cache_bytes) +
                      " bytes has not 1 to 2^31 lines of " + std::to_string(line));
  }
  if (!options.device->info().can.host_addressable && !options.device->info().can.cuda_kernels) {
    throw_unsupported(operation, "threads cannot reach the memory of this device");
  }
  choose_queues(options);
  check_queues(options.queue_count, options.queue_depth);
}

void StorageArray::allocate(const Layout& layout) {
  Device& device = *options_.device;
  shared_ = device.allocate_pinned(layout.shared_end);
  counted_ = new (shared_ + layout.counted) Counted;
  if (is_staged(options_) && !options_.backing.in_memory()) {
    options_.controller->begin_staging(&device);
    stages_ = true;
  }
  own_ = device.allocate(layout.own_end);
  own_bytes_ = layout.own_end;
  lines_ = device.allocate((layout.line_count + 1) * options_.line_bytes);
  own_bytes_ += options_.line_bytes;  // the spare place's
  reach_backing();
}

// Threads of a GPU read host memory through the link when its pages are registered.
void StorageArray::reach_backing() {
  Device& device = *options_.device;
  Backing& backing = options_.backing;
  if (device.info().can.host_addressable) {
    return;
  }
  answers_with_addresses_ = false;
  try {
    if (!backing.in_memory()) {
      backing.windows = windows_of_file();
    } else if (reinterpret_cast<std::uintptr_t>(backing.memory.data()) % registered_page_bytes ==
               0) {
      device.register_host(backing.memory.data(),
                           align_up(backing.memory.size(), registered_page_bytes),
                           HostAccess::read_write);
      registered_ = backing.memory.data();
      answers_with_addresses_ = true;
    }
  } catch (const Error&) {
    // Then data goes through staging memory: slower, and as right.
    registered_ = nullptr;
  }
}

// Null where the device's threads cannot read it in place.
std::shared_ptr<FileWindows> StorageArray::windows_of_file() const {
  const Backing& backing = options_.backing;
  if (backing.files.size() != 1 || backing.is_new || backing.is_direct ||
      !options_.device->info().can.registers_read_only ||
      backing.file_offset % registered_page_bytes != 0 ||
      backing.files[0].file->size_now() < backing.file_offset + backing.size_bytes) {
    return nullptr;
  }
  return std::make_shared<FileWindows>(options_.device,
                                       backing.files[0].file,
                                       Range{backing.file_offset, backing.size_bytes},
                                       options_.line_bytes);
}

void StorageArray::initialize(const Layout& layout) {
  std::vector<std::byte> own(layout.own_end);
  auto* own_there = reinterpret_cast<std::byte*>(own_.value);
  const bool wakes = options_.device->info().can.host_addressable;
  const bool staged = is_staged(options_);
  auto* words_of_all = new (shared_ + layout.words_of_all) ReachedWords;
  cache_.patience = {words_of_all,
                     static_cast<std::uint64_t>(options_.wait_limit.count()) * 1'000'000};
  cache_.sticky = &words_of_all->sticky;
  cache_.first_queue = {reinterpret_cast<unsigned char*>(shared_),
                        reinterpret_cast<unsigned char*>(own_there),
                        options_.queue_depth};
  ServedArray::Options served;
  for (std::uint32_t i = 0; i < layout.queues; ++i) {
    const QueuePair pair = cache_.queue(i);
    initialize_shared(
        pair, options_.counter_base, wakes ? options_.controller->wake_word(i) : nullptr);
    initialize_own(
        own.data() + i * layout.queue.own_bytes(), options_.queue_depth, options_.counter_base);
    served.queues.push_back(pair);
  }
  for (std::uint64_t i = 0; i <= layout.line_count; ++i) {
    const std::uint64_t empty = PlaceWord::of(no_line, 0);
    std::memcpy(own.data() + layout.words + i * sizeof empty, &empty, sizeof empty);
  }
  for (std::uint64_t i = 0; i < layout.sets; ++i) {
    const SetState first = SetState::after(options_.counter_base);
    std::memcpy(own.data() + layout.set_states + i * sizeof first, &first, sizeof first);
  }
  if (!wakes) {
    shown_ = show_accesses(shared_ + layout.shown, own.data() + layout.accesses);
  }
  write_there(own_, own);
  cache_.places = {
      .words = reinterpret_cast<std::uint64_t*>(own_there + layout.words),
      .keys = reinterpret_cast<std::uint64_t*>(own_there + layout.keys),
      .statuses = reinterpret_cast<std::uint32_t*>(own_there + layout.statuses),
      .sets = reinterpret_cast<SetState*>(own_there + layout.set_states),
      .counters = reinterpret_cast<CacheCounters*>(own_there + layout.counters),
      .set_count = static_cast<std::uint32_t>(layout.sets),
      .ways = layout.ways,
      .whole = layout.whole,
  };
  cache_.accesses = reinterpret_cast<AccessCount*>(own_there + layout.accesses);
  cache_.lines = reinterpret_cast<unsigned char*>(lines_.value);
  cache_.staging = staged ? reinterpret_cast<unsigned char*>(shared_ + layout.staging) : nullptr;
  cache_.size_bytes = options_.backing.size_bytes;
  cache_.line_shift = static_cast<std::uint32_t>(std::countr_zero(options_.line_bytes));
  cache_.queue_count = options_.queue_count;
  cache_.pending_queue_count = layout.queues - options_.queue_count;
  cache_.writable = options_.backing.writable;
  cache_.keeps_writes = options_.backing.overlay == nullptr;
  served.backing = options_.backing;
  served.patience = cache_.patience;
  served.sticky = cache_.sticky;
  if (!wakes) {  // from here on for the device's threads alone
    cache_.patience.nearby = reinterpret_cast<EndingNearby*>(own_there + layout.nearby);
  }
  served.counter_base = options_.counter_base;
  served.target = staged ? std::span(shared_ + layout.staging, layout.shared_end - layout.staging)
                         : std::span(reinterpret_cast<std::byte*>(lines_.value),
                                     (layout.line_count + 1) * options_.line_bytes);
  served.answers_with_addresses = answers_with_addresses_;
  served.show = shows_counts();
  served.drive = drive_of(options_.backing);
  if (options_.notice != nullptr) {
    served.others = [notice = options_.notice] { return notice->others(); };
  }
  served_ = std::make_shared<ServedArray>(std::move(served));
}

// Without this array, which may be gone before a drive that hangs has let the controller go. What a
// GPU counts is in its memory, but for what its kernels asked for; a line that it misses is one
// command, as is one that it writes back.
std::function<void(const ServedCounts&)> StorageArray::shows_counts() const {
  if (options_.notice == nullptr) {
    return nullptr;
  }
  const bool on_host = options_.device->info().can.host_addressable;
  return [notice = options_.notice, cache = cache_, asks = asks_, shown = shown_, on_host](
             const ServedCounts& served) {
    CacheCounts lines{.misses = served.reads, .written_back = served.writes};
    if (on_host) {
      lines = read_counts(cache, asks->seen);
    } else {
      asks->seen.see_shown(shown);
      asks->tell(lines);
    }
    notice->count({.accesses = lines.accesses,
                   .counts_accesses = lines.is_counted,
                   .misses = lines.misses,
                   .overwritten = lines.overwritten,
                   .written_back = lines.written_back,
                   .read_bytes = served.read_bytes,
                   .written_bytes = served.written_bytes,
                   .in_flight = served.in_flight,
                   .drive_answers = served.drive_answers,
                   .drive_least_ns = served.drive_least_ns,
                   .drive_limit = served.drive_limit});
  };
}

void StorageArray::write_there(DeviceAddress there, std::span<const std::byte> image) {
  Device& device = *options_.device;
  if (device.info().can.host_addressable) {
    std::memcpy(reinterpret_cast<void*>(there.value), image.data(), image.size());
    return;
  }
  const auto stream = device.create_stream();
  stream->copy_to_device(there, image.data(), image.size());
  if (!wait_for(*stream, device_patience)) {
    throw Error({.status = Status::timed_out,
                 .operation = "open array " + options_.backing.name,
                 .object = device.info().name,
                 .detail = "the device did not take the first values of the cache"});
  }
}

void StorageArray::choose_reads(RowReads reads) {
  row_reads_ = std::move(reads);
  if (row_reads_.past != nullptr) {
    reuse_.emplace(row_reads_.hits_enough, cache_.places.place_count());
  }
}

void StorageArray::mark_loaded() {
  constexpr std::uint64_t most = std::uint64_t{1} << 20;
  const DeviceScope scope(*options_.device);
  const std::uint64_t count = (size_bytes() - 1) / options_.line_bytes + 1;
  std::vector<std::uint64_t> words;
  for (std::uint64_t first = 0; first < count; first += words.size()) {
    words.resize(std::min(count - first, most));
    const auto write = [&](const std::uint64_t* table, auto word_of) {
      for (std::uint64_t i = 0; i < words.size(); ++i) {
        words[i] = word_of(first + i);
      }
      write_there({reinterpret_cast<std::uint64_t>(table + first)},
                  std::as_bytes(std::span(words)));
    };
    write(cache_.places.words, [](std::uint64_t line) { return PlaceWord::of(line, 0); });
    write(cache_.places.keys, [](std::uint64_t line) { return PlaceKey::of(line); });
  }
  loaded_bytes_ = size_bytes();
}

CacheCounts StorageArray::counts() {
  Device& device = *options_.device;
  if (device.info().can.host_addressable) {
    return read_counts(cache_, asks_->seen);
  }

  const std::scoped_lock lock(counting_);
  const DeviceScope scope(device);
  const auto stream = device.create_stream();
  const auto copy = [&](auto& to, const void* from) {
    stream->copy_to_host(
        reinterpret_cast<std::byte*>(&to), {reinterpret_cast<std::uint64_t>(from)}, sizeof to);
  };
  copy(counted_->lines, cache_.places.counters);
  copy(counted_->accesses, cache_.accesses);
  if (!wait_for(*stream, device_patience)) {
    throw Error({.status = Status::timed_out,
                 .operation = "statistics of array " + options_.backing.name,
                 .object = device.info().name,
                 .detail = "the device did not give its counts"});
  }
  for (std::size_t i = 0; i < access_counts; ++i) {
    asks_->seen.see(i, counted_->accesses[i].count);
  }
  const CacheCounters& lines = counted_->lines;
  CacheCounts counts{lines.misses, lines.overwritten, lines.written_back};
  asks_->tell(counts);
  return counts;
}

std::uint64_t StorageArray::device_free_bytes() const {
  const DeviceScope scope(*options_.device);
  return options_.device->memory().free_bytes;
}

void StorageArray::flush() {
  if (!options_.device->info().can.host_addressable) {
    throw_unsupported("flush array " + options_.backing.name,
                      "a kernel of the device writes its lines");
  }
  if (options_.backing.overlay != nullptr) {
    check();  // nothing is kept beyond the array's end
    return;
  }
  // Many at once, in the order of the file; then those that somebody held meanwhile.
  NvmeStatus status = write_idle_lines();
  const std::uint32_t left = status == NvmeStatus::success ? cache_.places.place_count() : 0;
  std::optional<std::uint32_t> kept;
  for (std::uint32_t place = 0; place < left && !kept; ++place) {
    NvmeStatus result = cache_.flush_places(Alone{}, place);
    if (result == NvmeStatus::interrupted) {  // each of the others could take as long
      kept = place;
      result = write_idle_lines();
    }
    status = status == NvmeStatus::success ? result : status;
  }
  if (status != NvmeStatus::success) {
    throw_status(status, "flush array");
  }
  sync();
  if (kept) {
    throw_kept(*kept);
  }
}

NvmeStatus StorageArray::write_idle_lines() const {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> dirty;
  for (std::uint32_t place = 0; place < cache_.places.place_count(); ++place) {
    std::uint64_t line = 0;
    if (cache_.places.is_dirty(place, line)) {
      dirty.emplace_back(line, place);
    }
  }
  std::ranges::sort(dirty);
  WriteBack writes(cache_);
  for (const auto& [line, place] : dirty) {
    writes.ask(place);
  }
  return writes.finish();
}

void StorageArray::sync() {
  if (!options_.device->info().can.host_addressable) {
    if (options_.backing.writable) {
      served_->sync();
    }
  } else if (const NvmeStatus status = cache_.sync(); status != NvmeStatus::success) {
    throw_status(status, "flush array");
  }
  check();
}

void StorageArray::close() noexcept {
  if (closed_) {
    return;
  }
  closed_ = true;
  const bool ended = !attached_ || (options_.controller->detach(served_, drive_patience) &&
                                    kernels_ended() && windows_closed());
  if (!ended || kept_) {
    std::fprintf(stderr,
                 "hippogriff: a drive or a kernel has not ended for array %s: its memory stays\n",
                 options_.backing.name.c_str());
    keep_for_ever(options_);
    return;
  }
  if (options_.notice != nullptr) {
    options_.notice->end();
  }
  try {
    give_back();
  } catch (const Error& error) {
    std::fprintf(stderr, "hippogriff: closing an array: %s\n", error.what());
  }
}

// An exception of the host may close an array under a kernel, whose waits end now.
bool StorageArray::kernels_ended() noexcept {
  Device& device = *options_.device;
  if (device.info().can.host_addressable) {
    return true;
  }
  try {
    const DeviceScope scope(device);
    const auto stream = device.borrow_stream(nullptr);
    const auto event = device.create_event();
    stream->record(*event);
    return wait_for(*event, device_patience);
  } catch (...) {
    return true;  // a device that has failed runs nothing any more
  }
}

bool StorageArray::windows_closed() const noexcept {
  const auto& windows = options_.backing.windows;
  return windows == nullptr || windows->close(drive_patience);
}

void StorageArray::give_back() {
  Device& device = *options_.device;
  const DeviceScope scope(device);
  if (registered_ != nullptr) {
    device.unregister_host(registered_);
  }
  static_cast<void>(windows_closed());
  if (!lines_.is_null()) {
    device.release(lines_);
  }
  if (!own_.is_null()) {
    device.release(own_);
  }
  if (stages_) {
    options_.controller->end_staging(&device);
  }
  if (shared_ != nullptr) {
    device.release_pinned(shared_);
  }
}

}  // namespace hippogriff::ondemand
