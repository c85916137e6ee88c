// Files without a name, found by those who have them open. All of it was written by others, who may
// be writing still: it is read once, and used as far as its checksums are right.
#include "node/legacy.hpp"

#include "base/error.hpp"
#include "base/own_descriptor.hpp"
#include "node/life.hpp"
#include "node/segment.hpp"
#include "node/segment_lock.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace hippogriff::node {

namespace {

namespace fs = std::filesystem;

// Of the books, which somebody may be writing over.
constexpr int read_attempts_max = 10;
// So long who has the lock of a removed file may take to finish: one that is stopped does not.
constexpr std::chrono::milliseconds owner_patience{500};
constexpr std::chrono::microseconds owner_look_interval{500};

class RemovedFile {
 public:
  explicit RemovedFile(const std::string& path)
      : fd_(own_descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK))) {
    if (fd_ < 0 || ::fstat(fd_, &facts_) != 0) {
      facts_ = {};
    }
  }

  ~RemovedFile() {
    if (fd_ >= 0) {
      static_cast<void>(::close(fd_));
    }
  }

  RemovedFile(RemovedFile&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), facts_(other.facts_) {}

  RemovedFile& operator=(RemovedFile&&) = delete;
  RemovedFile(const RemovedFile&) = delete;
  RemovedFile& operator=(const RemovedFile&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_; }

  [[nodiscard]] std::uint64_t inode() const noexcept { return facts_.st_ino; }

  // One of another folder has the same name where that is another container's. In one folder files
  // have one device, whatever the file system.
  [[nodiscard]] bool is_beside(const struct stat& other) const noexcept {
    return facts_.st_dev == other.st_dev;
  }

  [[nodiscard]] bool is_removed() const noexcept {
    return S_ISREG(facts_.st_mode) && facts_.st_nlink == 0;
  }

  [[nodiscard]] bool is_whole() const noexcept {
    return facts_.st_size == static_cast<off_t>(sizeof(SegmentLayout));
  }

  // False when not all of it could be read.
  bool read(std::size_t offset, std::span<std::byte> bytes) const noexcept {
    return ::pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset)) ==
           static_cast<ssize_t>(bytes.size());
  }

  template <typename Value>
  bool read_value(std::size_t offset, Value& value) const noexcept {
    return read(offset, std::as_writable_bytes(std::span(&value, 1)));
  }

 private:
  int fd_;
  struct stat facts_{};
};

bool is_ours(const RemovedFile& file, const SegmentPlace& place) {
  try {
    refuse_foreign(file.fd(), place);
  } catch (const Error&) {
    return false;
  }
  return true;
}

// What the kernel says that a descriptor of such a file is open on.
std::string removed_name(const SegmentPlace& place) {
  std::error_code refused;
  const fs::path path(place.path);
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const fs::path real = fs::weakly_canonical(fs::absolute(folder, refused), refused);
  return ((refused ? folder : real) / path.filename()).string() + " (deleted)";
}

void find_in_process(const fs::path& descriptors,
                     const SegmentPlace& place,
                     const std::string& name,
                     const struct stat& fresh,
                     std::vector<RemovedFile>& found) {
  std::error_code refused;  // it has ended, or is another user's
  fs::directory_iterator at(descriptors, refused);
  for (; !refused && at != fs::directory_iterator(); at.increment(refused)) {
    std::error_code gone;
    if (fs::read_symlink(at->path(), gone).native() != name) {
      continue;
    }
    RemovedFile file(at->path().native());
    if (file.is_removed() && file.is_beside(fresh) && is_ours(file, place) &&
        std::ranges::none_of(
            found, [&](const RemovedFile& other) { return other.inode() == file.inode(); })) {
      found.push_back(std::move(file));
    }
  }
}

std::vector<RemovedFile> removed_files(const SegmentPlace& place,
                                       int fresh_fd,
                                       const std::function<void()>& goes_on) {
  std::vector<RemovedFile> found;
  struct stat fresh{};
  if (::fstat(fresh_fd, &fresh) != 0) {
    throw_io("stat segment", place.path, no_offset, errno);
  }
  // Looking at all processes takes long: only where somebody has a slot of any segment.
  if (has_slot_lock([](const SlotLock&) { return true; }) == false) {
    return found;
  }
  const std::string name = removed_name(place);
  std::error_code refused;
  fs::directory_iterator at("/proc", refused);
  for (; !refused && at != fs::directory_iterator(); at.increment(refused)) {
    const std::string process = at->path().filename();
    if (std::ranges::all_of(process, [](char letter) { return letter >= '0' && letter <= '9'; })) {
      find_in_process(at->path() / "fd", place, name, fresh, found);
      goes_on();
    }
  }
  return found;
}

