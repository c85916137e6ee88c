// The stages of a program's life with the node (figure 6.9 of the thesis), in shared memory and by
// the server: initialise, reserve, release, shut down, and the wait for memory that another process
// frees. Prints one JSON object; times in microseconds. usage: noded_noded_bench [rounds]
#include "node/node.hpp"
#include "noded/open_node.hpp"
#include "noded/server.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using hippogriff::node::NodeClient;
using hippogriff::noded::open_node;
using hippogriff::noded::Server;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds long_wait{10'000};
constexpr std::size_t handovers_max = 300;

class Stage {
 public:
  explicit Stage(const char* name) : name_(name) {}

  template <typename Call>
  void time(Call call) {
    const auto begin = Clock::now();
    call();
    add(Clock::now() - begin);
  }

  void add(std::chrono::nanoseconds took) {
    microseconds_.push_back(std::chrono::duration<double, std::micro>(took).count());
  }

  void print(bool first) {
    std::ranges::sort(microseconds_);
    std::printf("%s\n    \"%s\": {\"median\": %.2f, \"p99\": %.2f, \"count\": %zu}",
                first ? "" : ",",
                name_,
                microseconds_[microseconds_.size() / 2],
                microseconds_[microseconds_.size() * 99 / 100],
                microseconds_.size());
  }

 private:
  const char* name_;
  std::vector<double> microseconds_;
};

std::unique_ptr<NodeClient> initialised(const std::string& address) {
  auto client = open_node(address);
  client->add_device("gpu", 100);
  return client;
}

// A child holds all; from its release to our return.
void measure_handovers(const std::string& address, std::size_t rounds, Stage& stage) {
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return;
  }
  auto* released_ns = new (memory) std::atomic<std::int64_t>(0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto theirs = initialised(address);
    for (;;) {
      const std::uint64_t all = theirs->reserve({.size_bytes = 100, .timeout = long_wait});
      while (theirs->view().reservations.size() < 2) {
        ::usleep(200);
      }
      ::usleep(500);
      *released_ns = hippogriff::node::monotonic_ns();
      theirs->release(all);
    }
  }
  const auto ours = initialised(address);
  for (std::size_t round = 0; round < rounds; ++round) {
    while (ours->view().reservations.empty()) {
      ::usleep(200);
    }
    const std::uint64_t all = ours->reserve({.size_bytes = 100, .timeout = long_wait});
    stage.add(std::chrono::nanoseconds(hippogriff::node::monotonic_ns() - *released_ns));
    ours->release(all);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::munmap(memory, 4096);
}

void measure_way(const char* name, const std::string& address, std::size_t rounds) {
  Stage initialise("initialise");
  Stage reserve("pre-allocate");
  Stage release("post-free");
  Stage shut_down("shutdown");
  Stage handover("handover");
  for (std::size_t round = 0; round < rounds; ++round) {
    std::unique_ptr<NodeClient> client;
    std::uint64_t handle = 0;
    initialise.time([&] { client = initialised(address); });
    reserve.time([&] { handle = client->reserve({.size_bytes = 10, .timeout = long_wait}); });
    release.time([&] { client->release(handle); });
    shut_down.time([&] { client.reset(); });
  }
  measure_handovers(address, std::min(rounds, handovers_max), handover);
  std::printf("  \"%s\": {", name);
  initialise.print(true);
  for (Stage* stage : {&reserve, &release, &shut_down, &handover}) {
    stage->print(false);
  }
  std::printf("},\n");
}

// The stages that only this way has: once for all programs.
void measure_server(const hippogriff::noded::ServerOptions& options, std::size_t rounds) {
  Stage initialise("initialise");
  Stage shut_down("shutdown");
  for (std::size_t round = 0; round < rounds; ++round) {
    std::optional<Server> server;
    initialise.time([&] { server.emplace(options); });
    std::thread thread([&] { server->run(); });
    shut_down.time([&] {
      server->stop();
      thread.join();
      server.reset();
    });
  }
  std::printf("  \"server\": {");
  initialise.print(true);
  shut_down.print(false);
  std::printf("}\n}\n");
}

}  // namespace

int main(int argc, char** argv) {
  const long asked = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 2000;
  const auto rounds = static_cast<std::size_t>(std::clamp(asked, 1L, 1'000'000L));
  const std::string name = "hippogriff-bench-" + std::to_string(::getpid());
  hippogriff::noded::ServerOptions options{.path = "/tmp/" + name + ".sock"};
  options.node.path = "/dev/shm/" + name;
  options.node.policy = hippogriff::node::Policy::mmu;
  const pid_t child = ::fork();
  if (child == 0) {
    hippogriff::noded::run_server(options, -1);
    ::_exit(0);
  }
  while (::access(options.path.c_str(), F_OK) != 0) {
    ::usleep(1000);
  }
  ::usleep(10'000);
  std::printf("{\n");
  measure_way("shared memory", options.node.path, rounds);
  measure_way("client-server", "unix:" + options.path, rounds);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  measure_server(options, std::min<std::size_t>(rounds, 200));
  static_cast<void>(::unlink(options.node.path.c_str()));
  static_cast<void>(::unlink((options.path + ".lock").c_str()));
  return 0;
}
