// The C interface: what callers do wrong, and what they are told.
#include "testing/abi_fixture.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>

namespace hippogriff {
namespace {

constexpr std::size_t small_bytes = 100'000;  // the short path
constexpr std::size_t large_bytes = (std::size_t{3} << 20) + 77;

class AbiMistakesTest : public AbiTest {
 protected:
  void expect_refused(std::size_t moved, hippogriff_status status, const std::string& words) {
    EXPECT_EQ(moved, HIPPOGRIFF_FAILED);
    EXPECT_EQ(last_status(), status) << last_message();
    EXPECT_NE(last_message().find(words), std::string::npos) << last_message();
  }

  const std::string path_ = folder_.file("data");
  const std::vector<std::byte> content_ = make_file(path_, large_bytes, 3);
};

TEST_F(AbiMistakesTest, offset_past_the_end_is_refused_at_once) {
  const OpenFile file(path_, O_RDWR);
  void* memory = nullptr;
  expect_refused(hippogriff_send(file.get(), &memory, large_bytes + 1, 0),
                 HIPPOGRIFF_INVALID_ARGUMENT,
                 "past the end");
  EXPECT_EQ(memory, nullptr);
  hippogriff_error error{};
  hippogriff_last_error(&error);
  EXPECT_EQ(error.offset, large_bytes + 1);
  EXPECT_STREQ(error.operation, "send");
  expect_refused(hippogriff_send(file.get(), &memory, 1, large_bytes),
                 HIPPOGRIFF_INVALID_ARGUMENT,
                 "has only");
  expect_refused(
      hippogriff_send(file.get(), &memory, SIZE_MAX, 1), HIPPOGRIFF_INVALID_ARGUMENT, "exceed");
  expect_refused(
      hippogriff_send(file.get(), &memory, 1, SIZE_MAX - 1), HIPPOGRIFF_INVALID_ARGUMENT, "exceed");
  void* const target = device_memory(small_bytes);
  memory = target;
  expect_refused(hippogriff_send(file.get(), &memory, large_bytes - 5, 10),
                 HIPPOGRIFF_INVALID_ARGUMENT,
                 "has only");
  EXPECT_EQ(memory, target);
  EXPECT_EQ(hippogriff_free(target), HIPPOGRIFF_OK);
}

TEST_F(AbiMistakesTest, size_0_of_an_empty_file_moves_nothing) {
  const std::string empty = folder_.file("empty");
  write_whole(empty, {});
  const OpenFile file(empty, O_RDONLY);
  void* memory = nullptr;
  EXPECT_EQ(hippogriff_send(file.get(), &memory, 0, 0), 0U);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(gullfoss_send(empty.c_str(), &memory, 0, 0), 0U);
  EXPECT_EQ(gullfoss_send(path_.c_str(), &memory, large_bytes, 0), 0U);
}

TEST_F(AbiMistakesTest, what_is_not_a_file_is_refused) {
  void* memory = nullptr;
  expect_refused(gullfoss_send(folder_.path().c_str(), &memory, 0, 0),
                 HIPPOGRIFF_INVALID_ARGUMENT,
                 "directory");
  const OpenFile directory(folder_.path().string(), O_RDONLY | O_DIRECTORY);
  expect_refused(
      hippogriff_send(directory.get(), &memory, 0, 0), HIPPOGRIFF_INVALID_ARGUMENT, "directory");
  void* const target = device_memory(small_bytes);
  expect_refused(gullfoss_recv(folder_.path().c_str(), target, 0, small_bytes),
                 HIPPOGRIFF_INVALID_ARGUMENT,
                 "directory");
  memory = target;
  expect_refused(
      hippogriff_send(directory.get(), &memory, 0, 100), HIPPOGRIFF_INVALID_ARGUMENT, "directory");
  EXPECT_EQ(hippogriff_free(target), HIPPOGRIFF_OK);
}

TEST_F(AbiMistakesTest, missing_file_is_an_io_error_with_its_path_and_errno) {
  void* memory = nullptr;
  const std::string missing = folder_.file("missing");
  expect_refused(gullfoss_send(missing.c_str(), &memory, 0, 0), HIPPOGRIFF_IO_ERROR, missing);
  hippogriff_error error{};
  hippogriff_last_error(&error);
  EXPECT_EQ(error.errno_value, ENOENT);
  EXPECT_EQ(error.object, missing);
  void* const target = device_memory(16);
  expect_refused(gullfoss_recv(folder_.file("no/such/folder").c_str(), target, 0, 16),
                 HIPPOGRIFF_IO_ERROR,
                 "no/such");
  EXPECT_EQ(hippogriff_free(target), HIPPOGRIFF_OK);
}

TEST_F(AbiMistakesTest, descriptor_that_is_closed_or_lacks_the_access_is_refused) {
  void* memory = device_memory(large_bytes);
  int closed = -1;
  {
    const OpenFile file(path_, O_RDONLY);
    closed = file.get();
  }
  // Small transfers go a shorter way and must say the same.
  for (const std::size_t size : {std::size_t{4096}, large_bytes}) {
    expect_refused(
        hippogriff_send(closed, &memory, 0, size), HIPPOGRIFF_INVALID_ARGUMENT, "not open");
    expect_refused(
        hippogriff_recv(closed, memory, 0, size), HIPPOGRIFF_INVALID_ARGUMENT, "not open");
    const OpenFile write_only(path_, O_WRONLY);
    expect_refused(hippogriff_send(write_only.get(), &memory, 0, size),
                   HIPPOGRIFF_INVALID_ARGUMENT,
                   "reading");
    const OpenFile read_only(path_, O_RDONLY);
    expect_refused(
        hippogriff_recv(read_only.get(), memory, 0, size), HIPPOGRIFF_INVALID_ARGUMENT, "writing");
    const OpenFile appending(path_, O_WRONLY | O_APPEND);
    expect_refused(
        hippogriff_recv(appending.get(), memory, 0, size), HIPPOGRIFF_INVALID_ARGUMENT, "O_APPEND");
    expect_refused(hippogriff_send(-1, &memory, 0, size), HIPPOGRIFF_INVALID_ARGUMENT, "negative");
  }
  EXPECT_TRUE(same_bytes(read_whole(path_), content_)) << "a refused transfer has written";
  EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK);
}

TEST_F(AbiMistakesTest, pointer_that_is_not_device_memory_is_refused) {
  const OpenFile file(path_, O_RDWR);
  std::vector<std::byte> ordinary(large_bytes);
  for (const std::size_t size : {std::size_t{4096}, large_bytes}) {
    void* memory = ordinary.data();
    expect_refused(hippogriff_send(file.get(), &memory, 0, size),
                   HIPPOGRIFF_INVALID_ARGUMENT,
                   "not device memory");
    expect_refused(hippogriff_recv(file.get(), memory, 0, size),
                   HIPPOGRIFF_INVALID_ARGUMENT,
                   "not device memory");
  }
  expect_refused(
      hippogriff_recv(file.get(), nullptr, 0, 4096), HIPPOGRIFF_INVALID_ARGUMENT, "NULL");
  EXPECT_EQ(hippogriff_free(ordinary.data()), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_copy_to_device(ordinary.data(), ordinary.data(), 1),
            HIPPOGRIFF_INVALID_ARGUMENT);
}

TEST_F(AbiMistakesTest, device_memory_that_is_too_small_is_refused) {
  const OpenFile file(path_, O_RDWR);
  void* const memory = device_memory(1000);
  void* inside = static_cast<std::byte*>(memory) + 500;
  expect_refused(hippogriff_send(file.get(), &inside, 0, 501),
                 HIPPOGRIFF_INVALID_ARGUMENT,
                 "holds only 500 bytes");
  expect_refused(hippogriff_recv(file.get(), inside, 0, 501),
                 HIPPOGRIFF_INVALID_ARGUMENT,
                 "holds only 500 bytes");
  EXPECT_EQ(hippogriff_send(file.get(), &inside, 0, 500), 500U) << last_message();
  EXPECT_EQ(hippogriff_copy_to_device(memory, content_.data(), 1001), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK);
}

TEST_F(AbiMistakesTest, more_memory_than_the_device_has_is_refused_and_waits_end) {
  void* memory = nullptr;
  EXPECT_EQ(hippogriff_malloc(nullptr, std::size_t{300} << 20, &memory),
            HIPPOGRIFF_OUT_OF_DEVICE_MEMORY);
  EXPECT_EQ(hippogriff_malloc(nullptr, 0, &memory), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_malloc(nullptr, SIZE_MAX, &memory), HIPPOGRIFF_OUT_OF_DEVICE_MEMORY);
  const std::string huge = folder_.file("huge");
  write_whole(huge, {});
  ASSERT_EQ(truncate(huge.c_str(), 300 << 20), 0);
  expect_refused(
      gullfoss_send(huge.c_str(), &memory, 0, 0), HIPPOGRIFF_OUT_OF_DEVICE_MEMORY, "300");
  void* const holder = device_memory(std::size_t{255} << 20);
  hippogriff_options options = HIPPOGRIFF_OPTIONS_INIT;
  options.memory_timeout_ms = -1;
  hippogriff_transfer* transfer = nullptr;
  EXPECT_EQ(hippogriff_send_path_async(path_.c_str(), &memory, 0, 0, &options, &transfer),
            HIPPOGRIFF_OUT_OF_DEVICE_MEMORY);
  options.memory_timeout_ms = 50;
  ASSERT_EQ(hippogriff_send_path_async(path_.c_str(), &memory, 0, 0, &options, &transfer),
            HIPPOGRIFF_OK);
  const Handle waits(transfer);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(hippogriff_wait(transfer, abi_patience_ms), HIPPOGRIFF_OUT_OF_DEVICE_MEMORY);
  EXPECT_EQ(hippogriff_address(transfer), nullptr);
  options.memory_timeout_ms = INT64_MAX;
  ASSERT_EQ(hippogriff_send_path_async(path_.c_str(), &memory, 0, 0, &options, &transfer),
            HIPPOGRIFF_OK);
  const Handle patient(transfer);
  EXPECT_EQ(hippogriff_wait(transfer, 100), HIPPOGRIFF_TIMED_OUT);
  EXPECT_EQ(hippogriff_free(holder), HIPPOGRIFF_OK);
  EXPECT_EQ(hippogriff_wait(transfer, INT64_MAX), HIPPOGRIFF_OK) << last_message();
  EXPECT_TRUE(bytes_of(hippogriff_address(transfer), large_bytes) == content_);
}

TEST_F(AbiMistakesTest, memory_of_a_transfer_in_flight_is_busy) {
  HeldStream held;
  void* memory = device_memory(large_bytes);
  hippogriff_options options = HIPPOGRIFF_OPTIONS_INIT;
  options.flags = HIPPOGRIFF_AFTER_STREAM;
  options.stream = held.get();
  hippogriff_transfer* transfer = nullptr;
  ASSERT_EQ(hippogriff_send_path_async(path_.c_str(), &memory, 0, 0, &options, &transfer),
            HIPPOGRIFF_OK);
  const Handle first(transfer);
  const OpenFile file(path_, O_RDWR);
  void* end = static_cast<std::byte*>(memory) + large_bytes - 1;
  expect_refused(hippogriff_send(file.get(), &end, 0, 1), HIPPOGRIFF_BUSY, "overlaps");
  expect_refused(hippogriff_recv(file.get(), memory, 0, 0), HIPPOGRIFF_BUSY, "overlaps");
  EXPECT_EQ(hippogriff_send_path_async(path_.c_str(), &memory, 0, 0, nullptr, &transfer),
            HIPPOGRIFF_BUSY);
  EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_BUSY);
  EXPECT_EQ(hippogriff_wait(first.get(), 0), HIPPOGRIFF_TIMED_OUT);
  hippogriff_error error{};
  EXPECT_EQ(hippogriff_get_error(first.get(), &error), HIPPOGRIFF_BUSY);
  std::size_t count = 0;
  EXPECT_EQ(hippogriff_get_missing(first.get(), nullptr, 0, &count), HIPPOGRIFF_BUSY);
  char* json = nullptr;
  EXPECT_EQ(hippogriff_get_report(first.get(), &json), HIPPOGRIFF_BUSY);
  EXPECT_EQ(hippogriff_get_route(first.get(), &json), HIPPOGRIFF_BUSY);
  held.let_go();
  EXPECT_EQ(hippogriff_wait(first.get(), abi_patience_ms), HIPPOGRIFF_OK) << last_message();
  EXPECT_TRUE(bytes_of(memory, large_bytes) == content_);
  EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK);
}

