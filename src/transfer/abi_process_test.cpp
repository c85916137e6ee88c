// The C interface and the process around it: init and deinit, forks, many threads, crashes.
#include "testing/abi_fixture.hpp"
#include "testing/effort.hpp"

#include <poll.h>
#include <sys/wait.h>

#include <csignal>
#include <functional>
#include <random>

namespace hippogriff {
namespace {

constexpr std::size_t inherited_bytes = (std::size_t{3} << 20) + 77;

// What a forked child made of `body`: its exit code, or -1 when it had to be killed.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  EXPECT_GE(child, 0);
  if (child == 0) {
    alarm(30);
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(AbiWithoutInit, every_call_says_that_init_is_missing) {
  void* memory = nullptr;
  hippogriff_transfer* transfer = nullptr;
  char* json = nullptr;
  EXPECT_EQ(hippogriff_deinit(), HIPPOGRIFF_NOT_INITIALIZED);
  EXPECT_EQ(gullfoss_send("/etc/passwd", &memory, 0, 0), HIPPOGRIFF_FAILED);
  EXPECT_EQ(last_status(), HIPPOGRIFF_NOT_INITIALIZED);
  EXPECT_EQ(hippogriff_send_path_async("/etc/passwd", &memory, 0, 0, nullptr, &transfer),
            HIPPOGRIFF_NOT_INITIALIZED);
  EXPECT_EQ(hippogriff_malloc(nullptr, 1, &memory), HIPPOGRIFF_NOT_INITIALIZED);
  EXPECT_EQ(hippogriff_free(static_cast<void*>(&memory)), HIPPOGRIFF_NOT_INITIALIZED);
  EXPECT_EQ(hippogriff_stats(&json), HIPPOGRIFF_NOT_INITIALIZED);
  EXPECT_EQ(hippogriff_info(nullptr, &json), HIPPOGRIFF_NOT_INITIALIZED);
  EXPECT_NE(last_message().find("hippogriff_init"), std::string::npos);
}

// What the sanitizers themselves cannot do: a fork beside other threads may leave ASan's allocator
// locked in the child, and TSan's bookkeeping does not take new threads there.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HIPPO_TEST_ADDRESS_SANITIZER 1
#endif
#if __has_feature(thread_sanitizer)
#define HIPPO_TEST_THREAD_SANITIZER 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define HIPPO_TEST_ADDRESS_SANITIZER 1
#endif
#ifdef __SANITIZE_THREAD__
#define HIPPO_TEST_THREAD_SANITIZER 1
#endif

class AbiProcessTest : public AbiTest {
 protected:
  // A send that waits for a stream.
  Handle held_send(const HeldStream& held, void* memory) {
    hippogriff_options options = HIPPOGRIFF_OPTIONS_INIT;
    options.flags = HIPPOGRIFF_AFTER_STREAM;
    options.stream = held.get();
    hippogriff_transfer* transfer = nullptr;
    EXPECT_EQ(hippogriff_send_path_async(path_.c_str(), &memory, 0, 0, &options, &transfer),
              HIPPOGRIFF_OK)
        << last_message();
    return Handle(transfer);
  }

  const std::string path_ = folder_.file("data");
  const std::vector<std::byte> content_ = make_file(path_, inherited_bytes, 3);
};

TEST_F(AbiProcessTest, each_init_wants_a_deinit) {
  EXPECT_EQ(hippogriff_init(), HIPPOGRIFF_OK);
  EXPECT_EQ(gullfoss_init(), HIPPOGRIFF_OK);
  void* memory = nullptr;
  EXPECT_EQ(gullfoss_send(path_.c_str(), &memory, 0, 0), inherited_bytes) << last_message();
  EXPECT_EQ(hippogriff_deinit(), HIPPOGRIFF_OK);
  EXPECT_EQ(gullfoss_deinit(), HIPPOGRIFF_OK);
  EXPECT_TRUE(bytes_of(memory, inherited_bytes) == content_);
}

TEST_F(AbiProcessTest, deinit_cancels_what_is_in_flight_and_handles_stay_valid) {
  void* const holder = device_memory(std::size_t{255} << 20);
  EXPECT_NE(holder, nullptr);
  hippogriff_options options = HIPPOGRIFF_OPTIONS_INIT;
  options.memory_timeout_ms = abi_patience_ms;
  void* memory = nullptr;
  hippogriff_transfer* transfer = nullptr;
  ASSERT_EQ(hippogriff_send_path_async(path_.c_str(), &memory, 0, 0, &options, &transfer),
            HIPPOGRIFF_OK);
  const Handle waiting(transfer);
  int readable = -1;
  ASSERT_EQ(hippogriff_get_fd(transfer, &readable), HIPPOGRIFF_OK);
  EXPECT_EQ(hippogriff_deinit(), HIPPOGRIFF_OK) << last_message();
  EXPECT_EQ(hippogriff_wait(transfer, 0), HIPPOGRIFF_CANCELLED);
  pollfd polled{readable, POLLIN, 0};
  EXPECT_EQ(poll(&polled, 1, 0), 1);
  hippogriff_error error{};
  EXPECT_EQ(hippogriff_get_error(transfer, &error), HIPPOGRIFF_OK);
  EXPECT_EQ(error.status, HIPPOGRIFF_CANCELLED);
  hippogriff_range range{};
  std::size_t count = 0;
  EXPECT_EQ(hippogriff_get_missing(transfer, &range, 1, &count), HIPPOGRIFF_OK);
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(range.size, inherited_bytes);
  char* json = nullptr;
  EXPECT_EQ(hippogriff_get_report(transfer, &json), HIPPOGRIFF_OK);
  EXPECT_TRUE(parsed(json).is_object());
  EXPECT_EQ(hippogriff_cancel(transfer), HIPPOGRIFF_OK);
  EXPECT_EQ(hippogriff_init(), HIPPOGRIFF_OK);
  EXPECT_EQ(gullfoss_send(path_.c_str(), &memory, 0, 0), inherited_bytes) << last_message();
}

TEST_F(AbiProcessTest, child_of_a_fork_is_told_and_can_start_anew) {
#if defined(HIPPO_TEST_ADDRESS_SANITIZER) || defined(HIPPO_TEST_THREAD_SANITIZER)
  GTEST_SKIP() << "the sanitizer does not survive a fork beside other threads";
#endif
  void* const memory = device_memory(inherited_bytes);
  HeldStream held;
  const Handle handle = held_send(held, memory);
  const int code = in_child([&] {
    void* own = nullptr;
    if (gullfoss_send(path_.c_str(), &own, 0, 0) != HIPPOGRIFF_FAILED ||
        last_status() != HIPPOGRIFF_FORKED) {
      return 1;
    }
    if (hippogriff_deinit() != HIPPOGRIFF_FORKED ||
        hippogriff_wait(handle.get(), -1) != HIPPOGRIFF_FORKED ||
        hippogriff_cancel(handle.get()) != HIPPOGRIFF_FORKED) {
      return 2;
    }
    if (hippogriff_init() != HIPPOGRIFF_OK ||
        gullfoss_send(path_.c_str(), &own, 0, 0) != inherited_bytes) {
      return 3;
    }
    std::vector<std::byte> bytes(inherited_bytes);
    if (hippogriff_copy_to_host(bytes.data(), own, inherited_bytes) != HIPPOGRIFF_OK ||
        bytes != content_) {
      return 4;
    }
    if (hippogriff_wait(handle.get(), -1) != HIPPOGRIFF_FORKED) {
      return 5;
    }
    hippogriff_release(handle.get());
    return hippogriff_deinit() == HIPPOGRIFF_OK ? 0 : 6;
  });
  EXPECT_EQ(code, 0);
  held.let_go();
  EXPECT_EQ(hippogriff_wait(handle.get(), abi_patience_ms), HIPPOGRIFF_OK) << last_message();
  EXPECT_TRUE(bytes_of(memory, inherited_bytes) == content_);
}

TEST_F(AbiProcessTest, children_forked_while_threads_transfer_can_start_anew) {
#if defined(HIPPO_TEST_ADDRESS_SANITIZER) || defined(HIPPO_TEST_THREAD_SANITIZER)
  GTEST_SKIP() << "the sanitizer does not survive a fork beside other threads";
#endif
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int index = 0; index < 4; ++index) {
    threads.emplace_back([&, index] {
      while (!stop) {
        void* memory = nullptr;
        EXPECT_EQ(gullfoss_send(path_.c_str(), &memory, 0, index % 2 == 0 ? 0 : 5000),
                  index % 2 == 0 ? inherited_bytes : 5000)
            << last_message();
        EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK) << last_message();
      }
    });
  }
  for (int round = 0; round < 10; ++round) {
    const int code = in_child([&] {
      void* memory = nullptr;
      if (hippogriff_init() != HIPPOGRIFF_OK) {
        return 1;
      }
      return gullfoss_send(path_.c_str(), &memory, 0, 0) == inherited_bytes ? 0 : 2;
    });
    EXPECT_EQ(code, 0) << "round " << round;
  }
  stop = true;
  for (auto& thread : threads) {
    thread.join();
  }
}

TEST_F(AbiProcessTest, hundred_threads_send_and_receive_at_once) {
  std::vector<std::thread> threads;
  for (std::size_t index = 0; index < 100; ++index) {
    threads.emplace_back([&, index] {
      std::mt19937_64 random(index);
      for (int round = 0; round < 3; ++round) {
        const std::string own =
            folder_.file("out" + std::to_string(index) + "-" + std::to_string(round));
        const std::size_t offset = random() % inherited_bytes;
        const std::size_t size = 1 + random() % (inherited_bytes - offset);
        void* memory = nullptr;
        EXPECT_EQ(gullfoss_send(path_.c_str(), &memory, offset, size), size) << last_message();
        EXPECT_EQ(gullfoss_recv(own.c_str(), memory, 0, 0), size) << last_message();
        const auto result = read_whole(own);
        ASSERT_EQ(result.size(), size);
        EXPECT_EQ(std::memcmp(result.data(), content_.data() + offset, size), 0);
        const OpenFile file(path_, O_RDONLY);
        const std::size_t few = std::min<std::size_t>(size, 100'000);
        EXPECT_EQ(hippogriff_send(file.get(), &memory, offset, few), few) << last_message();
        EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK) << last_message();
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
}

TEST_F(AbiProcessTest, init_deinit_and_transfers_of_many_threads_may_cross) {
  std::vector<std::thread> threads;
  for (std::size_t index = 0; index < 16; ++index) {
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round) {
        EXPECT_EQ(hippogriff_init(), HIPPOGRIFF_OK) << last_message();
        void* memory = nullptr;
        EXPECT_EQ(gullfoss_send(path_.c_str(), &memory, 0, 0), inherited_bytes) << last_message();
        EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK) << last_message();
        EXPECT_EQ(hippogriff_deinit(), HIPPOGRIFF_OK) << last_message();
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
}

// NOLINTNEXTLINE(readability-function-size): the macros count as nesting
TEST_F(AbiProcessTest, deinit_beside_transfers_cancels_them_and_init_works_again) {
  for (int round = 0; round < 10; ++round) {
    std::vector<std::thread> threads;
    std::atomic<bool> stop{false};
    for (std::size_t index = 0; index < 8; ++index) {
      threads.emplace_back([&] {
        while (!stop) {
          void* memory = nullptr;
          if (gullfoss_send(path_.c_str(), &memory, 0, 0) != inherited_bytes) {
            const hippogriff_status status = last_status();
            EXPECT_TRUE(status == HIPPOGRIFF_NOT_INITIALIZED || status == HIPPOGRIFF_CANCELLED ||
                        status == HIPPOGRIFF_OUT_OF_DEVICE_MEMORY)
                << last_message();
          } else {
            hippogriff_free(memory);
          }
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(hippogriff_deinit(), HIPPOGRIFF_OK) << last_message();
    stop = true;
    for (auto& thread : threads) {
      thread.join();
    }
    ASSERT_EQ(hippogriff_init(), HIPPOGRIFF_OK) << last_message();
  }
}

TEST_F(AbiProcessTest, crash_in_a_whole_file_receive_leaves_the_old_file_or_the_new_one) {
  const std::string target = folder_.file("target");
  const auto old_bytes = make_file(target, inherited_bytes, 1);
  const auto new_bytes = random_bytes(std::size_t{20} << 20, 2);
  std::random_device device;
  const std::uint64_t seed = device();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  int replaced = 0;
  for (int round = 0; round < rounds_of(20); ++round) {
    write_whole(target, old_bytes);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      void* memory = nullptr;
      if (hippogriff_init() == HIPPOGRIFF_OK &&
          hippogriff_malloc(nullptr, new_bytes.size(), &memory) == HIPPOGRIFF_OK &&
          hippogriff_copy_to_device(memory, new_bytes.data(), new_bytes.size()) == HIPPOGRIFF_OK) {
        gullfoss_recv(target.c_str(), memory, 0, 0);
      }
      pause();
      _exit(0);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 120'000));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    const auto now = read_whole(target);
    EXPECT_TRUE(same_bytes(now, old_bytes) || same_bytes(now, new_bytes))
        << "round " << round << ": " << now.size() << " bytes, neither old nor new";
    replaced += same_bytes(now, new_bytes) ? 1 : 0;
  }
  std::printf("killed 20 times: %d old, %d new\n", 20 - replaced, replaced);
}

}  // namespace
}  // namespace hippogriff
