// Which memory counts as new, and that sends into it are wider.
#include "transfer/landing_memory.hpp"

#include "testing/runtime_fixture.hpp"
#include "transfer/cost_model.hpp"

#include <sys/mman.h>

namespace hippogriff {
namespace {

constexpr std::size_t memory_bytes = std::size_t{64} << 20;

// Small pages, so that touching one makes no other.
class NewMemory {
 public:
  explicit NewMemory(std::size_t size_bytes = memory_bytes)
      : size_(size_bytes),
        bytes_(static_cast<std::byte*>(
            ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    ::madvise(bytes_, size_, MADV_NOHUGEPAGE);
  }

  ~NewMemory() { ::munmap(bytes_, size_); }

  NewMemory(const NewMemory&) = delete;
  NewMemory& operator=(const NewMemory&) = delete;
  NewMemory(NewMemory&&) = delete;
  NewMemory& operator=(NewMemory&&) = delete;

  void touch(std::size_t offset, std::size_t size) { std::memset(bytes_ + offset, 1, size); }

  [[nodiscard]] DeviceAddress at(std::size_t offset) const {
    return {reinterpret_cast<std::uintptr_t>(bytes_) + offset};
  }

 private:
  std::size_t size_;
  std::byte* bytes_;
};

TransferRequest send_to(DeviceAddress address, std::shared_ptr<Device> device = plain_device()) {
  TransferRequest request;
  request.extent = {0, memory_bytes};
  request.device = std::move(device);
  request.address = address;
  return request;
}

TEST(LandingMemory, is_new_while_most_of_it_was_touched_by_nobody) {
  NewMemory memory;
  const TransferRequest request = send_to(memory.at(0));
  EXPECT_TRUE(lies_in_new_memory(request, {}));
  memory.touch(0, memory_bytes / 4);
  EXPECT_TRUE(lies_in_new_memory(request, {}));
  memory.touch(memory_bytes / 4, memory_bytes / 2);
  EXPECT_FALSE(lies_in_new_memory(request, {}));
}

TEST(LandingMemory, of_several_destinations_is_looked_at_in_many) {
  NewMemory memory;
  TransferRequest request = send_to({});
  const std::size_t each = memory_bytes / 100;
  for (std::size_t index = 0; index < 100; ++index) {
    request.destinations.push_back({{index * each, each}, memory.at(index * each)});
  }
  EXPECT_TRUE(lies_in_new_memory(request, {}));
  memory.touch(0, memory_bytes / 3);
  EXPECT_TRUE(lies_in_new_memory(request, {}));
  memory.touch(0, memory_bytes);
  EXPECT_FALSE(lies_in_new_memory(request, {}));
}

// Most tensors of a model may be biases and norms, in pages that the heap has touched before.
TEST(LandingMemory, counts_by_bytes_however_many_small_parts_there_are) {
  NewMemory memory;
  TransferRequest request = send_to({});
  constexpr std::size_t small = 512;
  constexpr std::size_t large = memory_bytes / 20;
  const std::size_t tiny_at = memory_bytes - 40 * small;
  std::uint64_t offset = 0;
  for (std::size_t index = 0; index < 18; ++index) {
    request.destinations.push_back({{offset, small}, memory.at(tiny_at + index * small)});
    request.destinations.push_back({{offset + small, large}, memory.at(index * large)});
    offset += small + large;
  }
  request.extent.size = offset;
  memory.touch(tiny_at, 40 * small);
  EXPECT_TRUE(lies_in_new_memory(request, {}));
  memory.touch(0, 18 * large);
  EXPECT_FALSE(lies_in_new_memory(request, {}));
}

TEST(LandingMemory, of_one_destination_is_looked_at_in_many_places) {
  NewMemory memory;
  TransferRequest request = send_to({});
  request.destinations = {{{0, memory_bytes}, memory.at(0)}};
  memory.touch(memory_bytes / 2 - (1 << 20), 2 << 20);
  EXPECT_TRUE(lies_in_new_memory(request, {}));
  memory.touch(0, memory_bytes / 4 * 3);
  EXPECT_FALSE(lies_in_new_memory(request, {}));
}

TEST(LandingMemory, behind_a_hole_is_looked_at_where_the_next_part_begins) {
  NewMemory memory;
  TransferRequest request = send_to({});
  request.extent = {1000, memory_bytes};
  request.destinations = {{{1000, 1 << 20}, memory.at(0)},
                          {{1000 + memory_bytes - (1 << 20), 1 << 20}, memory.at(1 << 20)}};
  EXPECT_TRUE(lies_in_new_memory(request, {}));
  memory.touch(1 << 20, 1 << 20);
  EXPECT_FALSE(lies_in_new_memory(request, {}));
}

TEST(LandingMemory, that_is_small_is_looked_at_once) {
  NewMemory memory;
  TransferRequest request = send_to(memory.at(10));
  request.extent.size = 100;
  EXPECT_TRUE(lies_in_new_memory(request, {}));
  memory.touch(0, 1);
  EXPECT_FALSE(lies_in_new_memory(request, {}));
  request.extent.size = 0;
  EXPECT_FALSE(lies_in_new_memory(request, {}));
}

TEST(LandingMemory, is_what_was_allocated_where_no_address_was_given) {
  NewMemory memory;
  EXPECT_TRUE(lies_in_new_memory(send_to({}), memory.at(0)));
  EXPECT_FALSE(lies_in_new_memory(send_to({}), {}));
}

TEST(LandingMemory, of_other_devices_and_of_receives_is_not_looked_at) {
  NewMemory memory;
  EXPECT_FALSE(lies_in_new_memory(send_to(memory.at(0), linked_device()), {}));
  TransferRequest receive = send_to(memory.at(0));
  receive.direction = Direction::recv;
  EXPECT_FALSE(lies_in_new_memory(receive, {}));
}

TEST(LandingMemory, that_is_not_mapped_counts_as_touched) {
  DeviceAddress gone;
  {
    const NewMemory memory;
    gone = memory.at(0);
  }
  EXPECT_FALSE(lies_in_new_memory(send_to(gone), {}));
}

// By the plan of the transfer itself, with the cores of a large machine.
TEST(LandingMemory, that_is_new_is_filled_by_more_channels) {
  const TemporaryFolder folder;
  const std::string path = folder.file("data");
  write_whole(path, std::vector<std::byte>(memory_bytes));
  Settings settings = test_settings();
  settings.cores = 64;
  settings.threads_max = 4;
  Runtime runtime(settings, make_system_storage(), {plain_device()});
  NewMemory memory;
  const auto channels_of = [&] {
    Submission submission;
    submission.direction = Direction::send;
    submission.path = path;
    submission.address = memory.at(0);
    submission.size = memory_bytes;
    submission.flags = HIPPOGRIFF_HOST_MEMORY;
    const auto transfer = runtime.submit(submission);
    EXPECT_TRUE(transfer->wait(std::chrono::seconds(20)));
    EXPECT_FALSE(transfer->failed());
    return transfer->decision().choice().plan.direct_channels;
  };
  const std::uint32_t at_first = channels_of();
  const std::uint32_t then = channels_of();
  EXPECT_TRUE(runtime.shutdown(std::chrono::seconds(20)));
  EXPECT_GT(at_first, then);
  EXPECT_LE(at_first, EngineShape::slowed_channels_max);
  EXPECT_LE(then, EngineShape::channels_max);
}

}  // namespace
}  // namespace hippogriff
