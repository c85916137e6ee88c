// The queue of lane tasks, the threads that run them, and how a transfer ends.
#include "transfer/engine.hpp"

#include "base/size_limit.hpp"
#include "storage/atomic_file.hpp"
#include "transfer/exit_hold.hpp"
#include "transfer/outlook.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace hippogriff {

namespace {

constexpr auto time_slice = std::chrono::milliseconds(4);
constexpr std::uint32_t parked_channels = 4;
// Less than this left of a transfer is over before another worker has found its way into it.
constexpr std::uint64_t joined_bytes_min = std::uint64_t{8} << 20;
constexpr std::size_t joinable_max = 64;  // so many are looked at

// Tasks that no thread is needed for, because as many as help are running, get their turn later.
constexpr auto held_back_slice = std::chrono::milliseconds(16);

}  // namespace

Engine::Engine(std::shared_ptr<Device> device,
               std::shared_ptr<Storage> storage,
               EngineOptions options)
    : options_(options),
      device_(std::move(device)),
      storage_(std::move(storage)),
      pinbuffer_(*device_, options.pinbuffer_bytes),
      parking_(*device_, options.parking_bytes),
      to_device_(*device_) {}

Engine::~Engine() {
  HIPPO_ASSERT(threads_.empty());
}

void Engine::start(const std::shared_ptr<Transfer>& transfer) {
  std::unique_lock lock(mutex_);
  const bool carried = attempt(*transfer, [&] {
    if (stopping_) {
      throw Error({.status = Status::not_initialized,
                   .operation = "start a transfer",
                   .detail = "the runtime is shutting down"});
    }
    carried_.push_back(transfer);
    if (!transfer->gate_open) {
      watched_.push_back(transfer);
    }
  });
  if (!carried) {
    std::erase(carried_, transfer);
    lock.unlock();
    finalize(*transfer);
    return;
  }
  if (transfer->gate_open) {
    enqueue_plan_locked(transfer);
  } else {
    // Only a send may begin before the device is ready: what a receive takes is not there yet.
    const bool sends = transfer->request().direction == Direction::send;
    if (sends && transfer->decision().choice().plan.park) {
      enqueue_locked(transfer, Lane::parked, parked_channels);
    }
    show_waiting(*transfer);
    watcher_started_ =
        watcher_started_ || attempt(*transfer, [this] { add_thread_locked([this] { watch(); }); });
    watch_again_.notify_all();
  }
  if (transfer->task_count == 0 && (transfer->stopping() || transfer->gate_open)) {
    settle(transfer, lock);
  }
  wake_and_unlock(lock);
}

// What there is no memory or no thread for fails its transfer, and is not counted.
void Engine::enqueue_locked(const std::shared_ptr<Transfer>& transfer,
                            Lane lane,
                            std::uint32_t count) {
  attempt(*transfer, [&] {
    for (std::uint32_t index = 0; index < count; ++index) {
      if (idle_threads_ <= queue_.size()) {
        spawn_locked();
      }
      push_locked(transfer, lane);
      ++to_wake_;
    }
  });
}

void Engine::push_locked(const std::shared_ptr<Transfer>& transfer, Lane lane) {
  queue_.push_back({transfer, lane});
  ++transfer->task_count;
  ++queued_;
}

// Threads woken under the lock would find it taken, sleep on it, and be let through one by one: the
// twelfth began 200 us after the first.
void Engine::wake_and_unlock(std::unique_lock<std::mutex>& lock) {
  if (!lock.owns_lock()) {
    return;
  }
  const std::size_t count = std::exchange(to_wake_, 0);
  const bool most = 2 * count > idle_threads_;
  lock.unlock();
  if (most) {
    task_queued_.notify_all();  // one system call
    return;
  }
  for (std::size_t woken = 0; woken < count; ++woken) {
    task_queued_.notify_one();
  }
}

void Engine::add_thread_locked(std::function<void()> work) {
  try {
    threads_.emplace_back([this, work = std::move(work)] {
      work();
      const std::lock_guard lock(mutex_);
      ++ended_threads_;
      thread_ended_.notify_all();
    });
  } catch (...) {
    throw Error({.status = Status::out_of_host_memory,
                 .operation = "start a thread",
                 .object = device_->info().name,
                 .errno_value = EAGAIN});
  }
}

