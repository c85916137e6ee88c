// The host device: conformance in both shapes, and what only it does (limit, link, registry).
#include "device/host_device.hpp"

#include "testing/device_conformance.hpp"

#include <cstdlib>
#include <stdexcept>

namespace hippogriff::device_testing {
namespace {

// Memory of its own, no link.
struct PlainHost {
  static std::shared_ptr<Device> make() {
    return make_host_device({.memory_bytes = std::uint64_t{6} << 30U});
  }

  static std::string why_absent() { return {}; }
};

// Behind a link that is quick enough for tests.
struct LinkedHost {
  static std::shared_ptr<Device> make() {
    return make_host_device({.memory_bytes = std::uint64_t{6} << 30U,
                             .link_bytes_per_second = 20e9,
                             .link_latency = 5us});
  }

  static std::string why_absent() { return {}; }
};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Sets HIPPOGRIFF_HOST_MEMORY for a scope.
class MemoryVariable {
 public:
  explicit MemoryVariable(const char* value) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): these tests have no other thread.
    setenv(name, value, 1);
  }

  ~MemoryVariable() {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): as above.
    unsetenv(name);
  }

  MemoryVariable(const MemoryVariable&) = delete;
  MemoryVariable& operator=(const MemoryVariable&) = delete;
  MemoryVariable(MemoryVariable&&) = delete;
  MemoryVariable& operator=(MemoryVariable&&) = delete;

 private:
  static constexpr const char* name = "HIPPOGRIFF_HOST_MEMORY";
};

TEST(HostDevice, is_host_addressable_only_without_a_link) {
  EXPECT_TRUE(PlainHost::make()->info().can.host_addressable);
  EXPECT_FALSE(LinkedHost::make()->info().can.host_addressable);
  EXPECT_EQ(PlainHost::make()->info().name, "host");
  EXPECT_EQ(PlainHost::make()->info().uuid, "host");
}

TEST(HostDevice, simulated_link_is_known_by_its_rate) {
  EXPECT_EQ(PlainHost::make()->info().link, "");
  EXPECT_EQ(make_host_device({.link_bytes_per_second = 2e9})->info().link, "host+2000000000B/s");
  EXPECT_NE(make_host_device({.link_bytes_per_second = 3e9})->info().link,
            make_host_device({.link_bytes_per_second = 2e9})->info().link);
  EXPECT_FALSE(make_host_device({.link_bytes_per_second = 1e300})->info().link.empty());
}

TEST(HostDevice, limit_comes_from_options_then_environment_then_half_the_machine) {
  const MemoryVariable variable("1.5GiB");
  EXPECT_EQ(make_host_device({})->memory().total_bytes, std::uint64_t{3} << 29U);
  EXPECT_EQ(make_host_device({.memory_bytes = 4096})->memory().total_bytes, 4096U);
  {
    const MemoryVariable empty("");
    const std::uint64_t total_bytes = make_host_device({})->memory().total_bytes;
    EXPECT_GT(total_bytes, std::uint64_t{64} << 20U);
  }
}

TEST(HostDevice, refuses_rubbish_in_the_environment_and_impossible_links) {
  for (const char* text : {"lots", "0", "-1GiB", "8G"}) {
    const MemoryVariable variable(text);
    try {
      static_cast<void>(make_host_device({}));
      FAIL() << "accepted " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.failure().status, Status::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("HIPPOGRIFF_HOST_MEMORY"), std::string::npos);
    }
  }
  EXPECT_EQ(status_of([] { make_host_device({.link_bytes_per_second = -1}); }),
            Status::invalid_argument);
  EXPECT_EQ(
      status_of([] { make_host_device({.link_bytes_per_second = 1e9, .link_latency = -1ns}); }),
      Status::invalid_argument);
}