TEST_F(AbiMistakesTest, refusals_name_the_file) {
  const OpenFile file(path_, O_RDONLY);
  int on_the_stack = 0;
  void* memory = static_cast<void*>(&on_the_stack);
  hippogriff_transfer* transfer = nullptr;
  const auto expect_object = [](const std::string& object) {
    hippogriff_error error{};
    hippogriff_last_error(&error);
    EXPECT_EQ(error.object, object) << error.message;
  };
  // A pointer that is no device's, a route that there is not, bytes that the file has not.
  EXPECT_EQ(hippogriff_send_async(file.get(), &memory, 0, 4, nullptr, &transfer),
            HIPPOGRIFF_INVALID_ARGUMENT);
  expect_object(path_);
  EXPECT_EQ(hippogriff_send_path_async(path_.c_str(), &memory, 0, 4, nullptr, &transfer),
            HIPPOGRIFF_INVALID_ARGUMENT);
  expect_object(path_);
  void* none = nullptr;
  EXPECT_EQ(hippogriff_send_async(file.get(), &none, 1U << 30U, 0, nullptr, &transfer),
            HIPPOGRIFF_INVALID_ARGUMENT);
  expect_object(path_);
  EXPECT_EQ(hippogriff_send_path_async("/", &none, 0, 0, nullptr, &transfer),
            HIPPOGRIFF_INVALID_ARGUMENT);
  expect_object("/");
  EXPECT_EQ(hippogriff_send_async(12345, &none, 0, 0, nullptr, &transfer),
            HIPPOGRIFF_INVALID_ARGUMENT);
  expect_object("12345");
  const hippogriff_segment nowhere{0, 4, nullptr};
  EXPECT_EQ(hippogriff_sendv_async(file.get(), &nowhere, 1, nullptr, &transfer),
            HIPPOGRIFF_INVALID_ARGUMENT);
  expect_object(path_);
  char* json = nullptr;
  EXPECT_EQ(hippogriff_explain(path_.c_str(), 1U << 30U, 0, 0, nullptr, &json),
            HIPPOGRIFF_INVALID_ARGUMENT);
  expect_object(path_);
}

