// The C interface in a process that may make small files only, and that does not ignore SIGXFSZ.
#include "testing/abi_fixture.hpp"

#include <sys/resource.h>
#include <sys/wait.h>

#include <filesystem>
#include <functional>

namespace hippogriff {
namespace {

constexpr std::size_t limit_bytes = std::size_t{6} << 20;

class AbiSizeLimitTest : public AbiTest {
 protected:
  // What a child made of `body` under the limit, with a runtime of its own and `bytes` on the
  // device: its exit code, or minus the signal that ended it.
  static int in_child(std::size_t bytes, const std::function<int(void* memory)>& body) {
    const pid_t child = fork();
    if (child == 0) {
      const rlimit limit{limit_bytes, limit_bytes};
      const rlimit no_core{0, 0};
      void* memory = nullptr;
      if (setrlimit(RLIMIT_CORE, &no_core) != 0 || setrlimit(RLIMIT_FSIZE, &limit) != 0 ||
          hippogriff_init() != HIPPOGRIFF_OK ||
          hippogriff_malloc(nullptr, bytes, &memory) != HIPPOGRIFF_OK) {
        _exit(100);
      }
      _exit(body(memory));
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }

  // 0 when this thread's last failure is what it must be for the file.
  static int wrong_with_last_error(const std::string& path) {
    hippogriff_error error{};
    hippogriff_last_error(&error);
    return (error.status == HIPPOGRIFF_IO_ERROR ? 0 : 1) + (error.errno_value == EFBIG ? 0 : 2) +
           (error.object != nullptr && path == error.object ? 0 : 4) +
           (error.offset <= 2 * limit_bytes ? 0 : 8) +
           (error.operation != nullptr && *error.operation != '\0' ? 0 : 16);
  }

  std::size_t files_here() const {
    const std::filesystem::directory_iterator files(folder_.path());
    return static_cast<std::size_t>(std::distance(begin(files), end(files)));
  }
};

TEST_F(AbiSizeLimitTest, a_whole_file_that_is_too_large_is_efbig_and_leaves_nothing_behind) {
  const std::string path = folder_.file("target");
  const auto old = make_file(path, 1000, 1);
  const std::size_t files = files_here();
  const int code = in_child(2 * limit_bytes, [&](void* memory) {
    return gullfoss_recv(path.c_str(), memory, 0, 2 * limit_bytes) == HIPPOGRIFF_FAILED
               ? wrong_with_last_error(path)
               : 50;
  });
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(read_whole(path) == old);
  EXPECT_EQ(files_here(), files);
}

TEST_F(AbiSizeLimitTest, a_file_in_place_keeps_what_it_had) {
  const std::string path = folder_.file("target");
  const auto old = make_file(path, 1000, 1);
  for (const std::size_t size : {std::size_t{4096}, std::size_t{4} << 20}) {
    const int code = in_child(size, [&](void* memory) {
      const OpenFile file(path, O_RDWR);
      return hippogriff_recv(file.get(), memory, limit_bytes - 1000, size) == HIPPOGRIFF_FAILED
                 ? wrong_with_last_error(path)
                 : 50;
    });
    EXPECT_EQ(code, 0) << size;
    const auto now = read_whole(path);
    EXPECT_LE(now.size(), limit_bytes) << size;
    EXPECT_TRUE(std::equal(old.begin(), old.end(), now.begin())) << size;
  }
}

// Allocated by others before: only the lanes' own writes meet the limit.
TEST_F(AbiSizeLimitTest, writes_of_lanes_beyond_it_are_efbig_and_missing) {
  const std::string path = folder_.file("target");
  constexpr std::size_t size = 2 * limit_bytes;
  for (const char* kind : {"", "threads"}) {  // io_uring where it may be used
    make_file(path, size, 1);
    setenv("HIPPOGRIFF_IO", kind, 1);  // NOLINT(concurrency-mt-unsafe)
    const int code = in_child(size, [&](void* memory) {
      const OpenFile file(path, O_RDWR);
      hippogriff_options options = HIPPOGRIFF_OPTIONS_INIT;
      options.route = HIPPOGRIFF_ROUTE_PIPELINED;
      hippogriff_transfer* transfer = nullptr;
      if (hippogriff_recv_async(file.get(), memory, 0, size, &options, &transfer) !=
          HIPPOGRIFF_OK) {
        return 50;
      }
      if (hippogriff_wait(transfer, abi_patience_ms) != HIPPOGRIFF_IO_ERROR) {
        return 51;
      }
      hippogriff_range missing[64];
      std::size_t count = 0;
      hippogriff_get_missing(transfer, missing, 64, &count);
      hippogriff_error error{};
      hippogriff_get_error(transfer, &error);
      return error.errno_value == EFBIG && count > 0 &&
                     missing[count - 1].offset + missing[count - 1].size == size
                 ? 0
                 : 52;
    });
    unsetenv("HIPPOGRIFF_IO");  // NOLINT(concurrency-mt-unsafe)
    EXPECT_EQ(code, 0) << kind;
  }
}

}  // namespace
}  // namespace hippogriff