TEST(HostDevice, fills_its_memory_to_the_last_block_and_refuses_one_more_byte) {
  const auto device = make_host_device({.memory_bytes = 1 << 20});
  std::vector<DeviceAddress> addresses;
  addresses.reserve((1 << 20) / 256);
  for (int count = 0; count < (1 << 20) / 256; ++count) {
    addresses.push_back(device->allocate(256));
  }
  EXPECT_EQ(device->memory().free_bytes, 0U);
  EXPECT_EQ(status_of([&] { static_cast<void>(device->allocate(1)); }),
            Status::out_of_device_memory);
  device->release(addresses.back());
  addresses.back() = device->allocate(1);
  EXPECT_EQ(device->memory().free_bytes, 0U);
  for (const DeviceAddress address : addresses) {
    EXPECT_EQ(device->find(address)->base, address);
    device->release(address);
  }
  EXPECT_EQ(device->memory().free_bytes, 1U << 20U);
  const DeviceBuffer whole(*device, 1 << 20);
}

TEST(HostDevice, find_gives_the_size_asked_for_and_forgets_what_is_released) {
  const auto device = PlainHost::make();
  for (const std::size_t size_bytes :
       {std::size_t{1}, std::size_t{1000}, std::size_t{10'000'001}}) {
    const DeviceAddress address = device->allocate(size_bytes);
    EXPECT_EQ(device->find(address + (size_bytes - 1))->size_bytes, size_bytes);
    EXPECT_FALSE(device->find(address + size_bytes).has_value());
    device->release(address);
    EXPECT_FALSE(device->find(address).has_value());
  }
}

TEST(HostDeviceDeathTest, release_of_an_unknown_address_aborts_as_our_bug) {
  const auto device = PlainHost::make();
  const DeviceAddress address = device->allocate(512);
  EXPECT_DEATH(device->release(address + 256), "assertion failed");
  EXPECT_DEATH(device->release_pinned(reinterpret_cast<std::byte*>(std::uintptr_t{4096})),
               "assertion failed");
  device->release(address);
  device->release({});
  device->release_pinned(nullptr);
}

TEST(HostDevice, link_takes_bytes_over_bandwidth_and_is_shared_by_streams) {
  constexpr std::size_t size_bytes = 2'000'000;
  const auto device = make_host_device(
      {.memory_bytes = 1 << 24, .link_bytes_per_second = 100e6, .link_latency = 5ms});
  const DeviceBuffer buffer(*device, size_bytes);
  const DeviceBuffer another(*device, size_bytes);
  std::vector<std::byte> memory(size_bytes);
  std::vector<std::byte> other(size_bytes);
  const auto first = device->create_stream();
  const auto second = device->create_stream();
  const auto start = Clock::now();
  first->copy_to_device(buffer.address(), memory.data(), size_bytes);
  second->copy_to_device(another.address(), memory.data(), size_bytes);
  ASSERT_TRUE(wait_for(*first, patience));
  ASSERT_TRUE(wait_for(*second, patience));
  // Two copies of 20 ms one behind the other, and one latency.
  EXPECT_GE(seconds_since(start), 0.045);

  const auto duplex_start = Clock::now();
  first->copy_to_device(buffer.address(), memory.data(), size_bytes);
  second->copy_to_host(other.data(), another.address(), size_bytes);
  ASSERT_TRUE(wait_for(*first, patience));
  ASSERT_TRUE(wait_for(*second, patience));
  EXPECT_GE(seconds_since(duplex_start), 0.025);
}

TEST(HostDevice, exception_in_a_launched_function_fails_the_events_behind_it_until_idle_reports) {
  const auto device = PlainHost::make();
  const auto before = device->create_event();
  const auto after = device->create_event();
  const auto later = device->create_event();
  bool dropped = true;
  const auto stream = device->create_stream();
  stream->record(*before);
  stream->launch([] { throw std::runtime_error("the kernel divided by zero"); });
  stream->launch([&dropped] { dropped = false; });
  stream->record(*after);
  EXPECT_TRUE(wait_for(*before, patience));
  try {
    static_cast<void>(wait_for(*after, patience));
    FAIL() << "the event completed without the failure";
  } catch (const Error& error) {
    EXPECT_EQ(error.failure().status, Status::device_error);
    EXPECT_EQ(error.failure().object, "host");
    EXPECT_NE(std::string(error.what()).find("divided by zero"), std::string::npos);
  }
  EXPECT_EQ(status_of([&] { static_cast<void>(wait_for(*stream, patience)); }),
            Status::device_error);
  EXPECT_TRUE(dropped);
  EXPECT_TRUE(stream->idle());
  stream->record(*later);
  EXPECT_TRUE(wait_for(*later, patience));
}

