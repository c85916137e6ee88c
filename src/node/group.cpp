// What clients show without the lock, and share with those who follow them.
#include "base/error.hpp"
#include "node/fork_page.hpp"
#include "node/node.hpp"
#include "node/transaction.hpp"

#include <mutex>
#include <shared_mutex>
#include <utility>

namespace hippogriff::node {

namespace {

// Each but the first because somebody has removed the file once more.
constexpr int take_attempts_max = 100;

}  // namespace

// Under mutex_: the board of a new attachment, or of one more device.
void Node::show_board() {
  std::vector<std::uint64_t> keys;
  for (const Device& device : devices_) {
    attachment_->board().add_device(device.key);
    keys.push_back(device.key);
  }
  const std::scoped_lock turn(shown_mutex_);
  shown_ = attachment_;
  shown_keys_ = std::move(keys);
}

std::shared_ptr<Attachment> Node::shown(std::uint32_t device, std::uint64_t& key) const noexcept {
  if (forked()) {
    return nullptr;
  }
  const std::scoped_lock turn(shown_mutex_);
  if (device >= shown_keys_.size()) {
    return nullptr;
  }
  key = shown_keys_[device];
  return shown_;
}

bool Node::forked() const noexcept {
  return fork_page_->wiped();
}

std::string Node::leader() {
  Leader leader;
  transact([&](Books&, ClientSet&) {
    const ClientSlot& slot = attachment_->slot();
    leader = slot.follows() && slot.leader_is_in_place()
                 ? slot.leader_words()
                 : Leader{.client = slot.index(), .term = slot.term()};
    return Effects{};
  });
  return leader.text();
}

void Node::hand_over() {
  transact([&](Books&, ClientSet&) {
    if (!attachment_->slot().follows()) {
      attachment_->hand_over();
      return Effects{};
    }
    // The leader's reservation goes on; what this process took of it ends with this program.
    for (const Device& device : devices_) {
      Board& board = attachment_->board();
      board.give(device.key, board.used(attachment_->client(), device.key));
    }
    return Effects{};
  });
}

bool Node::follows() const noexcept {
  if (forked()) {
    return false;
  }
  const std::scoped_lock turn(shown_mutex_);
  return shown_ != nullptr && shown_->slot().follows() && shown_->slot().leader_is_in_place();
}

// Who takes and gives on the board of a removed file counts for nobody else. False where the books
// cannot be made anew: then the removed ones go on.
bool Node::leave_removed() noexcept {
  const auto place = shown_now();
  if (place == nullptr || place->intact()) {
    return true;
  }
  try {
    transact([](Books&, ClientSet&) { return Effects{}; });
    return true;
  } catch (...) {
    return false;  // the next operation tries again
  }
}

// What is taken on the board of a removed file may have been read before by who makes the books
// anew: others would be promised it as well. Looked at once, afterwards: what was taken there and
// given back is put right where we go on (carry_on).
bool Node::take(std::uint32_t device, std::uint64_t size_bytes) noexcept {
  bool goes_on = true;
  for (int attempt = 0; attempt < take_attempts_max; ++attempt) {
    {
      const std::shared_lock together(boards_mutex_);
      std::uint64_t key = 0;
      const auto place = shown(device, key);
      step(options_.steps, "before take");
      const bool taken = place != nullptr && place->board().take(key, size_bytes);
      if (place == nullptr || !goes_on || place->intact()) {
        return taken;
      }
      if (taken) {
        place->board().give(key, size_bytes);
      }
    }
    goes_on = leave_removed();
  }
  return false;
}

void Node::give(std::uint32_t device, std::uint64_t size_bytes) noexcept {
  static_cast<void>(leave_removed());
  const std::shared_lock together(boards_mutex_);
  std::uint64_t key = 0;
  if (const auto place = shown(device, key)) {
    place->board().give(key, size_bytes);
  }
}

std::uint64_t Node::granted_bytes(std::uint32_t device) noexcept {
  std::uint64_t key = 0;
  const auto place = shown(device, key);
  return place != nullptr ? place->board().granted(key) : 0;
}

std::uint64_t Node::group_used_bytes(std::uint32_t device) noexcept {
  std::uint64_t key = 0;
  const auto place = shown(device, key);
  return place != nullptr ? place->board().group_used(key) : 0;
}

void Node::show_used(std::uint32_t device, std::uint64_t size_bytes) noexcept {
  std::uint64_t key = 0;
  if (const auto place = shown(device, key)) {
    place->board().set_used(key, size_bytes);
  }
}

// Of the segment as it was at the last operation: one that was replaced since is found by the next.
std::shared_ptr<Attachment> Node::shown_now() const noexcept {
  if (forked()) {
    return nullptr;
  }
  const std::scoped_lock turn(shown_mutex_);
  return shown_;
}

std::unique_ptr<TransferNotice> Node::notice_transfer() const {
  const auto place = shown_now();
  return place != nullptr
             ? std::make_unique<TransferNotice>(
                   std::shared_ptr<TransferTable>(place, &place->transfers()), fork_page_)
             : nullptr;
}

std::unique_ptr<ArrayNotice> Node::notice_array() const {
  const auto place = shown_now();
  return place != nullptr ? std::make_unique<ArrayNotice>(
                                std::shared_ptr<ArrayTable>(place, &place->arrays()), fork_page_)
                          : nullptr;
}

std::vector<SeenTransfer> Node::transfers_of_others() const {
  const auto place = shown_now();
  return place != nullptr ? place->transfers().of_others() : std::vector<SeenTransfer>{};
}

// Under the lock. Asking for a life costs system calls: only of those who ever had a slot.
std::vector<NodeView::Client> Node::clients() {
  std::vector<NodeView::Client> clients;
  for (std::uint32_t index = 0; index < clients_max; ++index) {
    const std::optional<std::uint32_t> leader = attachment_->slot().leader_of(index);
    if (!leader || !attachment_->lives(index)) {
      continue;
    }
    NodeView::Client client{.client = index,
                            .leader = *leader,
                            .pid = attachment_->user_pid_of(index),
                            .pid_is_here = attachment_->pid_is_here(index),
                            .used_bytes = {},
                            .unshown_transfers = attachment_->transfers().unshown(index),
                            .unshown_arrays = attachment_->arrays().unshown(index)};
    for (const DeviceRecord& device : books_.devices) {
      client.used_bytes.push_back(attachment_->board().used(index, device_key(device.name_view())));
    }
    clients.push_back(std::move(client));
  }
  return clients;
}

}  // namespace hippogriff::node
