// The C functions of arrays.
#include "array/array_handle.hpp"
#include "array/array_outlook.hpp"
#include "array/open_array.hpp"
#include "transfer/abi.hpp"
#include "transfer/runtime.hpp"

#include <hippogriff/array/prefetch.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using hippogriff::guarded;
using hippogriff::Range;
using hippogriff::throw_invalid;
using hippogriff::ondemand::Alone;
using hippogriff::ondemand::array_of;
using hippogriff::ondemand::Cache;
using hippogriff::ondemand::Direction;
using hippogriff::ondemand::NvmeStatus;
using hippogriff::ondemand::RangeWalk;
using hippogriff::ondemand::RowMoves;
using hippogriff::ondemand::StorageArray;

namespace {

// An array and a range of it.
StorageArray& readable(hippogriff_storage_array* handle, std::uint64_t offset, std::size_t size) {
  StorageArray& array = array_of(handle);
  if (offset > array.size_bytes() || size > array.size_bytes() - offset) {
    throw_invalid("access array",
                  "bytes " + std::to_string(offset) + " to " + std::to_string(offset + size) +
                      " of an array of " + std::to_string(array.size_bytes()));
  }
  return array;
}

StorageArray& writable(hippogriff_storage_array* handle, std::uint64_t offset, std::size_t size) {
  StorageArray& array = readable(handle, offset, size);
  if (!array.cache().writable) {
    throw_invalid("write array", "the array was opened for reading");
  }
  return array;
}

// Throws why an access of these bytes failed.
void throw_failed(const StorageArray& array, NvmeStatus status, const Range& accessed) {
  if (status != NvmeStatus::success) {
    array.throw_failed(status, [&](const Range& its) { return its.overlaps(accessed); });
  }
}

void require_memory(const void* memory, std::size_t size) {
  if (memory == nullptr && size != 0) {
    throw_invalid("access array", "the memory is NULL");
  }
}

// Memory that moves to an array: it is not written.
std::byte* unwritten(const void* from) {
  return const_cast<std::byte*>(static_cast<const std::byte*>(from));
}

// Rows by their numbers, and how they move.
struct Rows {
  std::span<const std::uint64_t> numbers;
  std::size_t size_bytes = 0;
};

Rows checked_rows(const StorageArray& array, const Rows& rows) {
  if (rows.size_bytes == 0) {
    throw_invalid("access array", "a row has no bytes");
  }
  const std::uint64_t count = array.size_bytes() / rows.size_bytes;
  for (const std::uint64_t row : rows.numbers) {
    if (row >= count) {
      throw_invalid("access array", "row " + std::to_string(row) + " of " + std::to_string(count));
    }
  }
  return rows;
}

// By several threads when the rows are many; by more than cores where the cache is so small that
// each waits for one line at a time. Stops at a failure.
void gather(const StorageArray& array, const Rows& rows, unsigned char* to) {
  constexpr std::size_t rows_each = 256;
  constexpr std::uint32_t threads_max = 16;
  const hippogriff::ondemand::Cache& cache = array.cache();
  const std::uint32_t cores = std::min(hippogriff::usable_cores(), threads_max);
  const bool asks_ahead = hippogriff::ondemand::prefetch_window(cache, cores) > 1;
  const std::size_t count = rows.numbers.size();
  const auto threads = static_cast<std::uint32_t>(
      std::clamp<std::size_t>(count / rows_each, 1, asks_ahead ? cores : threads_max));
  const std::uint32_t window = hippogriff::ondemand::prefetch_window(cache, threads);
  array.begin_gather(count * ((rows.size_bytes - 1) / cache.line_bytes() + 1));
  std::atomic<std::uint32_t> failed{0};
  const auto offset_of = [&](std::uint64_t row) { return rows.numbers[row] * rows.size_bytes; };
  const auto part = [&](std::size_t thread) {
    constexpr std::size_t rows_at_once = 1024;  // then it looks whether another thread has failed
    const std::size_t end = count * (thread + 1) / threads;
    for (std::size_t row = count * thread / threads; row < end && failed.load() == 0;) {
      const std::size_t until = std::min(end, row + rows_at_once);
      const NvmeStatus status = hippogriff::ondemand::read_ranges(
          RangeWalk(cache, offset_of, rows.size_bytes, row, until),
          window,
          to + row * rows.size_bytes);
      if (status != NvmeStatus::success) {
        failed.store(static_cast<std::uint32_t>(status));
      }
      row = until;
    }
  };
  std::vector<std::jthread> others;
  std::size_t begun = 1;
  try {
    for (; begun < threads; ++begun) {
      others.emplace_back(part, begun);
    }
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): this thread does the rest
  }
  part(0);
  for (; begun < threads; ++begun) {
    part(begun);
  }
  others.clear();
  array.end_gather();
  if (const auto status = static_cast<NvmeStatus>(failed.load()); status != NvmeStatus::success) {
    array.throw_failed(status, [&](const Range& its) {
      return std::ranges::any_of(rows.numbers, [&](std::uint64_t row) {
        return its.overlaps({row * rows.size_bytes, rows.size_bytes});
      });
    });
  }
}

