// Reservations through the C interface, schedGPU's functions, and device `host` shared by
// processes.
#include "testing/bytes.hpp"
#include "testing/shared_host.hpp"

#include <hippogriff/reservation.hpp>
#include <hippogriff/schedgpu.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

// NOLINTBEGIN(concurrency-mt-unsafe): setenv in processes of one thread
namespace hippogriff {
namespace {

using hippogriff::testing::Child;
using hippogriff::testing::eventually;
using hippogriff::testing::node_status;
using hippogriff::testing::SharedHost;
using Json = nlohmann::json;

std::uint64_t promised() {
  const Json now = node_status();
  std::uint64_t sum = 0;
  for (const Json& device : now["devices"]) {
    sum += device["promised_bytes"].get<std::uint64_t>();
  }
  return sum;
}

int reserve(std::size_t size, hippogriff_reservation** reservation, std::int64_t timeout_ms = 0) {
  hippogriff_reserve_options options = HIPPOGRIFF_RESERVE_OPTIONS_INIT;
  options.timeout_ms = timeout_ms;
  return hippogriff_reserve(size, &options, reservation);
}

TEST(AbiNode, reserves_resizes_and_releases) {
  const SharedHost machine;
  EXPECT_EQ(machine.run([] {
    hippogriff_reservation* first = nullptr;
    hippogriff_reservation* second = nullptr;
    ASSERT_EQ(reserve(60 * mebibyte, &first), HIPPOGRIFF_OK);
    EXPECT_EQ(reserve(50 * mebibyte, &second), HIPPOGRIFF_BUSY);
    EXPECT_EQ(reserve(50 * mebibyte, &second, 20), HIPPOGRIFF_TIMED_OUT);
    EXPECT_EQ(reserve(101 * mebibyte, &second), HIPPOGRIFF_OUT_OF_DEVICE_MEMORY);
    EXPECT_EQ(hippogriff_reservation_resize(first, 40 * mebibyte, nullptr), HIPPOGRIFF_OK);
    ASSERT_EQ(reserve(50 * mebibyte, &second), HIPPOGRIFF_OK);
    std::size_t size = 0;
    const char* device = nullptr;
    EXPECT_EQ(hippogriff_reservation_get(first, &size, &device), HIPPOGRIFF_OK);
    EXPECT_EQ(size, 40 * mebibyte);
    EXPECT_STREQ(device, "host");
    EXPECT_EQ(promised(), 90 * mebibyte);
    EXPECT_EQ(hippogriff_reservation_resize(first, 51 * mebibyte, nullptr), HIPPOGRIFF_BUSY);
    EXPECT_EQ(hippogriff_reservation_release(second), HIPPOGRIFF_OK);
    EXPECT_EQ(hippogriff_reservation_release(first), HIPPOGRIFF_OK);
    EXPECT_EQ(hippogriff_reservation_release(nullptr), HIPPOGRIFF_OK);
    EXPECT_EQ(promised(), 0U);
  }),
            0);
}

TEST(AbiNode, refuses_what_makes_no_sense) {
  const SharedHost machine;
  EXPECT_EQ(machine.run([] {
    hippogriff_reservation* reservation = nullptr;
    EXPECT_EQ(hippogriff_reserve(0, nullptr, &reservation), HIPPOGRIFF_INVALID_ARGUMENT);
    EXPECT_EQ(hippogriff_reserve(1, nullptr, nullptr), HIPPOGRIFF_INVALID_ARGUMENT);
    EXPECT_EQ(hippogriff_reserve(SIZE_MAX, nullptr, &reservation), HIPPOGRIFF_OUT_OF_DEVICE_MEMORY);
    hippogriff_reserve_options options = HIPPOGRIFF_RESERVE_OPTIONS_INIT;
    options.struct_size = 3;
    EXPECT_EQ(hippogriff_reserve(1, &options, &reservation), HIPPOGRIFF_INVALID_ARGUMENT);
    options = HIPPOGRIFF_RESERVE_OPTIONS_INIT;
    options.device = "tape";
    EXPECT_EQ(hippogriff_reserve(1, &options, &reservation), HIPPOGRIFF_INVALID_ARGUMENT);
    EXPECT_EQ(hippogriff_claim(nullptr), HIPPOGRIFF_OK) << "this program is of no command";
    options = HIPPOGRIFF_RESERVE_OPTIONS_INIT;
    options.priority = 1;
    EXPECT_EQ(hippogriff_claim(&options), HIPPOGRIFF_INVALID_ARGUMENT);
    EXPECT_EQ(hippogriff_node_set_policy("best", 1, 1), HIPPOGRIFF_INVALID_ARGUMENT);
    EXPECT_EQ(hippogriff_node_set_policy(nullptr, 1, 1), HIPPOGRIFF_INVALID_ARGUMENT);
    EXPECT_EQ(hippogriff_node_set_policy("mmu", 1, -1), HIPPOGRIFF_INVALID_ARGUMENT);
    EXPECT_EQ(hippogriff_node_set_policy("aging-mmu", 4, 500), HIPPOGRIFF_OK);
    EXPECT_EQ(node_status()["policy"], "aging-mmu");
    EXPECT_EQ(node_status()["overtakes_max"], 4);
  }),
            0);
}

TEST(CppReservation, lasts_as_long_as_the_object) {
  const SharedHost machine;
  EXPECT_EQ(machine.run([] {
    {
      Reservation first(60 * mebibyte);
      EXPECT_EQ(first.device(), "host");
      Reservation second = std::move(first);
      EXPECT_EQ(second.size_bytes(), 60 * mebibyte);
      EXPECT_THROW(Reservation(50 * mebibyte, {.timeout = std::chrono::milliseconds(0)}),
                   TransferError);
      second.resize(10 * mebibyte);
      const Reservation third(90 * mebibyte, {.device = "host", .timeout = std::nullopt});
      EXPECT_EQ(promised(), 100 * mebibyte);
      EXPECT_THROW(second.resize(11 * mebibyte), TransferError);
    }
    EXPECT_EQ(promised(), 0U);
  }),
            0);
}

TEST(AbiNode, is_unsupported_where_it_is_switched_off) {
  EXPECT_EQ(Child([] {
              ::setenv("HIPPOGRIFF_NODE", "off", 1);
              hippogriff_reservation* reservation = nullptr;
              return hippogriff_reserve(1, nullptr, &reservation);
            }).wait(),
            HIPPOGRIFF_UNSUPPORTED);
}

TEST(AbiNode, a_forked_child_reserves_for_itself) {
  const SharedHost machine;
  EXPECT_EQ(machine.run([] {
    hippogriff_reservation* parents = nullptr;
    ASSERT_EQ(reserve(60 * mebibyte, &parents), HIPPOGRIFF_OK);
    EXPECT_EQ(Child([&] {
                hippogriff_reservation* own = nullptr;
                EXPECT_EQ(hippogriff_reservation_resize(parents, mebibyte, nullptr),
                          HIPPOGRIFF_FORKED);
                EXPECT_EQ(hippogriff_reservation_release(parents), HIPPOGRIFF_OK);
                EXPECT_EQ(reserve(50 * mebibyte, &own), HIPPOGRIFF_BUSY);
                EXPECT_EQ(reserve(40 * mebibyte, &own), HIPPOGRIFF_OK);
                return ::testing::Test::HasFailure() ? 1 : 0;
              }).wait(),
              0);
    EXPECT_TRUE(eventually([] { return promised() == 60 * mebibyte; })) << node_status();
  }),
            0);
}

TEST(AbiNode, what_device_host_gives_out_is_promised_to_nobody_else) {
  const SharedHost machine;
  Child other = machine.child([] {
    ASSERT_EQ(hippogriff_init(), HIPPOGRIFF_OK);
    void* memory = nullptr;
    ASSERT_EQ(hippogriff_malloc("host", 70 * mebibyte, &memory), HIPPOGRIFF_OK);
    ::pause();
  });
  EXPECT_EQ(machine.run([&] {
    ASSERT_TRUE(eventually([] { return promised() == 70 * mebibyte; }));
    ASSERT_EQ(hippogriff_init(), HIPPOGRIFF_OK);
    void* memory = nullptr;
    EXPECT_EQ(hippogriff_malloc("host", 40 * mebibyte, &memory), HIPPOGRIFF_OUT_OF_DEVICE_MEMORY);
    hippogriff_error error;
    hippogriff_last_error(&error);
    EXPECT_NE(std::string(error.message).find("promised to other programs"), std::string::npos);
    hippogriff_reservation* reservation = nullptr;
    EXPECT_EQ(reserve(40 * mebibyte, &reservation), HIPPOGRIFF_BUSY);
    other.send(SIGKILL);
    ASSERT_EQ(reserve(100 * mebibyte, &reservation, 20'000), HIPPOGRIFF_OK);
    EXPECT_EQ(hippogriff_malloc("host", 40 * mebibyte, &memory), HIPPOGRIFF_OK)
        << "it is within the reservation";
    EXPECT_EQ(promised(), 100 * mebibyte);
    EXPECT_EQ(node_status()["devices"][0]["used_bytes"], 40 * mebibyte);
    EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK);
    EXPECT_EQ(hippogriff_reservation_release(reservation), HIPPOGRIFF_OK);
    EXPECT_EQ(promised(), 0U);
    EXPECT_EQ(hippogriff_deinit(), HIPPOGRIFF_OK);
  }),
            0);
}

TEST(AbiNode, a_variable_of_the_command_that_means_nothing_is_refused_at_init) {
  const SharedHost machine;
  for (const char* name : {"HIPPOGRIFF_RESERVATION", "HIPPOGRIFF_GROW", "HIPPOGRIFF_WAIT_MS"}) {
    EXPECT_EQ(machine.run([&] {
      ::setenv(name, "nonsense", 1);
      EXPECT_EQ(hippogriff_init(), HIPPOGRIFF_INVALID_ARGUMENT) << name;
      hippogriff_error error;
      hippogriff_last_error(&error);
      EXPECT_NE(std::string(error.message).find(name), std::string::npos) << error.message;
      ::setenv("HIPPOGRIFF_NODE", "off", 1);
      EXPECT_EQ(hippogriff_init(), HIPPOGRIFF_OK) << "nobody asks";
    }),
              0);
  }
}

TEST(AbiNode, a_command_keeps_to_what_was_handed_over_to_it) {
  const SharedHost machine;
  EXPECT_EQ(machine.run([&] {
    hippogriff_reservation* reservation = nullptr;
    ASSERT_EQ(reserve(30 * mebibyte, &reservation), HIPPOGRIFF_OK);
    char* leader = nullptr;
    ASSERT_EQ(hippogriff_node_hand_over(&leader), HIPPOGRIFF_OK);
    ::setenv("HIPPOGRIFF_RESERVATION", leader, 1);
    hippogriff_free_string(leader);
    EXPECT_EQ(machine.run([] {
      ASSERT_EQ(hippogriff_init(), HIPPOGRIFF_OK);
      void* memory = nullptr;
      EXPECT_EQ(hippogriff_malloc("host", 31 * mebibyte, &memory), HIPPOGRIFF_OUT_OF_DEVICE_MEMORY);
      EXPECT_EQ(hippogriff_malloc("host", 30 * mebibyte, &memory), HIPPOGRIFF_OK);
      EXPECT_EQ(promised(), 30 * mebibyte);
    }),
              0);
  }),
            0);
}

constexpr int cuda_success = 0;
constexpr int cuda_error_not_ready = 600;

TEST(SchedGpu, lives_the_life_cycle_of_the_thesis) {
  const SharedHost machine;
  EXPECT_EQ(machine.run([] {
    int device = -1;
    EXPECT_EQ(preCudaMalloc(device, mebibyte), 3) << "cudaErrorInitializationError";
    ASSERT_EQ(schedGPUInit(1), cuda_success);
    ASSERT_EQ(preCudaMalloc(device, 60 * mebibyte), cuda_success);
    EXPECT_EQ(device, 0);
    EXPECT_EQ(preCudaMalloc(device, 20 * mebibyte, false), cuda_success);
    EXPECT_EQ(promised(), 80 * mebibyte);
    EXPECT_EQ(preCudaMalloc(device, 21 * mebibyte, false), 2) << "more than there is";
    int none = 1;
    EXPECT_EQ(preCudaMalloc(none, mebibyte), 101);
    EXPECT_EQ(postCudaFree(0, 81 * mebibyte), 1);
    EXPECT_EQ(postCudaFree(0, 70 * mebibyte), cuda_success);
    EXPECT_EQ(promised(), 10 * mebibyte);
    EXPECT_EQ(postCudaFree(0, 0), cuda_success);
    EXPECT_EQ(postCudaFree(0, 1), 1);
    EXPECT_EQ(preCudaMalloc(device, 0), cuda_success) << "all of the device";
    EXPECT_EQ(promised(), 100 * mebibyte);
  }),
            0);
}

TEST(SchedGpu, waits_for_other_processes_or_says_not_ready) {
  const SharedHost machine;
  Child other = machine.child([] {
    int device = 0;
    ASSERT_EQ(schedGPUInit(), cuda_success);
    ASSERT_EQ(preCudaMalloc(device, 60 * mebibyte), cuda_success);
    ::pause();
  });
  EXPECT_EQ(machine.run([&] {
    ASSERT_TRUE(eventually([] { return promised() == 60 * mebibyte; }));
    int device = 0;
    ASSERT_EQ(schedGPUInit(0, 1), cuda_success);
    EXPECT_EQ(preCudaMalloc(device, 50 * mebibyte), cuda_error_not_ready);
    ASSERT_EQ(schedGPUInit(20), cuda_success);
    EXPECT_EQ(preCudaMalloc(device, 50 * mebibyte, false), cuda_error_not_ready);
    other.send(SIGKILL);
    EXPECT_EQ(preCudaMalloc(device, 50 * mebibyte), cuda_success);
  }),
            0);
}

}  // namespace
}  // namespace hippogriff

// NOLINTEND(concurrency-mt-unsafe)
