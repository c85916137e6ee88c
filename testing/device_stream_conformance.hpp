// What every device promises about streams and events: order, waiting, and the ends of both.
#pragma once

#include "testing/device_fixture.hpp"

#include <algorithm>
#include <mutex>
#include <stdexcept>

namespace hippogriff::device_testing {

template <typename Factory>
class DeviceStreamConformance : public DeviceFixture<Factory> {};

TYPED_TEST_SUITE_P(DeviceStreamConformance);

TYPED_TEST_P(DeviceStreamConformance, copies_round_trip_at_odd_sizes_and_offsets) {
  Device& device = this->device();
  constexpr std::size_t size_max = (std::size_t{1} << 20) + 3;
  const DeviceBuffer buffer(device, size_max + 16);
  const auto stream = device.create_stream();
  for (const std::size_t size_bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{4095}, size_max}) {
    for (const std::uint64_t offset : {0U, 7U}) {
      const auto sent = pattern(size_bytes, static_cast<std::uint32_t>(size_bytes + offset));
      std::vector<std::byte> received(size_bytes);
      stream->copy_to_device(buffer.address() + offset, sent.data(), size_bytes);
      stream->copy_to_host(received.data(), buffer.address() + offset, size_bytes);
      ASSERT_TRUE(wait_for(*stream, patience));
      EXPECT_EQ(received, sent) << size_bytes << " at " << offset;
    }
  }
}

// Many more than a driver is told of at once; sizes of a byte and of none among them.
TYPED_TEST_P(DeviceStreamConformance, many_copies_at_once_go_where_each_belongs) {
  Device& device = this->device();
  constexpr std::size_t count = 1000;
  constexpr std::size_t stride = 4096;
  const DeviceBuffer buffer(device, count * stride);
  const auto stream = device.create_stream();
  const auto sent = pattern(count * stride, 5);
  std::vector<std::byte> received(count * stride);
  std::vector<std::byte> expected = received;
  stream->copy_to_device(buffer.address(), received.data(), received.size());
  std::vector<CopyPart> parts;
  for (std::size_t index = 0; index < count; ++index) {
    const std::size_t at = (count - 1 - index) * stride;
    const std::size_t size_bytes = index * 7 % (stride + 1);
    parts.push_back({buffer.address() + at, sent.data() + index * stride, size_bytes});
    std::copy_n(sent.begin() + static_cast<std::ptrdiff_t>(index * stride),
                size_bytes,
                expected.begin() + static_cast<std::ptrdiff_t>(at));
  }
  stream->copy_all_to_device(parts);
  stream->copy_all_to_device({});
  stream->copy_to_host(received.data(), buffer.address(), received.size());
  ASSERT_TRUE(wait_for(*stream, patience));
  EXPECT_TRUE(received == expected);
}

TYPED_TEST_P(DeviceStreamConformance, event_is_complete_before_any_record) {
  const auto event = this->device().create_event();
  EXPECT_TRUE(event->completed());
}

TYPED_TEST_P(DeviceStreamConformance, event_completes_after_the_work_before_it) {
  Device& device = this->device();
  const auto event = device.create_event();
  const auto stream = device.create_stream();
  for (int round = 0; round < 2; ++round) {
    Gate gate;
    gate.hold(*stream);
    stream->record(*event);
    EXPECT_FALSE(event->completed());
    EXPECT_FALSE(stream->idle());
    EXPECT_FALSE(wait_for(*event, 5ms));
    gate.open();
    EXPECT_TRUE(wait_for(*event, patience));
    EXPECT_TRUE(event->completed());
  }
  EXPECT_TRUE(wait_for(*stream, patience));
}

TYPED_TEST_P(DeviceStreamConformance, wait_orders_one_stream_after_another) {
  Device& device = this->device();
  constexpr std::size_t size_bytes = 100'001;
  const DeviceBuffer buffer(device, size_bytes);
  const PinnedBuffer source(device, size_bytes);
  const PinnedBuffer target(device, size_bytes);
  fill_pattern(source.bytes(), 21);
  fill_pattern(target.bytes(), 22);
  const auto event = device.create_event();
  const auto writer = device.create_stream();
  const auto reader = device.create_stream();
  Gate gate;
  gate.hold(*writer);
  writer->copy_to_device(buffer.address(), source.data(), size_bytes);
  writer->record(*event);
  reader->wait(*event);
  reader->copy_to_host(target.data(), buffer.address(), size_bytes);
  EXPECT_FALSE(wait_for(*reader, 5ms));
  gate.open();
  ASSERT_TRUE(wait_for(*reader, patience));
  EXPECT_TRUE(std::equal(source.bytes().begin(), source.bytes().end(), target.bytes().begin()));
  EXPECT_TRUE(wait_for(*writer, patience));
}

TYPED_TEST_P(DeviceStreamConformance, wait_for_an_event_never_recorded_does_not_hold) {
  Device& device = this->device();
  const auto event = device.create_event();
  const auto stream = device.create_stream();
  stream->wait(*event);
  EXPECT_TRUE(wait_for(*stream, patience));
}

TYPED_TEST_P(DeviceStreamConformance, event_may_go_while_streams_still_hold_it) {
  Device& device = this->device();
  const auto first = device.create_stream();
  const auto second = device.create_stream();
  Gate gate;
  gate.hold(*first);
  {
    const auto event = device.create_event();
    first->record(*event);
    second->wait(*event);
  }
  EXPECT_FALSE(second->idle());
  gate.open();
  EXPECT_TRUE(wait_for(*second, patience));
  EXPECT_TRUE(wait_for(*first, patience));
}