void refuse_other_version(const RemovedFile& file, const SegmentPlace& place) {
  SegmentHeader header;
  if (file.read_value(0, header) && header.magic == segment_magic &&
      header.checksum == header_checksum(header) && header.version != segment_version &&
      in_use(file.fd())) {
    throw Error({.status = Status::unsupported,
                 .operation = "open segment",
                 .object = place.path,
                 .detail = "it was removed, and is of version " + std::to_string(header.version) +
                           ": end the programs that use it"});
  }
}

bool read_half(const RemovedFile& file,
               std::uint64_t which,
               std::uint64_t& sequence,
               Books& books) {
  std::vector<std::byte> half(half_bytes);
  std::vector<std::byte> image;
  return file.read(offsetof(SegmentLayout, halves) + (which % 2) * half_bytes, half) &&
         decode_books(half, image, sequence, books) && sequence % 2 == which % 2;
}

// The image that counts; once that is damaged for good the other one.
bool read_books(const RemovedFile& file, Books& books) {
  std::uint64_t sequence = 0;
  for (int attempt = 0; attempt < read_attempts_max; ++attempt) {
    std::uint64_t named = 0;
    if (file.read_value(offsetof(SegmentLayout, commit), named) &&
        read_half(file, named, sequence, books) && sequence == named) {
      return true;
    }
    static_cast<void>(::usleep(1000));
  }
  Books other;
  std::uint64_t other_sequence = 0;
  const bool even = read_half(file, 0, sequence, books);
  if (read_half(file, 1, other_sequence, other) && (!even || other_sequence > sequence)) {
    books = std::move(other);
    return true;
  }
  return even;
}

std::optional<LockOwner> owner_of_lock(const RemovedFile& file) {
  std::uint32_t word = 0;
  return file.read_value(offsetof(SegmentLayout, lock), word) ? lock_owner(word) : std::nullopt;
}

bool owner_lives(const RemovedFile& file, const Viewer& viewer, const LockOwner& owner) {
  ClientIdentity identity;
  const std::size_t offset =
      offsetof(SegmentLayout, identities) + owner.client * sizeof(ClientIdentity);
  return file.read_value(offset, identity) && identity.term == owner.term &&
         viewer.lives(
             identity, owner.client, byte_is_locked(file.fd(), slots_lock_offset + owner.client));
}

void take_lock(const RemovedFile& file, const LockOwner& owner) {
  void* const memory =
      ::mmap(nullptr, sizeof(SegmentLayout), PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0);
  if (memory == MAP_FAILED) {
    throw_io("map removed segment", {}, no_offset, errno);
  }
  take_from_stopped(static_cast<SegmentLayout*>(memory)->lock, owner);
  ::munmap(memory, sizeof(SegmentLayout));
}

// Whoever takes the lock from now on sees that the file is removed and changes nothing: only who
// has it already may still, unless it is taken away.
void await_last_change(const RemovedFile& file) {
  const Viewer viewer;
  const std::optional<LockOwner> first = owner_of_lock(file);
  const auto deadline = std::chrono::steady_clock::now() + owner_patience;
  while (first && owner_of_lock(file) == first && owner_lives(file, viewer, *first)) {
    if (std::chrono::steady_clock::now() >= deadline) {
      take_lock(file, *first);
      return;
    }
    std::this_thread::sleep_for(owner_look_interval);
  }
}

using Clients = std::vector<Legacy::Client>;

bool follows(const Legacy::Client& client) {
  return client.identity.leader != client.index;
}

bool leads(const Legacy::Client& leader, const Legacy::Client& client) {
  return follows(client) && client.identity.leader == leader.index &&
         client.identity.leader_term == leader.identity.term;
}

// Of all slots that were ever taken.
Clients read_clients(const RemovedFile& file) {
  Clients clients;
  for (std::uint32_t index = 0; index < clients_max; ++index) {
    Legacy::Client client{.index = index, .identity = {}};
    if (file.read_value(offsetof(SegmentLayout, identities) + index * sizeof(ClientIdentity),
                        client.identity) &&
        client.identity.checksum != 0 &&
        client.identity.checksum == identity_checksum(client.identity) &&
        file.read_value(offsetof(SegmentLayout, boards) + index * sizeof(ClientBoard),
                        client.uses)) {
      clients.push_back(client);
    }
  }
  return clients;
}

