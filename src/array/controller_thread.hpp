// One thread of the controller, its queues, its I/O, and the thread that flushes for it.
#pragma once

#include "array/copy_crew.hpp"
#include "array/served_array.hpp"
#include "array/shared_drives.hpp"
#include "array/window_registrar.hpp"
#include "storage/storage.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace hippogriff::ondemand {

// The public functions may be called from any thread.
class ControllerThread {
 public:
  // Drives, registrar and crew must stay as long as this.
  ControllerThread(std::shared_ptr<Storage> storage,
                   SharedDrives& drives,
                   WindowRegistrar& registrar,
                   CopyCrew& crew)
      : storage_(std::move(storage)), drives_(drives), registrar_(registrar), crew_(crew) {}

  ~ControllerThread();
  ControllerThread(const ControllerThread&) = delete;
  ControllerThread& operator=(const ControllerThread&) = delete;

  [[nodiscard]] WakeWord& wake_word() { return wake_; }

  [[nodiscard]] bool works() {
    const std::scoped_lock lock(mutex_);
    return !dead_;
  }

  // Serves these queues of the array from now on.
  void attach(const std::shared_ptr<ServedArray>& array, const std::vector<std::size_t>& queues);
  // False when something of the array's is still under way at the deadline.
  [[nodiscard]] bool detach(const std::shared_ptr<ServedArray>& array,
                            std::chrono::steady_clock::time_point deadline);

 private:
  struct Served;

  static constexpr std::size_t io_depth = 256;

  // A command that is not answered yet: one for each slot of a queue. The first of several that are
  // moved together stands for all.
  struct Pending {
    Served* served = nullptr;
    std::uint16_t slot = 0;
    Opcode opcode = Opcode::flush;
    std::uint64_t offset = 0;  // in the array
    std::span<std::byte> memory;
    std::size_t wanted = 0;         // of the file; the rest of the memory is beyond its end
    Pending* next = nullptr;        // whose bytes lie behind these, and are moved with them
    std::size_t together = 0;       // bytes wanted of this and of those behind it
    std::size_t done = 0;           // of them
    std::uint64_t copy = 0;         // of the array, that is read or written now
    std::uint64_t copies_left = 0;  // to write, or to try
    bool in_overlay = false;        // not in the files
    bool is_alone = false;          // joins no other
    bool is_written = false;        // to one copy at least
    int attempts = 0;
    std::int64_t submitted_ns = 0;  // to the drive, the last time
    bool locks_file = false;        // then
    CopyJob job;                    // of what is copied from the page cache
  };

  // Of who reads what is left of a file: what the array had been read when it was last seen to be.
  struct RestReads {
    const SharedDrive* drive = nullptr;
    std::uint64_t reads = 0;
    std::chrono::steady_clock::time_point at;
    std::uint32_t steps = 0;
  };

  // What may be useful to begin and may wait: by a thread of its own.
  struct Hint {
    std::shared_ptr<ServedArray> array;
    const BackingFile* to_read = nullptr;  // ahead; null: the array's part is to be written back
    Range part;
    std::optional<RestReads> rest = std::nullopt;  // then the part is on its way by now
  };

  // Commands of files that have not begun: those that came while others had no room wait until
  // these have begun, however they lie.
  struct Gathered {
    std::vector<Pending*> now;  // in the order of their offsets
    std::vector<Pending*> later;
  };

  struct Served {
    Served(std::shared_ptr<ServedArray> the_array, std::size_t the_index);
    std::shared_ptr<ServedArray> array;
    std::size_t index;
    ControllerQueue queue;
    std::vector<Pending> pending;
    Gathered reads;
    Gathered writes;               // which have room less often
    bool writes_first = false;     // where there is room for one
    ThreadDrive* drive = nullptr;  // null: nothing that is shared
  };

  void start_locked();
  void run() noexcept;
  void loop();
  void take_changes();
  bool serve_all();
  bool serve(Served& served);
  bool fetch(Served& served);

  [[nodiscard]] static bool has_ended(const Served& served) {
    return served.array->options().patience.ended() != Ending::none;
  }

  // For one more request, of that command first. What is copied may become one. A thread without
  // any always has: nobody would wake it when others are through.
  [[nodiscard]] bool has_room(const Pending& pending) const {
    const ThreadDrive* const drive = pending.served->drive;
    const std::size_t copied = copied_by_crew_ + batch_.size();
    return io_->in_flight() + copied < io_depth && (drive == nullptr || drive->has_room(copied)) &&
           (pending.opcode != Opcode::write || io_->in_flight() == 0 ||
            pending.served->array->may_write() || has_ended(*pending.served));
  }