TYPED_TEST_P(DeviceStreamConformance, launched_functions_run_in_order_with_copies) {
  Device& device = this->device();
  std::mutex mutex;
  std::vector<int> order;
  const DeviceBuffer buffer(device, 16);
  const PinnedBuffer memory(device, 16);
  fill_pattern(memory.bytes(), 1);
  std::byte seen{};
  const auto stream = device.create_stream();
  upload(device, buffer.address(), pattern(16, 2));
  stream->copy_to_host(memory.data(), buffer.address(), 16);
  stream->launch([&] { seen = memory.data()[3]; });
  for (int number = 0; number < 20; ++number) {
    stream->launch([&mutex, &order, number] {
      const std::scoped_lock lock(mutex);
      order.push_back(number);
    });
  }
  ASSERT_TRUE(wait_for(*stream, patience));
  EXPECT_EQ(seen, pattern(16, 2)[3]);
  ASSERT_EQ(order.size(), 20U);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TYPED_TEST_P(DeviceStreamConformance, wait_flag_holds_until_the_word_reaches_the_value) {
  Device& device = this->device();
  if (!device.info().can.stream_wait_flag) {
    GTEST_SKIP() << device.info().name << " has no streams that wait for a word";
  }
  const PinnedBuffer words(device, page_bytes());
  auto* const word = reinterpret_cast<std::uint32_t*>(words.data());
  const std::atomic_ref flag(*word);
  // The second case passes from the largest number to 0 and on.
  for (const std::uint32_t start : {0U, UINT32_MAX}) {
    flag.store(start);
    const auto stream = device.create_stream();
    stream->wait_flag({word, start + 2});
    EXPECT_FALSE(wait_for(*stream, 2ms));
    flag.store(start + 1);
    EXPECT_FALSE(wait_for(*stream, 2ms));
    flag.store(start + 3);
    EXPECT_TRUE(wait_for(*stream, patience));
    stream->wait_flag({word, start + 2});
    EXPECT_TRUE(wait_for(*stream, patience));
  }
}

TYPED_TEST_P(DeviceStreamConformance, borrowed_stream_queues_behind_its_owner) {
  Device& device = this->device();
  const auto owner = device.create_stream();
  Gate gate;
  gate.hold(*owner);
  const auto borrowed = device.borrow_stream(owner->native_handle());
  EXPECT_EQ(borrowed->native_handle(), owner->native_handle());
  const auto event = device.create_event();
  borrowed->record(*event);
  EXPECT_FALSE(wait_for(*event, 2ms));
  gate.open();
  EXPECT_TRUE(wait_for(*event, patience));
  EXPECT_TRUE(wait_for(*owner, patience));
}

TYPED_TEST_P(DeviceStreamConformance, default_stream_is_there_without_being_created) {
  Device& device = this->device();
  const auto first = device.borrow_stream(nullptr);
  const auto second = device.borrow_stream(nullptr);
  Gate gate;
  gate.hold(*first);
  EXPECT_FALSE(second->idle());
  gate.open();
  EXPECT_TRUE(wait_for(*second, patience));
}

TYPED_TEST_P(DeviceStreamConformance, streams_of_many_threads_move_the_right_bytes) {
  Device& device = this->device();
  std::atomic<int> wrong{0};
  const auto work = [&device, &wrong](std::uint32_t seed) {
    const DeviceScope scope(device);
    constexpr std::size_t size_bytes = 70'001;
    const DeviceBuffer buffer(device, size_bytes);
    const PinnedBuffer source(device, size_bytes);
    const PinnedBuffer target(device, size_bytes);
    const auto event = device.create_event();
    const auto stream = device.create_stream();
    for (std::uint32_t round = 0; round < 10; ++round) {
      fill_pattern(source.bytes(), seed * 100 + round);
      stream->copy_to_device(buffer.address(), source.data(), size_bytes);
      stream->copy_to_host(target.data(), buffer.address(), size_bytes);
      stream->record(*event);
      const bool done = wait_for(*event, patience);
      wrong +=
          done && std::equal(source.bytes().begin(), source.bytes().end(), target.bytes().begin())
              ? 0
              : 1;
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (std::uint32_t seed = 1; seed <= 4; ++seed) {
    threads.emplace_back(work, seed);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong.load(), 0);
}

TYPED_TEST_P(DeviceStreamConformance, scopes_nest_on_a_callers_thread) {
  Device& device = this->device();
  const DeviceScope outer(device);
  {
    const DeviceScope inner(device);
    const DeviceBuffer buffer(device, 256);
  }
  const auto stream = device.create_stream();
  EXPECT_TRUE(stream->idle());
}

REGISTER_TYPED_TEST_SUITE_P(DeviceStreamConformance,
                            copies_round_trip_at_odd_sizes_and_offsets,
                            many_copies_at_once_go_where_each_belongs,
                            event_is_complete_before_any_record,
                            event_completes_after_the_work_before_it,
                            wait_orders_one_stream_after_another,
                            wait_for_an_event_never_recorded_does_not_hold,
                            event_may_go_while_streams_still_hold_it,
                            launched_functions_run_in_order_with_copies,
                            wait_flag_holds_until_the_word_reaches_the_value,
                            borrowed_stream_queues_behind_its_owner,
                            default_stream_is_there_without_being_created,
                            streams_of_many_threads_move_the_right_bytes,
                            scopes_nest_on_a_callers_thread);

}  // namespace hippogriff::device_testing
