// An array over a file of a known pattern, on a device host of its own, with faults on request.
#pragma once

#include "array/io_choice.hpp"
#include "array/overlay.hpp"
#include "array/storage_array.hpp"
#include "device/host_device.hpp"
#include "testing/faulty_storage.hpp"
#include "testing/storage_fixture.hpp"
#include "testing/temporary_folder.hpp"

#include <hippogriff/array/cursor.hpp>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace hippogriff::ondemand {

inline constexpr std::uint64_t usual_line_bytes = 512;

template <typename T>
std::vector<T> elements_of(const std::vector<std::byte>& bytes) {
  std::vector<T> elements(bytes.size() / sizeof(T));
  std::memcpy(elements.data(), bytes.data(), elements.size() * sizeof(T));
  return elements;
}

struct TestArrayOptions {
  std::uint64_t size_bytes = std::uint64_t{64} << 10;
  std::uint64_t cache_bytes = std::uint64_t{16} << 10;
  std::uint32_t line_bytes = usual_line_bytes;
  std::uint32_t queue_depth = 16;
  std::uint64_t counter_base = 0;
  bool in_memory = false;
  bool writable = true;
  std::uint64_t file_offset = 0;
  bool staged = false;
  std::size_t copiers = 0;
  std::size_t copiers_bytes_min = 1;  // of what they are given together
  std::uint32_t files = 1;
  std::uint64_t stripe_bytes = 0;  // 0: the files are copies of each other
  bool overlaid = false;           // mode c
  bool loaded = false;             // all of it, as when it is opened
  IoKind io = IoKind::cached;
  std::chrono::milliseconds wait_limit{60'000};
  std::shared_ptr<node::ArrayNotice> notice;
  std::shared_ptr<Device> device;          // null: one of its own
  std::shared_ptr<Controller> controller;  // null: one of its own
};

class TestArray {
 public:
  explicit TestArray(const TestArrayOptions& options) : options_(options) {
    const std::vector<std::byte> bytes = pattern(0, options.file_offset + options.size_bytes);
    for (std::uint32_t file = 0; file < options.files; ++file) {
      write_file(file, bytes);
    }
    storage_ = make_faulty_storage(make_system_storage(), plan_);
    controller_ = options.controller ? options.controller
                                     : std::make_shared<Controller>(
                                           storage_,
                                           2,
                                           CopyCrewOptions{.threads = options.copiers,
                                                           .bytes_min = options.copiers_bytes_min,
                                                           .bytes_a_call = 0});
    Backing backing;
    backing.size_bytes = options.size_bytes;
    backing.writable = options.writable;
    backing.name = path();
    if (options.in_memory) {
      memory_.assign(bytes.begin() + static_cast<std::ptrdiff_t>(options.file_offset), bytes.end());
      backing.memory = memory_;
    } else {
      for (std::uint32_t file = 0; file < options.files; ++file) {
        backing.files.push_back(
            {storage_->open(
                 path(file),
                 options.writable && !options.overlaid ? FileAccess::read_write : FileAccess::read),
             path(file)});
      }
      backing.stripe_bytes = options.stripe_bytes;
      backing.file_offset = options.file_offset;
    }
    choose_io(backing, {.kind = options.io, .line_bytes = options.line_bytes});
    is_direct_ = backing.is_direct;
    if (options.overlaid) {
      backing.overlay = std::make_shared<Overlay>(
          *storage_,
          OverlayOptions{.array = backing.name,
                         .size_bytes = options.size_bytes,
                         .line_bytes = options.line_bytes,
                         .folders = {folder_.file("none"), folder_.path().string()}});
    }
    StorageArrayOptions given;
    given.backing = std::move(backing);
    given.device = options.device ? options.device
                                  : make_host_device({.memory_bytes = std::uint64_t{64} << 20});
    given.controller = controller_;
    given.cache_bytes = options.cache_bytes;
    given.line_bytes = options.line_bytes;
    given.queue_count = 3;
    given.queue_depth = options.queue_depth;
    given.counter_base = options.counter_base;
    given.staged = options.staged;
    given.wait_limit = options.wait_limit;
    given.notice = options.notice;
    array_ = std::make_unique<StorageArray>(given);
    if (options.loaded) {
      std::memcpy(reinterpret_cast<void*>(array_->lines().value),
                  &bytes[options.file_offset],
                  options.size_bytes);
      array_->mark_loaded();
    }
  }

