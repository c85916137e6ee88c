// What goes through the shim unchanged: arguments, functions found by name, the private tables.
#define __CUDA_API_VERSION_INTERNAL  // NOLINT: theirs
#include "testing/null_cuda/null_cuda.hpp"
#include "testing/temporary_folder.hpp"

#include <cuda.h>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int newest_known = 13000;
constexpr cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

void* found_by(const char* name, int version, cuuint64_t flags = 0) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  EXPECT_EQ(cuGetProcAddress_v2(name, &found, version, flags, &status), CUDA_SUCCESS) << name;
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS) << name;
  return found;
}

// The library an address lies in.
std::string home_of(const void* address) {
  Dl_info info = {};
  return ::dladdr(address, &info) == 0 ? "" : info.dli_fname;
}

bool is_ours(const void* address) {
  return home_of(address) == home_of(::dlsym(RTLD_DEFAULT, "hippogriff_shim_mark"));
}

TEST(Forward, eleven_arguments_arrive_whole_at_the_first_call_and_later) {
  for (unsigned round = 0; round < 3; ++round) {
    int values[3] = {};
    void* parameters[1] = {&values[1]};
    void* extra[1] = {&values[2]};
    auto* const function = reinterpret_cast<CUfunction>(&values[0]);
    auto* const stream = reinterpret_cast<CUstream>(std::uintptr_t{0xABCDEF0123456789});
    ASSERT_EQ(cuLaunchKernel(function, 1 + round, 2, 3, 4, 5, 6, 7, stream, parameters, extra),
              CUDA_SUCCESS);
    const auto* const launch = HIPPO_NULL(null_cuda_last_launch)();
    EXPECT_EQ(launch->function, function);
    EXPECT_EQ(launch->numbers[0], 1 + round);
    for (unsigned index = 1; index < 7; ++index) {
      EXPECT_EQ(launch->numbers[index], index + 1);
    }
    EXPECT_EQ(launch->stream, stream);
    EXPECT_EQ(launch->parameters, parameters);
    EXPECT_EQ(launch->extra, extra);
  }
}