// By this thread, until there is no slot for a command.
void ask_ahead(const RowMoves& rows) {
  const std::uint64_t count = rows.ask_count();
  for (std::uint64_t i = 0; i < count && rows.ask(Alone{}, i); ++i) {
  }
}

}  // namespace

StorageArray& hippogriff::ondemand::array_of(hippogriff_storage_array* handle) {
  if (handle == nullptr) {
    throw_invalid("use array", "the array is NULL");
  }
  if (handle->generation != process_generation()) {
    throw_forked();
  }
  return *handle->array;
}

int hippogriff_array_open(const hippogriff_array_options* options,
                          hippogriff_storage_array** array) {
  return guarded([&] {
    if (array == nullptr) {
      throw_invalid("open array", "there is no place for the array");
    }
    *array = nullptr;
    *array = hippogriff::ondemand::open_array(options).release();
  });
}

int hippogriff_array_close(hippogriff_storage_array* array) {
  return guarded([&] {
    if (array == nullptr) {
      return;
    }
    static_cast<void>(array_of(array));  // in a forked child it stays: its threads are the parent's
    if (array->device_access != nullptr && !array->device_access->finish()) {
      throw hippogriff::Error({.status = hippogriff::Status::timed_out,
                               .operation = "close array",
                               .object = array->array->device().info().name,
                               .detail = "its kernels have not ended: the array's memory stays"});
    }
    delete array;
  });
}

int hippogriff_array_size(hippogriff_storage_array* array, uint64_t* size) {
  return guarded([&] {
    const StorageArray& the_array = array_of(array);
    if (size == nullptr) {
      throw_invalid("use array", "there is no place for the size");
    }
    *size = the_array.size_bytes();
  });
}

int hippogriff_array_view(hippogriff_storage_array* array,
                          void* view,
                          size_t view_size,
                          uint32_t layout) {
  return guarded([&] {
    StorageArray& the_array = array_of(array);
    if (view == nullptr || view_size != sizeof(Cache) ||
        layout != hippogriff::ondemand::view_layout) {
      throw_invalid("view array", "the program was built with headers of another version");
    }
    the_array.note_view();
    std::memcpy(view, &the_array.cache(), sizeof(Cache));
  });
}

int hippogriff_array_read(hippogriff_storage_array* array, uint64_t offset, void* to, size_t size) {
  return guarded([&] {
    const StorageArray& the_array = readable(array, offset, size);
    require_memory(to, size);
    if (array->device_access != nullptr) {
      array->device_access->move(Direction::from_array, offset, static_cast<std::byte*>(to), size);
      return;
    }
    const auto offset_of = [offset](std::uint64_t) { return offset; };
    throw_failed(the_array,
                 hippogriff::ondemand::read_ranges(
                     RangeWalk(the_array.cache(), offset_of, size, 0, size == 0 ? 0 : 1),
                     hippogriff::ondemand::prefetch_window(the_array.cache(), 1),
                     static_cast<unsigned char*>(to)),
                 {offset, size});
  });
}

int hippogriff_array_write(hippogriff_storage_array* array,
                           uint64_t offset,
                           const void* from,
                           size_t size) {
  return guarded([&] {
    const StorageArray& the_array = writable(array, offset, size);
    require_memory(from, size);
    if (array->device_access != nullptr) {
      array->device_access->move(Direction::to_array, offset, unwritten(from), size);
      return;
    }
    throw_failed(
        the_array,
        hippogriff::ondemand::write_bytes(
            the_array.cache(), Alone{}, offset, size, static_cast<const unsigned char*>(from)),
        {offset, size});
  });
}

int hippogriff_array_gather(hippogriff_storage_array* array,
                            const uint64_t* rows,
                            size_t count,
                            size_t row_size,
                            void* to) {
  return guarded([&] {
    const StorageArray& the_array = readable(array, 0, 0);
    require_memory(rows, count);
    require_memory(to, count);
    const Rows given = checked_rows(the_array, {{rows, count}, row_size});
    if (array->device_access != nullptr) {
      array->device_access->move_rows(
          Direction::from_array, given.numbers, row_size, static_cast<std::byte*>(to));
      return;
    }
    gather(the_array, given, static_cast<unsigned char*>(to));
  });
}

