// A process's part in the node: reservations of device memory that all processes keep to.
#pragma once

#include "node/attachment.hpp"
#include "node/books.hpp"
#include "node/node_client.hpp"
#include "node/steps.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace hippogriff::node {

struct NodeOptions {
  std::string path;              // or a group's, as SegmentPlace has it
  Policy policy = Policy::fifo;  // of a node that is made; one that is there keeps its own
  OvertakeBound bound;
  std::chrono::milliseconds lock_timeout{2000};
  // A waiting thread looks so often whether somebody died or a wake-up was lost.
  std::chrono::milliseconds look_interval{50};
  // A client whose reservations this one keeps to, as long as it lives: see Node::leader.
  std::optional<Leader> leader;
  // Of a server: the process that it acts for, which others see instead of its own; 0: for itself.
  std::uint32_t served_pid = 0;
  Steps steps;
};

struct Request {
  std::uint32_t device = 0;  // as add_device returned it
  std::uint64_t size_bytes = 0;
  std::int32_t priority = 0;
  std::chrono::milliseconds timeout{0};  // 0: do not wait
  // Asked now and then by the thread that waits; true ends the wait with Error(cancelled).
  std::function<bool()> interrupted = nullptr;
};

// What the node knows, for people to see. To look removes what the dead held.
struct NodeView {
  struct Reservation {
    ReservationRecord record;
    std::uint64_t pid = 0;
  };

  struct Client {
    std::uint32_t client = 0;
    std::uint32_t leader = 0;  // itself where it follows nobody
    std::uint64_t pid = 0;
    bool pid_is_here = false;               // as the viewer's pid namespace counts
    std::vector<std::uint64_t> used_bytes;  // by device
    std::uint64_t unshown_transfers = 0;    // in flight, beyond those that are shown
    std::uint64_t unshown_arrays = 0;
  };

  std::uint64_t now_ns = 0;  // of the clock that `since_ns` counts in
  Policy policy = Policy::fifo;
  OvertakeBound bound;
  std::vector<DeviceRecord> devices;  // record.device counts in these
  std::vector<Reservation> reservations;
  std::vector<Client> clients;  // that live
  std::vector<SeenTransfer> transfers;
  std::vector<SeenArray> arrays;
};

class ForkPage;

