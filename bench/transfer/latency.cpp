// Latency of single reads into, and writes out of, device memory.
#include "transfer/latency.hpp"

#include "transfer/measure.hpp"

#include <hippogriff/hippogriff.h>

#include <fcntl.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <new>
#include <numeric>
#include <random>
#include <stdexcept>

namespace bench {

namespace {

constexpr unsigned block_operations = 100;
constexpr std::uint64_t offset_alignment = 4096;

// One way of moving `size` bytes at an offset, ready to be called again and again.
class Operation {
 public:
  Operation(std::string name, const Bench& bench, const LatencyPlan& plan)
      : bench_(bench), plan_(plan), name_(std::move(name)) {}

  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  virtual void move(std::uint64_t offset) = 0;

  [[nodiscard]] const std::string& name() const { return name_; }

  // Measures one block; a failure ends this one's part, and the results say why.
  void run_block(std::mt19937_64& random) {
    if (!why_absent_.empty()) {
      return;
    }
    try {
      measure_block(random);
    } catch (const std::exception& failure) {
      why_absent_ = failure.what();
    }
  }

  nlohmann::json result() {
    nlohmann::json result = {
        {"direction", direction_name(plan_.direction)},
        {"filesystem", plan_.place->filesystem},
        {"directory", plan_.place->directory},
        {"state", state_name(plan_.state)},
        {"size_bytes", plan_.size},
        {"contender", name_},
        {"operations", seconds_.size()},
        {"verified", plan_.direction == Direction::send ? "last of each 100" : "no"}};
    if (!why_absent_.empty()) {
      result["why_absent"] = why_absent_;
    }
    if (!seconds_.empty()) {
      result["seconds"] = statistics();
    }
    return result;
  }

 protected:
  [[nodiscard]] int flags(int direct) const {
    return plan_.direction == Direction::send ? O_RDONLY | direct : O_RDWR;
  }

  [[nodiscard]] std::string path() const {
    return plan_.direction == Direction::send ? plan_.place->source() : plan_.place->target();
  }

  Bench bench_;
  LatencyPlan plan_;

 private:
  void measure_block(std::mt19937_64& random) {
    const std::uint64_t places = (plan_.file_size - plan_.size) / offset_alignment + 1;
    std::uint64_t offset = 0;
    for (unsigned i = 0; i < block_operations; ++i) {
      offset = random() % places * offset_alignment;
      const double start = now_seconds();
      move(offset);
      seconds_.push_back(now_seconds() - start);
    }
    if (plan_.direction == Direction::send) {
      const std::string wrong = verify_device(
          bench_.device, bench_.device_memory, {offset, plan_.size}, 1, bench_.pinned);
      if (!wrong.empty()) {
        throw std::runtime_error(name_ + ": " + wrong);
      }
    }
  }

  nlohmann::json statistics() {
    std::sort(seconds_.begin(), seconds_.end());
    const auto percentile = [&](double share) {
      const auto last = static_cast<double>(seconds_.size() - 1);
      return seconds_[static_cast<std::size_t>(std::llround(share * last))];
    };
    return {{"min", seconds_.front()},
            {"p50", percentile(0.5)},
            {"p90", percentile(0.9)},
            {"p99", percentile(0.99)},
            {"max", seconds_.back()},
            {"mean",
             std::accumulate(seconds_.begin(), seconds_.end(), 0.0) /
                 static_cast<double>(seconds_.size())}};
  }

  std::string name_;
  std::string why_absent_;
  std::vector<double> seconds_;
};

// Pinned memory, an asynchronous copy on a stream of one's own, and a wait for it.
class PinnedOperation : public Operation {
 public:
  PinnedOperation(const Bench& bench, const LatencyPlan& plan)
      : Operation("hand_written", bench, plan),
        queue_(bench.device.create_queue(1)),
        file_(path(), flags(plan.state == State::cold ? O_DIRECT : 0)) {}