// One more thread if there may be one. Throws when there is none at all.
void Engine::spawn_locked(std::shared_ptr<const ExitHold> ahead) {
  try {
    if (workers_ < options_.threads_max) {
      add_thread_locked([this, number = workers_, ahead = std::move(ahead)]() mutable {
        work(number, std::move(ahead));
      });
      ++workers_;
      ++idle_threads_;
    }
  } catch (...) {
    if (workers_ == 0) {
      throw;
    }
  }
}

// The narrow lanes first: they are the ones that must not start late.
void Engine::enqueue_plan_locked(const std::shared_ptr<Transfer>& transfer) {
  const Plan& plan = transfer->decision().choice().plan;
  if (transfer->request().direction == Direction::send) {
    const bool alone = carried_.size() <= 1;
    copying_wide_ = std::max<std::size_t>(alone ? 0 : copying_wide_, plan.buffered_channels);
  }
  if (transfer->request().direction == Direction::recv && plan.park) {
    // The device comes first: what the parking cannot take is rescued when the rest is written.
    enqueue_locked(transfer, Lane::parked, parked_recv_tasks(*transfer));
    return;
  }
  enqueue_locked(transfer, Lane::direct_io, plan.direct_io_depth > 0 ? 1 : 0);
  enqueue_locked(transfer, Lane::mapped, plan.mapped_channels);
  enqueue_locked(transfer, Lane::direct, plan.direct_channels);
  enqueue_locked(transfer, Lane::parked, transfer->parked_bytes() > 0 ? 1 : 0);
  enqueue_locked(transfer, Lane::buffered, plan.buffered_channels);
}

// A thread that the device refuses fails the transfer whose task it came for, and tries again for
// the next.
void Engine::work(std::size_t index, std::shared_ptr<const ExitHold> ahead) {
  block_size_limit_signal();  // requests of a ring are carried out here, too
  if (ahead != nullptr) {
    try {
      device_->make_current();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the task that comes is told
    }
    ahead.reset();
  }
  for (bool counted = true; wait_for_task(counted); counted = false) {
    try {
      device_->make_current();
      // Sleeps of tens of microseconds are meant as such: waits for copies are made of them.
      prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
      CopyStream stream(*device_, &spare_stream_);
      LaneContext context{.device = *device_,
                          .pinbuffer = pinbuffer_,
                          .parking = parking_,
                          .storage = *storage_,
                          .stream = stream,
                          .to_device = to_device_,
                          .trace = options_.trace,
                          .should_yield = {},
                          .copied_windows = {}};
      if (options_.trace != nullptr) {
        const std::string name = device_->info().name + " channel " + std::to_string(index);
        context.cpu_track = options_.trace->track(name);
        context.copy_track = options_.trace->track(name + " copies");
      }
      run_tasks(context);
    } catch (...) {
      refuse_task(current_failure());
    }
  }
}

// False when the engine stops and nothing is left to do. `counted`: among the idle threads already.
bool Engine::wait_for_task(bool counted) {
  std::unique_lock lock(mutex_);
  idle_threads_ += counted ? 0 : 1;
  task_queued_.wait(lock, [this] { return stopping_ || startable_locked() != queue_.end(); });
  --idle_threads_;
  return !queue_.empty();
}

void Engine::refuse_task(const Failure& failure) {
  std::unique_lock lock(mutex_);
  const auto next = startable_locked();
  if (next == queue_.end()) {
    return;
  }
  const auto transfer = next->transfer;
  queue_.erase(next);
  --queued_;
  lock.unlock();
  transfer->fail(failure);
  task_ended(transfer);
}

