// Parts of files that come through device memory tile by tile, by hippogriff's sends: kernels work
// on one tile while the next are read. What tiling by hand is, once for all programs.
#pragma once

#include "workloads/arrays/kernel_mark.hpp"
#include "workloads/arrays/stored.hpp"

#include <hippogriff/hippogriff.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

// A part of a file. Of the parts that are read together each has as many elements.
struct TiledPart {
  const File& file;
  Section part;
};

struct TileShape {
  std::uint64_t elements = 0;       // of a tile, in each part
  std::uint64_t slots = 0;          // room for so many tiles; two or more, or there is one tile
  std::uint64_t element_bytes = 0;  // in each part
};

struct TileWish {
  std::uint64_t cache_bytes = 0;     // of all tiles that are in memory
  std::uint64_t tile_bytes_max = 0;  // of one
};

// Four tiles or more at a time, of whole pages of the files where they are that large. At least two
// of one element, whatever that takes.
TileShape tile_shape(const TileWish& wish, std::uint64_t element_bytes, std::uint64_t parts);

// --tile: the most bytes of a tile.
std::uint64_t tile_bytes_wish(Arguments& words);

// A tile in device memory.
struct Tile {
  Range elements;  // of the parts
  std::uint64_t slot = 0;
  std::byte* memory = nullptr;
  std::uint64_t part_bytes = 0;  // from one part's elements to the next one's

  template <typename T>
  [[nodiscard]] const T* part(std::uint64_t index) const {
    return reinterpret_cast<const T*>(memory + index * part_bytes);
  }
};

// Used from one thread. Functions throw hippogriff::TransferError, std::runtime_error or, for
// arguments that cannot be, std::invalid_argument; what was thrown by one pass does not spoil the
// next. hippogriff must have been started, and be ended later.
class Tiles {
 public:
  Tiles(std::vector<TiledPart> parts,
        const TileShape& shape,
        const Device& device,
        const std::string& device_name);

  // The same with marks that something else makes.
  Tiles(std::vector<TiledPart> parts,
        const TileShape& shape,
        const std::function<std::unique_ptr<KernelMark>()>& make_mark,
        const std::string& device_name);

  [[nodiscard]] std::uint64_t count() const { return count_; }

  [[nodiscard]] const TileShape& shape() const { return shape_; }

  // Of all parts together.
  [[nodiscard]] std::uint64_t tile_bytes() const {
    return shape_.elements * shape_.element_bytes * parts_.size();
  }

  // Numbers of all tiles. Who goes through them again and again, forwards and backwards in turns,
  // finds the last ones in memory.
  [[nodiscard]] std::vector<std::uint64_t> all(bool backwards) const;

  // Calls act(tile) for each of these tiles, which are all different, in their order. Kernels that
  // act puts on the default stream need not be waited for: a tile's memory is read into again when
  // they are through. Does not wait for the last ones.
  template <typename Act>
  void through(const std::vector<std::uint64_t>& order, const Act& act) {
    begin(order);
    Slot* before = nullptr;
    for (const std::uint64_t number : order) {
      Slot& slot = arrived(number);
      if (before != nullptr && before->kernels->passed()) {
        before->wanted = false;
        before = nullptr;
      }
      read_ahead();
      try {
        act(tile_in(slot));
      } catch (...) {
        slot.kernels->set();  // behind what it has put there
        throw;
      }
      slot.kernels->set();
      if (before != nullptr) {
        before->wanted = false;
        read_ahead();  // waits for its kernels, with this one's behind them: the GPU does not run
                       // dry
      }
      before = &slot;
    }
  }

  [[nodiscard]] ReadCost cost() const { return cost_; }

 private:
  static constexpr std::uint64_t nothing = ~std::uint64_t{0};

  struct Slot {
    std::uint64_t tile = nothing;
    bool wanted = false;      // by what is still to come, or by kernels
    std::uint64_t begun = 0;  // when its tile came to it
    hippogriff::DeviceBuffer memory;
    std::unique_ptr<KernelMark> kernels;
    std::vector<hippogriff::Transfer> transfers;
  };

  void begin(const std::vector<std::uint64_t>& order);
  Slot& arrived(std::uint64_t number);
  void read_ahead();
  void fetch(Slot& slot, std::uint64_t number);
  void forget(Slot& slot) noexcept;
  [[nodiscard]] Slot* holder_of(std::uint64_t number);
  [[nodiscard]] Slot* free_slot();
  [[nodiscard]] bool may_ask() const;
  [[nodiscard]] Range elements_of(std::uint64_t number) const;
  [[nodiscard]] Tile tile_in(const Slot& slot) const;

  std::vector<TiledPart> parts_;
  TileShape shape_;
  std::uint64_t elements_;
  std::uint64_t count_;
  hippogriff::Options options_;
  ReadCost cost_;
  std::vector<Slot> slots_;
  std::vector<std::uint64_t> order_;
  std::size_t next_ = 0;  // of the order: the first that nobody has asked for
  std::uint64_t fetched_ = 0;
};

// Puts down how large tiles are, and how many there is room for.
void describe(JsonObject& json, const Tiles& tiles);
