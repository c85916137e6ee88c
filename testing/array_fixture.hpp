// An array over a file of a known pattern, on a device host of its own, with faults on request.
#pragma once

#include "array/storage_array.hpp"
#include "device/host_device.hpp"
#include "testing/faulty_storage.hpp"
#include "testing/storage_fixture.hpp"
#include "testing/temporary_folder.hpp"

#include <hippogriff/array/view.hpp>

#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace hippogriff::ondemand {

struct TestArrayOptions {
  std::uint64_t size_bytes = std::uint64_t{64} << 10;
  std::uint64_t cache_bytes = std::uint64_t{16} << 10;
  std::uint32_t line_bytes = 512;
  std::uint32_t queue_depth = 16;
  std::uint64_t counter_base = 0;
  bool in_memory = false;
  bool writable = true;
  std::uint64_t file_offset = 0;
  bool staged = false;
};

class TestArray {
 public:
  explicit TestArray(const TestArrayOptions& options) : options_(options) {
    const std::vector<std::byte> bytes = pattern(0, options.file_offset + options.size_bytes);
    std::ofstream(path(), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    storage_ = make_faulty_storage(make_system_storage(), plan_);
    controller_ = std::make_shared<Controller>(storage_, 2);
    Backing backing;
    backing.size_bytes = options.size_bytes;
    backing.writable = options.writable;
    backing.name = path();
    if (options.in_memory) {
      memory_.assign(bytes.begin() + static_cast<std::ptrdiff_t>(options.file_offset), bytes.end());
      backing.memory = memory_;
    } else {
      backing.file =
          storage_->open(path(), options.writable ? FileAccess::read_write : FileAccess::read);
      backing.file_offset = options.file_offset;
    }
    StorageArrayOptions given;
    given.backing = std::move(backing);
    given.device = make_host_device({.memory_bytes = std::uint64_t{64} << 20});
    given.controller = controller_;
    given.cache_bytes = options.cache_bytes;
    given.line_bytes = options.line_bytes;
    given.queue_count = 3;
    given.queue_depth = options.queue_depth;
    given.counter_base = options.counter_base;
    given.staged = options.staged;
    array_ = std::make_unique<StorageArray>(given);
  }

  [[nodiscard]] StorageArray& array() { return *array_; }

  [[nodiscard]] FaultPlan& plan() { return *plan_; }

  [[nodiscard]] std::string path() const { return folder_.file("array"); }

  void drop_controller() { controller_.reset(); }

  template <typename T>
  [[nodiscard]] array_view<T> view() {
    return {array_->cache(), array_->size_bytes() / sizeof(T)};
  }

  // What the file, or the memory, holds now.
  [[nodiscard]] std::vector<std::byte> stored() const {
    if (options_.in_memory) {
      return memory_;
    }
    std::ifstream file(path(), std::ios::binary);
    file.seekg(static_cast<std::streamoff>(options_.file_offset));
    std::vector<std::byte> bytes(options_.size_bytes);
    file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return bytes;
  }

 private:
  TestArrayOptions options_;
  TemporaryFolder folder_;
  std::vector<std::byte> memory_;
  std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();
  std::shared_ptr<Storage> storage_;
  std::shared_ptr<Controller> controller_;
  std::unique_ptr<StorageArray> array_;
};

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