void Engine::run_tasks(LaneContext& context) {
  Turn turn;
  context.should_yield = [this, &turn] { return should_yield(turn); };
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_threads_;
    auto next = queue_.end();
    task_queued_.wait(lock, [this, &next] {
      next = startable_locked();
      return stopping_ || next != queue_.end();
    });
    --idle_threads_;
    if (next == queue_.end()) {
      return;
    }
    std::list<Task> taken = take_locked(next);
    lock.unlock();
    const Task& task = taken.front();
    const Lane lane = task.lane;
    turn = {copies(task), Clock::now()};
    ++busy_;
    const LaneOutcome outcome = run_lane(context, *task.transfer, lane);
    if (task.transfer->failed()) {
      // The next transfer must not inherit the failure.
      static_cast<void>(context.stream.drain());
      to_device_.forget_failures();
    }
    --busy_;
    lock.lock();
    leave_locked(task);
    if (outcome == LaneOutcome::yielded) {
      queue_.splice(queue_.end(), taken);
      ++queued_;
      lock.unlock();
    } else {
      lock.unlock();
      task_ended(task.transfer);
      taken.clear();
    }
    context.copied_windows.close();
    lock.lock();
    if (outcome == LaneOutcome::finished) {
      join_another_locked(lane);
    }
  }
}

// To tasks that want a thread. Those that are held back want one of the channels that copy.
bool Engine::should_yield(const Turn& turn) const {
  if (queued_.load(std::memory_order_relaxed) == 0) {
    return false;
  }
  const bool no_thread = idle_threads_.load(std::memory_order_relaxed) == 0;
  const auto time = Clock::now() - turn.begin;
  return (no_thread && time > time_slice) || (turn.copying && time > held_back_slice);
}

// Channels whose time is copying out of the page cache. Those that wait for a drive there need no
// core, and leave the memory's bandwidth to others.
bool Engine::copies(const Task& task) {
  if (task.lane != Lane::buffered || task.transfer->request().direction != Direction::send) {
    return false;
  }
  return !task.transfer->decision().channels_wait;
}

// Channels beyond those that fill the link take each other's memory bandwidth: with 20 of several
// sends instead of 12 a load had 1 to 3 % more speed for 8 to 10 % more CPU time (an H100 machine
// with 16 cores). Plans that are made beside others are narrow: three fifths of the threads may
// copy whatever was planned.
std::size_t Engine::copying_max() const {
  return std::max(copying_wide_, options_.threads_max * 3 / 5);
}

// The first task that may begin now. Each send has a channel that is not held back, and nothing
// is where nothing is left to do.
std::list<Engine::Task>::iterator Engine::startable_locked() {
  const bool room = stopping_ || copying_ < copying_max();
  return std::find_if(queue_.begin(), queue_.end(), [&](const Task& task) {
    return room || !copies(task) || task.transfer->copying_count == 0 ||
           task.transfer->stopping() || task.transfer->work.unclaimed_bytes() == 0;
  });
}

// A list of one, which goes back to the queue without memory for it.
std::list<Engine::Task> Engine::take_locked(std::list<Task>::iterator next) {
  std::list<Task> taken;
  taken.splice(taken.end(), queue_, next);
  --queued_;
  if (copies(*next)) {
    ++next->transfer->copying_count;
    ++copying_;
  }
  return taken;
}

// Its own thread may have more to do before it looks for another task.
void Engine::leave_locked(const Task& task) {
  if (!copies(task)) {
    return;
  }
  --task.transfer->copying_count;
  --copying_;
  if (idle_threads_ > 0 && startable_locked() != queue_.end()) {
    task_queued_.notify_one();
  }
}

// What a worker that runs `lane` would find to do in a transfer, for each that is there already.
std::uint64_t Engine::left_for_each(const Transfer& transfer, Lane lane) {
  const Plan& plan = transfer.decision().choice().plan;
  const auto channels = lane == Lane::buffered ? plan.buffered_channels : plan.direct_channels;
  const auto tasks = static_cast<std::uint64_t>(transfer.task_count);
  if (channels == 0 || tasks == 0 || tasks >= transfer.decision().channels_max ||
      !transfer.gate_open || transfer.stopping()) {
    return 0;
  }
  if (lane == Lane::buffered) {  // Cold pieces are another lane's.
    if (transfer.host_memory.left_bytes() < HostBudget::bytes_min) {
      return 0;
    }
    return transfer.work.perhaps_warm_bytes() / tasks;
  }
  const std::uint64_t unclaimed = transfer.work.unclaimed_bytes();
  const std::uint64_t held = transfer.work.held_bytes();
  return unclaimed > held ? (unclaimed - held) / tasks : 0;
}