// Thread-safe. Reservations end with it, and with the process, however that ends. Every operation
// ends within `lock_timeout`, and its own timeout where it has one; throws Error(busy) with the pid
// when a process keeps the node's lock, Error(forked) in a child of the process that made it.
class Node final : public NodeClient {
 public:
  explicit Node(NodeOptions options);
  ~Node() override;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Makes the device known under a name all processes use (a GPU's UUID). Throws
  // Error(invalid_argument) when another capacity is in use.
  std::uint32_t add_device(std::string_view name, std::uint64_t capacity_bytes) override;
  // What is used of the device beside what is reserved: nobody is promised it.
  void set_unreserved(std::uint32_t device, const Unreserved& use) override;
  void set_policy(Policy policy, OvertakeBound bound) override;

  // Returns a handle. Throws Error: out_of_device_memory when it is larger than the device, or has
  // to be refused so that others can go on (see to_refuse); busy when it does not fit now and the
  // timeout is 0, timed_out.
  std::uint64_t reserve(const Request& request) override;
  // To more bytes in all; as reserve, and out_of_device_memory when all who hold the device's
  // memory wait for more. The reservation is as it was when this fails.
  void grow(std::uint64_t handle,
            std::uint64_t size_bytes,
            std::chrono::milliseconds timeout,
            const std::function<bool()>& interrupted = nullptr) override;
  // This and release also when the books cannot be reached now, because a stopped process keeps
  // their lock: they are told by a thread once they can.
  void shrink(std::uint64_t handle, std::uint64_t size_bytes) override;
  void release(std::uint64_t handle) override;

  [[nodiscard]] NodeView view() override;

  // Ends the waits of other threads, and those to come, with Error(cancelled) within
  // `look_interval`. What is held stays held.
  void cancel_waits() noexcept { waits_cancelled_ = true; }

  // Of its segment.
  [[nodiscard]] const std::string& path() const noexcept { return place_.path; }

  // Groups: what a leader has reserved, those who follow it use, all together no more than that.
  // The words by which other processes can follow this one; of the leader, where it follows one.
  [[nodiscard]] std::string leader() override;
  // The reservations stay when this process goes on as another program by exec, until that and all
  // that inherit its descriptors have ended.
  void hand_over() override;
  // False also when the leader has ended.
  [[nodiscard]] bool follows() const noexcept override;
  // Takes of what the leader has reserved; false when more is not left. No lock of the node, no
  // wait, unless the segment's file has been removed. What this process took goes back with it.
  bool take(std::uint32_t device, std::uint64_t size_bytes) noexcept override;
  void give(std::uint32_t device, std::uint64_t size_bytes) noexcept override;
  // Leaves a reservation for its first use: it holds nothing and waits for nothing until one of
  // those who follow this client claims it. Throws as reserve does; the timeout means nothing.
  // One of a device at a time: Error(invalid_argument) for a second.
  std::uint64_t defer(const Request& request) override;
  // What the leader's deferred reservations of a device will come to, also while it is waited for.
  [[nodiscard]] std::uint64_t deferred_bytes(std::uint32_t device) override;
  // For those who follow: waits until the leader's deferred reservation is there, as any newcomer;
  // at once where it is. All of the group wait for the one request; when its asker dies or gives
  // up, another that waits goes on in its place. Throws Error: busy when the timeout is 0,
  // timed_out, cancelled, out_of_device_memory where the leader has left none.
  void claim_deferred(std::uint32_t device,
                      std::chrono::milliseconds timeout,
                      const std::function<bool()>& interrupted = nullptr) override;
  // Waits until the leader's reservation is large enough for the group to take that much more, as
  // grow does. Others of the group may be quicker to take it.
  void grow_group(std::uint32_t device,
                  std::uint64_t size_bytes,
                  std::chrono::milliseconds timeout,
                  const std::function<bool()>& interrupted = nullptr) override;
  // Of the leader's reservations: all, and what the group uses.
  [[nodiscard]] std::uint64_t granted_bytes(std::uint32_t device) noexcept override;
  [[nodiscard]] std::uint64_t group_used_bytes(std::uint32_t device) noexcept override;
  // What a process that follows nobody uses, for others to see.
  void show_used(std::uint32_t device, std::uint64_t size_bytes) noexcept override;
  // A line for a transfer, that shows nothing yet. Null in a forked child.
  [[nodiscard]] std::unique_ptr<TransferNotice> notice_transfer() const;
  // The same for an array.
  [[nodiscard]] std::unique_ptr<ArrayNotice> notice_array() const;
  // Of all other clients, of this process also. A few 100 ns for each that has any.
  [[nodiscard]] std::vector<SeenTransfer> transfers_of_others() const;
  // In a child of the process that made it.
  [[nodiscard]] bool forked() const noexcept;

 private:
  struct Device {
    std::string name;
    std::uint64_t capacity_bytes = 0;
    std::uint64_t key = 0;
  };

  // A reservation as this process knows it; `record.device` counts in devices_.
  struct Holding {
    std::uint64_t handle = 0;
    ReservationRecord record;
  };

  // A reservation of which the books shall have no more than `left_bytes`; 0: it is released. They,
  // and our board, have more still: `known_bytes`, if no follower has had it grow since.
  struct Less {
    std::uint64_t id = 0;
    std::uint32_t device = 0;  // in devices_
    std::uint64_t known_bytes = 0;
    std::uint64_t left_bytes = 0;
  };

  // Tells the books later what an operation could not.
  struct Settler {
    std::condition_variable wakes;
    bool runs = false;
    bool ends = false;
    std::thread thread;
  };

  // What a change of the books means for the holdings, if it is committed.
  struct Effects {
    bool changed = false;
    std::optional<Holding> added;
    std::uint64_t removed_handle = 0;
  };

  static constexpr const char* contexts_leave_less =
      "and what those that wait keep for their contexts leaves less";

  enum class Answer { granted, waits, never_fits, busy, full, gone, stuck, barred, twice };
  enum class Standing { waits, deferred };

  // Whose signal ends a sleep: this client's, or that of all who follow one leader.
  enum class Sleeper { alone, group };

  // One look of one who waits; gives up when it is told so.
  using Look = std::function<Answer(bool give_up, Effects& effects, ClientSet& granted)>;

  template <typename Change>
  void transact(const Change& change);
  template <typename Change>
  void transact_within(std::chrono::milliseconds patience, const Change& change);
  template <typename Change>
  void transact_within(MonotonicTime begin,
                       std::chrono::milliseconds patience,
                       const Change& change);
  template <typename Change>
  void transact_in_turn(MonotonicTime deadline, const Change& change);
  template <typename Change>
  bool transact_once(MonotonicTime deadline, const Change& change);
  template <typename Change>
  void transact_until(MonotonicTime begin,
                      MonotonicTime deadline,
                      const std::function<bool()>& interrupted,
                      const char* operation,
                      const Change& change);
  void attach_and_lock(MonotonicTime deadline);
  void attach();
  void carry_on(Attachment& next) const;
  void refuse_fork() const;
  [[nodiscard]] bool consistent();
  void reconcile(ClientSet& granted);
  void learn_from_board();
  void restore(Holding& held);
  [[nodiscard]] bool commit(const Effects& effects);
  void remember();
  bool reap(ClientSet& granted);
  bool reap_share(ClientSet& granted);
  bool reap_those(const ClientSet& clients, ClientSet& granted);
  bool forget_dead_wishes(const ClientSet& clients);
  bool is_refused_among_the_living(const std::function<const ReservationRecord*()>& ours,
                                   bool give_up,
                                   Effects& effects,
                                   ClientSet& granted);
  void fit_capacity(std::uint32_t device, std::uint64_t capacity_bytes, ClientSet& granted);
  void serve_device(std::uint32_t device, ClientSet& granted);
  void serve_device_at(std::int64_t now_ns, std::uint32_t device, ClientSet& granted);
  void serve_all(ClientSet& granted);
  void serve_living(ClientSet& granted);
  std::uint64_t reserve_as(Standing standing, const Request& request);
  Answer queue_new(Standing standing, const Request& request, Effects& effects, ClientSet& granted);
  Answer queue_growth(ReservationRecord& record, bool may_wait, bool& changed, ClientSet& granted);
  Answer look(std::uint64_t handle, bool give_up, Effects& effects, ClientSet& granted);
  Answer await_answer(const Look& look,
                      Sleeper sleeper,
                      MonotonicTime deadline,
                      const std::function<bool()>& gives_up);
  Answer await(std::uint64_t handle,
               MonotonicTime deadline,
               const std::function<bool()>& interrupted);
  void abandon(std::uint64_t handle);
  template <typename Change>
  bool give_back(std::uint64_t handle, std::uint64_t left_bytes, const Change& change);
  bool put_off(std::uint64_t handle, std::uint64_t left_bytes);
  [[nodiscard]] std::uint64_t given_back_bytes(std::uint32_t device);
  [[nodiscard]] bool settles() const noexcept;
  void settle_later() noexcept;
  void settle();
  void end_settler() noexcept;
  ReservationRecord* leaders_record(const Device& device);
  Answer look_at_group(const Device& device,
                       std::uint64_t size_bytes,
                       bool give_up,
                       Effects& effects,
                       ClientSet& granted);
  std::uint64_t put_leaders_grant_right(const Device& device, const Effects& effects);
  void show_leaders_grant(const Device& device, MonotonicTime deadline);
  Answer look_at_deferred(const Device& device,
                          std::uint64_t& waited_ticket,
                          bool& asked,
                          bool give_up,
                          Effects& effects,
                          ClientSet& granted);
  [[nodiscard]] bool is_refused(const ReservationRecord& record) const;
  Answer claim(ReservationRecord& record,
               std::uint64_t waited_ticket,
               bool may_wait,
               ClientSet& granted);
  ReservationRecord* leaders_unclaimed(const Device& device);
  Answer ask_for_group(ReservationRecord& record,
                       std::uint64_t missing_bytes,
                       bool may_wait,
                       Effects& effects,
                       ClientSet& granted);
  [[nodiscard]] Holding* holding(std::uint64_t handle);
  ReservationRecord* record_of(std::uint64_t handle);
  [[nodiscard]] Device device(std::uint32_t index);
  [[noreturn]] static void refuse_device(std::uint32_t index);
  void show_board();
  bool leave_removed() noexcept;
  std::vector<NodeView::Client> clients();
  std::shared_ptr<Attachment> shown(std::uint32_t device, std::uint64_t& key) const noexcept;
  std::shared_ptr<Attachment> shown_now() const noexcept;
  std::uint32_t place_device(const Device& device);
  [[noreturn]] void refuse(Answer answer,
                           const char* operation,
                           const Device& device,
                           std::uint64_t size_bytes,
                           std::uint64_t held_bytes = 0);

  NodeOptions options_;
  SegmentPlace place_;
  std::shared_ptr<const ForkPage> fork_page_;
  std::atomic<bool> waits_cancelled_{false};
  std::mutex mutex_;  // guards all below; held for at most lock_timeout
  std::shared_ptr<Attachment> attachment_;
  std::vector<Device> devices_;
  std::vector<Holding> holdings_;
  std::vector<Less> put_off_;  // what the books have not been told
  std::uint64_t next_handle_ = 1;
  MonotonicTime seen_intact_;           // when the books last had their name and size
  std::uint64_t seen_generation_ = 0;   // 0: the books have to be put right
  std::uint64_t known_generation_ = 0;  // of the books that the holdings were last seen in
  Books books_;                         // read anew in every operation
  bool mended_ = false;                 // by this operation, beside what it is for
  std::unique_ptr<Settler> settler_;

  // Taken alone by who goes on in another segment: what threads take and give meanwhile is counted.
  std::shared_mutex boards_mutex_;
  mutable std::mutex shown_mutex_;  // guards what follows; held for a moment only
  std::shared_ptr<Attachment> shown_;
  std::vector<std::uint64_t> shown_keys_;  // by device
};

}  // namespace hippogriff::node
