// What a person reads when something failed.
#include "base/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <vector>

namespace hippogriff {
namespace {

TEST(Failure, message_of_a_failed_read_names_path_offset_and_errno) {
  const Failure failure{.status = Status::io_error,
                        .operation = "read",
                        .object = "/data/x.bin",
                        .offset = 4096,
                        .errno_value = EIO,
                        .detail = "the extent ends at 8192"};
  EXPECT_EQ(failure.message(),
            "read /data/x.bin at offset 4096: Input/output error (errno 5, EIO); "
            "the extent ends at 8192");
}

TEST(Failure, message_of_a_device_error_names_the_cuda_result) {
  const Failure failure{.status = Status::device_error,
                        .operation = "copy to device",
                        .object = "cuda:0",
                        .device_status = 700,
                        .detail = {}};
  EXPECT_EQ(failure.message(), "copy to device cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
}

TEST(Failure, message_keeps_the_status_where_the_code_does_not_imply_it) {
  const Failure memory{.status = Status::out_of_device_memory,
                       .operation = "allocate on",
                       .object = "cuda:0",
                       .device_status = 2,
                       .detail = "asked 8 GiB"};
  EXPECT_EQ(memory.message(),
            "allocate on cuda:0: out of device memory: CUDA_ERROR_OUT_OF_MEMORY (2); asked 8 GiB");
  const Failure descriptor{.status = Status::invalid_argument,
                           .operation = "send",
                           .object = {},
                           .errno_value = EBADF,
                           .detail = {}};
  EXPECT_EQ(descriptor.message(), "send: invalid argument: Bad file descriptor (errno 9, EBADF)");
}

TEST(Failure, message_survives_unknown_codes_and_empty_fields) {
  const Failure device{.status = Status::device_error,
                       .operation = {},
                       .object = {},
                       .device_status = 4242,
                       .detail = {}};
  EXPECT_EQ(device.message(), "CUDA error (4242)");
  const Failure system{.status = Status::io_error,
                       .operation = "write",
                       .object = {},
                       .errno_value = 99999,
                       .detail = {}};
  EXPECT_EQ(system.message(), "write: Unknown error (errno 99999)");
  const Failure origin{
      .status = Status::short_file, .operation = "read", .object = "a", .offset = 0, .detail = {}};
  EXPECT_EQ(origin.message(), "read a at offset 0: file too short");
}

TEST(Status, every_status_has_a_name_of_its_own) {
  std::vector<std::string_view> names;
  for (int value = HIPPOGRIFF_OK; value <= HIPPOGRIFF_INTERNAL; ++value) {
    const std::string_view name = status_name(static_cast<Status>(value));
    EXPECT_NE(name, "unknown status") << value;
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 0) << name;
    names.push_back(name);
  }
  EXPECT_EQ(status_name(static_cast<Status>(HIPPOGRIFF_INTERNAL + 1)), "unknown status");
}

TEST(Error, throwers_carry_status_operation_and_text) {
  try {
    throw_io("open", "/nowhere", no_offset, ENOENT);
    FAIL() << "throw_io returned";
  } catch (const Error& error) {
    EXPECT_EQ(error.failure().status, Status::io_error);
    EXPECT_EQ(error.failure().errno_value, ENOENT);
    EXPECT_STREQ(error.what(), "open /nowhere: No such file or directory (errno 2, ENOENT)");
  }
  try {
    throw_invalid("send", "size is 0");
    FAIL() << "throw_invalid returned";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "send: invalid argument; size is 0");
  }
  try {
    throw_unsupported("direct route", "no /dev/nvidia-fs0");
    FAIL() << "throw_unsupported returned";
  } catch (const Error& error) {
    EXPECT_EQ(error.failure().status, Status::unsupported);
  }
}

template <typename Exception>
Failure caught(const Exception& exception) {
  try {
    // NOLINTNEXTLINE(bugprone-exception-copy-constructor-throws): thrown to be caught at once.
    throw exception;
  } catch (...) {
    return current_failure();
  }
}

TEST(CurrentFailure, maps_exceptions_to_statuses) {
  const Failure ours = caught(Error({.status = Status::cancelled,
                                     .operation = "wait",
                                     .object = "host",
                                     .detail = "by the caller"}));
  EXPECT_EQ(ours.status, Status::cancelled);
  EXPECT_EQ(ours.operation, "wait");
  EXPECT_EQ(ours.object, "host");
  EXPECT_EQ(ours.detail, "by the caller");

  EXPECT_EQ(caught(std::bad_alloc()).status, Status::out_of_host_memory);

  const Failure bug = caught(std::logic_error("index 7 of 3"));
  EXPECT_EQ(bug.status, Status::internal);
  EXPECT_EQ(bug.detail, "index 7 of 3");

  struct ForeignException : std::exception {};

  EXPECT_EQ(caught(ForeignException()).status, Status::internal);

  const Failure system = caught(std::system_error(EAGAIN, std::system_category(), "thread"));
  EXPECT_EQ(system.status, Status::io_error);
  EXPECT_EQ(system.errno_value, EAGAIN);
}

TEST(AssertDeathTest, failed_assertion_prints_expression_and_place) {
  EXPECT_DEATH(HIPPO_ASSERT(1 + 1 == 3), "assertion failed: 1 \\+ 1 == 3 .*error_test.cpp:");
}

}  // namespace
}  // namespace hippogriff