// A transfer that was submitted beside others was planned narrow. The worker whose transfer has no
// piece left for it takes a task of the one that has most for each of its own.
void Engine::join_another_locked(Lane lane) {
  if (!queue_.empty() || (lane != Lane::buffered && lane != Lane::direct)) {
    return;
  }
  std::shared_ptr<Transfer> neediest;
  std::uint64_t most_bytes = joined_bytes_min;
  for (std::size_t index = 0; index < std::min(carried_.size(), joinable_max); ++index) {
    const std::uint64_t each = left_for_each(*carried_[index], lane);
    if (each >= most_bytes) {
      neediest = carried_[index];
      most_bytes = each;
    }
  }
  const bool held_back = neediest != nullptr && copies(Task{neediest, lane}) &&
                         copying_ >= copying_max() && neediest->copying_count > 0;
  if (neediest != nullptr && !held_back) {
    // For this worker: no other is woken.
    attempt(*neediest, [&] { push_locked(neediest, lane); });
  }
}

void Engine::task_ended(const std::shared_ptr<Transfer>& transfer) {
  std::unique_lock lock(mutex_);
  if (--transfer->task_count == 0) {
    settle(transfer, lock);
  }
  wake_and_unlock(lock);
}

// No task of the transfer is left: it is over, or waits for its device, or has pieces that a lane
// gave back after the lane they belong to had ended.
void Engine::settle(const std::shared_ptr<Transfer>& transfer, std::unique_lock<std::mutex>& lock) {
  const bool complete = transfer->bytes_done() == transfer->request().extent.size;
  if (!complete && !transfer->stopping()) {
    if (transfer->gate_open) {
      rescue_locked(transfer);
    }
    if (!transfer->gate_open || transfer->task_count > 0) {
      return;
    }
  }
  if (std::erase(carried_, transfer) == 0) {
    return;  // somebody else ends it
  }
  std::erase(watched_, transfer);
  lock.unlock();
  finalize(*transfer);
}

void Engine::rescue_locked(const std::shared_ptr<Transfer>& transfer) {
  const bool parked = transfer->parked_bytes() > 0;
  if (!parked && transfer->work.release_held()) {
    const bool directly = transfer->decision().choice().plan.direct_channels > 0;
    enqueue_locked(transfer, directly ? Lane::direct : Lane::buffered, 1);
    return;
  }
  const bool unclaimed = transfer->work.unclaimed_bytes() > transfer->work.held_bytes();
  if (!parked && !unclaimed) {
    transfer->fail({.status = Status::internal,
                    .operation = "carry a transfer",
                    .object = transfer->path(),
                    .detail = "pieces were claimed and not moved"});
    return;
  }
  enqueue_locked(transfer, Lane::parked, parked ? 1 : 0);
  enqueue_locked(transfer, Lane::buffered, unclaimed ? 1 : 0);
  enqueue_locked(transfer, Lane::direct_io, unclaimed ? 1 : 0);
}

void Engine::finalize(Transfer& transfer) {
  transfer.seal();
  while (std::byte* place = transfer.parked.take_spare()) {
    parking_.release(place);
  }
  while (const auto piece = transfer.parked.take_newest()) {
    parking_.release(piece->memory);
  }
  const TransferRequest& request = transfer.request();
  if (!transfer.failed() && request.direction == Direction::recv) {
    attempt(transfer, [&] {
      if (request.replaces != nullptr) {
        request.replaces->commit();
      } else if ((request.flags & HIPPOGRIFF_DURABLE) != 0) {
        request.file->sync();
      }
    });
  }
  if (transfer.failed() && request.replaces != nullptr) {
    request.replaces->discard();  // before anybody hears of the end; others may hold the transfer
  }
  const ExitHold hold;  // whoever hears of the end may exit, and what follows calls the driver
  transfer.finish();
  prepare_to_map(transfer);
  prepare_for_more(transfer);
}

void Engine::memory_freed() {
  {
    const std::lock_guard lock(mutex_);
  }
  watch_again_.notify_all();
}

