// The C interface at work: the papers' listing, handles and what they tell, streams, the short
// path, receives in place and as a whole, JSON.
#include "testing/abi_fixture.hpp"

#include <poll.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

namespace hippogriff {
namespace {

constexpr std::size_t moved_bytes = (std::size_t{3} << 20) + 77;

class AbiTransferTest : public AbiTest {
 protected:
  Handle send(const hippogriff_options* options, void** memory) {
    hippogriff_transfer* transfer = nullptr;
    EXPECT_EQ(hippogriff_send_path_async(path_.c_str(), memory, 0, 0, options, &transfer),
              HIPPOGRIFF_OK)
        << last_message();
    return Handle(transfer);
  }

  static hippogriff_options on_stream(const void* stream, std::uint32_t flags) {
    hippogriff_options options = HIPPOGRIFF_OPTIONS_INIT;
    options.stream = const_cast<void*>(stream);
    options.flags = flags;
    return options;
  }

  const std::string path_ = folder_.file("data");
  const std::vector<std::byte> content_ = make_file(path_, moved_bytes, 3);
};

// Hippogriff's listing: send a matrix, decompose it on the device, receive it back into the file.
// NOLINTNEXTLINE(readability-function-size): the loops of the decomposition nest
TEST_F(AbiTransferTest, the_papers_listing_decomposes_a_matrix_in_its_file) {
  constexpr std::size_t order = 96;
  std::vector<double> matrix(order * order);
  std::mt19937_64 random(5);
  for (std::size_t index = 0; index < matrix.size(); ++index) {
    const bool diagonal = index % (order + 1) == 0;
    matrix[index] = static_cast<double>(random() % 1000) / 1000 + (diagonal ? 100 : 0);
  }
  const std::size_t bytes = matrix.size() * sizeof(double);
  std::vector<std::byte> raw(bytes);
  std::memcpy(raw.data(), matrix.data(), bytes);
  const std::string path = folder_.file("matrix");
  write_whole(path, raw);
  const OpenFile file(path, O_RDWR);
  void* gpu_matrix = nullptr;
  ASSERT_EQ(hippogriff_send(file.get(), &gpu_matrix, 0, bytes), bytes) << last_message();
  void* stream = nullptr;
  ASSERT_EQ(hippogriff_stream_create(nullptr, &stream), HIPPOGRIFF_OK);
  const auto decompose = [](void* pointer) {
    auto* a = static_cast<double*>(pointer);
    for (std::size_t k = 0; k < order; ++k) {
      for (std::size_t i = k + 1; i < order; ++i) {
        a[i * order + k] /= a[k * order + k];
        for (std::size_t j = k + 1; j < order; ++j) {
          a[i * order + j] -= a[i * order + k] * a[k * order + j];
        }
      }
    }
  };
  ASSERT_EQ(hippogriff_stream_launch(nullptr, stream, decompose, gpu_matrix), HIPPOGRIFF_OK);
  ASSERT_EQ(hippogriff_stream_synchronize(nullptr, stream, abi_patience_ms), HIPPOGRIFF_OK);
  ASSERT_EQ(hippogriff_recv(file.get(), gpu_matrix, 0, bytes), bytes) << last_message();
  EXPECT_EQ(hippogriff_stream_destroy(nullptr, stream), HIPPOGRIFF_OK);
  const auto result = read_whole(path);
  ASSERT_EQ(result.size(), bytes);
  std::vector<double> lu(matrix.size());
  std::memcpy(lu.data(), result.data(), bytes);
  for (std::size_t row = 0; row < order; ++row) {
    for (std::size_t column = 0; column < order; ++column) {
      double product = row <= column ? lu[row * order + column] : 0;
      for (std::size_t k = 0; k < std::min(row, column + 1); ++k) {
        product += lu[row * order + k] * lu[k * order + column];
      }
      ASSERT_NEAR(product, matrix[row * order + column], 1e-9);
    }
  }
}

TEST_F(AbiTransferTest, handle_of_a_finished_send_tells_everything) {
  void* memory = nullptr;
  const Handle handle = send(nullptr, &memory);
  int readable = -1;
  ASSERT_EQ(hippogriff_get_fd(handle.get(), &readable), HIPPOGRIFF_OK);
  pollfd polled{readable, POLLIN, 0};
  EXPECT_EQ(poll(&polled, 1, static_cast<int>(abi_patience_ms)), 1);
  EXPECT_EQ(hippogriff_wait(handle.get(), 0), HIPPOGRIFF_OK) << "readable, but not finished";
  hippogriff_progress progress{};
  EXPECT_EQ(hippogriff_get_progress(handle.get(), &progress), HIPPOGRIFF_OK);
  EXPECT_EQ(progress.bytes_done, moved_bytes);
  EXPECT_EQ(progress.bytes_total, moved_bytes);
  EXPECT_EQ(progress.finished, 1);
  EXPECT_GT(progress.seconds, 0);
  EXPECT_EQ(hippogriff_address(handle.get()), memory);
  EXPECT_TRUE(bytes_of(memory, moved_bytes) == content_);
  char* json = nullptr;
  ASSERT_EQ(hippogriff_get_report(handle.get(), &json), HIPPOGRIFF_OK);
  const auto report = parsed(json);
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report.at("lanes").size(), 1U) << report.dump(1);
  ASSERT_EQ(hippogriff_stats(&json), HIPPOGRIFF_OK);
  const auto stats = parsed(json);
  EXPECT_EQ(stats.at("transfers_finished"), 1);
  EXPECT_EQ(stats.at("transfers_failed"), 0);
  EXPECT_EQ(stats.at("devices").at(0).at("allocated_bytes"), moved_bytes);
}

TEST_F(AbiTransferTest, handle_of_a_failed_transfer_names_operation_path_offset_and_errno) {
  void* const memory = device_memory(moved_bytes);
  hippogriff_transfer* transfer = nullptr;
  // /dev/full is not a file; a file that ends meanwhile is short.
  HeldStream held;
  const auto options = on_stream(held.get(), HIPPOGRIFF_AFTER_STREAM);
  void* target = memory;
  hippogriff_options direct = options;
  direct.route = HIPPOGRIFF_ROUTE_PIPELINED;
  ASSERT_EQ(hippogriff_send_path_async(path_.c_str(), &target, 0, 0, &direct, &transfer),
            HIPPOGRIFF_OK);
  const Handle handle(transfer);
  ASSERT_EQ(truncate(path_.c_str(), 1'000'000), 0);
  held.let_go();
  EXPECT_EQ(hippogriff_wait(transfer, abi_patience_ms), HIPPOGRIFF_SHORT_FILE);
  EXPECT_EQ(last_status(), HIPPOGRIFF_SHORT_FILE);
  hippogriff_error error{};
  ASSERT_EQ(hippogriff_get_error(transfer, &error), HIPPOGRIFF_OK);
  EXPECT_STREQ(error.operation, "read");
  EXPECT_EQ(error.object, path_);
  EXPECT_EQ(error.offset, 1'000'000U);
  EXPECT_NE(std::string(error.message).find(path_), std::string::npos);
  std::vector<hippogriff_range> missing(1);
  std::size_t count = 0;
  ASSERT_EQ(hippogriff_get_missing(transfer, missing.data(), 1, &count), HIPPOGRIFF_OK);
  ASSERT_GE(count, 1U);
  EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK);
}

