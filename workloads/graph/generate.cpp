// Draws edges by a hash of their numbers, counts, then fills as many lists at a time as fit.
#include "workloads/graph/generate.hpp"

#include "workloads/graph/edges.hpp"
#include "workloads/graph/graph_file.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace {

// Calls act(i, thread) for all below `count`, in blocks, on all cores.
template <typename Act>
void in_parallel(std::uint64_t count, const Act& act) {
  constexpr std::uint64_t block = 4096;
  std::atomic<std::uint64_t> next = 0;
  const auto take = [&] {
    for (std::uint64_t first = next.fetch_add(block); first < count;
         first = next.fetch_add(block)) {
      for (std::uint64_t i = first; i < std::min(first + block, count); ++i) {
        act(i);
      }
    }
  };
  std::vector<std::jthread> others;
  for (unsigned i = 1; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
    others.emplace_back(take);
  }
  take();
}

void count_one(std::uint64_t& counter) {
  std::atomic_ref<std::uint64_t>(counter).fetch_add(1, std::memory_order_relaxed);
}

// How often each vertex is drawn, as offsets: what precedes each vertex.
std::vector<std::uint64_t> drawn_before(const Edges& edges) {
  std::vector<std::uint64_t> before(edges.vertices() + 1);
  in_parallel(edges.count(), [&](std::uint64_t i) {
    const auto [a, b] = edges.at(i);
    if (a != b) {
      count_one(before[a + 1]);
      count_one(before[b + 1]);
    }
  });
  for (std::size_t i = 1; i < before.size(); ++i) {
    before[i] += before[i - 1];
  }
  return before;
}

// The lists of vertices `first` to `last`, in memory.
class Lists {
 public:
  Lists(const std::vector<std::uint64_t>& before, std::uint64_t first, std::uint64_t last)
      : before_(before),
        first_(first),
        filled_(last - first),
        neighbours_(before[last] - before[first]) {}

  void draw(const Edges& edges) {
    in_parallel(edges.count(), [&](std::uint64_t i) {
      const auto [a, b] = edges.at(i);
      if (a != b) {
        add(a, b);
        add(b, a);
      }
    });
  }

  // Sorts the lists and leaves out what is there twice; then they are that long.
  void sort() {
    in_parallel(filled_.size(), [&](std::uint64_t i) {
      const auto begin = list(i);
      const auto end = begin + static_cast<std::ptrdiff_t>(filled_[i]);
      std::sort(begin, end);
      filled_[i] = static_cast<std::uint64_t>(std::unique(begin, end) - begin);
    });
  }

  // Moves the lists together; the offsets of their ends in the file go to `ends`.
  [[nodiscard]] const std::vector<Vertex>& packed(std::uint64_t offset, std::uint64_t* ends) {
    auto to = neighbours_.begin();
    for (std::uint64_t i = 0; i < filled_.size(); ++i) {
      const auto begin = list(i);
      to = std::copy(begin, begin + static_cast<std::ptrdiff_t>(filled_[i]), to);
      offset += filled_[i];
      ends[i] = offset;
    }
    neighbours_.erase(to, neighbours_.end());
    return neighbours_;
  }

 private:
  [[nodiscard]] std::vector<Vertex>::iterator list(std::uint64_t i) {
    return neighbours_.begin() + static_cast<std::ptrdiff_t>(before_[first_ + i] - before_[first_]);
  }

  void add(std::uint64_t owner, std::uint64_t neighbour) {
    if (owner < first_ || owner - first_ >= filled_.size()) {
      return;
    }
    const std::uint64_t place = std::atomic_ref<std::uint64_t>(filled_[owner - first_])
                                    .fetch_add(1, std::memory_order_relaxed);
    neighbours_[before_[owner] - before_[first_] + place] = static_cast<Vertex>(neighbour);
  }

  const std::vector<std::uint64_t>& before_;
  std::uint64_t first_;
  std::vector<std::uint64_t> filled_;
  std::vector<Vertex> neighbours_;
};

// The first vertex whose list does not fit any more; at least one's does.
std::uint64_t end_of_part(const std::vector<std::uint64_t>& before,
                          std::uint64_t first,
                          std::uint64_t memory_bytes) {
  const std::uint64_t limit = before[first] + memory_bytes / sizeof(Vertex);
  const auto end = std::upper_bound(
      before.begin() + static_cast<std::ptrdiff_t>(first) + 1, before.end(), limit);
  return std::max(first + 1, static_cast<std::uint64_t>(end - before.begin()) - 1);
}

}  // namespace

void generate_graph(const std::string& path, const GraphWish& wish) {
  const Edges edges(wish);
  GraphWriter writer(path, edges.vertices());
  const std::vector<std::uint64_t> before = drawn_before(edges);
  std::vector<std::uint64_t> offsets(edges.vertices() + 1);
  std::uint64_t written = 0;
  for (std::uint64_t first = 0; first < edges.vertices();) {
    const std::uint64_t last = end_of_part(before, first, wish.memory_bytes);
    Lists lists(before, first, last);
    lists.draw(edges);
    lists.sort();
    const std::vector<Vertex>& packed = lists.packed(written, &offsets[first + 1]);
    writer.file().write(
        packed.data(), packed.size() * sizeof(Vertex), writer.place_of_neighbour(written));
    written += packed.size();
    first = last;
  }
  writer.file().write(
      offsets.data(), offsets.size() * sizeof(std::uint64_t), writer.place_of_offsets());
  writer.finish(written);
}
