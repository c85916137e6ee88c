// hippogriff through its C interface: with its defaults, and with the route forced.
#include "transfer/contender.hpp"

#include <hippogriff/hippogriff.h>

#include <fcntl.h>

#include <stdexcept>

namespace bench {

namespace {

[[noreturn]] void throw_error(const char* call, const hippogriff_error& error) {
  throw std::runtime_error(std::string(call) + ": " +
                           (error.message != nullptr ? error.message : "?"));
}

[[noreturn]] void throw_last_error(const char* call) {
  hippogriff_error error{};
  hippogriff_last_error(&error);
  throw_error(call, error);
}

class Ours : public Contender {
 public:
  Ours(const Bench& bench, hippogriff_route route) : bench_(bench), route_(route) {}

  [[nodiscard]] std::string name() const override {
    return route_ == HIPPOGRIFF_ROUTE_AUTO
               ? "hippogriff"
               : std::string("hippogriff_") + hippogriff_route_name(route_);
  }

  [[nodiscard]] std::string refusal(const Case& what) const override {
    // Forced routes show the shape of cached sends and of ways back; elsewhere they repeat the
    // default.
    const bool shown = what.state == State::cached || what.direction == Direction::recv;
    return route_ == HIPPOGRIFF_ROUTE_AUTO || shown ? ""
                                                    : "the route is forced on cached files only";
  }

  nlohmann::json run(const Case& what) override {
    hippogriff_options options = HIPPOGRIFF_OPTIONS_INIT;
    options.route = route_;
    void* address = reinterpret_cast<void*>(bench_.device_memory);  // NOLINT: an address by value
    hippogriff_transfer* transfer = nullptr;
    int status = HIPPOGRIFF_OK;
    if (what.direction == Direction::send) {
      const Descriptor file(what.place->source(), O_RDONLY);
      status = hippogriff_send_async(file.get(), &address, 0, what.size, &options, &transfer);
    } else {
      options.flags = what.place->in_memory ? 0U : static_cast<unsigned>(HIPPOGRIFF_DURABLE);
      const Descriptor file(what.place->target(), O_RDWR);
      status = hippogriff_recv_async(file.get(), address, 0, what.size, &options, &transfer);
    }
    if (status != HIPPOGRIFF_OK) {
      throw_last_error("submit");
    }
    status = hippogriff_wait(transfer, wait_ms);
    return finish(transfer, status);
  }

  [[nodiscard]] std::int64_t kept_bytes() const override {
    char* text = nullptr;
    if (hippogriff_stats(&text) != HIPPOGRIFF_OK) {
      throw_last_error("hippogriff_stats");
    }
    const std::unique_ptr<char, decltype(&hippogriff_free_string)> json(text,
                                                                        &hippogriff_free_string);
    const nlohmann::json stats = nlohmann::json::parse(text);
    std::int64_t bytes = 0;
    for (const nlohmann::json& device : stats.at("devices")) {
      bytes += device.at("pinned_bytes").get<std::int64_t>();
    }
    return bytes;
  }

  [[nodiscard]] double expected_rate(const Case& what) const override {
    return expected_copy_rate(what, bench_.device.is_gpu() ? 40e9 : 4e9);
  }

 private:
  static constexpr std::int64_t wait_ms = 300'000;

  static nlohmann::json finish(hippogriff_transfer* transfer, int status) {
    const std::unique_ptr<hippogriff_transfer, decltype(&hippogriff_release)> owner(
        transfer, &hippogriff_release);
    if (status == HIPPOGRIFF_TIMED_OUT) {
      hippogriff_cancel(transfer);
      throw std::runtime_error("hippogriff did not finish in " + std::to_string(wait_ms) + " ms");
    }
    if (status != HIPPOGRIFF_OK) {
      hippogriff_error error{};
      hippogriff_get_error(transfer, &error);
      throw_error("transfer", error);
    }
    char* text = nullptr;
    if (hippogriff_get_report(transfer, &text) != HIPPOGRIFF_OK) {
      throw_last_error("hippogriff_get_report");
    }
    const std::unique_ptr<char, decltype(&hippogriff_free_string)> json(text,
                                                                        &hippogriff_free_string);
    return nlohmann::json::parse(text);
  }

  Bench bench_;
  hippogriff_route route_;
};

}  // namespace

void add_ours(Contenders& to, const Bench& bench, Effort /*effort*/) {
  to.push_back(std::make_unique<Ours>(bench, HIPPOGRIFF_ROUTE_AUTO));
  to.push_back(std::make_unique<Ours>(bench, HIPPOGRIFF_ROUTE_MAPPED));
  to.push_back(std::make_unique<Ours>(bench, HIPPOGRIFF_ROUTE_PIPELINED));
}

}  // namespace bench