TEST_F(AbiMistakesTest, device_that_does_not_exist_is_named) {
  for (const char* name : {"cuda:99", "gpu", "cuda:", "cuda:-1", "host0"}) {
    void* memory = nullptr;
    EXPECT_EQ(hippogriff_malloc(name, 100, &memory), HIPPOGRIFF_INVALID_ARGUMENT) << name;
    EXPECT_NE(last_message().find(name), std::string::npos) << last_message();
    hippogriff_options options = HIPPOGRIFF_OPTIONS_INIT;
    options.device = name;
    hippogriff_transfer* transfer = nullptr;
    EXPECT_EQ(hippogriff_send_path_async(path_.c_str(), &memory, 0, 0, &options, &transfer),
              HIPPOGRIFF_INVALID_ARGUMENT);
    EXPECT_EQ(transfer, nullptr);
    hippogriff_error error{};
    hippogriff_last_error(&error);
    EXPECT_STREQ(error.object, name);
    EXPECT_STREQ(error.operation, "open device");
    void* stream = nullptr;
    EXPECT_EQ(hippogriff_stream_create(name, &stream), HIPPOGRIFF_INVALID_ARGUMENT);
  }
}

TEST_F(AbiMistakesTest, null_arguments_are_refused_everywhere) {
  const OpenFile file(path_, O_RDWR);
  void* memory = nullptr;
  hippogriff_transfer* transfer = nullptr;
  EXPECT_EQ(hippogriff_send(file.get(), nullptr, 0, 0), HIPPOGRIFF_FAILED);
  EXPECT_EQ(gullfoss_send(nullptr, &memory, 0, 0), HIPPOGRIFF_FAILED);
  EXPECT_EQ(gullfoss_send("", &memory, 0, 0), HIPPOGRIFF_FAILED);
  EXPECT_EQ(gullfoss_recv(nullptr, nullptr, 0, 0), HIPPOGRIFF_FAILED);
  const std::array refused = {
      hippogriff_send_async(file.get(), nullptr, 0, 0, nullptr, &transfer),
      hippogriff_send_async(file.get(), &memory, 0, 0, nullptr, nullptr),
      hippogriff_send_path_async(nullptr, &memory, 0, 0, nullptr, &transfer),
      hippogriff_recv_async(file.get(), nullptr, 0, 0, nullptr, &transfer),
      hippogriff_recv_async(file.get(), nullptr, 0, 8, nullptr, nullptr),
      hippogriff_recv_path_async(nullptr, nullptr, 0, 0, nullptr, &transfer),
      hippogriff_wait(nullptr, 0),
      hippogriff_wait_released(nullptr, 0),
      hippogriff_cancel(nullptr),
      hippogriff_get_progress(nullptr, nullptr),
      hippogriff_get_error(nullptr, nullptr),
      hippogriff_get_missing(nullptr, nullptr, 0, nullptr),
      hippogriff_get_report(nullptr, nullptr),
      hippogriff_get_route(nullptr, nullptr),
      hippogriff_get_fd(nullptr, nullptr),
      hippogriff_malloc(nullptr, 1, nullptr),
      hippogriff_copy_to_device(nullptr, static_cast<void*>(&memory), 1),
      hippogriff_copy_to_host(static_cast<void*>(&memory), nullptr, 1),
      hippogriff_stream_create(nullptr, nullptr),
      hippogriff_stream_launch(nullptr, nullptr, nullptr, nullptr),
      hippogriff_stream_destroy(nullptr, nullptr),
      hippogriff_info(nullptr, nullptr),
      hippogriff_explain(nullptr, 0, 0, 0, nullptr, nullptr),
      hippogriff_stats(nullptr),
      hippogriff_calibrate(nullptr, nullptr, nullptr, nullptr, nullptr)};
  for (std::size_t index = 0; index < refused.size(); ++index) {
    EXPECT_EQ(refused[index], HIPPOGRIFF_INVALID_ARGUMENT) << "call " << index;
  }
  EXPECT_EQ(transfer, nullptr);
  EXPECT_EQ(hippogriff_address(nullptr), nullptr);
  hippogriff_release(nullptr);
  hippogriff_free_string(nullptr);
  hippogriff_last_error(nullptr);
  EXPECT_EQ(hippogriff_free(nullptr), HIPPOGRIFF_OK);
}