TEST(HostDevice, destroying_a_held_stream_drops_its_work_and_cancels_its_events) {
  const auto device = PlainHost::make();
  const auto event = device->create_event();
  std::uint32_t word = 0;
  bool ran = false;
  auto stream = device->create_stream();
  const auto waiting = device->create_stream();
  const auto borrowed = device->borrow_stream(stream->native_handle());
  stream->wait_flag({&word, 1});
  stream->launch([&ran] { ran = true; });
  stream->record(*event);
  waiting->wait(*event);
  const auto start = Clock::now();
  stream.reset();
  EXPECT_LT(seconds_since(start), 4.0);
  EXPECT_FALSE(ran);
  EXPECT_EQ(status_of([&] { static_cast<void>(event->completed()); }), Status::cancelled);
  EXPECT_TRUE(wait_for(*waiting, patience));
  EXPECT_EQ(status_of([&] { borrowed->launch([] {}); }), Status::device_error);
  EXPECT_EQ(status_of([&] { borrowed->record(*event); }), Status::device_error);
  EXPECT_EQ(status_of([&] { static_cast<void>(event->completed()); }), Status::device_error);
}

TEST(HostDevice, function_that_does_not_end_is_left_behind_with_its_stream) {
  const auto device = PlainHost::make();
  const auto event = device->create_event();
  const auto step = std::make_shared<std::atomic<int>>(0);
  auto stream = device->create_stream();
  stream->launch([step] {
    *step = 1;
    const auto give_up = Clock::now() + patience;
    while (*step == 1 && Clock::now() < give_up) {
      std::this_thread::sleep_for(100us);
    }
  });
  stream->record(*event);
  const auto begin_by = Clock::now() + patience;
  while (*step == 0 && Clock::now() < begin_by) {
    std::this_thread::sleep_for(100us);
  }
  const auto start = Clock::now();
  stream.reset();
  const double seconds = seconds_since(start);
  EXPECT_GE(seconds, 4.5);
  EXPECT_LT(seconds, 15);
  EXPECT_FALSE(event->completed());
  *step = 2;
  EXPECT_EQ(status_of([&] { static_cast<void>(wait_for(*event, patience)); }), Status::cancelled);
}

TEST(HostDevice, destroying_a_stream_does_not_wait_for_the_simulated_link) {
  const auto device = make_host_device({.memory_bytes = 1 << 20, .link_bytes_per_second = 1e3});
  const DeviceBuffer buffer(*device, 1 << 20);
  const std::vector<std::byte> memory(1 << 20);
  auto stream = device->create_stream();
  stream->copy_to_device(buffer.address(), memory.data(), memory.size());
  const auto start = Clock::now();
  stream.reset();
  EXPECT_LT(seconds_since(start), 4.0);
}

TEST(HostDevice, borrow_refuses_handles_that_are_no_live_stream) {
  const auto device = PlainHost::make();
  const auto other = PlainHost::make();
  auto stream = device->create_stream();
  void* const handle = stream->native_handle();
  const auto borrow = [&] { static_cast<void>(device->borrow_stream(handle)); };
  EXPECT_EQ(status_of(borrow), Status::ok);
  EXPECT_EQ(status_of([&] { static_cast<void>(other->borrow_stream(handle)); }),
            Status::invalid_argument);
  stream.reset();
  EXPECT_EQ(status_of(borrow), Status::invalid_argument);
  int rubbish = 0;
  EXPECT_EQ(status_of([&] { static_cast<void>(device->borrow_stream(&rubbish)); }),
            Status::invalid_argument);
}

TEST(HostDevice, copies_that_leave_their_allocation_are_refused) {
  const auto device = PlainHost::make();
  const DeviceBuffer buffer(*device, 1000);
  std::vector<std::byte> memory(2000);
  const auto stream = device->create_stream();
  EXPECT_EQ(status_of([&] { stream->copy_to_device(buffer.address(), memory.data(), 1001); }),
            Status::device_error);
  EXPECT_EQ(status_of([&] { stream->copy_to_host(memory.data(), buffer.address() + 999, 2); }),
            Status::device_error);
  EXPECT_EQ(status_of([&] { stream->copy_to_host(memory.data(), {}, 2); }), Status::device_error);
  EXPECT_TRUE(stream->idle());
}

