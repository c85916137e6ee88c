// Transfers of several processes: each sees the others', plans by them, and is right all the same.
#include "testing/abi_fixture.hpp"
#include "testing/shared_host.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <string_view>

namespace hippogriff {
namespace {

using hippogriff::testing::eventually;
using hippogriff::testing::node_status;
using hippogriff::testing::SharedHost;
using Json = nlohmann::json;

constexpr std::size_t file_bytes = 24 * mebibyte + 777;

// A folder with a file of random bytes, and processes with a simulated link.
class SharedTransfers : public ::testing::Test {
 protected:
  SharedTransfers() { write_whole(path_, content_); }

  template <typename Body>
  auto child(Body body) const {
    return machine_.child([this, body] {
      // NOLINTBEGIN(concurrency-mt-unsafe): before any thread starts
      ::setenv("HIPPOGRIFF_HOST_LINK", link_.c_str(), 1);
      ::setenv("HIPPOGRIFF_CALIBRATION", "", 1);
      if (!reservation_.empty()) {
        ::setenv("HIPPOGRIFF_RESERVATION", reservation_.c_str(), 1);
        ::setenv("HIPPOGRIFF_WAIT_MS", "600000", 1);
      }
      // NOLINTEND(concurrency-mt-unsafe)
      ASSERT_EQ(hippogriff_init(), HIPPOGRIFF_OK) << last_message();
      body();
      EXPECT_EQ(hippogriff_deinit(), HIPPOGRIFF_OK) << last_message();
    });
  }

  // Where the file system lets go of pages.
  void drop_from_page_cache() const { drop_from_page_cache(path_); }

  static void drop_from_page_cache(const std::string& path) {
    const OpenFile file(path, O_RDWR);
    EXPECT_EQ(::fsync(file.get()), 0);
    EXPECT_EQ(::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  }

  // The processes to come wait at their first use for 60 MiB that this one left for that.
  void leave_memory(node::Node& leading) {
    leading.defer(
        {.device = leading.add_device("host", 100 * mebibyte), .size_bytes = 60 * mebibyte});
    reservation_ = leading.leader();
  }

  // A send into new memory; with a stream it waits for that.
  Handle send(void* stream = nullptr) const {
    void* memory = nullptr;
    hippogriff_options options = HIPPOGRIFF_OPTIONS_INIT;
    options.memory_timeout_ms = abi_patience_ms;
    options.flags = stream != nullptr ? HIPPOGRIFF_AFTER_STREAM : 0;
    options.stream = stream;
    hippogriff_transfer* transfer = nullptr;
    EXPECT_EQ(hippogriff_send_path_async(path_.c_str(), &memory, 0, 0, &options, &transfer),
              HIPPOGRIFF_OK)
        << last_message();
    return Handle(transfer);
  }

  void expect_content(const Handle& handle) const {
    ASSERT_EQ(hippogriff_wait(handle.get(), abi_patience_ms), HIPPOGRIFF_OK) << last_message();
    void* const memory = hippogriff_address(handle.get());
    std::vector<std::byte> bytes(file_bytes);
    ASSERT_EQ(hippogriff_copy_to_host(bytes.data(), memory, bytes.size()), HIPPOGRIFF_OK);
    EXPECT_TRUE(bytes == content_);
    EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK) << last_message();
  }

  static Json report(const Handle& handle) {
    char* json = nullptr;
    EXPECT_EQ(hippogriff_get_report(handle.get(), &json), HIPPOGRIFF_OK) << last_message();
    return parsed(json);
  }

  Json explain() const { return explain(path_); }

  static Json explain(const std::string& path) {
    char* json = nullptr;
    EXPECT_EQ(hippogriff_explain(path.c_str(), 0, 0, 0, "host", &json), HIPPOGRIFF_OK)
        << last_message();
    return parsed(json);
  }