TEST_F(AbiTransferTest, cancelled_transfer_says_so_and_its_memory_is_free_again) {
  HeldStream held;
  void* memory = device_memory(moved_bytes);
  const auto options = on_stream(held.get(), HIPPOGRIFF_AFTER_STREAM);
  const Handle handle = send(&options, &memory);
  EXPECT_EQ(hippogriff_wait(handle.get(), 10), HIPPOGRIFF_TIMED_OUT);
  EXPECT_EQ(hippogriff_cancel(handle.get()), HIPPOGRIFF_OK);
  EXPECT_EQ(hippogriff_wait(handle.get(), abi_patience_ms), HIPPOGRIFF_CANCELLED);
  EXPECT_EQ(hippogriff_cancel(handle.get()), HIPPOGRIFF_OK);
  EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK) << last_message();
}

TEST_F(AbiTransferTest, a_prefetch_takes_what_a_send_would_and_tells_what_it_would_not) {
  const OpenFile file(path_, O_RDONLY);
  EXPECT_EQ(hippogriff_prefetch(file.get(), 0, 0), HIPPOGRIFF_OK) << last_message();
  EXPECT_EQ(hippogriff_prefetch(file.get(), 77, 1 << 20), HIPPOGRIFF_OK) << last_message();
  EXPECT_EQ(hippogriff_prefetch_path(path_.c_str(), moved_bytes, 0), HIPPOGRIFF_OK);
  EXPECT_EQ(hippogriff_prefetch_path(path_.c_str(), 1, moved_bytes), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_NE(last_message().find(path_), std::string::npos) << last_message();
  EXPECT_EQ(hippogriff_prefetch_path(path_.c_str(), SIZE_MAX, 2), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_prefetch_path(nullptr, 0, 0), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_prefetch(-1, 0, 0), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_prefetch_path(folder_.file("nothing").c_str(), 0, 0), HIPPOGRIFF_IO_ERROR);
}

TEST_F(AbiTransferTest, released_transfer_goes_on) {
  HeldStream held;
  void* memory = device_memory(moved_bytes);
  const auto options = on_stream(held.get(), HIPPOGRIFF_AFTER_STREAM);
  send(&options, &memory).reset();
  EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_BUSY);
  held.let_go();
  int status = HIPPOGRIFF_BUSY;
  for (int wait = 0; wait < 5000 && status == HIPPOGRIFF_BUSY; ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    void* twin = memory;
    const OpenFile file(path_, O_RDONLY);
    status = hippogriff_send(file.get(), &twin, 0, 1) == 1 ? HIPPOGRIFF_OK : last_status();
  }
  EXPECT_EQ(status, HIPPOGRIFF_OK);
  EXPECT_TRUE(bytes_of(memory, moved_bytes) == content_);
  EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK);
}