TEST(HostDevice, copies_reach_the_callers_own_memory_by_its_address) {
  const auto device = PlainHost::make();
  std::vector<std::byte> target(777);
  const auto sent = pattern(777, 3);
  upload(*device, {reinterpret_cast<std::uintptr_t>(target.data())}, sent);
  EXPECT_EQ(target, sent);
}

TEST(HostDevice, streams_refuse_foreign_events_empty_functions_and_null_words) {
  class ForeignEvent final : public Event {
   public:
    bool completed() override { return true; }
  };

  const auto device = PlainHost::make();
  const auto stream = device->create_stream();
  ForeignEvent event;
  EXPECT_EQ(status_of([&] { stream->record(event); }), Status::invalid_argument);
  EXPECT_EQ(status_of([&] { stream->wait(event); }), Status::invalid_argument);
  EXPECT_EQ(status_of([&] { stream->launch({}); }), Status::invalid_argument);
  EXPECT_EQ(status_of([&] { stream->wait_flag({}); }), Status::invalid_argument);
}

TEST(HostDevice, copy_from_a_truncated_registered_file_fails_without_a_signal) {
  const auto device = PlainHost::make();
  const std::size_t size_bytes = 4 * page_bytes();
  const MappedFile file(size_bytes);
  fill_pattern(file.bytes(), 4);
  const DeviceBuffer buffer(*device, size_bytes);
  device->register_host(file.data(), size_bytes, HostAccess::read_only);
  ASSERT_EQ(ftruncate(file.fd(), static_cast<off_t>(page_bytes())), 0);
  const auto event = device->create_event();
  {
    const auto stream = device->create_stream();
    stream->copy_to_device(buffer.address(), file.data(), size_bytes);
    stream->record(*event);
    EXPECT_EQ(status_of([&] { static_cast<void>(wait_for(*event, patience)); }),
              Status::device_error);
  }
  device->unregister_host(file.data());
}

TEST(HostDevice, register_refuses_memory_that_is_not_mapped_or_not_writable) {
  const auto device = PlainHost::make();
  const std::size_t size_bytes = 2 * page_bytes();
  void* const pages = mmap(nullptr, size_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  auto* const memory = static_cast<std::byte*>(pages);
  const auto try_register = [&](HostAccess access) {
    return status_of([&] { device->register_host(memory, size_bytes, access); });
  };
  EXPECT_EQ(try_register(HostAccess::read_write), Status::device_error);
  EXPECT_EQ(try_register(HostAccess::read_only), Status::ok);
  device->unregister_host(memory);
  munmap(pages, size_bytes);
  EXPECT_EQ(try_register(HostAccess::read_only), Status::device_error);
}

TEST(WaitFor, asks_once_more_when_the_timeout_is_over) {
  class SlowEvent final : public Event {
   public:
    bool completed() override { return ++asked_ > 1; }

    [[nodiscard]] int asked() const { return asked_; }

   private:
    int asked_ = 0;
  };

  SlowEvent event;
  EXPECT_TRUE(wait_for(event, 0ns));
  EXPECT_EQ(event.asked(), 2);
}

TEST(WaitFor, ends_near_its_timeout_and_bears_the_longest_one) {
  const auto device = PlainHost::make();
  const auto stream = device->create_stream();
  std::uint32_t word = 0;
  stream->wait_flag({&word, 1});
  const auto start = Clock::now();
  EXPECT_FALSE(wait_for(*stream, 20ms));
  EXPECT_GE(seconds_since(start), 0.020);
  std::atomic_ref(word).store(1);
  EXPECT_TRUE(wait_for(*stream, std::chrono::nanoseconds::max()));
}

}  // namespace
}  // namespace hippogriff::device_testing

HIPPO_TEST_DEVICE_CONFORMANCE(Host, hippogriff::device_testing::PlainHost);
HIPPO_TEST_DEVICE_CONFORMANCE(LinkedHost, hippogriff::device_testing::LinkedHost);
