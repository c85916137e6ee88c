// A part of a file as kernels get it: through an array in storage, loaded into device memory, or
// where the host has it.
#pragma once

#include "workloads/arrays/arguments.hpp"
#include "workloads/arrays/warp.hpp"
#include "workloads/papers/copies.hpp"
#include "workloads/papers/file.hpp"
#include "workloads/sharing/device.hpp"

#include <hippogriff/array.hpp>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

enum class Mode {
  array,      // hippogriff::array
  resident,   // device memory, loaded as a whole by hippogriff::send
  zero_copy,  // host memory that the device reads: a mapping on device host, pinned for a GPU
  tiled,      // device memory, a part after the other: for programs with a way for it (tiles.hpp)
};

Mode mode_of(const std::string& name);  // std::invalid_argument

// Of a run, for all of its parts.
struct Storing {
  Mode mode = Mode::array;
  Device& device;
  std::string device_name;
  std::uint64_t cache_bytes = 0;  // of each array
  std::uint32_t line_bytes = 0;
};

// What an array cost. Added up over the arrays of a run.
struct ReadCost {
  std::uint64_t read_bytes = 0;
  std::uint64_t misses = 0;
  std::uint64_t commands = 0;
  bool known = false;  // of memory that the host has nobody counts what is read

  void add(const ReadCost& other);
};

// Puts down what was read, and what of it was needed.
void describe(JsonObject& json, const ReadCost& cost, std::uint64_t needed_bytes);

// Memory with a part of a file in it.
class PlainBytes {
 public:
  PlainBytes(const Storing& storing, const File& file, const Section& part);
  ~PlainBytes();
  PlainBytes(const PlainBytes&) = delete;
  PlainBytes& operator=(const PlainBytes&) = delete;

  [[nodiscard]] const void* get() const { return data_; }

 private:
  void load(const Storing& storing, const File& file, const Section& part);
  void map(const File& file, const Section& part);
  void read(const Storing& storing, const File& file, const Section& part);

  const void* data_ = nullptr;
  hippogriff::DeviceBuffer loaded_;
  std::unique_ptr<PinnedMemory> pinned_;
  void* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
};

// Throws hippogriff::TransferError, std::system_error or std::runtime_error. hippogriff must have
// been started, and be ended later.
template <typename T>
class StoredData {
 public:
  StoredData(const Storing& storing, const File& file, const Section& part)
      : mode_(storing.mode), part_(part) {
    if (mode_ != Mode::array) {
      plain_ = std::make_unique<PlainBytes>(storing, file, part);
      return;
    }
    array_ = std::make_unique<hippogriff::array<T>>(
        file.path(),
        hippogriff::array_options{.device = storing.device_name.c_str(),
                                  .cache_size = storing.cache_bytes,
                                  .line_size = storing.line_bytes,
                                  .offset = part.offset_bytes,
                                  .count = part.size_bytes / sizeof(T),
                                  .load = "none"});  // loading all is measured beside it
  }

  [[nodiscard]] bool is_array() const { return array_ != nullptr; }

  [[nodiscard]] const hippogriff::array_view<T>& view() const { return array_->view(); }

  [[nodiscard]] PlainData<T> plain() const {
    return {static_cast<const T*>(plain_->get()), part_.size_bytes / sizeof(T)};
  }

  // Calls act with what kernels take.
  template <typename Act>
  auto with(const Act& act) const {
    return is_array() ? act(view()) : act(plain());
  }

  // Throws the first failure of an access.
  void check() const {
    if (is_array()) {
      array_->check_accesses();
    }
  }

  [[nodiscard]] ReadCost cost() const {
    if (is_array()) {
      const hippogriff_array_statistics facts = array_->statistics();
      return {facts.read_bytes, facts.misses, facts.reads, true};
    }
    return {part_.size_bytes, 0, 0, mode_ == Mode::resident};
  }

 private:
  Mode mode_;
  Section part_;
  std::unique_ptr<hippogriff::array<T>> array_;
  std::unique_ptr<PlainBytes> plain_;
};