TEST(Forward, first_calls_of_several_threads_all_arrive) {
  std::vector<std::thread> threads;
  for (int index = 0; index < 8; ++index) {
    threads.emplace_back([] {
      int count = 0;
      EXPECT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
      EXPECT_EQ(count, hippogriff::testing::null_device_count);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(Forward, a_floating_point_argument_arrives) {
  ASSERT_EQ(cuTexRefSetMipmapLevelBias(nullptr, 2.5F), CUDA_SUCCESS);
  EXPECT_EQ(HIPPO_NULL(null_cuda_last_bias)(), 2.5F);
}

TEST(Forward, a_structure_by_value_arrives) {
  CUipcMemHandle handle = {};
  for (std::size_t index = 0; index < sizeof(handle.reserved); ++index) {
    handle.reserved[index] = static_cast<char>(index + 1);
  }
  CUdeviceptr address = 0;
  ASSERT_EQ(cuIpcOpenMemHandle_v2(&address, handle, 77), CUDA_SUCCESS);
  EXPECT_EQ(address, 77U);
  EXPECT_EQ(std::memcmp(HIPPO_NULL(null_cuda_last_handle)(), handle.reserved, 64), 0);
}

TEST(Forward, a_function_the_driver_lacks_says_that_it_is_not_supported) {
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_NOT_SUPPORTED);
  CUdeviceptr_v1 old_address = 0;
  EXPECT_EQ(cuMemAlloc(&old_address, 4096), CUDA_ERROR_NOT_SUPPORTED);
}

TEST(Forward, private_tables_come_from_the_driver) {
  const CUuuid id = {{1, 2, 3}};
  const void* table = nullptr;
  ASSERT_EQ(cuGetExportTable(&table, &id), CUDA_SUCCESS);
  EXPECT_EQ(table, &id);
}

TEST(Forward, names_found_by_symbol_are_ours) {
  for (const char* name : {"cuMemAlloc_v2", "cuLaunchKernel", "cuMemcpyHtoDAsync_v2_ptsz"}) {
    EXPECT_TRUE(is_ours(::dlsym(RTLD_DEFAULT, name))) << name;
  }
}

TEST(Forward, accounted_functions_are_ours_when_asked_for_by_name) {
  for (const char* name : {"cuMemAlloc",
                           "cuMemFree",
                           "cuMemGetInfo",
                           "cuMemAllocAsync",
                           "cuCtxCreate",
                           "cuGraphInstantiate",
                           "cuMemCreate",
                           "cuArrayCreate_v2",
                           "cuGetProcAddress",
                           "cuDeviceTotalMem",
                           "cuMemPoolCreate"}) {
    EXPECT_TRUE(is_ours(found_by(name, newest_known))) << name;
  }
}

TEST(Forward, all_else_is_the_drivers_when_asked_for_by_name) {
  for (const char* name : {"cuLaunchKernel", "cuDriverGetVersion", "cuCtxGetCurrent"}) {
    EXPECT_EQ(found_by(name, newest_known),
              reinterpret_cast<void*>(hippogriff::testing::null_function<CUresult()>(name)))
        << name;
  }
}

TEST(Forward, a_name_the_driver_does_not_know_stays_unknown) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  EXPECT_EQ(cuGetProcAddress_v2("cuNoSuchThing", &found, newest_known, 0, &status),
            CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

TEST(Forward, each_flavour_of_stream_has_its_own_wrapper) {
  void* const legacy = found_by("cuMemAllocAsync", newest_known);
  void* const threads = found_by("cuMemAllocAsync", newest_known, per_thread);
  EXPECT_TRUE(is_ours(legacy));
  EXPECT_TRUE(is_ours(threads));
  EXPECT_NE(legacy, threads);
  EXPECT_EQ(found_by("cuMemAllocAsync", newest_known, CU_GET_PROC_ADDRESS_LEGACY_STREAM), legacy);
}

TEST(Forward, captures_newer_than_our_headers_are_seen_in_each_flavour) {
  for (const char* name :
       {"cuStreamBeginRecaptureToGraph", "cuStreamBeginCaptureToCig", "cuStreamEndCaptureToCig"}) {
    EXPECT_TRUE(is_ours(found_by(name, 13030))) << name;
    EXPECT_TRUE(is_ours(found_by(name, 13030, per_thread))) << name;
    EXPECT_NE(found_by(name, 13030), found_by(name, 13030, per_thread)) << name;
  }
}

TEST(Forward, each_version_has_its_own_wrapper) {
  void* const second = found_by("cuCtxCreate", 3020);
  void* const fourth = found_by("cuCtxCreate", 12050);
  EXPECT_TRUE(is_ours(second));
  EXPECT_TRUE(is_ours(fourth));
  EXPECT_NE(second, fourth);
  EXPECT_EQ(found_by("cuCtxCreate", newest_known), fourth);
}

TEST(Forward, an_old_driver_gets_the_wrapper_of_the_version_it_has) {
  void* const second = found_by("cuCtxCreate", 3020);
  HIPPO_NULL(null_cuda_version)(12000, 0);
  EXPECT_EQ(found_by("cuCtxCreate", newest_known), second);
  HIPPO_NULL(null_cuda_version)(newest_known, 0);
}

TEST(Forward, a_version_newer_than_our_headers_passes_through) {
  HIPPO_NULL(null_cuda_version)(13040, 0);
  EXPECT_FALSE(is_ours(found_by("cuCtxCreate", 13040)));
  HIPPO_NULL(null_cuda_version)(newest_known, 0);
}

TEST(Forward, addresses_that_the_driver_does_not_export_are_known_all_the_same) {
  void* const exported = found_by("cuMemAlloc", newest_known);
  HIPPO_NULL(null_cuda_version)(newest_known, 1);
  EXPECT_EQ(found_by("cuMemAlloc", newest_known), exported);
  HIPPO_NULL(null_cuda_version)(newest_known, 0);
}

TEST(Forward, the_first_form_of_the_lookup_gives_wrappers_too) {
  void* found = nullptr;
  ASSERT_EQ(cuGetProcAddress("cuMemAlloc", &found, newest_known, 0), CUDA_SUCCESS);
  EXPECT_EQ(found, found_by("cuMemAlloc", newest_known));
  EXPECT_NE(found_by("cuGetProcAddress", 11030), found_by("cuGetProcAddress", 12000));
}

// Re-executes the program, so that the shim looks for its driver with the other environment.
class ForwardDeathTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(ForwardDeathTest, without_a_driver_there_is_no_device_and_a_line_says_why) {
  const auto child = [] {
    ::setenv("HIPPOGRIFF_CUDA_DRIVER", "", 1);  // NOLINT(concurrency-mt-unsafe): a new process
    const bool right = cuInit(0) == CUDA_ERROR_NO_DEVICE && cuInit(0) == CUDA_ERROR_NO_DEVICE &&
                       cuCtxSynchronize() == CUDA_ERROR_NO_DEVICE;
    std::_Exit(right ? 0 : 1);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "^hippogriff: no CUDA driver[^\n]*\n$");
}

TEST_F(ForwardDeathTest, without_the_setting_the_driver_is_found_in_the_library_path) {
  const hippogriff::TemporaryFolder folder;
  std::filesystem::create_symlink(HIPPOGRIFF_NULL_DRIVER, folder.path() / "libcuda.so.1");
  const auto child = [&folder] {
    const std::string ours = home_of(::dlsym(RTLD_DEFAULT, "hippogriff_shim_mark"));
    const std::string path =
        std::filesystem::path(ours).parent_path().string() + ":" + folder.path().string();
    // NOLINTBEGIN(concurrency-mt-unsafe): a new process
    ::unsetenv("HIPPOGRIFF_CUDA_DRIVER");
    ::setenv("LD_LIBRARY_PATH", path.c_str(), 1);
    // NOLINTEND(concurrency-mt-unsafe)
    int count = 0;
    const bool right = cuInit(0) == CUDA_SUCCESS && cuDeviceGetCount(&count) == CUDA_SUCCESS;
    std::_Exit(right && count == hippogriff::testing::null_device_count ? 0 : 1);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

TEST_F(ForwardDeathTest, without_a_limit_the_devices_own_sizes_are_told_and_nothing_is_refused) {
  const auto child = [] {
    ::unsetenv("HIPPOGRIFF_MEMORY");  // NOLINT(concurrency-mt-unsafe): a new process
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    constexpr std::uint64_t half = hippogriff::testing::null_device_bytes / 2;
    const bool right = cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS &&
                       cuMemAlloc_v2(&address, half) == CUDA_SUCCESS &&
                       cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS;
    std::_Exit(right && free_bytes == half && total_bytes == 2 * half ? 0 : 1);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

TEST_F(ForwardDeathTest, a_limit_that_is_no_size_lets_nothing_be_allocated_and_says_so) {
  const auto child = [] {
    ::setenv("HIPPOGRIFF_MEMORY", "plenty", 1);  // NOLINT(concurrency-mt-unsafe): a new process
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    const bool right = cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS &&
                       cuMemAlloc_v2(&address, 1) == CUDA_ERROR_OUT_OF_MEMORY;
    std::_Exit(right ? 0 : 1);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "hippogriff: HIPPOGRIFF_MEMORY: .*plenty");
}

TEST_F(ForwardDeathTest, the_shim_never_takes_itself_for_the_driver) {
  const auto child = [] {
    const std::string ourselves = home_of(::dlsym(RTLD_DEFAULT, "hippogriff_shim_mark"));
    ::setenv("HIPPOGRIFF_CUDA_DRIVER", ourselves.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    std::_Exit(cuInit(0) == CUDA_ERROR_NO_DEVICE ? 0 : 1);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "no CUDA driver");
}

}  // namespace