  // Another process's transfer from the file's drive.
  static std::unique_ptr<node::TransferNotice> notice_of(const node::Node& stranger,
                                                         const Json& told,
                                                         std::uint16_t drive_requests) {
    auto notice = stranger.notice_transfer();
    const std::string drive = told["drive"];
    notice->show({.device = 0,
                  .drive = drive.empty() ? told["filesystem"].get<std::string>() : drive,
                  .drive_requests = drive_requests,
                  .bytes_total = mebibyte,
                  .started_ns = node::monotonic_ns()});
    return notice;
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.file("data");
  const std::vector<std::byte> content_ = random_bytes(file_bytes, 7);
  const SharedHost machine_;
  std::string link_ = "2GB";
  std::string reservation_;  // HIPPOGRIFF_RESERVATION of the processes
};

std::size_t transfers_of(pid_t pid) {
  const Json transfers = node_status()["transfers"];
  return static_cast<std::size_t>(std::count_if(
      transfers.begin(), transfers.end(), [&](const Json& each) { return each["pid"] == pid; }));
}

TEST_F(SharedTransfers, two_processes_see_each_other_and_both_end_well) {
  std::array<int, 2> first{};
  std::array<int, 2> second{};
  ASSERT_EQ(::pipe(first.data()), 0);
  ASSERT_EQ(::pipe(second.data()), 0);
  const auto body = [this](int tells, int hears) {
    HeldStream held;
    const Handle handle = send(held.get());
    pid_t other = 0;
    const pid_t own = ::getpid();
    ASSERT_EQ(::write(tells, &own, sizeof own), static_cast<ssize_t>(sizeof own));
    ASSERT_EQ(::read(hears, &other, sizeof other), static_cast<ssize_t>(sizeof other));
    EXPECT_TRUE(eventually([&] { return transfers_of(other) == 1; })) << node_status();
    EXPECT_EQ(transfers_of(own), 1U);
    // The other one has seen ours as well before either goes on.
    ASSERT_EQ(::write(tells, &own, sizeof own), static_cast<ssize_t>(sizeof own));
    ASSERT_EQ(::read(hears, &other, sizeof other), static_cast<ssize_t>(sizeof other));
    held.let_go();
    expect_content(handle);
    EXPECT_EQ(transfers_of(own), 0U);
    EXPECT_TRUE(eventually([&] { return transfers_of(other) == 0; })) << node_status();
  };
  auto left = child([&] { body(first[1], second[0]); });
  auto right = child([&] { body(second[1], first[0]); });
  EXPECT_EQ(left.wait(), 0);
  EXPECT_EQ(right.wait(), 0);
  for (const int fd : {first[0], first[1], second[0], second[1]}) {
    ::close(fd);
  }
}

TEST_F(SharedTransfers, explain_and_the_report_tell_of_others_and_what_they_changed) {
  auto process = child([this] {
    const Json alone = explain();
    EXPECT_EQ(alone["other_processes"]["link"]["processes"], 0);
    EXPECT_FALSE(alone["other_processes"].contains("without_them"));
    const std::string drive = alone["drive"];
    const node::Node stranger(machine_.place.options());
    const auto notice = stranger.notice_transfer();
    notice->show({.device = node::device_key("host"),
                  .drive = drive.empty() ? alone["filesystem"].get<std::string>() : drive,
                  .sends = true,
                  .route = HIPPOGRIFF_ROUTE_PIPELINED,
                  .drive_requests = 2,
                  .channels = 1,
                  .bytes_total = 1000 * mebibyte,
                  .bytes_done = 500 * mebibyte,
                  .started_ns = node::monotonic_ns() - 1'000'000'000});
    const Json beside = explain();
    EXPECT_EQ(beside["other_processes"]["link"]["processes"], 1);
    EXPECT_GT(beside["other_processes"]["link"]["bytes_per_second"], 0);
    EXPECT_EQ(beside["other_processes"]["drive"]["processes"], 1);
    EXPECT_EQ(beside["other_processes"]["drive"]["requests"], 2);
    const double seconds = beside["other_processes"]["without_them"]["seconds"];
    const std::string chosen = beside["chosen"];
    for (const Json& route : beside["routes"]) {
      if (route["route"] == chosen) {
        EXPECT_GE(route["seconds"], seconds);
      }
    }
    const Handle handle = send();
    expect_content(handle);
    EXPECT_EQ(report(handle)["other_processes"]["link"]["processes"], 1);
  });
  EXPECT_EQ(process.wait(), 0);
}

// By direct requests where the file system has them and lets go of its pages.
TEST_F(SharedTransfers, cold_sends_beside_a_process_that_comes_and_goes_are_right) {
  auto process = child([this] {
    const Json told = explain();
    const node::Node stranger(machine_.place.options());
    for (int round = 0; round < 6; ++round) {
      drop_from_page_cache();
      auto notice = round % 3 != 0 ? notice_of(stranger, told, 16) : nullptr;
      const Handle handle = send();
      if (round % 3 == 2) {
        notice.reset();
      }
      expect_content(handle);
      EXPECT_EQ(report(handle)["other_processes"]["drive"]["processes"], round % 3 != 0 ? 1 : 0);
    }
  });
  EXPECT_EQ(process.wait(), 0);
}

// Until it is killed.
void hold_most_memory() {
  void* memory = nullptr;
  ASSERT_EQ(hippogriff_malloc("host", 90 * mebibyte, &memory), HIPPOGRIFF_OK);
  ::pause();
}

bool most_memory_is_held() {
  const Json now = node_status();
  return !now["devices"].empty() && now["devices"][0]["promised_bytes"] == 90 * mebibyte;
}

TEST_F(SharedTransfers, a_send_parks_while_its_memory_is_promised_to_another_process) {
  auto holder = child(hold_most_memory);
  auto process = child([&] {
    ASSERT_TRUE(eventually(most_memory_is_held));
    const Handle handle = send();
    hippogriff_progress progress{};
    EXPECT_TRUE(eventually([&] {
      return hippogriff_get_progress(handle.get(), &progress) == HIPPOGRIFF_OK &&
             progress.bytes_parked == file_bytes;
    })) << progress.bytes_parked;
    EXPECT_EQ(progress.bytes_done, 0U);
    EXPECT_TRUE(eventually([] {
      const Json shown = node_status()["transfers"];
      return shown.size() == 1 && shown[0]["phase"] == "waiting" && shown[0]["wants_memory"] &&
             shown[0]["route"] == "parked";
    })) << node_status();
    holder.send(SIGKILL);
    expect_content(handle);
    EXPECT_EQ(report(handle)["route"], "parked");
  });
  EXPECT_EQ(process.wait(), 0);
}

// Reading ahead of its memory would only slow down who has some, and would give it back later.
TEST_F(SharedTransfers, a_cold_send_parks_once_no_other_process_moves_data_from_the_drive) {
  auto holder = child(hold_most_memory);
  auto process = child([&] {
    ASSERT_TRUE(eventually(most_memory_is_held));
    drop_from_page_cache();
    const Json told = explain();
    const node::Node stranger(machine_.place.options());
    const auto notice = notice_of(stranger, told, 2);
    const Handle handle = send();
    hippogriff_progress progress{};
    const auto parked = [&] {
      EXPECT_EQ(hippogriff_get_progress(handle.get(), &progress), HIPPOGRIFF_OK);
      return progress.bytes_parked;
    };
    const bool cold = told["cached_fraction"] < 1;
    for (int turn = 0; cold && turn < 60; ++turn) {
      ASSERT_EQ(parked(), 0U) << "after " << turn << " turns";
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    notice->set_phase(node::TransferPhase::parking, true);
    EXPECT_TRUE(eventually([&] { return parked() == file_bytes; })) << progress.bytes_parked;
    holder.send(SIGKILL);
    expect_content(handle);
  });
  EXPECT_EQ(process.wait(), 0);
}

// By the page cache a file comes at half of what the drive gives those who read it directly.
TEST_F(SharedTransfers, what_is_asked_for_ahead_waits_while_another_process_reads_from_the_drive) {
  auto process = child([this] {
    drop_from_page_cache();
    const Json told = explain();
    if (told["cached_fraction"] == 1) {
      std::fputs("not tried: the file system keeps its pages\n", stderr);
      return;
    }
    const node::Node stranger(machine_.place.options());
    auto notice = notice_of(stranger, told, 2);
    ASSERT_EQ(hippogriff_prefetch_path(path_.c_str(), 0, 0), HIPPOGRIFF_OK) << last_message();
    const auto cached = [&] { return explain()["cached_fraction"].get<double>(); };
    const double before = cached();
    for (int turn = 0; turn < 60; ++turn) {
      ASSERT_EQ(cached(), before) << "after " << turn << " turns";
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    notice.reset();
    EXPECT_TRUE(eventually([&] { return cached() == 1; })) << cached() << " of " << before;
  });
  EXPECT_EQ(process.wait(), 0);
}

TEST_F(SharedTransfers, what_is_asked_for_ahead_waits_for_transfers_of_its_own_process) {
  link_ = "20MB";
  const std::string next = folder_.file("next");
  write_whole(next, content_);
  auto process = child([&] {
    drop_from_page_cache(next);
    const auto cached = [&] { return explain(next)["cached_fraction"].get<double>(); };
    const double before = cached();
    if (before == 1) {
      std::fputs("not tried: the file system keeps its pages\n", stderr);
      return;
    }
    const Handle handle = send();  // for more than a second
    ASSERT_EQ(hippogriff_prefetch_path(next.c_str(), 0, 0), HIPPOGRIFF_OK) << last_message();
    for (int turn = 0; turn < 60; ++turn) {
      ASSERT_EQ(cached(), before) << "after " << turn << " turns";
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    expect_content(handle);
    EXPECT_TRUE(eventually([&] { return cached() == 1; })) << cached() << " of " << before;
  });
  EXPECT_EQ(process.wait(), 0);
}

std::size_t waiting_requests() {
  const Json all = node_status()["reservations"];
  return static_cast<std::size_t>(std::count_if(
      all.begin(), all.end(), [](const Json& each) { return each["waits"] == true; }));
}

TEST_F(SharedTransfers, a_send_that_parks_waits_for_its_commands_memory_until_it_ends) {
  node::Node leading(machine_.place.options());
  leave_memory(leading);
  node::Node other(machine_.place.options());
  other.reserve({.device = other.add_device("host", 100 * mebibyte), .size_bytes = 100 * mebibyte});
  auto process = child([this] {
    void* memory = nullptr;
    hippogriff_options options = HIPPOGRIFF_OPTIONS_INIT;
    options.route = HIPPOGRIFF_ROUTE_PARKED;
    hippogriff_transfer* transfer = nullptr;
    ASSERT_EQ(hippogriff_send_path_async(path_.c_str(), &memory, 0, 0, &options, &transfer),
              HIPPOGRIFF_OK)
        << last_message();
    Handle handle(transfer);
    EXPECT_TRUE(eventually([] { return waiting_requests() == 1; })) << node_status();
    EXPECT_EQ(hippogriff_cancel(handle.get()), HIPPOGRIFF_OK);
    EXPECT_EQ(hippogriff_wait(handle.get(), abi_patience_ms), HIPPOGRIFF_CANCELLED);
    EXPECT_TRUE(eventually([] { return waiting_requests() == 0; })) << "the handle is still there";
  });
  EXPECT_EQ(process.wait(), 0);
}

void stop_where_locked(void* /*context*/, const char* place) {
  if (std::string_view(place) == "locked") {
    ::raise(SIGSTOP);
  }
}

// A process that is stopped while it has the node's lock.
testing::Child keeps_lock(const SharedHost& machine) {
  testing::Child keeper([&machine] {
    node::NodeOptions options = machine.place.options();
    options.steps.at = stop_where_locked;
    const node::Node node(options);
    return 0;
  });
  keeper.wait_stopped();
  return keeper;
}

TEST_F(SharedTransfers, a_node_that_is_busy_is_asked_again_and_not_done_without) {
  node::Node leading(machine_.place.options());
  leave_memory(leading);
  auto process = child([&] {
    void* memory = nullptr;
    {
      const testing::Child keeper = keeps_lock(machine_);
      EXPECT_EQ(hippogriff_malloc("host", mebibyte, &memory), HIPPOGRIFF_BUSY);
    }
    ASSERT_EQ(hippogriff_malloc("host", mebibyte, &memory), HIPPOGRIFF_OK) << last_message();
    EXPECT_EQ(node_status()["devices"][0]["promised_bytes"], 60 * mebibyte);
    EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK);
  });
  EXPECT_EQ(process.wait(), 0);
  auto joins = machine_.child([&] {
    // NOLINTBEGIN(concurrency-mt-unsafe): before any thread starts
    ::setenv("HIPPOGRIFF_RESERVATION", reservation_.c_str(), 1);
    ::setenv("HIPPOGRIFF_WAIT_MS", "600000", 1);
    // NOLINTEND(concurrency-mt-unsafe)
    {
      const testing::Child keeper = keeps_lock(machine_);
      EXPECT_EQ(hippogriff_init(), HIPPOGRIFF_BUSY);
    }
    ASSERT_EQ(hippogriff_init(), HIPPOGRIFF_OK) << last_message();
    EXPECT_EQ(hippogriff_deinit(), HIPPOGRIFF_OK);
  });
  EXPECT_EQ(joins.wait(), 0);
}

}  // namespace
}  // namespace hippogriff
