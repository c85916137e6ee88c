// Random sequences of every kind of allocation from several threads: what the shim counts, what the
// driver holds and what the threads remember agree, and the driver never holds more than the limit.
#include "testing/null_cuda/shim_fixture.hpp"

#include <atomic>
#include <functional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace {

using hippogriff::testing::counts_processes_together;
using hippogriff::testing::held_bytes;
using hippogriff::testing::kib;
using hippogriff::testing::limit_bytes;
using hippogriff::testing::mib;
using hippogriff::testing::used_bytes;

constexpr int threads_count = 4;
constexpr int steps = 1500;

std::atomic<CUdeviceptr>& next_virtual_address() {
  static std::atomic<CUdeviceptr> next{0x200000000000};
  return next;
}

// One thread's program: what it holds, with the bytes and the way to free each.
class Program {
 public:
  explicit Program(unsigned seed) : random_(seed) {
    EXPECT_EQ(cuCtxCreate_v2(&context_, 0, 0), CUDA_SUCCESS);
  }

  void step() {
    const unsigned choice = below(16);
    if (choice < 5 && !things_.empty()) {
      const std::size_t index = below(static_cast<unsigned>(things_.size()));
      things_[index].free();
      things_[index] = std::move(things_.back());
      things_.pop_back();
    } else if (choice == 8 && below(20) == 0) {
      change_context();
    } else if (choice == 9 && below(20) == 0) {
      CUmemoryPool pool = nullptr;
      EXPECT_EQ(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
      EXPECT_EQ(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
    } else {
      allocate();
    }
    EXPECT_LE(held_bytes(), limit_bytes);
  }

  [[nodiscard]] std::uint64_t size_bytes() const {
    std::uint64_t sum = 0;
    for (const Thing& thing : things_) {
      sum += thing.size_bytes;
    }
    return sum;
  }

  void end() {
    while (!things_.empty()) {
      things_.back().free();
      things_.pop_back();
    }
    EXPECT_EQ(cuCtxDestroy_v2(context_), CUDA_SUCCESS);
  }

  [[nodiscard]] int refusals() const { return refusals_; }

 private:
  struct Thing {
    std::uint64_t size_bytes;
    bool dies_with_context;
    std::function<void()> free;
  };

  unsigned below(unsigned bound) {
    return std::uniform_int_distribution<unsigned>(0, bound - 1)(random_);
  }

  // Now and then the driver ends a context with all that was in it.
  void change_context() {
    EXPECT_EQ(cuCtxDestroy_v2(context_), CUDA_SUCCESS);
    std::erase_if(things_, [](const Thing& thing) { return thing.dies_with_context; });
    EXPECT_EQ(cuCtxCreate_v2(&context_, 0, 0), CUDA_SUCCESS);
  }

  void keep(CUresult result, Thing thing) {
    if (result == CUDA_SUCCESS) {
      things_.push_back(std::move(thing));
    } else {
      EXPECT_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
      ++refusals_;
    }
  }

  void allocate() {
    const std::uint64_t size_bytes =
        1 + below(static_cast<unsigned>(below(4) == 0 ? 8 * mib : mib));
    switch (below(6)) {
      case 0:
        return allocate_plain(size_bytes);
      case 1:
        return allocate_in_stream(size_bytes);
      case 2:
        return allocate_rows();
      case 3:
        return allocate_array();
      case 4:
        return allocate_levels();
      default:
        return allocate_physical(size_bytes);
    }
  }

  void allocate_plain(std::uint64_t size_bytes) {
    CUdeviceptr address = 0;
    const bool managed = below(2) == 0;
    const CUresult result =
        managed ? cuMemAllocManaged(&address, size_bytes, 1) : cuMemAlloc_v2(&address, size_bytes);
    keep(result, {size_bytes, true, [address] { EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS); }});
  }

  void allocate_in_stream(std::uint64_t size_bytes) {
    CUdeviceptr address = 0;
    const bool threads = below(2) == 0;
    const CUresult result = threads ? cuMemAllocAsync_ptsz(&address, size_bytes, nullptr)
                                    : cuMemAllocAsync(&address, size_bytes, nullptr);
    const auto free = [address, threads] {
      EXPECT_EQ(threads ? cuMemFreeAsync(address, nullptr) : cuMemFree_v2(address), CUDA_SUCCESS);
    };
    keep(result, {size_bytes, false, free});
  }

  void allocate_rows() {
    CUdeviceptr address = 0;
    std::size_t pitch = 0;
    const std::size_t height = 1 + below(2000);
    const CUresult result = cuMemAllocPitch_v2(&address, &pitch, 1 + below(1000), height, 4);
    keep(result,
         {pitch * height, true, [address] { EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS); }});
  }

