// The cover: what is held beside the reservations asked for by name, so that all that is used is.
// Who follows a leader holds nothing by itself: there the cover, taken of the leader's reservation,
// is whatever is used or reserved.
#include "node/account.hpp"

#include "base/error.hpp"
#include "base/size.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace hippogriff::node {

namespace {

constexpr std::chrono::milliseconds at_once{0};
// Processes of one command do not wake each other: who waits for the others looks so often.
constexpr std::chrono::milliseconds group_look_interval{2};

[[noreturn]] void throw_no_reservation(const char* operation) {
  throw_invalid(operation, "no such reservation, or 0 bytes");
}

[[noreturn]] void throw_larger_than(std::uint64_t size_bytes, std::uint64_t granted_bytes) {
  throw Error({.status = Status::out_of_device_memory,
               .operation = "reserve",
               .detail = format_size(size_bytes) + " asked, this command has reserved " +
                         format_size(granted_bytes)});
}

}  // namespace

Account::Account(NodeClient& node, std::uint32_t device)
    : node_(node),
      device_(device),
      deferred_bytes_(
          node.follows() && node.granted_bytes(device) == 0 ? node.deferred_bytes(device) : 0),
      follows_(node.follows() && (deferred_bytes_ != 0 || node.granted_bytes(device) != 0)) {}

bool Account::take(std::uint64_t size_bytes) noexcept {
  const std::scoped_lock turn(mutex_);
  if (size_bytes > capacity_bytes_max - std::min(used_bytes_, capacity_bytes_max)) {
    return false;
  }
  try {
    const std::uint64_t wanted = cover_needed(used_bytes_ + size_bytes);
    if (wanted > covered_bytes_) {
      cover(wanted - covered_bytes_);
    }
  } catch (...) {
    return false;  // promised to others, or the node cannot be reached
  }
  used_bytes_ += size_bytes;
  show();
  return true;
}

void Account::give(std::uint64_t size_bytes) noexcept {
  const std::scoped_lock turn(mutex_);
  used_bytes_ -= std::min(used_bytes_, size_bytes);
  show();
  fit_cover();
}

bool Account::take_growing(std::uint64_t size_bytes,
                           std::chrono::milliseconds timeout,
                           std::string& why,
                           const std::function<bool()>& interrupted) noexcept {
  const MonotonicTime deadline = std::chrono::steady_clock::now() + timeout;
  std::chrono::milliseconds left = timeout;  // asked for once at least, however slow this thread is
  try {
    while (!take(size_bytes)) {
      if (!follows_ || left < std::chrono::milliseconds::zero()) {
        why = "not in time";
        return false;
      }
      node_.grow_group(device_, size_bytes, left, interrupted);
      left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    }
    return true;
  } catch (const Error& error) {
    why = error.what();
  } catch (...) {
    why = "no host memory";
  }
  return false;
}

void Account::claim(std::chrono::milliseconds timeout, const std::function<bool()>& interrupted) {
  if (!is_claimed()) {
    node_.claim_deferred(device_, timeout, interrupted);
  }
}

void Account::show() noexcept {
  if (!follows_) {
    node_.show_used(device_, used_bytes_);
  }
}

std::uint64_t Account::reserve(Request request) {
  request.device = device_;
  std::uint64_t handle = 0;
  if (!follows_) {
    handle = node_.reserve(request);
  } else if (request.size_bytes == 0) {
    throw_invalid("reserve", "0 bytes");
  } else {
    const MonotonicTime deadline = std::chrono::steady_clock::now() + request.timeout;
    if (request.size_bytes <= limit_bytes()) {
      claim(request.timeout, request.interrupted);
    }
    {
      const std::scoped_lock turn(mutex_);
      handle = next_handle_++;
    }
    grow_in_group(handle, request.size_bytes, deadline, true, request.interrupted);
    return handle;
  }
  const std::scoped_lock turn(mutex_);
  reserved_.push_back({.handle = handle, .size_bytes = request.size_bytes});
  fit_cover();
  return handle;
}

std::uint64_t Account::defer(Request request) {
  request.device = device_;
  if (follows_ && request.size_bytes > limit_bytes()) {
    throw_larger_than(request.size_bytes, limit_bytes());
  }
  std::uint64_t handle = follows_ ? 0 : node_.defer(request);
  const std::scoped_lock turn(mutex_);
  if (follows_) {
    handle = next_handle_++;
  }
  reserved_.push_back({.handle = handle, .size_bytes = 0});
  return handle;
}

// Also a reservation that is not there yet, which grows from nothing.
bool Account::try_grow_in_group(std::uint64_t handle, std::uint64_t size_bytes, bool is_new) {
  const std::scoped_lock turn(mutex_);
  const auto at = std::ranges::find(reserved_, handle, &Cover::handle);
  if (at == reserved_.end() && !is_new) {
    throw Error({.status = Status::cancelled,
                 .operation = "resize a reservation",
                 .detail = "it was released meanwhile"});
  }
  const std::uint64_t before = at != reserved_.end() ? at->size_bytes : 0;
  const std::uint64_t wanted = std::max(used_bytes_, explicit_bytes() - before + size_bytes);
  if (wanted > covered_bytes_) {
    if (!node_.take(device_, wanted - covered_bytes_)) {
      return false;
    }
    covered_bytes_ = wanted;
  }
  if (at != reserved_.end()) {
    at->size_bytes = size_bytes;
  } else {
    reserved_.push_back({.handle = handle, .size_bytes = size_bytes});
  }
  return true;
}