  [[nodiscard]] StorageArray& array() { return *array_; }

  [[nodiscard]] FaultPlan& plan() { return *plan_; }

  [[nodiscard]] std::string path(std::uint32_t file = 0) const {
    return folder_.file(file == 0 ? "array" : "array" + std::to_string(file));
  }

  [[nodiscard]] const TestArrayOptions& options() const { return options_; }

  // Whether IoKind::direct is possible here.
  [[nodiscard]] bool is_direct() const { return is_direct_; }

  [[nodiscard]] const std::shared_ptr<Controller>& controller() const { return controller_; }

  // Where the array is, as its controller shares it; nullptr: on no drive.
  [[nodiscard]] SharedDrive* drive() {
    const std::string name = drive_of(array_->backing());
    return name.empty() ? nullptr : &controller_->drives().drive(name);
  }

  void drop_controller() { controller_.reset(); }

  template <typename T>
  [[nodiscard]] array_view<T> view() {
    return {array_->cache(), array_->size_bytes() / sizeof(T)};
  }

  // What the file, the stripes or the memory hold now; `file` is the copy.
  [[nodiscard]] std::vector<std::byte> stored(std::uint32_t copy = 0) const {
    if (options_.in_memory) {
      return memory_;
    }
    if (options_.stripe_bytes == 0) {
      std::vector<std::byte> bytes = read_file(copy);
      bytes.resize(options_.size_bytes);
      return bytes;
    }
    std::vector<std::vector<std::byte>> parts;
    for (std::uint32_t file = 0; file < options_.files; ++file) {
      parts.push_back(read_file(file));
    }
    std::vector<std::byte> bytes;
    std::vector<std::size_t> taken(options_.files);
    for (std::uint32_t file = 0; bytes.size() < options_.size_bytes;
         file = (file + 1) % options_.files) {
      for (std::uint64_t i = 0; i < options_.stripe_bytes && bytes.size() < options_.size_bytes;
           ++i) {
        bytes.push_back(parts.at(file).at(taken[file]++));
      }
    }
    return bytes;
  }

 private:
  // The file's part of the array, byte by byte: a slow twin of the code under test.
  void write_file(std::uint32_t file, const std::vector<std::byte>& bytes) const {
    std::vector<std::byte> part;
    for (std::uint64_t i = 0; i < bytes.size(); ++i) {
      const bool before = i < options_.file_offset;
      const std::uint64_t at = before ? 0 : i - options_.file_offset;
      if (before || options_.stripe_bytes == 0 ||
          at / options_.stripe_bytes % options_.files == file) {
        part.push_back(bytes[i]);
      }
    }
    std::ofstream(path(file), std::ios::binary)
        .write(reinterpret_cast<const char*>(part.data()),
               static_cast<std::streamsize>(part.size()));
  }

  // What the file holds from the array's first byte on.
  [[nodiscard]] std::vector<std::byte> read_file(std::uint32_t number) const {
    std::ifstream file(path(number), std::ios::binary);
    file.seekg(0, std::ios::end);
    const auto size = static_cast<std::uint64_t>(file.tellg()) - options_.file_offset;
    file.seekg(static_cast<std::streamoff>(options_.file_offset));
    std::vector<std::byte> bytes(size);
    file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
    return bytes;
  }

  TestArrayOptions options_;
  bool is_direct_ = false;
  TemporaryFolder folder_;
  std::vector<std::byte> memory_;
  std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();
  std::shared_ptr<Storage> storage_;
  std::shared_ptr<Controller> controller_;
  std::unique_ptr<StorageArray> array_;
};

// Sends a command of the test's own to the array's first queue; `aborted` when the array has ended.
inline Outcome answer_to(const Cache& cache, const Command& command) {
  const QueuePair pair = cache.queue(0);
  std::uint64_t ticket = 0;
  if (!pair.take(Alone{}, 1, ticket, cache.patience)) {
    return {NvmeStatus::aborted, 0};
  }
  pair.post(ticket, command);
  if (!pair.finish(Alone{}, ticket, 1, cache.patience)) {
    return {NvmeStatus::aborted, 0};
  }
  const Outcome outcome = pair.outcome(ticket);
  pair.let_go(ticket);
  return outcome;
}

// Runs `work(thread)` on so many threads and waits for all.
inline void on_threads(int count, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < count; ++thread) {
    threads.emplace_back([&work, thread] { work(thread); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace hippogriff::ondemand
