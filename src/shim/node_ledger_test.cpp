// Processes of one command under the shim: what one has, another cannot.
#include "testing/null_cuda/shim_fixture.hpp"
#include "testing/null_cuda/shim_group.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

namespace {

using hippogriff::testing::leader;
using hippogriff::testing::limit_bytes;
using hippogriff::testing::mib;

// A child that takes 40 MiB, says so, and stays; -1 when it cannot.
pid_t child_with_memory() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    CUcontext context = nullptr;
    CUdeviceptr memory = 0;
    const bool well = cuInit(0) == CUDA_SUCCESS &&
                      cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS &&
                      cuMemAlloc_v2(&memory, 40 * mib) == CUDA_SUCCESS;
    const char answer = well ? 'y' : 'n';
    static_cast<void>(::write(ends[1], &answer, 1));
    ::pause();
    ::_exit(0);
  }
  char answer = 'n';
  EXPECT_EQ(::read(ends[0], &answer, 1), 1);
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_EQ(answer, 'y');
  return child;
}

TEST(NodeLedger, processes_of_a_command_share_its_reservation) {
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  const pid_t child = child_with_memory();
  EXPECT_EQ(leader().group_used_bytes(0), 40 * mib);
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc_v2(&memory, 25 * mib), CUDA_ERROR_OUT_OF_MEMORY);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  EXPECT_EQ(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes, 24 * mib);
  EXPECT_EQ(total_bytes, limit_bytes);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(cuMemAlloc_v2(&memory, 60 * mib), CUDA_SUCCESS) << "what a killed process had is back";
  EXPECT_EQ(cuMemFree_v2(memory), CUDA_SUCCESS);
  EXPECT_EQ(leader().group_used_bytes(0), 0U);
  EXPECT_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
}

// The child of a fork leaves what its parent has alone, and has its own.
TEST(NodeLedger, the_child_of_a_fork_counts_for_itself_alone) {
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  CUdeviceptr ours = 0;
  ASSERT_EQ(cuMemAlloc_v2(&ours, 10 * mib), CUDA_SUCCESS);
  for (int round = 0; round < 3; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      CUdeviceptr theirs = 0;
      cuCtxSetCurrent(context);
      static_cast<void>(cuMemFree_v2(ours));
      ::_exit(cuMemAlloc_v2(&theirs, 50 * mib) == CUDA_SUCCESS ? 0 : 1);
    }
    int status = 1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(cuMemFree_v2(ours), CUDA_SUCCESS);
  EXPECT_EQ(leader().group_used_bytes(0) % (50 * mib), 0U);
  EXPECT_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
}

}  // namespace
