// Draws, sorts and counts on a device, part by part; the runtime writes what is in its memory.
#include "workloads/arrays/warp_launch.hpp"
#include "workloads/graph/generate_kernel.hpp"
#include "workloads/graph/graph_file.hpp"

#include <hippogriff/hippogriff.hpp>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#if !HIPPOGRIFF_HAS_CUDA
namespace {

[[noreturn]] void throw_no_cuda() {
  throw std::runtime_error("built without CUDA");
}

}  // namespace

void gpu_running_sum(Count* /*values*/, std::uint64_t /*count*/) {
  throw_no_cuda();
}

Count* gpu_sort(Count* /*keys*/, Count* /*other*/, std::uint64_t /*count*/, unsigned /*bits*/) {
  throw_no_cuda();
}

void gpu_unique(const Count* /*from*/, Count* /*to*/, std::uint64_t /*count*/, Count* /*kept*/) {
  throw_no_cuda();
}

std::uint64_t gpu_free_bytes() {
  throw_no_cuda();
}
#endif

namespace {

// What CUB works with comes to less than a byte for each key.
constexpr std::uint64_t bytes_a_key = 2 * sizeof(Count) + 1;
constexpr std::uint64_t bytes_left = std::uint64_t{256} << 20U;

// Vertices whose lists are made at the same time, and how many neighbours are drawn for them.
struct Part {
  std::uint64_t first;
  std::uint64_t last;
  std::uint64_t drawn;
};

class Maker {
 public:
  Maker(Device& device, std::string device_name, const std::string& path, const GraphWish& wish)
      : device_(device),
        device_name_(std::move(device_name)),
        wish_(wish),
        edges_(wish),
        writer_(path, edges_.vertices()),
        counts_(device,
                DeviceMemory::rounded((edges_.vertices() + 1) * sizeof(Count)) +
                    DeviceMemory::rounded(sizeof(Count))),
        offsets_(counts_.cut<Count>(edges_.vertices() + 1)),
        kept_(counts_.cut<Count>(1)) {}

  void run() {
    run_for_all(device_, ClearCounts{offsets_}, edges_.vertices() + 1);
    run_for_all(device_, CountDrawn{edges_, offsets_}, edges_.count());
    sum_up();
    const std::vector<Part> parts = parts_of_all();
    std::uint64_t most = 1;
    for (const Part& part : parts) {
      most = std::max(most, part.drawn);
    }
    DeviceMemory memory(device_, 2 * DeviceMemory::rounded(most * sizeof(Count)));
    keys_ = memory.cut<Count>(most);
    other_ = memory.cut<Count>(most);
    std::uint64_t written = 0;
    for (const Part& part : parts) {
      written += make(part, written);
    }
    write(offsets_, (edges_.vertices() + 1) * sizeof(Count), writer_.place_of_offsets());
    writer_.finish(written);
  }

 private:
  [[nodiscard]] Count get(const Count* from) const {
    Count value = 0;
    device_.copy_out(&value, from, sizeof value);
    return value;
  }

  void sum_up() {
    const std::uint64_t count = edges_.vertices() + 1;
    if (device_.is_gpu()) {
      gpu_running_sum(offsets_, count);
    } else {
      std::partial_sum(offsets_, offsets_ + count, offsets_);
    }
  }

  // How many neighbours a part may have, unless a list alone is longer.
  [[nodiscard]] std::uint64_t drawn_max() const {
    std::uint64_t most = std::min(wish_.memory_bytes / sizeof(Vertex), keys_sorted_max);
    if (device_.is_gpu()) {
      const std::uint64_t free_bytes = gpu_free_bytes();
      const std::uint64_t usable = free_bytes < bytes_left ? 0 : free_bytes - bytes_left;
      most = std::min(most, usable / bytes_a_key);
    }
    return most;
  }

  // From what is drawn for the vertices before each.
  [[nodiscard]] std::vector<Part> parts_of_all() const {
    const std::uint64_t most = drawn_max();
    std::vector<Part> parts;
    Count before = 0;
    for (std::uint64_t first = 0; first < edges_.vertices();) {
      std::uint64_t last = first + 1;
      for (std::uint64_t high = edges_.vertices(); last < high;) {
        const std::uint64_t middle = high - (high - last) / 2;
        if (get(offsets_ + middle) <= before + most) {
          last = middle;
        } else {
          high = middle - 1;
        }
      }
      const Count up_to = get(offsets_ + last);
      if (up_to - before > keys_sorted_max) {
        throw std::runtime_error("a vertex has more than 2^30 neighbours: make it on device host");
      }
      parts.push_back({first, last, up_to - before});
      before = up_to;
      first = last;
    }
    return parts;
  }

  // Makes lists and their ends, writes the lists, and tells how many neighbours they have.
  std::uint64_t make(const Part& part, std::uint64_t written) {
    const Count none = 0;
    device_.copy_in(kept_, &none, sizeof none);
    const DrawPart draw{edges_, part.first, part.last, wish_.scale, keys_, part.drawn, kept_};
    run_warps(device_, draw, draw.items());
    if (get(kept_) != part.drawn) {
      throw std::runtime_error("edges drawn again are others: " + std::to_string(get(kept_)) +
                               " instead of " + std::to_string(part.drawn));
    }
    sort(part);
    const std::uint64_t count = leave_out_repetitions(part.drawn);
    run_for_all(device_,
                ListEnds{keys_, count, wish_.scale, written, offsets_ + part.first + 1},
                part.last - part.first);
    auto* const neighbours = reinterpret_cast<Vertex*>(other_);
    run_for_all(device_, TakeNeighbours{keys_, (Count{1} << wish_.scale) - 1, neighbours}, count);
    write(neighbours, count * sizeof(Vertex), writer_.place_of_neighbour(written));
    return count;
  }

  void sort(const Part& part) {
    if (!device_.is_gpu()) {
      std::sort(keys_, keys_ + part.drawn);
    } else if (part.drawn != 0) {
      unsigned bits = wish_.scale;  // of an owner, beside as many of the neighbour
      while (bits > 0 && (part.last - part.first - 1) >> (bits - 1) == 0) {
        --bits;
      }
      if (gpu_sort(keys_, other_, part.drawn, wish_.scale + bits) != keys_) {
        std::swap(keys_, other_);
      }
    }
  }

  std::uint64_t leave_out_repetitions(std::uint64_t drawn) {
    if (!device_.is_gpu()) {
      return static_cast<std::uint64_t>(std::unique(keys_, keys_ + drawn) - keys_);
    }
    if (drawn == 0) {
      return 0;
    }
    gpu_unique(keys_, other_, drawn, kept_);
    std::swap(keys_, other_);
    return get(kept_);
  }

  void write(void* from, std::uint64_t size_bytes, std::uint64_t offset) const {
    if (size_bytes != 0) {
      hippogriff::Options options;
      options.device = device_name_;
      hippogriff::recv(writer_.file().fd(), {from, size_bytes}, offset, options);
    }
  }

  Device& device_;
  std::string device_name_;
  GraphWish wish_;
  Edges edges_;
  GraphWriter writer_;
  DeviceMemory counts_;
  Count* offsets_;
  Count* kept_;
  Count* keys_ = nullptr;
  Count* other_ = nullptr;
};

}  // namespace

void generate_graph_on(Device& device,
                       const std::string& device_name,
                       const std::string& path,
                       const GraphWish& wish) {
  const hippogriff::Runtime runtime;
  Maker(device, device_name, path, wish).run();
}
