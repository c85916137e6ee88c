// Arrays that live in storage, for C++: opened here, used by threads through views
// (array/view.hpp). Kernels: array.cuh. Failures of calls are TransferError; those of accesses, see
// the view.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_HPP_
#define HIPPOGRIFF_ARRAY_HPP_

#include <hippogriff/array.h>
#include <hippogriff/array/cursor.hpp>
#include <hippogriff/array/prefetch.hpp>
#include <hippogriff/hippogriff.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace hippogriff::inline v0 {

// Sizes in bytes; 0 and null mean what array.h says of them. The strings must stay until the array
// is open.
// NOLINTNEXTLINE(readability-identifier-naming): a container, named as the standard ones are.
struct array_options {
  const char* mode = "r";  // "r", "r+", "w+", "c"
  const char* device = nullptr;
  std::uint64_t cache_size = 0;
  std::uint32_t line_size = 0;
  std::uint64_t offset = 0;  // in the file
  std::uint64_t count = 0;   // of elements; 0: as many as there are
  std::uint32_t queue_count = 0;
  std::uint32_t queue_depth = 0;
  std::chrono::milliseconds wait_limit{0};
  const char* layout = nullptr;   // of several files: "striped" or "replicated"
  std::uint64_t stripe_size = 0;  // in bytes
  const char* overlay_folder = nullptr;
  const char* io = nullptr;    // "auto", "cached", "direct"
  const char* load = nullptr;  // "auto", "all", "none"
};

// Move-only. Threads that use it, or its views, must have ended when it is; what they wrote stays
// if it was flushed.
template <typename T>
// NOLINTNEXTLINE(readability-identifier-naming): a container, named as the standard ones are.
class array {
  static_assert(std::is_trivially_copyable_v<T>, "elements are moved as bytes");

 public:
  explicit array(const std::filesystem::path& path, const array_options& options = {}) {
    const std::string name = path.string();
    open(options, [&](hippogriff_array_options& raw) {
      raw.path = name.c_str();
      raw.size = size_of(options);
    });
  }

  // Several files, as options.layout says.
  explicit array(std::span<const std::filesystem::path> paths, const array_options& options = {}) {
    std::vector<std::string> names;
    std::vector<const char*> pointers;
    for (const std::filesystem::path& path : paths) {
      names.push_back(path.string());
    }
    for (const std::string& name : names) {
      pointers.push_back(name.c_str());
    }
    open(options, [&](hippogriff_array_options& raw) {
      raw.paths = pointers.data();
      raw.path_count = pointers.size();
      raw.size = size_of(options);
    });
  }

  // Host memory, which must stay: options.count elements, else all. Throws std::length_error when
  // it has not as many.
  explicit array(std::span<T> memory, const array_options& options = {}) {
    if (options.count > memory.size()) {
      throw std::length_error("open array: the memory has fewer elements than count says");
    }
    open(options, [&](hippogriff_array_options& raw) {
      raw.memory = memory.data();
      raw.size = options.count == 0 ? memory.size_bytes() : size_of(options);
    });
  }

  // Elements; bytes at the end that are no whole element do not count.
  [[nodiscard]] std::uint64_t size() const { return view_.size(); }

  // What threads of the array's device take.
  [[nodiscard]] const array_view<T>& view() const { return view_; }

  // Hints, see hippogriff_array_prefetch: `count` elements from `first` on, or elements by their
  // indices, on their way into the cache. Wait for none of them. Throw for what is beyond the end.
  void prefetch(std::uint64_t first, std::uint64_t count) const {
    constexpr std::uint64_t most = UINT64_MAX / sizeof(T);  // what is more is refused as well
    const bool fits = first <= most && count <= most;
    check(hippogriff_array_prefetch(
        get(), fits ? first * sizeof(T) : UINT64_MAX, fits ? count * sizeof(T) : 1));
  }

  void prefetch(std::span<const std::uint64_t> indices) const {
    check(hippogriff_array_prefetch_rows(get(), indices.data(), indices.size(), sizeof(T)));
  }

  // On a GPU after what is on the default stream; on another one: hippogriff::flush of array.cuh.
  void flush() { check(hippogriff_array_flush(get())); }

  void sync() { check(hippogriff_array_sync(get())); }

  // Throws the first failure of any thread's access.
  void check_accesses() const { check(hippogriff_array_check(get())); }

  // Throws what has ended the array, or its flushes, which stays.
  void clear_failure() { check(hippogriff_array_clear(get())); }

  [[nodiscard]] hippogriff_array_statistics statistics() const {
    hippogriff_array_statistics result{};
    result.struct_size = sizeof result;
    check(hippogriff_array_get_statistics(get(), &result));
    return result;
  }

  // JSON of hippogriff_array_explain.
  [[nodiscard]] std::string explain() const {
    char* json = nullptr;
    check(hippogriff_array_explain(get(), &json));
    const std::unique_ptr<char, decltype(&hippogriff_free_string)> held(json,
                                                                        &hippogriff_free_string);
    return json;
  }

  [[nodiscard]] hippogriff_storage_array* get() const { return handle_.get(); }

 private:
  struct Close {
    void operator()(hippogriff_storage_array* handle) const {
      static_cast<void>(hippogriff_array_close(handle));
    }
  };

  static void check(int status) {
    if (status != HIPPOGRIFF_OK) {
      detail::throw_last_error();
    }
  }

  static std::uint64_t size_of(const array_options& options) {
    return options.count > SIZE_MAX / sizeof(T) ? SIZE_MAX : options.count * sizeof(T);
  }

  template <typename Fill>
  void open(const array_options& options, Fill fill) {
    check(hippogriff_init());
    hippogriff_array_options raw{};
    raw.struct_size = sizeof raw;
    raw.offset = options.offset;
    raw.mode = options.mode;
    raw.device = options.device;
    raw.cache_size = options.cache_size;
    raw.line_size = options.line_size;
    raw.queue_count = options.queue_count;
    raw.queue_depth = options.queue_depth;
    raw.wait_limit_ms = options.wait_limit.count();
    raw.layout = options.layout;
    raw.stripe_size = options.stripe_size;
    raw.overlay_folder = options.overlay_folder;
    raw.io = options.io;
    raw.load = options.load;
    fill(raw);
    hippogriff_storage_array* opened = nullptr;
    check(hippogriff_array_open(&raw, &opened));
    handle_.reset(opened);
    ondemand::Cache cache;
    check(hippogriff_array_view(opened, &cache, sizeof cache, ondemand::view_layout));
    view_ = array_view<T>(cache, cache.size_bytes / sizeof(T));
  }

  std::unique_ptr<hippogriff_storage_array, Close> handle_;
  array_view<T> view_;
};

}  // namespace hippogriff::inline v0

#endif  // HIPPOGRIFF_ARRAY_HPP_