TEST_F(AbiTransferTest, stream_work_before_and_after_a_transfer_is_ordered) {
  void* memory = device_memory(moved_bytes);

  struct Seen {
    const std::byte* memory = nullptr;
    const std::vector<std::byte>* expected = nullptr;
    int difference = -1;
  } seen{static_cast<std::byte*>(memory), &content_};

  HeldStream held;
  const auto options = on_stream(held.get(), HIPPOGRIFF_AFTER_STREAM | HIPPOGRIFF_BEFORE_STREAM);
  const Handle handle = send(&options, &memory);
  const auto look = [](void* argument) {
    auto* it = static_cast<Seen*>(argument);
    it->difference = std::memcmp(it->memory, it->expected->data(), it->expected->size());
  };
  ASSERT_EQ(hippogriff_stream_launch(nullptr, held.get(), look, &seen), HIPPOGRIFF_OK);
  EXPECT_EQ(hippogriff_stream_synchronize(nullptr, held.get(), 10), HIPPOGRIFF_TIMED_OUT);
  held.let_go();
  EXPECT_EQ(hippogriff_stream_synchronize(nullptr, held.get(), INT64_MAX), HIPPOGRIFF_OK);
  EXPECT_EQ(seen.difference, 0);
  EXPECT_EQ(hippogriff_wait(handle.get(), abi_patience_ms), HIPPOGRIFF_OK);
  void* stranger = &seen;
  EXPECT_EQ(hippogriff_stream_destroy(nullptr, stranger), HIPPOGRIFF_INVALID_ARGUMENT);
}

