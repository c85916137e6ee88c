// Contexts that take turns.
#include "testing/simulated_gpu/machine.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace hippogriff::simulated {

namespace {

constexpr std::size_t stack_bytes = std::size_t{128} << 10;

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): contexts have no argument
Machine* the_machine = nullptr;

}  // namespace

struct Machine::Thread {
  std::function<void()> body;
  std::unique_ptr<std::byte[]> stack{new std::byte[stack_bytes]};
  ucontext_t context{};
};

Machine::Machine(const MachineOptions& options) : random(options.seed), options_(options) {}

Machine::~Machine() = default;

Machine* Machine::running() {
  return the_machine;
}

void Machine::add(std::function<void()> body) {
  if (threads_.size() == threads_max) {
    std::abort();
  }
  auto thread = std::make_unique<Thread>();
  thread->body = std::move(body);
  getcontext(&thread->context);
  thread->context.uc_stack = {.ss_sp = thread->stack.get(), .ss_flags = 0, .ss_size = stack_bytes};
  thread->context.uc_link = nullptr;
  makecontext(&thread->context, &Machine::enter, 0);
  ready_.push_back(static_cast<int>(threads_.size()));
  threads_.push_back(std::move(thread));
  ++alive_;
}

void Machine::run() {
  the_machine = this;
  current_ = ready_.at(random.below(ready_.size()));
  swapcontext(&outside_, &threads_[static_cast<std::size_t>(current_)]->context);
  the_machine = nullptr;
  current_ = -1;
  threads_.clear();
  ready_.clear();
  alive_ = 0;
}

void Machine::enter() {
  Machine& machine = *the_machine;
  machine.threads_[static_cast<std::size_t>(machine.current_)]->body();
  machine.remove(machine.current_);
  if (--machine.alive_ == 0) {
    setcontext(&machine.outside_);
  }
  machine.switch_to_any();
}

void Machine::fail(std::string why) {
  failure_ = std::move(why);
  setcontext(&outside_);
  std::abort();
}

void Machine::leave_for(int next) {
  const int me = std::exchange(current_, next);
  if (me != next) {
    swapcontext(&threads_[static_cast<std::size_t>(me)]->context,
                &threads_[static_cast<std::size_t>(next)]->context);
  }
}

void Machine::switch_to_any() {
  if (ready_.empty()) {
    fail("all threads wait for each other");
  }
  leave_for(ready_[random.below(ready_.size())]);
}

void Machine::may_switch() {
  if (++steps_ > options_.steps_max) {
    fail("it did not end");
  }
  if (random.below(options_.switch_odds) == 0) {
    switch_to_any();
  }
}

void Machine::yield() {
  ++steps_;
  switch_to_any();
}

void Machine::block() {
  remove(current_);
  switch_to_any();
}

void Machine::unblock(int thread) {
  ready_.push_back(thread);
}

void Machine::remove(int thread) {
  const auto place = std::ranges::find(ready_, thread);
  *place = ready_.back();
  ready_.pop_back();
}

}  // namespace hippogriff::simulated