void Account::grow_in_group(std::uint64_t handle,
                            std::uint64_t size_bytes,
                            MonotonicTime deadline,
                            bool is_new,
                            const std::function<bool()>& interrupted) {
  for (bool first = true; !try_grow_in_group(handle, size_bytes, is_new); first = false) {
    if (interrupted && interrupted()) {
      throw Error({.status = Status::cancelled, .operation = "reserve"});
    }
    wait_for_group(size_bytes, deadline, first ? Status::busy : Status::timed_out);
  }
}

void Account::wait_for_group(std::uint64_t size_bytes, MonotonicTime deadline, Status at_end) {
  const std::uint64_t granted = limit_bytes();
  if (size_bytes > granted || !node_.follows()) {
    throw_larger_than(size_bytes, granted);
  }
  if (std::chrono::steady_clock::now() >= deadline) {
    throw Error({.status = at_end,
                 .operation = "reserve",
                 .detail = format_size(size_bytes) + " asked, and of the " + format_size(granted) +
                           " that this command has reserved " +
                           format_size(node_.group_used_bytes(device_)) + " are in use"});
  }
  std::this_thread::sleep_for(group_look_interval);
}

void Account::resize(std::uint64_t handle,
                     std::uint64_t size_bytes,
                     std::chrono::milliseconds timeout,
                     const std::function<bool()>& interrupted) {
  const MonotonicTime deadline = std::chrono::steady_clock::now() + timeout;
  {
    const std::scoped_lock turn(mutex_);
    const auto at = std::ranges::find(reserved_, handle, &Cover::handle);
    if (at == reserved_.end() || size_bytes == 0) {
      throw_no_reservation("resize");
    }
    if (size_bytes <= at->size_bytes) {
      const std::uint64_t less = at->size_bytes - size_bytes;
      if (!follows_ && used_bytes_ > explicit_bytes() + covered_bytes_ - less) {
        throw Error({.status = Status::busy,
                     .operation = "shrink a reservation",
                     .detail = "more than that is in use"});
      }
      if (!follows_ && less != 0) {
        node_.shrink(handle, size_bytes);
      }
      at->size_bytes = size_bytes;
      fit_cover();
      return;
    }
  }
  if (follows_) {
    grow_in_group(handle, size_bytes, deadline, false, interrupted);
    return;
  }
  node_.grow(handle, size_bytes, timeout, interrupted);
  const std::scoped_lock turn(mutex_);
  const auto at = std::ranges::find(reserved_, handle, &Cover::handle);
  if (at != reserved_.end()) {
    at->size_bytes = size_bytes;
    fit_cover();
  }
}

void Account::release(std::uint64_t handle) {
  const std::scoped_lock turn(mutex_);
  const auto at = std::ranges::find(reserved_, handle, &Cover::handle);
  if (at == reserved_.end()) {
    throw_no_reservation("release");
  }
  const std::uint64_t rest = explicit_bytes() + covered_bytes_ - at->size_bytes;
  if (!follows_ && used_bytes_ > rest) {
    const std::uint64_t kept = used_bytes_ - rest;
    node_.shrink(handle, kept);
    covers_.push_back({.handle = handle, .size_bytes = kept});
    covered_bytes_ += kept;
  } else if (!follows_) {
    node_.release(handle);
  }
  reserved_.erase(at);
  fit_cover();
}

std::uint64_t Account::reserved_bytes(std::uint64_t handle) const {
  const std::scoped_lock turn(mutex_);
  const auto at = std::ranges::find(reserved_, handle, &Cover::handle);
  return at != reserved_.end() ? at->size_bytes : 0;
}

std::uint64_t Account::used_bytes() const {
  const std::scoped_lock turn(mutex_);
  return used_bytes_;
}

std::uint64_t Account::explicit_bytes() const {
  std::uint64_t sum = 0;
  for (const Cover& reserved : reserved_) {
    sum += reserved.size_bytes;
  }
  return sum;
}

std::uint64_t Account::cover_needed(std::uint64_t used_bytes) const {
  const std::uint64_t reserved = explicit_bytes();
  return follows_ ? std::max(used_bytes, reserved) : used_bytes - std::min(used_bytes, reserved);
}

void Account::cover(std::uint64_t size_bytes) {
  if (follows_) {
    if (!node_.take(device_, size_bytes)) {
      throw Error({.status = Status::busy, .operation = "take of the command's reservation"});
    }
  } else if (covers_.empty()) {
    const std::uint64_t handle =
        node_.reserve({.device = device_, .size_bytes = size_bytes, .timeout = at_once});
    covers_.push_back({.handle = handle, .size_bytes = size_bytes});
  } else {
    node_.grow(covers_.back().handle, covers_.back().size_bytes + size_bytes, at_once);
    covers_.back().size_bytes += size_bytes;
  }
  covered_bytes_ += size_bytes;
}

void Account::uncover(std::uint64_t size_bytes) {
  if (follows_) {
    node_.give(device_, size_bytes);
    covered_bytes_ -= size_bytes;
    return;
  }
  while (size_bytes != 0) {
    Cover& last = covers_.back();
    const std::uint64_t part = std::min(size_bytes, last.size_bytes);
    if (part == last.size_bytes) {
      node_.release(last.handle);
      covers_.pop_back();
    } else {
      node_.shrink(last.handle, last.size_bytes - part);
      last.size_bytes -= part;
    }
    covered_bytes_ -= part;
    size_bytes -= part;
  }
}

// Gives back what of the cover is not needed. What fails is tried again with the next change.
void Account::fit_cover() noexcept {
  const std::uint64_t needed = cover_needed(used_bytes_);
  if (covered_bytes_ <= needed) {
    return;
  }
  try {
    uncover(covered_bytes_ - needed);
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): see above
  }
}

}  // namespace hippogriff::node
