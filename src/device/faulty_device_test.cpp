// The faulty device: as good as its inner device without faults, and wrong exactly as scripted.
#include "testing/faulty_device.hpp"

#include "device/host_device.hpp"
#include "testing/device_conformance.hpp"

namespace hippogriff::device_testing {
namespace {

struct FaultlessHost {
  static std::shared_ptr<Device> make() {
    return make_faulty_device(make_host_device({.memory_bytes = std::uint64_t{6} << 30U}),
                              std::make_shared<DeviceFaults>());
  }

  static std::string why_absent() { return {}; }
};

using Op = DeviceOperation;

class FaultyDevice : public ::testing::Test {
 protected:
  [[nodiscard]] Device& device() { return *device_; }

  [[nodiscard]] DeviceFaults& faults() { return *faults_; }

 private:
  std::shared_ptr<DeviceFaults> faults_ = std::make_shared<DeviceFaults>();
  std::shared_ptr<Device> device_ =
      make_faulty_device(make_host_device({.memory_bytes = std::uint64_t{1} << 30U}), faults_);
};

TEST_F(FaultyDevice, nth_call_fails_with_the_given_failure_and_the_next_works) {
  Failure failure = some_device_failure(Op::allocate);
  failure.device_status = 700;
  faults().fail(Op::allocate, 2, failure);
  const DeviceBuffer first(device(), 256);
  try {
    static_cast<void>(device().allocate(256));
    FAIL() << "the second allocation worked";
  } catch (const Error& error) {
    EXPECT_EQ(error.failure().device_status, 700);
  }
  const DeviceBuffer third(device(), 256);
  EXPECT_EQ(faults().calls(Op::allocate), 3U);
  EXPECT_EQ(faults().injected(), 1U);
}

TEST_F(FaultyDevice, every_operation_can_fail) {
  std::uint32_t word = 1;
  std::byte byte{};
  const DeviceBuffer buffer(device(), 256);
  const auto stream = device().create_stream();
  const auto event = device().create_event();
  const MappedFile file(page_bytes());
  const std::vector<std::pair<Op, std::function<void()>>> calls = {
      {Op::allocate, [&] { static_cast<void>(device().allocate(1)); }},
      {Op::allocate_pinned, [&] { static_cast<void>(device().allocate_pinned(1)); }},
      {Op::register_host,
       [&] { device().register_host(file.data(), page_bytes(), HostAccess::read_only); }},
      {Op::create_stream, [&] { static_cast<void>(device().create_stream()); }},
      {Op::create_event, [&] { static_cast<void>(device().create_event()); }},
      {Op::borrow_stream, [&] { static_cast<void>(device().borrow_stream(nullptr)); }},
      {Op::copy_to_device, [&] { stream->copy_to_device(buffer.address(), &byte, 1); }},
      {Op::copy_to_host, [&] { stream->copy_to_host(&byte, buffer.address(), 1); }},
      {Op::record, [&] { stream->record(*event); }},
      {Op::wait, [&] { stream->wait(*event); }},
      {Op::launch, [&] { stream->launch([] {}); }},
      {Op::wait_flag, [&] { stream->wait_flag({&word, 1}); }},
      {Op::completed, [&] { static_cast<void>(event->completed()); }},
      {Op::idle, [&] { static_cast<void>(stream->idle()); }},
  };
  EXPECT_EQ(calls.size(), device_operation_count);
  const OutstandingOnDevice before = faults().outstanding();
  for (const auto& [operation, call] : calls) {
    faults().fail(operation, 1, some_device_failure(operation));
    EXPECT_EQ(status_of(call), Status::device_error) << device_operation_name(operation);
  }
  EXPECT_EQ(faults().injected(), device_operation_count);
  EXPECT_EQ(faults().outstanding(), before);
}

TEST_F(FaultyDevice, later_failure_is_reported_by_the_events_behind_it_and_once_by_idle) {
  const DeviceBuffer buffer(device(), 16);
  upload(device(), buffer.address(), pattern(16, 1));
  const auto lost = pattern(16, 2);
  const auto before = device().create_event();
  const auto after = device().create_event();
  faults().fail_later(Op::copy_to_device, 1, some_device_failure(Op::copy_to_device));
  {
    const auto stream = device().create_stream();
    stream->record(*before);
    stream->copy_to_device(buffer.address(), lost.data(), lost.size());
    stream->record(*after);
    EXPECT_TRUE(wait_for(*before, patience));
    EXPECT_EQ(status_of([&] { static_cast<void>(wait_for(*after, patience)); }),
              Status::device_error);
    EXPECT_EQ(status_of([&] { static_cast<void>(wait_for(*stream, patience)); }),
              Status::device_error);
    stream->record(*after);
    EXPECT_TRUE(wait_for(*after, patience));
  }
  EXPECT_EQ(download(device(), buffer.address(), 16), pattern(16, 1));
}

TEST_F(FaultyDevice, held_copy_completes_only_after_release) {
  const DeviceBuffer buffer(device(), 16);
  const auto sent = pattern(16, 3);
  const auto event = device().create_event();
  const auto stream = device().create_stream();
  faults().hold(Op::copy_to_device, 1);
  stream->copy_to_device(buffer.address(), sent.data(), sent.size());
  stream->record(*event);
  ASSERT_TRUE(faults().wait_until_held(1, patience));
  EXPECT_FALSE(wait_for(*event, 5ms));
  faults().release_held();
  EXPECT_TRUE(wait_for(*event, patience));
  EXPECT_EQ(download(device(), buffer.address(), 16), sent);
}

TEST_F(FaultyDevice, stream_with_a_held_copy_can_be_destroyed) {
  const DeviceBuffer buffer(device(), 16);
  const auto sent = pattern(16, 3);
  auto stream = device().create_stream();
  faults().hold(Op::copy_to_device, 1);
  stream->copy_to_device(buffer.address(), sent.data(), sent.size());
  ASSERT_TRUE(faults().wait_until_held(1, patience));
  const auto start = std::chrono::steady_clock::now();
  stream.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 4s);
  EXPECT_EQ(faults().outstanding().streams, 0);
}

TEST_F(FaultyDevice, delays_take_their_time_on_the_stream_or_in_the_call) {
  std::byte byte{};
  const DeviceBuffer buffer(device(), 16);
  const auto event = device().create_event();
  const auto stream = device().create_stream();
  faults().delay(Op::copy_to_host, 1, 20ms);
  const auto start = std::chrono::steady_clock::now();
  stream->copy_to_host(&byte, buffer.address(), 1);
  stream->record(*event);
  EXPECT_TRUE(wait_for(*event, patience));
  EXPECT_GE(std::chrono::steady_clock::now() - start, 20ms);
  faults().delay(Op::allocate, 1, 10ms);
  const auto second_start = std::chrono::steady_clock::now();
  const DeviceBuffer late(device(), 16);
  EXPECT_GE(std::chrono::steady_clock::now() - second_start, 10ms);
}

TEST_F(FaultyDevice, memory_limit_refuses_until_memory_is_freed_or_the_limit_goes) {
  faults().set_memory_bytes(1000);
  EXPECT_EQ(device().memory().total_bytes, 1000U);
  const DeviceAddress most = device().allocate(900);
  EXPECT_EQ(device().memory().free_bytes, 100U);
  const auto allocate = [&] { device().release(device().allocate(101)); };
  EXPECT_EQ(status_of(allocate), Status::out_of_device_memory);
  device().release(most);
  EXPECT_EQ(status_of(allocate), Status::ok);
  EXPECT_EQ(status_of([&] { device().release(device().allocate(1001)); }),
            Status::out_of_device_memory);
  faults().set_memory_bytes(std::nullopt);
  EXPECT_EQ(status_of([&] { device().release(device().allocate(1001)); }), Status::ok);
}

TEST_F(FaultyDevice, outstanding_counts_what_is_not_given_back) {
  const MappedFile file(page_bytes());
  {
    const DeviceBuffer buffer(device(), 16);
    const PinnedBuffer pinned(device(), 16);
    const auto stream = device().create_stream();
    const auto borrowed = device().borrow_stream(nullptr);
    const auto event = device().create_event();
    device().register_host(file.data(), page_bytes(), HostAccess::read_only);
    EXPECT_EQ(faults().outstanding(),
              (OutstandingOnDevice{
                  .allocations = 1, .pinned = 1, .registrations = 1, .streams = 2, .events = 1}));
    device().unregister_host(file.data());
    device().unregister_host(file.data());
  }
  EXPECT_EQ(faults().outstanding(), OutstandingOnDevice{});
}

// Which of 200 copies fail at once and which later, by the seed.
std::string outcomes(std::uint64_t seed) {
  const auto faults = std::make_shared<DeviceFaults>();
  const auto device = make_faulty_device(make_host_device({.memory_bytes = 1 << 20}), faults);
  const DeviceBuffer buffer(*device, 16);
  const auto stream = device->create_stream();
  const std::vector<std::byte> bytes(16);
  faults->randomise({.seed = seed,
                     .failure_probability = 0.1,
                     .later_failure_probability = 0.1,
                     .delay_probability = 0.1,
                     .delay_max = 50us});
  std::string text;
  for (int call = 0; call < 200; ++call) {
    const Status now =
        status_of([&] { stream->copy_to_device(buffer.address(), bytes.data(), bytes.size()); });
    const Status later = status_of([&] { EXPECT_TRUE(wait_for(*stream, patience)); });
    text += now != Status::ok ? 'n' : (later != Status::ok ? 'l' : '.');
  }
  return text;
}

TEST(FaultyDeviceByChance, same_seed_gives_the_same_faults) {
  const std::string first = outcomes(7);
  EXPECT_NE(first.find('n'), std::string::npos);
  EXPECT_NE(first.find('l'), std::string::npos);
  EXPECT_NE(first.find('.'), std::string::npos);
  EXPECT_EQ(first, outcomes(7));
  EXPECT_NE(first, outcomes(8));
}

}  // namespace
}  // namespace hippogriff::device_testing

HIPPO_TEST_DEVICE_CONFORMANCE(FaultlessHost, hippogriff::device_testing::FaultlessHost);
