// Fuzzes what is read of drives: whatever /sys says, facts are bounded, and what is no number is
// none.
#include "device/numa.hpp"
#include "storage/drives.hpp"
#include "testing/temporary_folder.hpp"

#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string_view>

namespace {

namespace fs = std::filesystem;

constexpr std::array attributes = {"size",
                                   "device/model",
                                   "device/numa_node",
                                   "queue/rotational",
                                   "queue/logical_block_size",
                                   "queue/physical_block_size",
                                   "queue/max_sectors_kb",
                                   "queue/nr_requests",
                                   "queue/read_ahead_kb",
                                   "queue/scheduler"};

void expect(bool holds) {
  if (!holds) {
    std::abort();
  }
}

// A tree with one drive, which is a PCI device too. In memory where there is /dev/shm.
class Tree {
 public:
  Tree() : home_(fs::is_directory("/dev/shm") ? "/dev/shm" : ".") {
    trees_.sys = home_.path() / "sys";
    trees_.proc = home_.path() / "proc";
    fs::create_directories(drive() / "device");
    fs::create_directories(drive() / "queue");
    for (const char* folder : {"block", "dev/block", "bus/pci/devices"}) {
      fs::create_directories(trees_.sys / folder);
    }
    fs::create_symlink(drive(), trees_.sys / "block" / "vda");
    fs::create_symlink(drive(), trees_.sys / "dev/block" / "254:0");
    fs::create_symlink(drive() / "device", trees_.sys / "bus/pci/devices" / "0000:00:01.0");
  }

  [[nodiscard]] fs::path drive() const { return trees_.sys / "devices" / "vda"; }

  [[nodiscard]] const hippogriff::SystemTrees& trees() const { return trees_; }

 private:
  hippogriff::TemporaryFolder home_;
  hippogriff::SystemTrees trees_;
};

void check(const hippogriff::SystemTrees& trees) {
  expect(hippogriff::drive_name(makedev(254, 0), trees) == "vda");
  const auto facts = hippogriff::drive_facts("vda", trees);
  expect(facts.has_value() && facts->name == "vda");
  expect(facts->numa_node >= -1);
  for (const std::string& text : {facts->model, facts->scheduler}) {
    expect(text.size() <= 4096);
    expect(text.empty() || (text.front() != ' ' && text.front() != '\n'));
  }
  const auto block = hippogriff::logical_block_bytes(makedev(254, 0), trees);
  expect(block.value_or(0) == facts->logical_block_bytes);
  const auto drives = hippogriff::list_drives(trees);
  expect(drives.size() == (facts->size_bytes > 0 ? 1U : 0U));
  expect(hippogriff::numa_node_of_pci_device("0000:00:01.0", trees.sys) >= -1);
}

}  // namespace

// The text of each attribute, in turns, up to a byte 0; those for which nothing is left are absent.
// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  static const Tree tree;
  std::string_view left(reinterpret_cast<const char*>(data), size_bytes);
  for (const char* attribute : attributes) {
    if (left.empty()) {
      fs::remove(tree.drive() / attribute);
      continue;
    }
    const std::string_view text = left.substr(0, left.find('\0'));
    std::ofstream(tree.drive() / attribute, std::ios::binary) << text;
    left.remove_prefix(std::min(text.size() + 1, left.size()));
  }
  check(tree.trees());
  return 0;
}