TEST_F(AbiMistakesTest, null_results_of_a_handle_are_refused) {
  void* memory = nullptr;
  hippogriff_transfer* transfer = nullptr;
  ASSERT_EQ(hippogriff_send_path_async(path_.c_str(), &memory, 0, 0, nullptr, &transfer),
            HIPPOGRIFF_OK);
  const Handle handle(transfer);
  ASSERT_EQ(hippogriff_wait(transfer, -1), HIPPOGRIFF_OK);
  EXPECT_EQ(hippogriff_get_progress(transfer, nullptr), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_get_error(transfer, nullptr), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_get_missing(transfer, nullptr, 0, nullptr), HIPPOGRIFF_INVALID_ARGUMENT);
  std::size_t count = 7;
  EXPECT_EQ(hippogriff_get_missing(transfer, nullptr, 1, &count), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_get_missing(transfer, nullptr, 0, &count), HIPPOGRIFF_OK);
  EXPECT_EQ(count, 0U);
  EXPECT_EQ(hippogriff_get_report(transfer, nullptr), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_get_route(transfer, nullptr), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_get_fd(transfer, nullptr), HIPPOGRIFF_INVALID_ARGUMENT);
  hippogriff_error error{};
  EXPECT_EQ(hippogriff_get_error(transfer, &error), HIPPOGRIFF_OK);
  EXPECT_EQ(error.status, HIPPOGRIFF_OK);
}