bool Engine::sends_wait_for_memory() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(watched_.begin(), watched_.end(), [](const auto& transfer) {
    return transfer->address().is_null();
  });
}

void Engine::watch() {
  bool bound = true;
  try {
    device_->make_current();
  } catch (...) {
    bound = false;  // each look then fails its transfer with the device's own words
  }
  std::unique_lock lock(mutex_);
  while (!stopping_ || !watched_.empty()) {
    if (watched_.empty()) {
      watch_again_.wait(lock, [this] { return stopping_ || !watched_.empty(); });
      continue;
    }
    const bool soon = look_at_watched(lock);
    if (!watched_.empty()) {
      watch_again_.wait_for(
          lock, soon && bound ? std::chrono::microseconds(50) : std::chrono::microseconds(1000));
    }
  }
}

// One look at every watched transfer. True when one came so recently that the next pays soon.
bool Engine::look_at_watched(std::unique_lock<std::mutex>& lock) {
  bool soon = false;
  std::size_t index = 0;
  while (index < watched_.size()) {
    const auto transfer = watched_[index];
    // Asked for the parked route by name: all that fits is parked first, ready or not.
    const bool parks_on = transfer->request().route == Route::parked && transfer->task_count > 0;
    ++transfer->task_count;  // a look is a task: nobody ends the transfer meanwhile
    lock.unlock();
    bool open = false;
    if (!transfer->stopping() && !parks_on) {
      attempt(*transfer, [&] { open = open_gate(*transfer); });
    }
    lock.lock();
    --transfer->task_count;
    soon = soon || Clock::now() - transfer->submitted < std::chrono::milliseconds(20);
    if (open && !transfer->stopping()) {
      std::erase(watched_, transfer);
      transfer->gate_open = true;
      if (transfer->notice != nullptr) {
        transfer->notice->set_phase(node::TransferPhase::moving, false);
      }
      enqueue_plan_locked(transfer);
    } else {
      show_waiting(*transfer);
    }
    if (transfer->task_count == 0 && (transfer->stopping() || transfer->gate_open)) {
      settle(transfer, lock);
    }
    wake_and_unlock(lock);
    lock.lock();
    // Others may have ended meanwhile.
    index += index < watched_.size() && watched_[index] == transfer ? 1 : 0;
  }
  return soon;
}

// What others see of a transfer whose device is not ready.
void Engine::show_waiting(const Transfer& transfer) {
  if (transfer.notice != nullptr) {
    const bool parks = transfer.task_count > 0;
    transfer.notice->set_phase(parks ? node::TransferPhase::parking : node::TransferPhase::waiting,
                               transfer.address().is_null());
  }
}

// Is the device ready for the transfer now? Allocates if that was asked for.
bool Engine::open_gate(Transfer& transfer) {
  if (transfer.after != nullptr && !transfer.after->completed()) {
    return false;
  }
  if (!transfer.address().is_null() || transfer.request().extent.empty()) {
    return true;
  }
  if (transfer.memory_promised && !transfer.memory_promised(transfer)) {
    if (Clock::now() < transfer.memory_deadline) {
      return false;
    }
    throw Error({.status = Status::out_of_device_memory,
                 .operation = "allocate",
                 .object = transfer.device().info().name,
                 .detail = "what this command reserved is not there yet"});
  }
  try {
    transfer.allocate();
    return true;
  } catch (const Error& error) {
    if (error.failure().status != Status::out_of_device_memory ||
        Clock::now() >= transfer.memory_deadline) {
      throw;
    }
    return false;
  }
}

bool Engine::stop(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  const auto carried = carried_;
  lock.unlock();
  for (const auto& transfer : carried) {
    transfer->cancel();
  }
  lock.lock();
  task_queued_.notify_all();
  watch_again_.notify_all();
  const bool ended =
      thread_ended_.wait_for(lock, patience, [this] { return ended_threads_ == threads_.size(); });
  std::vector<std::thread> threads = std::exchange(threads_, {});
  ended_threads_ = 0;
  lock.unlock();
  for (std::thread& thread : threads) {
    if (ended) {
      thread.join();
    } else {
      thread.detach();
    }
  }
  return ended;
}

}  // namespace hippogriff