// Those who follow may have taken and given while the boards were read, one after the other, and
// enter in the new file by how much: the sum is that of what was read of them, without the dead.
void sum_up(Legacy::Client& leader, const Clients& all, const std::bitset<clients_max>& lives) {
  for (CarriedUse& sum : leader.uses) {
    sum.group_used_bytes = 0;
    for (const Legacy::Client& client : all) {
      const auto use = std::ranges::find(client.uses, sum.key, &CarriedUse::key);
      if (sum.key != 0 && use != client.uses.end() && lives.test(client.index) &&
          leads(leader, client)) {
        sum.group_used_bytes += std::min(
            use->used_bytes, std::numeric_limits<std::uint64_t>::max() - sum.group_used_bytes);
      }
    }
  }
}

// Those who live, and leaders of such.
Clients living(const RemovedFile& file) {
  const Viewer viewer;
  const Clients all = read_clients(file);
  std::bitset<clients_max> lives;
  for (const Legacy::Client& client : all) {
    const bool locked = byte_is_locked(file.fd(), slots_lock_offset + client.index);
    lives.set(client.index, viewer.lives(client.identity, client.index, locked));
  }
  Clients left;
  for (Legacy::Client client : all) {
    const bool has_living_follower = std::ranges::any_of(all, [&](const Legacy::Client& other) {
      return lives.test(other.index) && leads(client, other);
    });
    if (!lives.test(client.index) && !has_living_follower) {
      continue;
    }
    sum_up(client, all, lives);
    if (client.identity.origin_inode == 0) {
      client.identity.origin_inode = file.inode();
      client.identity.origin_device = lock_device(file.fd());
      client.identity.checksum = identity_checksum(client.identity);
    }
    left.push_back(client);
  }
  return left;
}

// The device of `other`'s reservation, which is added where it is not there.
std::uint32_t device_in(Books& books, const DeviceRecord& device) {
  const std::uint32_t index = books.find_device(device.name_view());
  if (index != no_device || books.devices.size() == devices_max) {
    return index;
  }
  books.devices.push_back(device);
  return static_cast<std::uint32_t>(books.devices.size() - 1);
}

void add_reservations(Legacy& legacy, const Books& other, std::uint32_t client) {
  for (ReservationRecord record : other.reservations) {
    if (record.client != client || legacy.books.reservations.size() == reservations_max) {
      continue;
    }
    const std::uint32_t device = device_in(legacy.books, other.devices.at(record.device));
    if (device == no_device) {
      continue;
    }
    record.device = device;
    const std::uint64_t capacity_bytes = legacy.books.devices.at(device).capacity_bytes;
    record.wanted_bytes = std::min(record.wanted_bytes, capacity_bytes);
    record.size_bytes = std::min(record.size_bytes, record.wanted_bytes);
    record.kept_bytes = legacy.books.to_keep(record, record.kept_bytes);
    if (legacy.books.find(record.id) == nullptr) {
      legacy.books.insert_with_id(record);
    } else {
      legacy.books.append(record);
    }
  }
}

// Slots keep their numbers, which those who follow know: who finds his taken enters what he has
// himself, if he can.
void add(Legacy& legacy, const Books& books, const Clients& clients) {
  for (const Legacy::Client& client : clients) {
    const auto at = std::ranges::lower_bound(
        legacy.clients, client.index, std::less<>{}, &Legacy::Client::index);
    if (at == legacy.clients.end() || at->index != client.index) {
      legacy.clients.insert(at, client);
      add_reservations(legacy, books, client.index);
    }
  }
}

}  // namespace

Legacy legacy_of(const SegmentPlace& place,
                 int fresh_fd,
                 const Books& fresh,
                 const std::function<void()>& goes_on) {
  struct Found {
    Books books;
    Clients clients;
  };

  std::vector<Found> all;
  for (const RemovedFile& file : removed_files(place, fresh_fd, goes_on)) {
    goes_on();
    if (unfinished(file.fd())) {
      continue;  // what is in it was copied from the others, some time ago
    }
    refuse_other_version(file, place);
    Found found;
    if (file.is_whole()) {
      await_last_change(file);
      if (read_books(file, found.books)) {
        found.clients = living(file);
      }
    }
    if (!found.clients.empty()) {
      all.push_back(std::move(found));
    }
  }
  Legacy legacy{.books = fresh, .clients = {}};
  // The latest has whoever was carried over to it from the others.
  std::ranges::sort(
      all, std::greater<>{}, [](const Found& found) { return found.books.generation; });
  if (!all.empty()) {
    legacy.books.policy = all.front().books.policy;
    legacy.books.bound = all.front().books.bound;
    legacy.books.devices = all.front().books.devices;
    legacy.books.next_number = all.front().books.next_number;
  }
  for (const Found& found : all) {
    add(legacy, found.books, found.clients);
  }
  return legacy;
}

}  // namespace hippogriff::node
