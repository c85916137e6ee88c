// The part of the storage suite about queues.
#pragma once

#include "testing/storage_file_conformance.hpp"

#include <set>

namespace hippogriff {

TEST_P(StorageConformance, queue_kind_is_named) {
  const std::string kind = storage->queue_kind();
  EXPECT_TRUE(kind == "io_uring" || kind.starts_with("threads")) << kind;
}

TEST_P(StorageConformance, a_queue_without_depth_is_refused) {
  for (const std::size_t depth : {0UL, 4097UL}) {
    EXPECT_EQ(failure_of([&] { static_cast<void>(storage->create_queue(depth)); }).status,
              Status::invalid_argument);
  }
  EXPECT_NE(storage->create_queue(1), nullptr);
}

TEST_P(StorageConformance, a_queue_reads_many_chunks_in_any_order) {
  constexpr std::size_t chunk = 65536;
  constexpr std::size_t count = 40;
  const auto file = patterned("f", chunk * count);
  AlignedMemory memory(chunk * 8);
  const auto queue = storage->create_queue(8);
  const bool direct = file->facts().direct;
  std::set<std::uint64_t> seen;
  std::size_t next = 0;
  const auto submit = [&](std::size_t slot) {
    queue->submit({.file = file.get(),
                   .direct = direct,
                   .offset = next * chunk,
                   .memory = memory.bytes().subspan(slot * chunk, chunk),
                   .tag = next * 8 + slot,
                   .buffer = memory.bytes()});
    ++next;
  };
  for (std::size_t slot = 0; slot < 8; ++slot) {
    submit(slot);
  }
  EXPECT_EQ(queue->in_flight(), 8U);
  while (seen.size() < count) {
    const IoCompletion completion = reap_one(*queue);
    ASSERT_NE(completion.tag, UINT64_MAX);
    ASSERT_EQ(completion.result, static_cast<std::int64_t>(chunk));
    const std::size_t slot = completion.tag % 8;
    const std::uint64_t index = completion.tag / 8;
    ASSERT_TRUE(is_pattern(memory.bytes().subspan(slot * chunk, chunk), index * chunk));
    ASSERT_TRUE(seen.insert(index).second);
    if (next < count) {
      submit(slot);
    }
  }
  EXPECT_EQ(queue->in_flight(), 0U);
}

TEST_P(StorageConformance, a_queue_writes_and_the_file_has_it) {
  const auto file = storage->create(home->file("f"));
  AlignedMemory memory(1 << 20);
  const auto bytes = pattern(0, 1 << 20);
  std::memcpy(memory.bytes().data(), bytes.data(), bytes.size());
  const auto queue = storage->create_queue(4);
  for (std::uint64_t i = 0; i < 4; ++i) {
    queue->submit({.kind = IoRequest::Kind::write,
                   .file = file.get(),
                   .direct = file->facts().direct,
                   .offset = i * 262144,
                   .memory = memory.bytes().subspan(i * 262144, 262144),
                   .tag = i,
                   .buffer = memory.bytes()});
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(reap_one(*queue).result, 262144);
  }
  file->sync();
  std::vector<std::byte> back(1 << 20);
  EXPECT_EQ(read_all(*file, back, 0), back.size());
  EXPECT_TRUE(is_pattern(back, 0));
}

// The first requests find the buffers new, the later ones may find them registered.
TEST_P(StorageConformance, a_queue_uses_the_same_buffers_again_and_again_for_reads_and_writes) {
  constexpr std::size_t chunk = 65536;
  const auto file = patterned("f", chunk * 4);
  const bool direct = file->facts().direct;
  AlignedMemory memory(chunk * 2);
  const auto queue = storage->create_queue(2);
  for (std::uint64_t round = 0; round < 12; ++round) {
    const std::array<std::uint64_t, 2> offsets = {round % 4 * chunk, (round + 1) % 4 * chunk};
    for (const IoRequest::Kind kind : {IoRequest::Kind::read, IoRequest::Kind::write}) {
      for (std::uint64_t slot = 0; slot < 2; ++slot) {
        const auto buffer = memory.bytes().subspan(slot * chunk, chunk);
        queue->submit({.kind = kind,
                       .file = file.get(),
                       .direct = direct,
                       .offset = offsets[slot],
                       .memory = buffer.first(chunk - round % 2 * 4096),
                       .tag = slot,
                       .buffer = buffer});
      }
      for (int count = 0; count < 2; ++count) {
        const IoCompletion completion = reap_one(*queue);
        ASSERT_EQ(completion.result, static_cast<std::int64_t>(chunk - round % 2 * 4096));
        ASSERT_TRUE(is_pattern(memory.bytes().subspan(completion.tag * chunk,
                                                      static_cast<std::size_t>(completion.result)),
                               offsets[completion.tag]));
      }
    }
    std::memset(memory.bytes().data(), 0, memory.bytes().size());
  }
  std::vector<std::byte> back(chunk * 4);
  EXPECT_EQ(read_all(*file, back, 0), back.size());
  EXPECT_TRUE(is_pattern(back, 0));
}

TEST_P(StorageConformance, prepared_requests_are_carried_out_at_the_latest_by_reap) {
  constexpr std::size_t chunk = 4096;
  const auto file = patterned("f", chunk * 8);
  AlignedMemory memory(chunk * 8);
  const auto queue = storage->create_queue(8);
  const auto prepare = [&](std::uint64_t index) {
    queue->prepare({.file = file.get(),
                    .direct = file->facts().direct,
                    .offset = index * chunk,
                    .memory = memory.bytes().subspan(index * chunk, chunk),
                    .tag = index});
  };
  queue->submit_prepared();  // nothing
  for (std::uint64_t index = 0; index < 3; ++index) {
    prepare(index);
  }
  queue->submit_prepared();
  for (std::uint64_t index = 3; index < 8; ++index) {
    prepare(index);
  }
  EXPECT_EQ(queue->in_flight(), 8U);
  EXPECT_EQ(failure_of([&] { prepare(0); }).status, Status::invalid_argument);
  std::set<std::uint64_t> tags;
  while (tags.size() < 8) {
    const IoCompletion completion = reap_one(*queue);
    ASSERT_EQ(completion.result, static_cast<std::int64_t>(chunk));
    ASSERT_TRUE(tags.insert(completion.tag).second);
  }
  EXPECT_EQ(queue->in_flight(), 0U);
  EXPECT_TRUE(is_pattern(memory.bytes(), 0));
}

TEST_P(StorageConformance, a_queue_may_close_with_requests_prepared) {
  const auto file = patterned("f", 8192);
  AlignedMemory memory(8192);
  for (int round = 0; round < 5; ++round) {
    const auto queue = storage->create_queue(2);
    queue->prepare({.file = file.get(), .direct = false, .memory = memory.bytes().first(4096)});
    if (round % 2 == 0) {
      queue->submit({.file = file.get(), .direct = false, .memory = memory.bytes().last(4096)});
    }
  }
  EXPECT_EQ(file->size_now(), 8192U);
}

TEST_P(StorageConformance, registered_buffers_are_there_or_it_says_why_not) {
  const std::string why_not = storage->why_no_registered_buffers();
  EXPECT_TRUE(storage->queue_kind() == "io_uring" || why_not == "there is no io_uring") << why_not;
}

TEST_P(StorageConformance, a_queue_serves_unaligned_buffered_requests_of_unregistered_memory) {
  const auto file = patterned("f", 200000);
  std::vector<std::byte> bytes(100001);
  const auto queue = storage->create_queue(2);
  queue->submit({.file = file.get(), .direct = false, .offset = 12345, .memory = bytes, .tag = 7});
  const IoCompletion completion = reap_one(*queue);
  EXPECT_EQ(completion.tag, 7U);
  EXPECT_EQ(completion.result, 100001);
  EXPECT_TRUE(is_pattern(bytes, 12345));
}

TEST_P(StorageConformance, a_queue_tells_the_end_of_the_file_and_errors_as_results) {
  patterned("f", 5000);
  const auto file = storage->open(home->file("f"), FileAccess::read);
  AlignedMemory memory(8192);
  const auto queue = storage->create_queue(4);
  const bool direct = file->facts().direct;
  queue->submit(
      {.file = file.get(), .direct = direct, .offset = 4096, .memory = memory.bytes(), .tag = 1});
  EXPECT_EQ(reap_one(*queue).result, 904);
  EXPECT_TRUE(is_pattern(memory.bytes().first(904), 4096));
  queue->submit(
      {.file = file.get(), .direct = direct, .offset = 8192, .memory = memory.bytes(), .tag = 2});
  EXPECT_EQ(reap_one(*queue).result, 0);
  queue->submit({.file = file.get(), .direct = false, .memory = {}, .tag = 3});
  EXPECT_EQ(reap_one(*queue).result, 0);
  queue->submit({.kind = IoRequest::Kind::write,
                 .file = file.get(),
                 .direct = false,
                 .memory = memory.bytes(),
                 .tag = 4});
  EXPECT_EQ(reap_one(*queue).result, -EBADF);
}

TEST_P(StorageConformance, a_full_queue_refuses_one_more) {
  const auto file = patterned("f", 8192);
  std::vector<std::byte> bytes(8192);
  const auto queue = storage->create_queue(2);
  for (std::uint64_t i = 0; i < 2; ++i) {
    queue->submit({.file = file.get(),
                   .direct = false,
                   .memory = std::span(bytes).subspan(i * 4096, 4096),
                   .tag = i});
  }
  EXPECT_EQ(failure_of([&] {
              queue->submit({.file = file.get(), .direct = false, .memory = {}});
            }).status,
            Status::invalid_argument);
  EXPECT_EQ(reap_one(*queue).result, 4096);
  EXPECT_EQ(reap_one(*queue).result, 4096);
  queue->submit({.file = file.get(), .direct = false, .memory = bytes, .tag = 9});
  EXPECT_EQ(reap_one(*queue).tag, 9U);
}

TEST_P(StorageConformance, a_direct_request_for_a_file_without_it_is_refused) {
  const int fd = ::memfd_create("hippogriff", MFD_CLOEXEC);
  const auto file = storage->adopt(fd, FileAccess::read);
  ::close(fd);
  const auto queue = storage->create_queue(1);
  EXPECT_EQ(
      failure_of([&] { queue->submit({.file = file.get(), .direct = true, .memory = {}}); }).status,
      Status::invalid_argument);
  EXPECT_EQ(queue->in_flight(), 0U);
}

TEST_P(StorageConformance, reaping_an_idle_queue_returns_at_once) {
  const auto queue = storage->create_queue(4);
  std::array<IoCompletion, 4> completions{};
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(queue->reap(completions, std::chrono::seconds(30)), 0U);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST_P(StorageConformance, a_queue_may_close_while_busy) {
  const auto file = patterned("f", 4 << 20);
  AlignedMemory memory(4 << 20);
  for (int round = 0; round < 5; ++round) {
    const auto queue = storage->create_queue(16);
    for (std::uint64_t i = 0; i < 16; ++i) {
      queue->submit({.file = file.get(),
                     .direct = file->facts().direct,
                     .offset = i * 262144,
                     .memory = memory.bytes().subspan(i * 262144, 262144),
                     .tag = i});
    }
  }
  // Nothing writes to the memory any more: it can be freed.
}

TEST_P(StorageConformance, a_queue_may_move_to_another_thread) {
  const auto file = patterned("f", 65536);
  std::vector<std::byte> bytes(65536);
  const auto queue = storage->create_queue(1);
  for (int round = 0; round < 3; ++round) {
    std::thread([&] {
      queue->submit({.file = file.get(), .direct = false, .memory = bytes, .tag = 1});
      EXPECT_EQ(reap_one(*queue).result, 65536);
    }).join();
  }
  EXPECT_TRUE(is_pattern(bytes, 0));
}

}  // namespace hippogriff
