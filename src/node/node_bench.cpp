// What the node costs: reserve and release when nobody else is there, beside busy neighbours, and
// the time from a release to the next owner running. usage: node_node_bench [reservations held]
#include "node/node.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace {

using hippogriff::node::Node;
using hippogriff::node::NodeOptions;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds long_wait{10'000};

NodeOptions options(const std::string& path) {
  NodeOptions result;
  result.path = path;
  result.policy = hippogriff::node::Policy::mmu;
  return result;
}

double pair_us(Node& node, int rounds) {
  const auto begin = Clock::now();
  for (int round = 0; round < rounds; ++round) {
    node.release(node.reserve({.size_bytes = 10, .timeout = long_wait}));
  }
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / rounds;
}

void measure_pairs(const std::string& path, int held, int neighbours) {
  Node node(options(path));
  node.add_device("gpu", 1'000'000);
  for (int count = 0; count < held; ++count) {
    node.reserve({.size_bytes = 1});
  }
  std::vector<pid_t> children;
  for (int count = 0; count < neighbours; ++count) {
    children.push_back(::fork());
    if (children.back() == 0) {
      Node theirs(options(path));
      theirs.add_device("gpu", 1'000'000);
      for (;;) {
        pair_us(theirs, 1000);
      }
    }
  }
  ::usleep(neighbours != 0 ? 100'000 : 0);
  pair_us(node, 1000);
  std::printf("reserve + release, %d reservations held, %d busy neighbours: %.2f us\n",
              held,
              neighbours,
              pair_us(node, 100'000));
  for (const pid_t child : children) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
}

// A child waits for the whole device; from our release to its return.
void measure_wake(const std::string& path) {
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return;
  }
  auto* released_ns = new (memory) std::atomic<std::int64_t>;
  std::vector<double> microseconds;
  Node node(options(path));
  node.add_device("gpu", 100);
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t all = node.reserve({.size_bytes = 100, .timeout = long_wait});
    const pid_t child = ::fork();
    if (child == 0) {
      Node theirs(options(path));
      theirs.add_device("gpu", 100);
      theirs.reserve({.size_bytes = 100, .timeout = long_wait});
      *released_ns = hippogriff::node::monotonic_ns() - *released_ns;
      ::_exit(0);
    }
    while (node.view().reservations.size() < 2) {
      ::usleep(1000);
    }
    ::usleep(2000);
    *released_ns = hippogriff::node::monotonic_ns();
    node.release(all);
    ::waitpid(child, nullptr, 0);
    microseconds.push_back(static_cast<double>(released_ns->load()) / 1000);
  }
  std::ranges::sort(microseconds);
  std::printf("release to the next process running: median %.1f us, 90th %.1f us\n",
              microseconds[100],
              microseconds[180]);
}

// What a transfer pays to be seen, and to see those of `others` clients.
void measure_transfers(const std::string& path, int others) {
  constexpr int rounds = 200'000;
  const Node node(options(path));
  std::vector<std::unique_ptr<Node>> clients;
  std::vector<std::unique_ptr<hippogriff::node::TransferNotice>> notices;
  const hippogriff::node::ShownTransfer shown{
      .device = 1, .drive = "nvme0n1", .bytes_total = 1 << 30};
  for (int client = 0; client < others; ++client) {
    clients.push_back(std::make_unique<Node>(options(path)));
    notices.push_back(clients.back()->notice_transfer());
    notices.back()->show(shown);
  }
  const auto begin = Clock::now();
  for (int round = 0; round < rounds; ++round) {
    node.notice_transfer()->show(shown);
  }
  const auto middle = Clock::now();
  std::size_t seen = 0;
  for (int round = 0; round < rounds; ++round) {
    seen += node.transfers_of_others().size();
  }
  const auto end = Clock::now();
  const auto each_ns = [](auto time) {
    return std::chrono::duration<double, std::nano>(time).count() / rounds;
  };
  std::printf("show and end a transfer: %.0f ns; look at those of %d others: %.0f ns (%zu seen)\n",
              each_ns(middle - begin),
              others,
              each_ns(end - middle),
              seen / rounds);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string path = "/dev/shm/hippogriff-bench-" + std::to_string(::getpid());
  const int held = argc > 1 ? static_cast<int>(std::strtol(argv[1], nullptr, 10)) : 20;
  measure_pairs(path, 0, 0);
  measure_pairs(path, held, 0);
  measure_pairs(path, 0, 1);
  measure_wake(path);
  measure_transfers(path, 0);
  measure_transfers(path, 4);
  static_cast<void>(::unlink(path.c_str()));
  return 0;
}
