// Sends that have a context made first, and read meanwhile: over the fake driver.
#include "device/cuda_device.hpp"
#include "testing/eventually.hpp"
#include "testing/fake_cuda/fake_cuda.hpp"
#include "testing/faulty_storage.hpp"
#include "testing/runtime_fixture.hpp"
#include "transfer/outlook.hpp"
#include "transfer/read_ahead_file.hpp"
#include "transfer/report.hpp"

#include <atomic>
#include <thread>

namespace hippogriff {
namespace {

class CudaFirstSendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_ = testing::FakeCuda::of_this_process();
    ASSERT_TRUE(fake_.has_value()) << "HIPPOGRIFF_CUDA_DRIVER must name the fake driver";
    fake_->reset();
    fake_->set("context_ms", 200);
    write_whole(path_, content_);
    drop_cache(path_, 0, content_.size());
    const auto opened = storage_->open(path_, FileAccess::read);
    if (!opened->facts().direct || cached_fraction(*opened, {0, content_.size()}) > 0) {
      GTEST_SKIP() << "no O_DIRECT, or nothing leaves the page cache here";
    }
  }

  void TearDown() override {
    fake_->reset();
    EXPECT_EQ(fake_->count("contexts"), 0);
    EXPECT_EQ(fake_->count("allocations"), 0);
  }

  [[nodiscard]] Submission submission() const {
    Submission wish;
    wish.path = path_;
    wish.device = "cuda:0";
    wish.offset = 4097;
    return wish;
  }

  void expect_sent(Transfer& transfer) const {
    ASSERT_TRUE(transfer.wait(long_enough));
    ASSERT_FALSE(transfer.failed()) << transfer.failure_message();
    const auto expected = std::span(content_).subspan(4097);
    EXPECT_TRUE(same_bytes({device_bytes(transfer.address()), expected.size()}, expected));
    EXPECT_EQ(transfer.bytes_done(), expected.size());
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.file("data");
  const std::vector<std::byte> content_ = random_bytes(24 * mebibyte, 8);
  const std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();
  const std::shared_ptr<Storage> storage_ = make_faulty_storage(make_system_storage(), plan_);
  std::optional<testing::FakeCuda> fake_;
};

TEST_F(CudaFirstSendTest, reads_while_the_context_is_made) {
  Runtime runtime(test_settings(), storage_);
  const auto first = runtime.submit(submission());
  EXPECT_GT(first->read_ahead_bytes(), 0U);
  expect_sent(*first);
  const std::string report = report_json(*first);
  EXPECT_NE(report.find("\"bytes_from_page_cache\": 0,"), std::string::npos) << report;
  EXPECT_EQ(first->cold_bytes(), first->bytes_done()) << "all came from the drive";
  EXPECT_EQ(runtime.device("cuda:0").engine->parked_bytes(), 0U) << "it has been given back";
  const auto second = runtime.submit(submission());
  EXPECT_EQ(second->read_ahead_bytes(), std::nullopt) << "there is a context";
  expect_sent(*second);
  EXPECT_TRUE(runtime.shutdown(long_enough));
}

TEST_F(CudaFirstSendTest, is_right_whatever_the_drive_does_meanwhile) {
  int ahead = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    drop_cache(path_, 0, content_.size());
    plan_->randomize({.seed = seed, .try_again = 0.1, .shorten = 0.1, .delay = 0.1});
    Runtime runtime(test_settings(), storage_);
    const auto transfer = runtime.submit(submission());
    ahead += transfer->read_ahead_bytes().has_value() ? 1 : 0;
    expect_sent(*transfer);
    plan_->clear();
    EXPECT_TRUE(runtime.shutdown(long_enough));
  }
  EXPECT_GT(ahead, 0);
}