// Who then runs the file, unmounts it or deletes it for its space finds nobody else at it.
TEST_F(AbiTransferTest, files_are_closed_when_a_transfer_has_ended) {
  void* memory = nullptr;
  const Handle sent = send(nullptr, &memory);
  ASSERT_EQ(hippogriff_wait(sent.get(), abi_patience_ms), HIPPOGRIFF_OK);
  const std::string path = folder_.file("back");
  hippogriff_transfer* back = nullptr;
  ASSERT_EQ(hippogriff_recv_path_async(path.c_str(), memory, 0, moved_bytes, nullptr, &back),
            HIPPOGRIFF_OK);
  const Handle received(back);
  ASSERT_EQ(hippogriff_wait(back, abi_patience_ms), HIPPOGRIFF_OK) << last_message();
  for (const std::string& each : {path_, path}) {
    SCOPED_TRACE(each);
    struct stat file{};
    ASSERT_EQ(::stat(each.c_str(), &file), 0);
    for (const auto& open : std::filesystem::directory_iterator("/proc/self/fd")) {
      struct stat seen{};
      const bool is_there = ::stat(open.path().c_str(), &seen) == 0;
      EXPECT_FALSE(is_there && seen.st_dev == file.st_dev && seen.st_ino == file.st_ino);
    }
  }
  char* report = nullptr;
  ASSERT_EQ(hippogriff_get_report(back, &report), HIPPOGRIFF_OK);
  EXPECT_NE(std::string(report).find(path), std::string::npos);
  hippogriff_free_string(report);
}

TEST_F(AbiTransferTest, only_a_recv_frees_its_source) {
  hippogriff_options options = HIPPOGRIFF_OPTIONS_INIT;
  options.flags = HIPPOGRIFF_FREE_SOURCE;
  const OpenFile file(path_, O_RDONLY);
  void* memory = nullptr;
  hippogriff_transfer* transfer = nullptr;
  EXPECT_EQ(hippogriff_send_async(file.get(), &memory, 0, 0, &options, &transfer),
            HIPPOGRIFF_INVALID_ARGUMENT);
}

TEST_F(AbiTransferTest, destroying_a_stream_waits_for_its_work) {
  void* stream = nullptr;
  ASSERT_EQ(hippogriff_stream_create(nullptr, &stream), HIPPOGRIFF_OK);
  std::atomic<int> ran{0};
  const auto work = [](void* count) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ++*static_cast<std::atomic<int>*>(count);
  };
  ASSERT_EQ(hippogriff_stream_launch(nullptr, stream, work, &ran), HIPPOGRIFF_OK);
  ASSERT_EQ(hippogriff_stream_launch(nullptr, stream, work, &ran), HIPPOGRIFF_OK);
  EXPECT_EQ(hippogriff_stream_destroy(nullptr, stream), HIPPOGRIFF_OK);
  EXPECT_EQ(ran, 2);
}

TEST_F(AbiTransferTest, plain_host_memory_takes_a_flag) {
  std::vector<std::byte> plain(moved_bytes);
  void* memory = plain.data();
  hippogriff_options options = HIPPOGRIFF_OPTIONS_INIT;
  options.flags = HIPPOGRIFF_HOST_MEMORY;
  const Handle handle = send(&options, &memory);
  EXPECT_EQ(hippogriff_wait(handle.get(), abi_patience_ms), HIPPOGRIFF_OK) << last_message();
  EXPECT_TRUE(plain == content_);
  hippogriff_transfer* transfer = nullptr;
  const std::string copy = folder_.file("copy");
  ASSERT_EQ(hippogriff_recv_path_async(copy.c_str(), memory, 0, moved_bytes, &options, &transfer),
            HIPPOGRIFF_OK);
  const Handle back(transfer);
  EXPECT_EQ(hippogriff_wait_released(transfer, abi_patience_ms), HIPPOGRIFF_OK);
  EXPECT_EQ(hippogriff_wait(transfer, abi_patience_ms), HIPPOGRIFF_OK);
  EXPECT_TRUE(same_bytes(read_whole(copy), content_));
  EXPECT_EQ(hippogriff_recv_path_async(copy.c_str(), memory, 0, 0, &options, &transfer),
            HIPPOGRIFF_INVALID_ARGUMENT);
}