  void allocate_array() {
    CUarray array = nullptr;
    const CUDA_ARRAY3D_DESCRIPTOR descriptor = {
        1 + below(64), below(64), below(64), CU_AD_FORMAT_FLOAT, 1 + below(4), 0};
    const std::uint64_t size_bytes =
        descriptor.Width * std::max<std::size_t>(descriptor.Height, 1) *
        std::max<std::size_t>(descriptor.Depth, 1) * descriptor.NumChannels * 4;
    const CUresult result = cuArray3DCreate_v2(&array, &descriptor);
    keep(result, {size_bytes, true, [array] { EXPECT_EQ(cuArrayDestroy(array), CUDA_SUCCESS); }});
  }

  void allocate_levels() {
    CUmipmappedArray array = nullptr;
    const CUDA_ARRAY3D_DESCRIPTOR descriptor = {256, 256, 0, CU_AD_FORMAT_HALF, 2, 0};
    const CUresult result = cuMipmappedArrayCreate(&array, &descriptor, 2);
    keep(result, {std::uint64_t{256 * 256 + 128 * 128} * 4, true, [array] {
                    EXPECT_EQ(cuMipmappedArrayDestroy(array), CUDA_SUCCESS);
                  }});
  }

  void allocate_physical(std::uint64_t size_bytes) {
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = {};
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    const CUresult result = cuMemCreate(&handle, size_bytes, &properties, 0);
    if (result != CUDA_SUCCESS || below(2) == 0) {
      keep(result,
           {size_bytes, false, [handle] { EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS); }});
      return;
    }
    // The way of most samples: mapped and released at once, so that the mapping alone holds it.
    const CUdeviceptr address = next_virtual_address().fetch_add(16 * mib);
    EXPECT_EQ(cuMemMap(address, size_bytes, 0, handle, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
    keep(result, {size_bytes, false, [address, size_bytes] {
                    EXPECT_EQ(cuMemUnmap(address, size_bytes), CUDA_SUCCESS);
                  }});
  }

  std::mt19937 random_;
  CUcontext context_ = nullptr;
  std::vector<Thing> things_;
  int refusals_ = 0;
};

using Random = hippogriff::testing::ShimTest;

TEST_F(Random, the_books_of_shim_driver_and_program_agree) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> remembered_bytes{0};
  std::atomic<int> refusals{0};
  std::vector<std::unique_ptr<Program>> programs(threads_count);
  for (unsigned index = 0; index < threads_count; ++index) {
    threads.emplace_back([&, index] {
      programs[index] = std::make_unique<Program>(seed + index);
      for (int step = 0; step < steps; ++step) {
        programs[index]->step();
      }
      remembered_bytes += programs[index]->size_bytes();
      refusals += programs[index]->refusals();
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), held_bytes());
  ASSERT_EQ(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), held_bytes());
  EXPECT_EQ(used_bytes(), remembered_bytes.load());
  EXPECT_GT(refusals.load(), 0);
  for (const auto& program : programs) {
    program->end();
  }
  ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
  ASSERT_EQ(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 0U);
}

// Fills what the limit leaves with small allocations and frees them again; ends early where the
// driver holds more than the limit.
void fill_and_free(int rounds) {
  std::vector<CUdeviceptr> held;
  for (int round = 0; round < rounds && !::testing::Test::HasFailure(); ++round) {
    CUdeviceptr address = 0;
    const bool full = cuMemAlloc_v2(&address, 256 * kib) != CUDA_SUCCESS;
    if (!full) {
      held.push_back(address);
    }
    EXPECT_LE(held_bytes(), limit_bytes) << "round " << round;
    while ((full || round + 1 == rounds) && !held.empty()) {
      EXPECT_EQ(cuMemFree_v2(held.back()), CUDA_SUCCESS);
      held.pop_back();
    }
  }
}

// Allocates in a stream and frees again, until `ends`.
std::thread repeat_in(CUcontext context, std::uint64_t size_bytes, const std::atomic<bool>& ends) {
  return std::thread([context, size_bytes, &ends] {
    EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    while (!ends.load()) {
      CUdeviceptr address = 0;
      if (cuMemAllocAsync(&address, size_bytes, nullptr) == CUDA_SUCCESS) {
        EXPECT_EQ(cuMemFreeAsync(address, nullptr), CUDA_SUCCESS);
      }
    }
  });
}

TEST_F(Random, what_a_pool_is_refused_does_not_cover_what_it_keeps) {
  std::atomic<bool> ends{false};
  std::thread refused = repeat_in(context, limit_bytes + 1, ends);
  std::thread pooled = repeat_in(context, limit_bytes / 2, ends);
  fill_and_free(counts_processes_together() ? 2000 : 100000);
  ends = true;
  refused.join();
  pooled.join();
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 0U);
}

}  // namespace