TEST_F(AbiMistakesTest, options_this_version_does_not_know_are_refused) {
  struct Later {
    hippogriff_options known = HIPPOGRIFF_OPTIONS_INIT;
    std::array<unsigned char, 64> beyond{};
  };

  const auto submit = [this](const hippogriff_options* options) {
    void* memory = nullptr;
    hippogriff_transfer* transfer = nullptr;
    const int status = hippogriff_send_path_async(path_.c_str(), &memory, 0, 0, options, &transfer);
    if (status == HIPPOGRIFF_OK) {
      EXPECT_EQ(hippogriff_wait(transfer, -1), HIPPOGRIFF_OK);
      EXPECT_EQ(hippogriff_free(hippogriff_address(transfer)), HIPPOGRIFF_OK);
      hippogriff_release(transfer);
    }
    return status;
  };
  Later later;
  EXPECT_EQ(submit(&later.known), HIPPOGRIFF_OK);
  later.known.struct_size = sizeof later;
  EXPECT_EQ(submit(&later.known), HIPPOGRIFF_OK) << "zeros beyond ours are defaults";
  later.beyond.at(40) = 1;
  EXPECT_EQ(submit(&later.known), HIPPOGRIFF_INVALID_ARGUMENT);
  for (const std::size_t size : {std::size_t{0}, std::size_t{3}, std::size_t{12}, SIZE_MAX}) {
    later.known.struct_size = size;
    EXPECT_EQ(submit(&later.known), HIPPOGRIFF_INVALID_ARGUMENT) << size;
  }
  hippogriff_options options = HIPPOGRIFF_OPTIONS_INIT;
  options.struct_size = offsetof(hippogriff_options, flags);
  options.flags = 0xFFFF'FFFF;
  EXPECT_EQ(submit(&options), HIPPOGRIFF_OK) << "an older program has no flags";
  options = HIPPOGRIFF_OPTIONS_INIT;
  options.host_memory = 1;
  EXPECT_EQ(submit(&options), HIPPOGRIFF_INVALID_ARGUMENT);
  options.struct_size = offsetof(hippogriff_options, host_memory);
  EXPECT_EQ(submit(&options), HIPPOGRIFF_OK) << "an older program has no bound of host memory";
  options = HIPPOGRIFF_OPTIONS_INIT;
  options.flags = 1U << 5U;
  EXPECT_EQ(submit(&options), HIPPOGRIFF_INVALID_ARGUMENT);
  options = HIPPOGRIFF_OPTIONS_INIT;
  for (const std::uint32_t route : {5U, 77U, UINT32_MAX}) {
    std::memcpy(&options.route, &route, sizeof route);
    EXPECT_EQ(submit(&options), HIPPOGRIFF_INVALID_ARGUMENT) << route;
  }
}

TEST_F(AbiMistakesTest, names_of_unknown_numbers_are_unknown) {
  EXPECT_STREQ(hippogriff_route_name(HIPPOGRIFF_ROUTE_MAPPED), "mapped");
  for (const int number : {-1, 5, 256, 258, INT_MAX, INT_MIN}) {
    EXPECT_STREQ(hippogriff_route_name(number), "unknown") << number;
  }
  EXPECT_STREQ(hippogriff_status_name(HIPPOGRIFF_INVALID_ARGUMENT), "invalid argument");
  EXPECT_STREQ(hippogriff_version(), "0.1.0");
  for (const int number : {-1, 14, 256, INT_MIN}) {
    EXPECT_NE(std::string(hippogriff_status_name(number)), "ok") << number;
  }
}

}  // namespace
}  // namespace hippogriff