TEST_F(AbiTransferTest, receive_by_name_replaces_whole_files_and_updates_parts) {
  void* memory = nullptr;
  ASSERT_EQ(gullfoss_send(path_.c_str(), &memory, 0, 1000), 1000U) << last_message();
  const std::string target = folder_.file("target");
  EXPECT_EQ(gullfoss_recv(target.c_str(), memory, 0, 0), 1000U) << "a new file";
  const OpenFile before(target, O_RDONLY);
  EXPECT_EQ(gullfoss_recv(target.c_str(), memory, 0, 1000), 1000U) << "all of it: replaced";
  const OpenFile after(target, O_RDONLY);
  struct stat old_status{};
  struct stat new_status{};
  ASSERT_EQ(fstat(before.get(), &old_status), 0);
  ASSERT_EQ(fstat(after.get(), &new_status), 0);
  EXPECT_NE(old_status.st_ino, new_status.st_ino);
  EXPECT_EQ(old_status.st_nlink, 0U);
  EXPECT_EQ(gullfoss_recv(target.c_str(), memory, 0, 500), 500U) << "a part: in place";
  EXPECT_EQ(gullfoss_recv(target.c_str(), memory, 900, 1000), 1000U) << "beyond the end: in place";
  const auto result = read_whole(target);
  ASSERT_EQ(result.size(), 1900U);
  EXPECT_EQ(std::memcmp(result.data(), content_.data(), 900), 0);
  EXPECT_EQ(std::memcmp(result.data() + 900, content_.data(), 1000), 0);
  ASSERT_EQ(fstat(after.get(), &new_status), 0);
  EXPECT_EQ(new_status.st_nlink, 1U);
  EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK);
  EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_INVALID_ARGUMENT) << "freed twice";
}

TEST_F(AbiTransferTest, replacing_by_name_is_a_wish_that_the_longer_file_does_not_outweigh) {
  void* memory = device_memory(1000);
  const std::string target = folder_.file("target");
  write_whole(target, random_bytes(5000, 1));
  const OpenFile before(target, O_RDWR);
  hippogriff_options options = HIPPOGRIFF_OPTIONS_INIT;
  options.flags = HIPPOGRIFF_REPLACE;
  hippogriff_transfer* transfer = nullptr;
  ASSERT_EQ(hippogriff_recv_path_async(target.c_str(), memory, 0, 1000, &options, &transfer),
            HIPPOGRIFF_OK);
  const Handle handle(transfer);
  ASSERT_EQ(hippogriff_wait(transfer, abi_patience_ms), HIPPOGRIFF_OK) << last_message();
  EXPECT_TRUE(read_whole(target) == bytes_of(memory, 1000));
  struct stat old{};
  ASSERT_EQ(fstat(before.get(), &old), 0);
  EXPECT_EQ(old.st_size, 5000);
  EXPECT_EQ(old.st_nlink, 0U);
  EXPECT_EQ(hippogriff_recv_path_async(target.c_str(), memory, 10, 990, &options, &transfer),
            HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_recv_async(before.get(), memory, 0, 1000, &options, &transfer),
            HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_send_path_async(target.c_str(), &memory, 0, 1000, &options, &transfer),
            HIPPOGRIFF_INVALID_ARGUMENT);
}

TEST_F(AbiTransferTest, empty_extent_leaves_the_callers_memory_the_callers) {
  void* memory = device_memory(8192);
  void* inside = static_cast<std::byte*>(memory) + 256;
  const OpenFile file(path_, O_RDONLY);
  EXPECT_EQ(hippogriff_send(file.get(), &inside, moved_bytes, 0), 0U) << last_message();
  void* whole = memory;
  EXPECT_EQ(hippogriff_send(file.get(), &whole, moved_bytes, 0), 0U) << last_message();
  EXPECT_EQ(hippogriff_free(inside), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK) << last_message();
}

TEST_F(AbiTransferTest, refused_transfers_touch_neither_file_nor_memory) {
  void* memory = device_memory(moved_bytes);
  hippogriff_options options = HIPPOGRIFF_OPTIONS_INIT;
  options.flags = HIPPOGRIFF_BEFORE_STREAM;
  int no_stream = 0;
  options.stream = &no_stream;
  const std::string target = folder_.file("refused");
  const OpenFile out(target, O_RDWR | O_CREAT);
  hippogriff_transfer* transfer = nullptr;
  EXPECT_NE(hippogriff_recv_async(out.get(), memory, 0, moved_bytes, &options, &transfer),
            HIPPOGRIFF_OK);
  EXPECT_EQ(read_whole(target).size(), 0U);
  write_whole(target, random_bytes(8, 1));
  const auto before = bytes_of(memory, 100);
  void* there = memory;
  EXPECT_EQ(hippogriff_send(out.get(), &there, 0, 100), HIPPOGRIFF_FAILED);
  const OpenFile endless("/dev/zero", O_RDONLY);
  EXPECT_EQ(hippogriff_send(endless.get(), &there, 0, 100), HIPPOGRIFF_FAILED);
  EXPECT_TRUE(bytes_of(memory, 100) == before);
  EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK);
}