  void move(std::uint64_t offset) override {
    std::byte* memory = bench_.pinned.data();
    if (plan_.direction == Direction::send) {
      read_fully(file_.get(), memory, plan_.size, offset);
      queue_->to_device(bench_.device_memory, memory, plan_.size, 0);
      queue_->drain();
    } else {
      queue_->to_host(memory, bench_.device_memory, plan_.size, 0);
      queue_->drain();
      write_fully(file_.get(), memory, plan_.size, offset);
    }
  }

 private:
  std::unique_ptr<CopyQueue> queue_;
  Descriptor file_;
};

// Ordinary memory and a blocking copy.
class NaiveOperation : public Operation {
 public:
  NaiveOperation(const Bench& bench, const LatencyPlan& plan)
      : Operation("naive", bench, plan), memory_(plan.size), file_(path(), flags(0)) {}

  void move(std::uint64_t offset) override {
    if (plan_.direction == Direction::send) {
      read_fully(file_.get(), memory_.data(), plan_.size, offset);
      bench_.device.to_device(bench_.device_memory, memory_.data(), plan_.size);
    } else {
      bench_.device.to_host(memory_.data(), bench_.device_memory, plan_.size);
      write_fully(file_.get(), memory_.data(), plan_.size, offset);
    }
  }

 private:
  std::vector<std::byte> memory_;
  Descriptor file_;
};

class OurOperation : public Operation {
 public:
  OurOperation(const Bench& bench, const LatencyPlan& plan)
      : Operation("hippogriff", bench, plan), file_(path(), flags(0)) {}

  void move(std::uint64_t offset) override {
    void* address = reinterpret_cast<void*>(bench_.device_memory);  // NOLINT: an address by value
    const std::size_t moved = plan_.direction == Direction::send
                                  ? hippogriff_send(file_.get(), &address, offset, plan_.size)
                                  : hippogriff_recv(file_.get(), address, offset, plan_.size);
    if (moved != plan_.size) {
      hippogriff_error error{};
      hippogriff_last_error(&error);
      throw std::runtime_error(std::string("hippogriff: ") +
                               (error.message != nullptr ? error.message : "?"));
    }
  }

 private:
  Descriptor file_;
};

void prepare(const LatencyPlan& plan) {
  if (plan.direction == Direction::send) {
    Case what{plan.direction, plan.state, plan.place, plan.file_size};
    set_cached(*plan.place, plan.file_size, what.cached());
  }
}

}  // namespace

nlohmann::json measure_latency(const Bench& bench, const LatencyPlan& plan) {
  if (plan.direction == Direction::recv) {
    // The file's pages are there already: what is measured is the way back, not the file growing.
    clear_target(*plan.place);
    const Descriptor file(plan.place->target(), O_WRONLY);
    const std::vector<std::byte> zeros(std::size_t{16} << 20U);
    for (std::uint64_t at = 0; at < plan.file_size; at += zeros.size()) {
      write_fully(
          file.get(), zeros.data(), std::min<std::uint64_t>(zeros.size(), plan.file_size - at), at);
    }
  }
  std::vector<std::unique_ptr<Operation>> operations;
  operations.push_back(std::make_unique<PinnedOperation>(bench, plan));
  operations.push_back(std::make_unique<NaiveOperation>(bench, plan));
  operations.push_back(std::make_unique<OurOperation>(bench, plan));
  std::mt19937_64 random(plan.size);
  if (plan.state != State::cold) {
    prepare(plan);
  }
  for (unsigned done = 0; done < plan.operations; done += block_operations) {
    for (std::size_t i = 0; i < operations.size(); ++i) {
      if (plan.state == State::cold) {
        prepare(plan);
      }
      operations[(i + done / block_operations) % operations.size()]->run_block(random);
    }
  }
  nlohmann::json results = nlohmann::json::array();
  for (const auto& operation : operations) {
    results.push_back(operation->result());
  }
  return results;
}

}  // namespace bench