// Both the memory that was read into and the parking count, and are no more than there is room for.
TEST_F(CudaFirstSendTest, what_was_read_is_parked_while_the_send_waits_for_memory) {
  Settings settings = test_settings();
  settings.parking_bytes = 16 * mebibyte;
  Runtime runtime(settings, storage_);
  fake_->fail("cuMemAllocAsync", 0, 2);
  fake_->fail("cuMemAlloc", 0, 2);
  fake_->fail("cuMemCreate", 0, 2);
  const auto transfer = runtime.submit(submission());
  const std::uint64_t read_bytes = transfer->read_ahead_bytes().value_or(0);
  EXPECT_GT(read_bytes, 0U);
  EXPECT_LE(read_bytes, settings.parking_bytes);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::uint64_t parked = runtime.device("cuda:0").engine->parked_bytes();
  EXPECT_GE(parked, read_bytes);
  EXPECT_LE(parked, settings.parking_bytes);
  EXPECT_EQ(transfer->bytes_done(), 0U);
  transfer->cancel();
  EXPECT_TRUE(transfer->wait(long_enough));
  EXPECT_TRUE(hippogriff::testing::eventually(
      [&] { return runtime.device("cuda:0").engine->parked_bytes() == 0; }));
  fake_->reset();
  EXPECT_TRUE(runtime.shutdown(long_enough));
}

TEST_F(CudaFirstSendTest, one_thread_of_many_reads_ahead) {
  Runtime runtime(test_settings(), storage_);
  std::atomic<int> ahead{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      const auto transfer = runtime.submit(submission());
      ahead += transfer->read_ahead_bytes().has_value() ? 1 : 0;
      expect_sent(*transfer);
    });
  }
  for (std::thread& each : threads) {
    each.join();
  }
  EXPECT_EQ(ahead, 1);
  EXPECT_TRUE(runtime.shutdown(long_enough));
}

TEST_F(CudaFirstSendTest, reads_nothing_where_parking_is_off_or_memory_is_bounded) {
  Settings settings = test_settings();
  settings.parking_bytes = 0;
  Runtime without(settings, storage_);
  const auto one = without.submit(submission());
  EXPECT_EQ(one->read_ahead_bytes(), std::nullopt);
  expect_sent(*one);
  EXPECT_TRUE(without.shutdown(long_enough));

  Runtime runtime(test_settings(), storage_);
  Submission bounded = submission();
  bounded.host_memory_bytes = 16 * mebibyte;
  const auto other = runtime.submit(bounded);
  EXPECT_EQ(other->read_ahead_bytes(), std::nullopt);
  expect_sent(*other);
  EXPECT_TRUE(runtime.shutdown(long_enough));
}

TEST_F(CudaFirstSendTest, a_device_that_does_not_start_ends_the_reading) {
  fake_->fail("cuDevicePrimaryCtxRetain", 1, 999);
  Runtime runtime(test_settings(), storage_);
  EXPECT_THROW(runtime.submit(submission()), Error);
  const std::uint64_t reads = plan_->seen(FaultPoint::queued_read);
  EXPECT_GT(reads, 0U);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(plan_->seen(FaultPoint::queued_read), reads) << "nobody reads on";
  const auto again = runtime.submit(submission());
  expect_sent(*again);
  EXPECT_TRUE(runtime.shutdown(long_enough));
}

TEST_F(CudaFirstSendTest, is_of_one_file_though_its_name_goes_to_another) {
  plan_->add({.point = FaultPoint::queued_read,
              .kind = FaultKind::delay,
              .times = 1000,
              .delay = std::chrono::milliseconds(20)});
  const std::string other = folder_.file("other");
  write_whole(other, random_bytes(content_.size(), 9));
  Runtime runtime(test_settings(), storage_);
  std::thread renames([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ASSERT_EQ(std::rename(other.c_str(), path_.c_str()), 0);
  });
  const auto transfer = runtime.submit(submission());
  renames.join();
  expect_sent(*transfer);
  EXPECT_TRUE(runtime.shutdown(long_enough));
}

}  // namespace
}  // namespace hippogriff