TEST_F(AbiTransferTest, small_transfers_of_odd_extents_move_the_right_bytes) {
  const OpenFile file(path_, O_RDWR);
  const std::string copy = folder_.file("copy");
  const OpenFile output(copy, O_RDWR | O_CREAT);
  void* const memory = device_memory(300'000);
  std::mt19937_64 random(8);
  for (int round = 0; round < 100; ++round) {
    const std::size_t size = 1 + random() % 262'144;
    const std::size_t offset = random() % (moved_bytes - size);
    const std::size_t at = random() % (300'000 - size);
    void* inside = static_cast<std::byte*>(memory) + at;
    ASSERT_EQ(hippogriff_send(file.get(), &inside, offset, size), size) << last_message();
    ASSERT_EQ(hippogriff_recv(output.get(), inside, offset, size), size) << last_message();
    std::vector<std::byte> result(size);
    ASSERT_EQ(pread(output.get(), result.data(), size, static_cast<off_t>(offset)),
              static_cast<ssize_t>(size));
    ASSERT_EQ(std::memcmp(result.data(), content_.data() + offset, size), 0);
  }
  char* json = nullptr;
  ASSERT_EQ(hippogriff_stats(&json), HIPPOGRIFF_OK);
  const auto stats = parsed(json);
  EXPECT_EQ(stats.at("by_lane").at("send").at("small").at("transfers"), 100);
  EXPECT_EQ(stats.at("by_lane").at("recv").at("small").at("transfers"), 100);
  EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK);
}

TEST_F(AbiTransferTest, info_and_explain_speak_json) {
  char* json = nullptr;
  ASSERT_EQ(hippogriff_info(folder_.path().c_str(), &json), HIPPOGRIFF_OK) << last_message();
  const auto info = parsed(json);
  EXPECT_EQ(info.at("version"), "0.1.0");
  EXPECT_FALSE(info.at("devices").empty());
  for (const int direction : {0, 1}) {
    ASSERT_EQ(hippogriff_explain(path_.c_str(), 0, 0, direction, nullptr, &json), HIPPOGRIFF_OK)
        << last_message();
    const auto plan = parsed(json);
    EXPECT_EQ(plan.at("bytes"), moved_bytes);
    bool chosen_is_possible = false;
    for (const auto& route : plan.at("routes")) {
      EXPECT_TRUE(route.at("possible") || route.contains("why_not"));
      chosen_is_possible |= route.at("route") == plan.at("chosen") && route.at("possible");
    }
    EXPECT_TRUE(chosen_is_possible);
  }
  EXPECT_EQ(hippogriff_explain(path_.c_str(), 0, 0, 2, nullptr, &json),
            HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_explain(path_.c_str(), moved_bytes + 1, 0, 0, nullptr, &json),
            HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_explain(folder_.file("none").c_str(), 0, 0, 0, nullptr, &json),
            HIPPOGRIFF_IO_ERROR);
}

TEST_F(AbiTransferTest, calibration_tells_its_steps_and_can_be_cancelled) {
  int steps = 0;
  const auto stop_at_third = [](void* context, const char* step, double fraction) {
    EXPECT_NE(step, nullptr);
    EXPECT_GE(fraction, 0);
    EXPECT_LE(fraction, 1);
    return ++*static_cast<int*>(context) >= 3 ? 1 : 0;
  };
  char* json = nullptr;
  EXPECT_EQ(hippogriff_calibrate(nullptr, folder_.path().c_str(), stop_at_third, &steps, &json),
            HIPPOGRIFF_CANCELLED)
      << last_message();
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1)
      << "calibrating has left files";
  EXPECT_EQ(hippogriff_calibrate(nullptr, folder_.file("none").c_str(), nullptr, nullptr, &json),
            HIPPOGRIFF_IO_ERROR)
      << last_message();
}

}  // namespace
}  // namespace hippogriff