  std::uint64_t answer_at_once(Served& served, const Command& command);
  void begin(Served& served, const Command& command);
  void begin_memory(Pending& pending);
  void begin_overlay(Pending& pending);
  static void gather(Pending& pending);
  bool begin_gathered(Gathered& gathered);
  [[nodiscard]] static std::span<Pending*> join(std::span<Pending*> gathered);
  [[nodiscard]] static bool joins(const Pending& first, const Pending& last, const Pending& next);
  [[nodiscard]] static bool split(Pending& first);
  static void use_pieces(const Pending& pending,
                         std::uint64_t size_bytes,
                         std::vector<iovec>& pieces);
  void begin_file(Pending& pending);
  void begin_copy(Pending& pending);
  void copy(Pending& pending);
  void give_batch();
  void copy_batch();
  bool finish_copies();
  void note_copied(Pending& pending, std::optional<std::size_t> count);
  void go_on(Pending& pending);
  void read_around(const Pending& pending);
  [[nodiscard]] static bool has_lost_its_end(const Pending& pending);
  void leave_copy_out(Pending& pending);
  void continue_file(Pending& pending);
  void end_copy(Pending& pending);
  [[nodiscard]] static FilePart rest_of(const Pending& pending);
  void fail_copy(Pending& pending, const Failure& failure);
  void begin_flush(Pending& pending);
  void hint(Hint hint);
  bool reap(std::chrono::nanoseconds timeout);
  static void note_submitted(Pending& pending);
  static void note_answered(const Pending& pending, std::int64_t result, std::int64_t now_ns);
  ThreadDrive* thread_drive(const std::string& name);
  [[nodiscard]] std::int64_t move_here(const Pending& pending, const FilePart& part);
  void advance(Pending& pending, std::int64_t result);
  void finish_flushes();
  void answer(Pending& pending);
  void answer_failure(const Pending& pending, NvmeStatus status, const Failure& failure);
  void refuse(const Pending& pending, NvmeStatus status, const char* why);
  void show_arrays();
  void show_drives();
  void rest();
  [[nodiscard]] bool something_to_do();
  void flush_loop();
  void hint_loop();
  [[nodiscard]] std::optional<Hint> give(const Hint& hint);
  [[nodiscard]] std::optional<Hint> read_rest(const Hint& hint);
  void changed();

  std::shared_ptr<Storage> storage_;
  SharedDrives& drives_;
  WindowRegistrar& registrar_;
  CopyCrew& crew_;
  FinishedCopies finished_copies_;
  WakeWord wake_;
  std::atomic<std::uint64_t> changes_{0};

  std::mutex mutex_;  // guards what follows
  std::condition_variable settled_;
  std::vector<std::unique_ptr<Served>> arriving_;
  std::vector<std::shared_ptr<ServedArray>> leaving_;
  std::vector<std::weak_ptr<ServedArray>> present_;
  bool stop_ = false;
  bool dead_ = false;
  Failure death_;  // why
  std::thread thread_;
  std::thread flusher_;
  std::condition_variable flush_wanted_;
  std::deque<Pending*> to_flush_;
  // Another thread than the flushes': it may wait for a drive that nobody flushes.
  std::thread hinter_;
  std::condition_variable hint_given_;
  const ServedArray* hinting_ = nullptr;  // whose files a hint is about just now
  std::deque<Hint> hints_;
  std::deque<std::pair<Pending*, Failure>> flushed_;

  // The thread's own.
  std::unique_ptr<IoQueue> io_;
  std::vector<std::unique_ptr<Served>> served_;
  std::size_t first_ = 0;                             // of them, in the next round
  std::vector<iovec> pieces_;                         // of the one that begins
  bool has_more_ = false;                             // to begin, behind that
  bool has_begun_ = false;                            // or answered something in this round
  std::vector<Pending*> batch_;                       // to be copied, by the crew if there are more
  std::size_t batch_bytes_ = 0;                       // of it
  std::size_t copied_by_crew_ = 0;                    // and not finished
  std::map<std::string, ThreadDrive> thread_drives_;  // by name; nothing is ever removed
  std::uint64_t changes_seen_ = 0;
  bool somebody_leaves_ = false;  // once its commands are answered
  std::uint32_t quiet_rounds_ = 0;
  std::uint32_t rounds_ = 0;
  std::chrono::steady_clock::time_point shown_;  // when show_arrays did
  bool polls_ = false;                           // some queue's submitters cannot wake us
};

}  // namespace hippogriff::ondemand
