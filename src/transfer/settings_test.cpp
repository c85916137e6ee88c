// Environment variables: what they mean, what is refused, and what experiments force.
#include "transfer/settings.hpp"

#include "base/error.hpp"
#include "testing/runtime_fixture.hpp"
#include "transfer/runtime.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace hippogriff {
namespace {

// A variable while it lives. Tests of this program run one after the other.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    setenv(name, value, 1);  // NOLINT(concurrency-mt-unsafe)
  }

  ~Variable() { unsetenv(name_); }  // NOLINT(concurrency-mt-unsafe)

  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

void expect_refused(const char* name, const char* value) {
  const Variable variable(name, value);
  try {
    Settings::from_environment();
    FAIL() << name << "=" << value << " was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.failure().status, Status::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
  }
}

TEST(Settings, routes_are_a_list_and_auto_is_the_routers_choice) {
  EXPECT_TRUE(Settings::from_environment().routes.empty());
  {
    const Variable variable("HIPPOGRIFF_ROUTE", "auto");
    EXPECT_TRUE(Settings::from_environment().routes.empty());
  }
  const Variable variable("HIPPOGRIFF_ROUTE", "direct,pipelined");
  EXPECT_EQ(Settings::from_environment().routes,
            (std::vector<Route>{Route::direct, Route::pipelined}));
}

TEST(Settings, parking_is_a_share_of_memory_a_size_or_off) {
  EXPECT_GT(Settings::from_environment().parking_bytes, mebibyte);
  {
    const Variable variable("HIPPOGRIFF_PARKING", "8MiB");
    EXPECT_EQ(Settings::from_environment().parking_bytes, 8 * mebibyte);
  }
  const Variable variable("HIPPOGRIFF_PARKING", "off");
  EXPECT_EQ(Settings::from_environment().parking_bytes, 0U);
}

TEST(Settings, devices_share_the_pinbuffer_and_none_gets_too_little) {
  Settings settings;
  for (const int gpus : {1, 2, 3}) {
    const auto all = settings.host_pinbuffer_bytes() +
                     static_cast<std::uint64_t>(gpus) * settings.gpu_pinbuffer_bytes(gpus);
    EXPECT_LE(all, std::uint64_t{256} << 20) << gpus;
    EXPECT_GT(all, std::uint64_t{255} << 20) << gpus;
  }
  EXPECT_EQ(settings.gpu_pinbuffer_bytes(8), std::uint64_t{64} << 20);
  settings.pinbuffer_bytes = 1;
  EXPECT_EQ(settings.host_pinbuffer_bytes(), std::uint64_t{64} << 20);
  EXPECT_EQ(settings.gpu_pinbuffer_bytes(1), std::uint64_t{64} << 20);
  EXPECT_EQ(settings.gpu_pinbuffer_bytes(0), std::uint64_t{64} << 20);
  settings.pinbuffer_bytes = std::uint64_t{1} << 30;
  EXPECT_EQ(settings.host_pinbuffer_bytes(), std::uint64_t{256} << 20);
  EXPECT_EQ(settings.gpu_pinbuffer_bytes(2), std::uint64_t{384} << 20);
}

TEST(Settings, values_that_mean_nothing_are_refused_by_their_variables_name) {
  expect_refused("HIPPOGRIFF_ROUTE", "teleported");
  expect_refused("HIPPOGRIFF_ROUTE", "direct, mapped");
  expect_refused("HIPPOGRIFF_CHANNELS", "many");
  expect_refused("HIPPOGRIFF_CHANNELS", "-1");
  expect_refused("HIPPOGRIFF_CHANNELS", "0");
  expect_refused("HIPPOGRIFF_CHANNELS", "4294967296");
  expect_refused("HIPPOGRIFF_PIECE", "4KiB");
  expect_refused("HIPPOGRIFF_PIECE", "3MiB");
  expect_refused("HIPPOGRIFF_PIECE", "65537");
  expect_refused("HIPPOGRIFF_PARKING", "on");
}

// Sends a file to a device with a link; the report's transfer.
class ForcedSend : public ::testing::Test {
 protected:
  void SetUp() override { write_whole(path_, random_bytes(24 * mebibyte, 5)); }

  std::shared_ptr<Transfer> send(Settings settings, Route route = Route::automatic) {
    settings.cores = 8;
    Runtime runtime(settings, make_system_storage(), {linked_device()});
    auto transfer = runtime.submit({.path = path_, .device = "linked", .route = route});
    EXPECT_TRUE(transfer->wait(long_enough));
    EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
    EXPECT_TRUE(runtime.shutdown(long_enough));
    return transfer;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.file("data");
};

TEST_F(ForcedSend, takes_the_first_possible_route_of_the_list) {
  Settings settings = test_settings();
  settings.routes = {Route::direct, Route::parked};
  EXPECT_EQ(send(settings)->decision().chosen, Route::parked) << "a link has no direct route here";
  EXPECT_EQ(send(settings, Route::pipelined)->decision().chosen, Route::pipelined);
}

TEST_F(ForcedSend, fails_when_no_route_of_the_list_is_possible) {
  Settings settings = test_settings();
  settings.routes = {Route::direct};
  Runtime runtime(settings, make_system_storage(), {linked_device()});
  try {
    static_cast<void>(runtime.submit({.path = path_, .device = "linked"}));
    FAIL() << "was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.failure().status, Status::unsupported);
  }
  EXPECT_TRUE(runtime.shutdown(long_enough));
}

TEST_F(ForcedSend, keeps_to_the_channels_allowed) {
  Settings settings = test_settings();
  settings.channels_max = 1;
  for (const Route route : {Route::automatic, Route::pipelined, Route::parked}) {
    const Plan plan = send(settings, route)->decision().choice().plan;
    EXPECT_LE(plan.buffered_channels, 1U);
    EXPECT_LE(plan.direct_io_depth, 1U);
    EXPECT_LE(plan.mapped_channels, 1U);
  }
}

TEST_F(ForcedSend, gives_the_same_bytes_in_small_pieces_and_without_parking) {
  Settings settings = test_settings();
  settings.piece_bytes_max = 64 << 10;
  settings.parking_bytes = 0;
  for (const Route route : {Route::automatic, Route::pipelined, Route::parked}) {
    const auto transfer = send(settings, route);
    EXPECT_EQ(transfer->bytes_done(), 24 * mebibyte);
    EXPECT_EQ(transfer->tally(Lane::parked).bytes, 0U);
  }
}

}  // namespace
}  // namespace hippogriff
