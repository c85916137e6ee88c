// FaultPlan: which operation is struck by what.
#include "testing/faulty_storage.hpp"

#include <algorithm>
#include <cerrno>

namespace hippogriff {
namespace {

constexpr std::uint64_t shorten_step_bytes = 4096;

bool moves_bytes(FaultPoint point) {
  switch (point) {
    case FaultPoint::read:
    case FaultPoint::read_cached:
    case FaultPoint::write:
    case FaultPoint::queued_read:
    case FaultPoint::queued_write:
      return true;
    default:
      return false;
  }
}

bool writes(FaultPoint point) {
  return point == FaultPoint::write || point == FaultPoint::queued_write;
}

}  // namespace

void FaultPlan::add(const Fault& fault) {
  const std::lock_guard lock(mutex_);
  script_.push_back({fault});
}

void FaultPlan::randomize(const RandomFaults& faults) {
  const std::lock_guard lock(mutex_);
  random_ = faults;
  generator_.seed(faults.seed);
}

void FaultPlan::limit_size(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  size_limit_bytes_ = bytes;
}

void FaultPlan::clear() {
  const std::lock_guard lock(mutex_);
  script_.clear();
  random_.reset();
  size_limit_bytes_.reset();
  released_ = true;
}

void FaultPlan::release() {
  const std::lock_guard lock(mutex_);
  released_ = true;
}

bool FaultPlan::released() const {
  const std::lock_guard lock(mutex_);
  return released_;
}

std::uint64_t FaultPlan::struck() const {
  const std::lock_guard lock(mutex_);
  return struck_;
}

std::uint64_t FaultPlan::seen(FaultPoint point) const {
  const std::lock_guard lock(mutex_);
  return seen_.at(static_cast<std::size_t>(point));
}

std::optional<Fault> FaultPlan::scripted(FaultPoint point) {
  for (Scripted& entry : script_) {
    if (entry.fault.point != point || entry.struck >= entry.fault.times) {
      continue;
    }
    if (entry.passed < entry.fault.after) {
      ++entry.passed;
      continue;
    }
    ++entry.struck;
    return entry.fault;
  }
  return std::nullopt;
}

std::optional<Fault> FaultPlan::full(FaultPoint point,
                                     std::uint64_t offset,
                                     std::uint64_t size) const {
  if (!size_limit_bytes_ || !writes(point) || offset + size <= *size_limit_bytes_) {
    return std::nullopt;
  }
  if (offset >= *size_limit_bytes_) {
    return Fault{.point = point, .kind = FaultKind::error, .errno_value = ENOSPC};
  }
  return Fault{.point = point, .kind = FaultKind::shorten, .bytes = *size_limit_bytes_ - offset};
}

std::optional<Fault> FaultPlan::random(FaultPoint point, std::uint64_t size) {
  if (!random_ || !moves_bytes(point)) {
    return std::nullopt;
  }
  double draw = std::uniform_real_distribution<double>(0, 1)(generator_);
  const auto chosen = [&draw](double share) {
    const bool hit = draw < share;
    draw -= share;
    return hit && share > 0;
  };
  const bool queued = point == FaultPoint::queued_read || point == FaultPoint::queued_write;
  if (chosen(random_->error)) {
    return Fault{.point = point, .kind = FaultKind::error, .errno_value = EIO};
  }
  if (chosen(random_->try_again)) {
    return queued ? std::optional(
                        Fault{.point = point, .kind = FaultKind::error, .errno_value = EAGAIN})
                  : std::nullopt;
  }
  if (chosen(random_->shorten)) {
    const std::uint64_t steps = size / shorten_step_bytes;
    if (steps < 2) {
      return std::nullopt;
    }
    const std::uint64_t kept =
        std::uniform_int_distribution<std::uint64_t>(1, steps - 1)(generator_);
    return Fault{.point = point, .kind = FaultKind::shorten, .bytes = kept * shorten_step_bytes};
  }
  if (chosen(random_->delay)) {
    const int delay_ms = std::uniform_int_distribution<int>(0, 5)(generator_);
    return Fault{
        .point = point, .kind = FaultKind::delay, .delay = std::chrono::milliseconds(delay_ms)};
  }
  return std::nullopt;
}

std::optional<Fault> FaultPlan::strike(FaultPoint point, std::uint64_t offset, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  ++seen_.at(static_cast<std::size_t>(point));
  auto fault = scripted(point);
  if (!fault) {
    fault = full(point, offset, size);
  }
  if (!fault) {
    fault = random(point, size);
  }
  struck_ += fault ? 1 : 0;
  return fault;
}

}  // namespace hippogriff
