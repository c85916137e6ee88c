// The books' rules: what is valid, what is free, what is stuck.
#include "node/books.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>
#include <vector>

namespace hippogriff::node {

namespace {

bool device_valid(const DeviceRecord& device) {
  return device.name.back() == '\0' && device_name_valid(device.name_view()) &&
         device.capacity_bytes != 0 && device.capacity_bytes <= capacity_bytes_max &&
         device.outside_bytes <= capacity_bytes_max &&
         device.context_bytes <= device.capacity_bytes;
}

bool reservation_valid(const ReservationRecord& record, const Books& books) {
  if (record.device >= books.devices.size() || record.client >= clients_max) {
    return false;
  }
  return record.id < books.next_number && record.ticket < books.next_number &&
         record.grower <= clients_max && record.wanted_bytes != 0 &&
         (record.deferred == 0 ||
          (record.deferred == 1 && record.size_bytes == 0 && record.grower == 0)) &&
         record.size_bytes <= record.wanted_bytes &&
         record.kept_bytes <= (record.size_bytes == 0 ? record.wanted_bytes : 0) &&
         record.wanted_bytes <= books.devices[record.device].capacity_bytes;
}

// What ends together, once it has the memory that it waits for: a reservation that grows, or all of
// a command whose processes wait for some, which lasts longer than each of its reservations waits.
using Growing = std::vector<const ReservationRecord*>;

std::vector<Growing> growing_of(const Books& books) {
  ClientSet commands;
  for (const ReservationRecord& record : books.reservations) {
    commands.set(record.client,
                 commands.test(record.client) || (record.waits() && record.grower != 0));
  }
  std::vector<Growing> all;
  std::array<std::size_t, clients_max> place{};
  for (const ReservationRecord& record : books.reservations) {
    if (commands.test(record.client)) {
      if (place[record.client] == 0) {
        all.emplace_back();
        place[record.client] = all.size();
      }
      all[place[record.client] - 1].push_back(&record);
    } else if (record.grows()) {
      all.push_back({&record});
    }
  }
  return all;
}

}  // namespace

bool device_name_valid(std::string_view name) {
  return !name.empty() && name.size() < std::tuple_size_v<decltype(DeviceRecord::name)> &&
         std::ranges::all_of(name, [](char c) { return c > ' ' && c <= '~'; });
}

std::string_view DeviceRecord::name_view() const {
  return {name.data(), ::strnlen(name.data(), name.size())};
}

void ReservationRecord::take_back_wish() {
  grower = 0;
  if (size_bytes == 0) {
    deferred = 1;
  } else {
    wanted_bytes = size_bytes;
  }
}

bool Books::valid() const {
  // A number that wraps would give a reservation an id before the others'.
  if (static_cast<std::uint32_t>(policy) >= policy_count || devices.size() > devices_max ||
      reservations.size() > reservations_max || next_number > numbers_max) {
    return false;
  }
  for (std::uint32_t index = 0; index < devices.size(); ++index) {
    if (!device_valid(devices[index]) || find_device(devices[index].name_view()) != index) {
      return false;
    }
  }
  std::uint64_t previous_id = 0;
  for (const ReservationRecord& record : reservations) {
    if (record.id <= previous_id || !reservation_valid(record, *this)) {
      return false;
    }
    previous_id = record.id;
  }
  return true;
}

std::uint32_t Books::find_device(std::string_view name) const {
  for (std::uint32_t index = 0; index < devices.size(); ++index) {
    if (devices[index].name_view() == name) {
      return index;
    }
  }
  return no_device;
}

std::uint64_t Books::held_bytes(std::uint32_t device) const {
  std::uint64_t sum = 0;
  for (const ReservationRecord& record : reservations) {
    sum += record.device == device ? record.size_bytes : 0;
  }
  return sum;
}

std::uint64_t Books::kept_bytes(std::uint32_t device) const {
  std::uint64_t sum = 0;
  for (const ReservationRecord& record : reservations) {
    sum += record.device == device ? record.kept_bytes : 0;
  }
  return sum;
}

// A command that has not asked yet will make a context before it does, if it has none.
std::uint64_t Books::to_keep(const ReservationRecord& record, std::uint64_t used_bytes) const {
  const std::uint64_t foreseen = record.unclaimed() ? devices[record.device].context_bytes : 0;
  return record.size_bytes != 0 ? 0 : std::min(record.wanted_bytes, std::max(used_bytes, foreseen));
}

std::uint64_t Books::free_bytes(std::uint32_t device) const {
  const DeviceRecord& record = devices[device];
  const std::uint64_t used = held_bytes(device) + kept_bytes(device) + record.outside_bytes;
  return used < record.capacity_bytes ? record.capacity_bytes - used : 0;
}

ReservationRecord* Books::find(std::uint64_t id) {
  const auto at = std::ranges::lower_bound(reservations, id, {}, &ReservationRecord::id);
  return at != reservations.end() && at->id == id ? &*at : nullptr;
}

std::uint64_t Books::append(ReservationRecord record) {
  record.id = next_number++;
  record.ticket = record.id;
  reservations.push_back(record);
  return record.id;
}

void Books::insert_with_id(const ReservationRecord& record) {
  const auto at = std::ranges::lower_bound(reservations, record.id, {}, &ReservationRecord::id);
  reservations.insert(at, record);
  next_number = std::max({next_number, record.id + 1, record.ticket + 1});
}

void Books::erase(std::uint64_t id) {
  std::erase_if(reservations, [id](const ReservationRecord& record) { return record.id == id; });
}

bool Books::erase_client(std::uint32_t client) {
  return std::erase_if(reservations, [client](const ReservationRecord& record) {
           return record.client == client;
         }) != 0;
}

// All that hold memory, or were left for their first use, and do not wait may end: there is as much
// as the others leave. Whoever has enough with that may end then as well, and leaves the rest more.
bool Books::growth_is_stuck(std::uint64_t id) const {
  std::vector<Growing> left = growing_of(*this);
  std::vector<std::uint64_t> taken(devices.size());
  for (std::uint32_t device = 0; device < devices.size(); ++device) {
    taken[device] = devices[device].outside_bytes;
  }
  for (const ReservationRecord& record : reservations) {
    taken[record.device] += record.waits() ? record.kept_bytes : 0;
  }
  for (const Growing& growing : left) {
    for (const ReservationRecord* record : growing) {
      taken[record->device] += record->size_bytes;
    }
  }
  const auto has_enough = [&](const ReservationRecord* record) {
    const std::uint64_t capacity = devices[record->device].capacity_bytes;
    const std::uint64_t used = std::min(capacity, taken[record->device]);
    return !record->waits() || record->missing_bytes() <= capacity - used;
  };
  const auto may_end = [&](const Growing& growing) {
    return std::ranges::all_of(growing, has_enough);
  };
  for (auto ends = left.begin(); (ends = std::ranges::find_if(left, may_end)) != left.end();) {
    for (const ReservationRecord* record : *ends) {
      taken[record->device] -= record->size_bytes + (record->waits() ? record->kept_bytes : 0);
    }
    left.erase(ends);
  }
  return std::ranges::any_of(left, [&](const Growing& growing) {
    return std::ranges::any_of(growing, [&](const ReservationRecord* record) {
      return record->id == id && !has_enough(record);
    });
  });
}

}  // namespace hippogriff::node
