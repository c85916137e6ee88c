// Loading, mapping and pinning what is not reached through an array.
#include "workloads/arrays/stored.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace {

// By several threads: one alone copies less than memory can.
void read_by_threads(const File& file, const Section& part, std::byte* to) {
  const std::uint64_t threads = std::clamp<std::uint64_t>(
      part.size_bytes >> 26U, 1, std::clamp(std::thread::hardware_concurrency(), 1U, 16U));
  std::vector<std::exception_ptr> failures(threads);
  std::vector<std::jthread> others;
  for (std::uint64_t i = 0; i < threads; ++i) {
    const std::uint64_t begin = part.size_bytes / threads * i;
    const std::uint64_t end =
        i + 1 == threads ? part.size_bytes : begin + part.size_bytes / threads;
    others.emplace_back([&, begin, end, i] {
      try {
        file.read(to + begin, end - begin, part.offset_bytes + begin);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    });
  }
  others.clear();
  for (const std::exception_ptr& failure : failures) {
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
}

}  // namespace

Mode mode_of(const std::string& name) {
  if (name == "array") {
    return Mode::array;
  }
  if (name == "resident") {
    return Mode::resident;
  }
  if (name == "zero-copy") {
    return Mode::zero_copy;
  }
  if (name == "tiled") {
    return Mode::tiled;
  }
  throw std::invalid_argument("no such mode: " + name);
}

void ReadCost::add(const ReadCost& other) {
  read_bytes += other.read_bytes;
  misses += other.misses;
  commands += other.commands;
  known = other.known;
}

void describe(JsonObject& json, const ReadCost& cost, std::uint64_t needed_bytes) {
  json.number("needed_bytes", needed_bytes);
  if (!cost.known) {
    json.raw("read_bytes", "null").raw("amplification", "null");
    return;
  }
  const auto needed = static_cast<double>(needed_bytes);
  json.number("read_bytes", cost.read_bytes);
  json.number("amplification", needed > 0 ? static_cast<double>(cost.read_bytes) / needed : 0.0);
  json.number("misses", cost.misses).number("commands", cost.commands);
}

PlainBytes::PlainBytes(const Storing& storing, const File& file, const Section& part) {
  if (part.size_bytes == 0) {
    return;
  }
  if (storing.mode == Mode::resident) {
    load(storing, file, part);
  } else if (storing.device.is_gpu()) {
    read(storing, file, part);
  } else {
    map(file, part);
  }
}

PlainBytes::~PlainBytes() {
  if (mapping_ != nullptr) {
    static_cast<void>(munmap(mapping_, mapping_bytes_));
  }
}

void PlainBytes::load(const Storing& storing, const File& file, const Section& part) {
  hippogriff::Options options;
  options.device = storing.device_name;
  loaded_ = hippogriff::send(file.fd(), part.offset_bytes, part.size_bytes, options);
  data_ = loaded_.data();
}

void PlainBytes::map(const File& file, const Section& part) {
  // Sections begin on pages of the file, if not always on those of the machine.
  constexpr std::uint64_t largest_page = 64U << 10U;
  const std::uint64_t before = part.offset_bytes % largest_page;
  mapping_bytes_ = part.size_bytes + before;
  void* mapped = mmap(nullptr,
                      mapping_bytes_,
                      PROT_READ,
                      MAP_SHARED,
                      file.fd(),
                      static_cast<off_t>(part.offset_bytes - before));
  if (mapped == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(), "map " + file.path());
  }
  mapping_ = mapped;
  data_ = static_cast<const std::byte*>(mapped) + before;
}

void PlainBytes::read(const Storing& storing, const File& file, const Section& part) {
  pinned_ = std::make_unique<PinnedMemory>(storing.device, part.size_bytes);
  read_by_threads(file, part, pinned_->get());
  data_ = pinned_->get();
}