int hippogriff_array_scatter(hippogriff_storage_array* array,
                             const uint64_t* rows,
                             size_t count,
                             size_t row_size,
                             const void* from) {
  return guarded([&] {
    const StorageArray& the_array = writable(array, 0, 0);
    require_memory(rows, count);
    require_memory(from, count);
    const Rows given = checked_rows(the_array, {{rows, count}, row_size});
    if (array->device_access != nullptr) {
      array->device_access->move_rows(
          Direction::to_array, given.numbers, row_size, unwritten(from));
      return;
    }
    // Lines that rows change in part are read many at once.
    const hippogriff::ondemand::Cache& cache = the_array.cache();
    const auto offset_of = [&](std::uint64_t row) { return given.numbers[row] * row_size; };
    const std::uint32_t window =
        row_size < cache.line_bytes() ? hippogriff::ondemand::prefetch_window(cache, 1) : 0;
    // In their order, by this thread: of two rows with the same number the last one stays.
    for (std::size_t i = 0; i < count; ++i) {
      if (window > 1 && i % window == 0) {
        hippogriff::ondemand::prefetch(
            RangeWalk(cache, offset_of, row_size, i, std::min<std::size_t>(count, i + window)),
            window);
      }
      throw_failed(
          the_array,
          hippogriff::ondemand::write_bytes(cache,
                                            Alone{},
                                            given.numbers[i] * row_size,
                                            row_size,
                                            static_cast<const unsigned char*>(from) + i * row_size),
          {given.numbers[i] * row_size, row_size});
    }
  });
}

int hippogriff_array_prefetch(hippogriff_storage_array* array, uint64_t offset, uint64_t size) {
  return guarded([&] {
    const StorageArray& the_array = readable(array, offset, size);
    if (array->device_access != nullptr && size != 0) {
      array->device_access->prefetch(offset, size);
    } else if (size != 0) {
      ask_ahead({.cache = the_array.cache(),
                 .base = offset,
                 .row_bytes = size,
                 .rows_there = 1,
                 .count = 1});
    }
  });
}

int hippogriff_array_prefetch_rows(hippogriff_storage_array* array,
                                   const uint64_t* rows,
                                   size_t count,
                                   size_t row_size) {
  return guarded([&] {
    const StorageArray& the_array = readable(array, 0, 0);
    require_memory(rows, count);
    const Rows given = checked_rows(the_array, {{rows, count}, row_size});
    if (array->device_access != nullptr && count != 0) {
      array->device_access->prefetch_rows(given.numbers, row_size);
    } else if (count != 0) {
      ask_ahead({.cache = the_array.cache(),
                 .row_bytes = row_size,
                 .rows_there = the_array.size_bytes() / row_size,
                 .numbers = reinterpret_cast<std::uint64_t>(rows),
                 .count = count});
    }
  });
}

int hippogriff_array_flush(hippogriff_storage_array* array) {
  return guarded([&] {
    StorageArray& the_array = array_of(array);
    if (array->device_access != nullptr) {
      array->device_access->flush();
    } else {
      the_array.flush();
    }
  });
}

int hippogriff_array_sync(hippogriff_storage_array* array) {
  return guarded([&] { array_of(array).sync(); });
}

int hippogriff_array_check(hippogriff_storage_array* array) {
  return guarded([&] { array_of(array).check(); });
}

int hippogriff_array_clear(hippogriff_storage_array* array) {
  return guarded([&] { array_of(array).clear_failure(); });
}

int hippogriff_array_get_statistics(hippogriff_storage_array* array,
                                    hippogriff_array_statistics* statistics) {
  return guarded([&] {
    StorageArray& the_array = array_of(array);
    if (statistics == nullptr || statistics->struct_size != sizeof(hippogriff_array_statistics)) {
      throw_invalid("tell statistics", "struct_size is not this library's");
    }
    const auto lines = the_array.counts();
    const auto served = the_array.served();
    *statistics = {.struct_size = sizeof(hippogriff_array_statistics),
                   .misses = lines.misses,
                   .overwritten = lines.overwritten,
                   .written_back = lines.written_back,
                   .reads = served.reads,
                   .read_bytes = served.read_bytes,
                   .writes = served.writes,
                   .written_bytes = served.written_bytes,
                   .failures = served.failures,
                   .metadata_bytes = the_array.metadata_bytes(),
                   .other_copies = served.other_copies,
                   .accesses = lines.accesses,
                   .hits = lines.hits(),
                   .in_flight = served.in_flight,
                   .loaded_bytes = the_array.loaded_bytes(),
                   .zero_copy_bytes = the_array.past_bytes(),
                   .hits_counted = lines.is_counted ? 1U : 0U};
  });
}

int hippogriff_array_explain(hippogriff_storage_array* array, char** json) {
  return guarded([&] {
    StorageArray& the_array = array_of(array);
    if (json == nullptr) {
      throw_invalid("explain array", "json is NULL");
    }
    *json = hippogriff::copy_string(hippogriff::ondemand::explain_array(
        the_array, hippogriff::current_runtime()->storage().queue_kind()));
  });
}
