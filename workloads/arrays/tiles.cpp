// Which tile is read when, and where to.
#include "workloads/arrays/tiles.hpp"

#include <algorithm>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace {

constexpr std::uint64_t slots_min = 4;
constexpr std::uint64_t slots_max = 1024;  // each has an allocation and an event, and is looked at
// Tiles that are read at the same time: enough for any drive, and the next one comes soon.
constexpr std::uint64_t reads_max = 4;
constexpr std::uint64_t page_bytes = 4096;

}  // namespace

TileShape tile_shape(const TileWish& wish, std::uint64_t element_bytes, std::uint64_t parts) {
  const std::uint64_t row_bytes = element_bytes * parts;
  const std::uint64_t tile_bytes = std::min(wish.cache_bytes / slots_min, wish.tile_bytes_max);
  std::uint64_t elements = std::max<std::uint64_t>(tile_bytes / row_bytes, 1);
  const std::uint64_t of_a_page = page_bytes / element_bytes;
  if (of_a_page > 0 && elements >= of_a_page) {
    elements -= elements % of_a_page;
  }
  const std::uint64_t slots = wish.cache_bytes / (elements * row_bytes);
  return {elements, std::clamp<std::uint64_t>(slots, 2, slots_max), element_bytes};
}

std::uint64_t tile_bytes_wish(Arguments& words) {
  return words.number(
      {"tile", std::uint64_t{32} << 20U, 1, std::uint64_t{1} << 40U, "bytes of a tile, at most"});
}

void describe(JsonObject& json, const Tiles& tiles) {
  json.number("tile_bytes", tiles.tile_bytes()).number("tiles_in_memory", tiles.shape().slots);
}

Tiles::Tiles(std::vector<TiledPart> parts,
             const TileShape& shape,
             const Device& device,
             const std::string& device_name)
    : Tiles(std::move(parts), shape, [&] { return open_mark(device); }, device_name) {}

Tiles::Tiles(std::vector<TiledPart> parts,
             const TileShape& shape,
             const std::function<std::unique_ptr<KernelMark>()>& make_mark,
             const std::string& device_name)
    : parts_(std::move(parts)),
      shape_(shape),
      elements_(parts_.at(0).part.size_bytes / shape.element_bytes),
      count_(parts_of(elements_, std::max<std::uint64_t>(shape.elements, 1))) {
  for (const TiledPart& each : parts_) {
    if (each.part.size_bytes != parts_[0].part.size_bytes) {
      throw std::invalid_argument("tiles: parts that are read together are as long");
    }
  }
  if (shape_.elements == 0 || (shape_.slots < 2 && count_ > 1)) {
    throw std::invalid_argument("tiles: there is room for two, and each has elements");
  }
  options_.device = device_name;
  cost_.known = true;
  shape_.elements = std::min(shape_.elements, elements_);
  shape_.slots = std::min(shape_.slots, count_);
  slots_.resize(shape_.slots);
  for (Slot& slot : slots_) {
    slot.memory = hippogriff::DeviceBuffer(tile_bytes(), device_name);
    slot.kernels = make_mark();
  }
}

std::vector<std::uint64_t> Tiles::all(bool backwards) const {
  std::vector<std::uint64_t> order(count_);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  if (backwards) {
    std::reverse(order.begin(), order.end());
  }
  return order;
}

// Of the tiles that are in memory those stay that come so soon that all others find room behind
// them.
void Tiles::begin(const std::vector<std::uint64_t>& order) {
  std::vector<std::uint64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end() ||
      (!sorted.empty() && sorted.back() >= count_)) {
    throw std::invalid_argument("going through tiles: each comes once, and there are " +
                                std::to_string(count_));
  }
  order_ = order;
  next_ = 0;
  for (Slot& slot : slots_) {
    slot.wanted = false;
    if (!slot.transfers.empty()) {
      forget(slot);  // of a pass that was broken off
    }
  }
  for (std::size_t i = 0; i < std::min(slots_.size(), order_.size()); ++i) {
    if (Slot* const slot = holder_of(order_[i])) {
      slot->wanted = true;
    }
  }
  read_ahead();
}

Tiles::Slot& Tiles::arrived(std::uint64_t number) {
  Slot& slot = *holder_of(number);
  try {
    for (hippogriff::Transfer& transfer : slot.transfers) {
      transfer.wait();
    }
  } catch (...) {
    forget(slot);
    throw;
  }
  slot.transfers.clear();
  return slot;
}

void Tiles::read_ahead() {
  for (; next_ < order_.size(); ++next_) {
    Slot* slot = holder_of(order_[next_]);
    if (slot == nullptr) {
      slot = may_ask() ? free_slot() : nullptr;
      if (slot == nullptr) {
        return;
      }
      fetch(*slot, order_[next_]);
    }
    slot->wanted = true;
  }
}

void Tiles::fetch(Slot& slot, std::uint64_t number) {
  slot.kernels->wait();  // with the tile that was here before
  slot.tile = nothing;   // until all of it has been asked for
  slot.begun = ++fetched_;
  const Range elements = elements_of(number);
  const std::uint64_t size_bytes = (elements.end - elements.begin) * shape_.element_bytes;
  for (std::uint64_t i = 0; i < parts_.size(); ++i) {
    const hippogriff::DeviceSpan to(
        static_cast<std::byte*>(slot.memory.data()) + i * shape_.elements * shape_.element_bytes,
        size_bytes);
    slot.transfers.push_back(
        hippogriff::send_async(parts_[i].file.fd(),
                               to,
                               parts_[i].part.offset_bytes + elements.begin * shape_.element_bytes,
                               options_));
    cost_.read_bytes += size_bytes;
    ++cost_.commands;
  }
  slot.tile = number;
}

void Tiles::forget(Slot& slot) noexcept {
  for (hippogriff::Transfer& transfer : slot.transfers) {
    try {
      transfer.cancel();
      transfer.wait();
    } catch (const std::exception&) {
      // whoever went through the tiles has been told, or does not want it
    }
  }
  slot.transfers.clear();
  slot.tile = nothing;
}

Tiles::Slot* Tiles::holder_of(std::uint64_t number) {
  const auto found = std::find_if(
      slots_.begin(), slots_.end(), [&](const Slot& slot) { return slot.tile == number; });
  return found == slots_.end() ? nullptr : &*found;
}

// The one that has had its tile the longest.
Tiles::Slot* Tiles::free_slot() {
  Slot* found = nullptr;
  for (Slot& slot : slots_) {
    if (!slot.wanted && (found == nullptr || slot.begun < found->begun)) {
      found = &slot;
    }
  }
  return found;
}

bool Tiles::may_ask() const {
  return std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) {
           return !slot.transfers.empty();
         }) < static_cast<std::ptrdiff_t>(reads_max);
}

Range Tiles::elements_of(std::uint64_t number) const {
  const std::uint64_t begin = number * shape_.elements;
  return {begin, std::min(begin + shape_.elements, elements_)};
}

Tile Tiles::tile_in(const Slot& slot) const {
  return {elements_of(slot.tile),
          static_cast<std::uint64_t>(&slot - slots_.data()),
          static_cast<std::byte*>(slot.memory.data()),
          shape_.elements * shape_.element_bytes};
}
