// One region of a file to many places, against the slow obvious version: a copy per part.
#include "transfer/destinations.hpp"

#include "testing/abi_fixture.hpp"
#include "testing/effort.hpp"
#include "testing/runtime_fixture.hpp"
#include "transfer/report.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <random>

namespace hippogriff {
namespace {

constexpr auto untouched = std::byte{0xA5};

// What make_destinations says; "" when it takes them.
std::string refusal(std::vector<Segment> segments) {
  try {
    static_cast<void>(make_destinations(std::move(segments)));
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.failure().status, Status::invalid_argument);
    return error.failure().detail;
  }
}

TEST(Destinations, are_sorted_and_without_what_is_empty) {
  const auto made = make_destinations({{{100, 10}, {5000}}, {{50, 0}, {}}, {{0, 100}, {9000}}});
  ASSERT_EQ(made.size(), 2U);
  EXPECT_EQ(made[0].address.value, 9000U);
  EXPECT_EQ(made[1].range.offset, 100U);
}

TEST(Destinations, that_cannot_be_are_refused) {
  EXPECT_NE(refusal({}).find("no byte"), std::string::npos);
  EXPECT_NE(refusal({{{7, 0}, {1000}}}).find("no byte"), std::string::npos);
  EXPECT_NE(refusal({{{0, 10}, {}}}).find("NULL"), std::string::npos);
  EXPECT_NE(refusal({{{0, 10}, {100}}, {{9, 10}, {500}}}).find("in the file"), std::string::npos);
  EXPECT_NE(refusal({{{0, 10}, {100}}, {{10, 10}, {109}}}).find("in memory"), std::string::npos);
  EXPECT_NE(refusal({{{UINT64_MAX - 5, 10}, {100}}}).find("file"), std::string::npos);
  EXPECT_NE(refusal({{{0, 10}, {UINT64_MAX - 5}}}).find("addresses"), std::string::npos);
  EXPECT_EQ(refusal({{{0, 10}, {100}}, {{10, 10}, {110}}}), "");
}

TEST(Destinations, that_are_neighbours_twice_are_joined) {
  Destinations joined;
  append_joined(joined, {{0, 10}, {100}});
  append_joined(joined, {{10, 5}, {110}});
  append_joined(joined, {{15, 5}, {200}});  // elsewhere in memory
  append_joined(joined, {{21, 5}, {205}});  // elsewhere in the file
  append_joined(joined, {{26, 4}, {90}});   // before it in memory
  ASSERT_EQ(joined.size(), 4U);
  EXPECT_EQ(joined[0].range.size, 15U);
  EXPECT_EQ(joined[0].address.value, 100U);
}

// A layout of random parts and gaps in the file, placed in another order in memory.
struct Layout {
  std::vector<Segment> segments;  // addresses count from 0
  std::uint64_t memory_bytes = 0;
};

Layout random_layout(std::mt19937_64& random, std::uint64_t file_bytes) {
  Layout layout;
  const std::array<std::uint64_t, 4> sizes = {16, 5000, 700'000, 9 * mebibyte};
  std::uint64_t offset = random() % 100'000;
  while (offset < file_bytes && layout.segments.size() < 300) {
    const std::uint64_t size =
        std::min(1 + random() % sizes.at(random() % sizes.size()), file_bytes - offset);
    layout.segments.push_back({{offset, size}, {}});
    offset += size + (random() % 3 == 0 ? random() % 50'000 : 0);
  }
  if (random() % 2 == 0) {
    std::shuffle(layout.segments.begin(), layout.segments.end(), random);
  }
  for (Segment& segment : layout.segments) {
    layout.memory_bytes += random() % 3 == 0 ? random() % 1000 : 0;
    segment.address = {layout.memory_bytes};
    layout.memory_bytes += segment.range.size;
  }
  return layout;
}

// Routes of a finished transfer: those that it names, and their bytes, without what `direct` leaves
// out between the parts. The bytes of all of them.
std::uint64_t check_bytes_by_route(const Transfer& transfer) {
  const auto report = nlohmann::json::parse(report_json(transfer));
  const auto& carried = report.at("bytes_by_route");
  std::uint64_t all = 0;
  for (const auto& [route, bytes] : carried.items()) {
    EXPECT_NE(("+" + route_taken(transfer) + "+").find("+" + route + "+"), std::string::npos);
    all += bytes.get<std::uint64_t>();
  }
  std::uint64_t asked = 0;
  for (const Segment& segment : transfer.request().destinations) {
    asked += segment.range.size;
  }
  const std::string route = route_taken(transfer);
  EXPECT_EQ(carried.size(), 1U + static_cast<std::size_t>(std::ranges::count(route, '+')));
  const std::uint64_t done = report.at("bytes_done").get<std::uint64_t>();
  EXPECT_GE(all, asked);
  EXPECT_LE(all, done);
  if (carried.contains("direct")) {
    EXPECT_TRUE(carried.size() > 1 || all == asked) << report.dump(1);
  } else {
    EXPECT_EQ(all, done) << report.dump(1);
  }
  return all;
}

class DestinationsTest : public ::testing::Test {
 protected:
  DestinationsTest()
      : linked_(linked_device()),
        plain_(plain_device()),
        runtime_(test_settings(), make_system_storage(), {linked_, plain_}) {}

  void TearDown() override { EXPECT_TRUE(runtime_.shutdown(long_enough)); }

  void send_and_compare(const std::string& path,
                        const std::vector<std::byte>& content,
                        const Layout& layout,
                        Submission submission) {
    DeviceState& state = runtime_.device(submission.device);
    const DeviceAddress memory = state.allocate(layout.memory_bytes);
    std::byte* bytes = device_bytes(memory);
    std::fill_n(bytes, layout.memory_bytes, untouched);
    std::vector<std::byte> expected(layout.memory_bytes, untouched);
    for (const Segment& segment : layout.segments) {
      submission.destinations.push_back({segment.range, memory + segment.address.value});
      std::memcpy(expected.data() + segment.address.value,
                  content.data() + segment.range.offset,
                  segment.range.size);
    }
    submission.path = path;
    const auto transfer = runtime_.submit(submission);
    ASSERT_TRUE(transfer->wait(long_enough));
    ASSERT_FALSE(transfer->failed()) << transfer->failure_message();
    EXPECT_EQ(std::memcmp(bytes, expected.data(), expected.size()), 0) << report_json(*transfer);
    EXPECT_TRUE(transfer->missing().empty());
    check_bytes_by_route(*transfer);
    EXPECT_TRUE(runtime_.free(memory)) << "nothing uses it any more";
  }

  TemporaryFolder folder_;
  std::shared_ptr<Device> linked_;
  std::shared_ptr<Device> plain_;
  Runtime runtime_;
};

TEST_F(DestinationsTest, random_parts_arrive_by_every_route_and_nothing_else_does) {
  const std::string path = folder_.file("data");
  const auto content = random_bytes((thread_sanitized ? 24 : 60) * mebibyte + 777, 1);
  write_whole(path, content);
  std::mt19937_64 random(2);
  for (int round = 0; round < rounds_of(30); ++round) {
    drop_cache(path, random() % content.size(), random() % content.size());
    const std::array routes = {
        Route::automatic, Route::pipelined, Route::mapped, Route::parked, Route::direct};
    Submission submission;
    submission.device = round % 3 == 0 ? "host" : "linked";
    submission.route = routes.at(random() % (round % 3 == 0 ? 5 : 4));
    SCOPED_TRACE(std::string(route_name(submission.route)) + " to " + submission.device +
                 ", round " + std::to_string(round));
    send_and_compare(path, content, random_layout(random, content.size()), submission);
  }
}

// 1000 bytes of every 4096, straight into place: the gaps are read by nobody.
TEST_F(DestinationsTest, bytes_by_route_leave_out_what_direct_leaves_out) {
  const std::string path = folder_.file("data");
  const auto content = random_bytes(8 * mebibyte, 3);
  write_whole(path, content);
  Submission submission{.path = path, .device = "host", .route = Route::direct};
  const DeviceAddress memory = runtime_.device("host").allocate(content.size());
  for (std::uint64_t offset = 0; offset < content.size(); offset += 4096) {
    submission.destinations.push_back({{offset, 1000}, memory + offset});
  }
  const std::uint64_t asked = 1000 * submission.destinations.size();
  const auto transfer = runtime_.submit(submission);
  ASSERT_TRUE(transfer->wait(long_enough));
  EXPECT_EQ(route_taken(*transfer), "direct");
  EXPECT_EQ(check_bytes_by_route(*transfer), asked);
  EXPECT_GT(transfer->bytes_done(), asked);
}

TEST_F(DestinationsTest, neighbours_in_one_allocation_are_copied_together) {
  const std::string path = folder_.file("data");
  write_whole(path, random_bytes(mebibyte, 1));
  const DeviceAddress memory = runtime_.device("linked").allocate(2 * mebibyte);
  const auto half = mebibyte / 2;
  Submission submission{.path = path, .device = "linked"};
  submission.destinations = {{{0, half}, memory}, {{half, half}, memory + half}};
  const auto together = runtime_.submit(submission);
  ASSERT_TRUE(together->wait(long_enough));
  EXPECT_EQ(together->request().destinations.size(), 1U);
  submission.destinations = {{{0, half}, memory}, {{half, half}, memory + mebibyte}};
  const auto apart = runtime_.submit(submission);
  ASSERT_TRUE(apart->wait(long_enough));
  EXPECT_EQ(apart->request().destinations.size(), 2U);
}

TEST_F(DestinationsTest, windows_mapped_beside_reads_are_scattered_too) {
  const std::string path = folder_.file("data");
  const auto content = random_bytes(300 * mebibyte + 99, 5);
  write_whole(path, content);
  Settings settings = test_settings();
  settings.cores = 8;
  settings.mapped_after_bytes = 0;
  Runtime runtime(settings, make_system_storage(), {mixing_device()});
  const DeviceAddress memory = runtime.device("mixing").allocate(content.size());
  Submission submission{.path = path};
  // Halves of odd mebibytes, from the back to the front.
  const std::uint64_t size = mebibyte / 2 + 3;
  for (std::uint64_t offset = 0; offset + size <= content.size(); offset += size) {
    submission.destinations.push_back({{offset, size}, memory + (content.size() - offset - size)});
  }
  const auto transfer = runtime.submit(submission);
  ASSERT_TRUE(transfer->wait(long_enough));
  ASSERT_FALSE(transfer->failed()) << transfer->failure_message();
  EXPECT_GT(transfer->tally(Lane::mapped).bytes, 0U) << report_json(*transfer);
  EXPECT_GT(transfer->tally(Lane::buffered).bytes, 0U) << report_json(*transfer);
  EXPECT_EQ(check_bytes_by_route(*transfer), transfer->bytes_done());
  const auto report = nlohmann::json::parse(report_json(*transfer));
  EXPECT_EQ(report.at("bytes_by_route").at("mapped"), transfer->tally(Lane::mapped).bytes);
  EXPECT_EQ(report.at("bytes_by_route").at("pipelined"),
            transfer->tally(Lane::buffered).bytes + transfer->tally(Lane::direct_io).bytes);
  for (const Segment& segment : submission.destinations) {
    ASSERT_EQ(std::memcmp(device_bytes(segment.address),
                          content.data() + segment.range.offset,
                          segment.range.size),
              0)
        << segment.range.offset;
  }
  EXPECT_TRUE(runtime.shutdown(long_enough));
}

class DestinationsAbiTest : public AbiTest {
 protected:
  int send(std::vector<hippogriff_segment> segments, const hippogriff_options* options = nullptr) {
    hippogriff_transfer* transfer = nullptr;
    const OpenFile file(path_, O_RDONLY);
    const int status =
        hippogriff_sendv_async(file.get(), segments.data(), segments.size(), options, &transfer);
    if (status != HIPPOGRIFF_OK) {
      return status;
    }
    const Handle handle(transfer);
    return hippogriff_wait(transfer, abi_patience_ms);
  }

  static constexpr std::size_t file_bytes = 100'000;
  const std::string path_ = folder_.file("data");
  const std::vector<std::byte> content_ = make_file(path_, file_bytes, 3);
};

TEST_F(DestinationsAbiTest, parts_go_to_allocations_of_their_own) {
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(hippogriff_malloc(nullptr, 50'000, &first), HIPPOGRIFF_OK);
  ASSERT_EQ(hippogriff_malloc(nullptr, 20'000, &second), HIPPOGRIFF_OK);
  ASSERT_EQ(send({{60'000, 20'000, second}, {100, 50'000, first}}), HIPPOGRIFF_OK)
      << last_message();
  EXPECT_EQ(std::memcmp(first, content_.data() + 100, 50'000), 0);
  EXPECT_EQ(std::memcmp(second, content_.data() + 60'000, 20'000), 0);
  EXPECT_EQ(hippogriff_free(first), HIPPOGRIFF_OK) << last_message();
  EXPECT_EQ(hippogriff_free(second), HIPPOGRIFF_OK) << last_message();
}

TEST_F(DestinationsAbiTest, callers_own_memory_is_filled_where_it_is_named_so) {
  std::vector<std::byte> memory(3000, untouched);
  hippogriff_options options = HIPPOGRIFF_OPTIONS_INIT;
  options.flags = HIPPOGRIFF_HOST_MEMORY;
  ASSERT_EQ(send({{5, 1000, memory.data() + 2000}, {2000, 1000, memory.data()}}, &options),
            HIPPOGRIFF_OK)
      << last_message();
  EXPECT_EQ(std::memcmp(memory.data(), content_.data() + 2000, 1000), 0);
  EXPECT_EQ(memory[1500], untouched);
  EXPECT_EQ(std::memcmp(memory.data() + 2000, content_.data() + 5, 1000), 0);
}

TEST_F(DestinationsAbiTest, mistakes_are_found_before_anything_moves) {
  void* memory = nullptr;
  ASSERT_EQ(hippogriff_malloc(nullptr, 4096, &memory), HIPPOGRIFF_OK);
  auto* bytes = static_cast<std::byte*>(memory);
  std::fill_n(bytes, 4096, untouched);
  std::byte ordinary[16] = {};
  const std::vector<std::vector<hippogriff_segment>> wrong = {
      {},
      {{0, 0, memory}},
      {{0, 10, nullptr}},
      {{0, 4097, memory}},
      {{0, 10, memory}, {10, 4090, bytes + 10}},
      {{0, 10, memory}, {5, 10, bytes + 100}},
      {{0, 10, memory}, {10, 10, bytes + 9}},
      {{file_bytes - 5, 10, memory}},
      {{0, 10, memory}, {file_bytes, 1, bytes + 10}},
      {{0, 10, memory}, {100, 16, ordinary}},
      {{UINT64_MAX, 10, memory}},
  };
  for (std::size_t index = 0; index < wrong.size(); ++index) {
    EXPECT_EQ(send(wrong[index]), HIPPOGRIFF_INVALID_ARGUMENT) << index << ": " << last_message();
  }
  hippogriff_transfer* transfer = nullptr;
  EXPECT_EQ(hippogriff_sendv_async(-1, wrong[1].data(), 1, nullptr, &transfer),
            HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_sendv_async(0, nullptr, 1, nullptr, &transfer), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_TRUE(std::all_of(bytes, bytes + 4096, [](std::byte byte) { return byte == untouched; }));
  EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK) << "refused sends use nothing";
}

}  // namespace
}  // namespace hippogriff
