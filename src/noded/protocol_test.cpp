// Messages come back as they were; whatever is not in its range is refused.
#include "noded/protocol.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace hippogriff::noded {
namespace {

bool accepted(const RequestMessage& request) {
  RequestMessage decoded;
  return decode_request(std::as_bytes(std::span(&request, 1)).first<sizeof(RequestMessage)>(),
                        decoded) &&
         std::memcmp(&decoded, &request, sizeof(request)) == 0;
}

bool accepted(const ReplyMessage& reply) {
  ReplyMessage decoded;
  return decode_reply(std::as_bytes(std::span(&reply, 1)).first<sizeof(ReplyMessage)>(), decoded);
}

RequestMessage reserve_message() {
  return {.operation = Operation::reserve,
          .id = 7,
          .size_bytes = UINT64_MAX,
          .timeout_ms = timeout_ms_max,
          .device = UINT32_MAX,
          .priority = INT32_MIN};
}

TEST(Protocol, takes_requests_with_every_member_at_its_limit) {
  EXPECT_TRUE(accepted(reserve_message()));
  EXPECT_TRUE(accepted(RequestMessage{
      .operation = Operation::set_policy, .id = 1, .policy = node::Policy::aging_mmu}));
  for (auto operation = 1; operation <= static_cast<int>(last_operation); ++operation) {
    EXPECT_TRUE(accepted(RequestMessage{.operation = static_cast<Operation>(operation), .id = 1}));
  }
}

TEST(Protocol, refuses_requests_with_a_member_past_its_limit) {
  const auto changed = [](auto change) {
    RequestMessage request = reserve_message();
    change(request);
    return request;
  };
  EXPECT_FALSE(accepted(changed([](auto& r) { r.magic = 1; })));
  EXPECT_FALSE(accepted(changed([](auto& r) { r.version = protocol_version + 1; })));
  EXPECT_FALSE(accepted(changed([](auto& r) { r.operation = static_cast<Operation>(0); })));
  EXPECT_FALSE(accepted(changed([](auto& r) {
    r.operation = static_cast<Operation>(static_cast<int>(last_operation) + 1);
  })));
  EXPECT_FALSE(accepted(changed([](auto& r) { r.id = 0; })));
  EXPECT_FALSE(accepted(changed([](auto& r) { r.timeout_ms = -1; })));
  EXPECT_FALSE(accepted(changed([](auto& r) { r.timeout_ms = timeout_ms_max + 1; })));
  RequestMessage policy{.operation = Operation::set_policy, .id = 1};
  policy.policy = static_cast<node::Policy>(node::policy_count);
  EXPECT_FALSE(accepted(policy));
  RequestMessage name{.operation = Operation::add_device, .id = 1};
  name.name.fill('x');
  EXPECT_FALSE(accepted(name)) << "no end";
  name.name.fill('\0');
  name.name[1] = 'x';
  EXPECT_FALSE(accepted(name)) << "something behind the end";
}

TEST(Protocol, takes_the_words_of_a_hello_in_one_form) {
  RequestMessage hello{.operation = Operation::hello, .id = 1};
  const std::string words = "0123456789abcdef0123456789abcdef";
  std::ranges::copy(words, hello.name.begin());
  EXPECT_TRUE(accepted(hello));
  hello.name[0] = 'A';
  EXPECT_FALSE(accepted(hello));
  hello.name[0] = '0';
  hello.name[31] = '\0';
  EXPECT_FALSE(accepted(hello));
  hello.name[31] = '0';
  hello.name[32] = '0';
  EXPECT_FALSE(accepted(hello));
}

TEST(Protocol, refuses_requests_with_members_that_mean_nothing) {
  EXPECT_FALSE(accepted(RequestMessage{.operation = Operation::share, .id = 1, .device = 1}));
  EXPECT_FALSE(accepted(RequestMessage{.operation = Operation::granted, .id = 1, .size_bytes = 1}));
  EXPECT_FALSE(accepted(RequestMessage{.operation = Operation::take, .id = 1, .timeout_ms = 1}));
  EXPECT_FALSE(accepted(RequestMessage{.operation = Operation::claim, .id = 1, .size_bytes = 1}));
  EXPECT_FALSE(accepted(RequestMessage{.operation = Operation::defer, .id = 1, .handle = 1}));
  EXPECT_FALSE(accepted(RequestMessage{.operation = Operation::view, .id = 1, .handle = 1}));
  EXPECT_FALSE(accepted(RequestMessage{.operation = Operation::release, .id = 1, .device = 1}));
  RequestMessage named = reserve_message();
  named.name[0] = 'x';
  EXPECT_FALSE(accepted(named));
}

TEST(Protocol, refuses_replies_out_of_range) {
  const auto changed = [](auto change) {
    ReplyMessage reply;
    change(reply);
    return reply;
  };
  EXPECT_TRUE(accepted(ReplyMessage{}));
  EXPECT_FALSE(accepted(changed([](auto& r) { r.status = static_cast<Status>(-1); })));
  EXPECT_FALSE(accepted(changed([](auto& r) { r.status = static_cast<Status>(1000); })));
  EXPECT_FALSE(accepted(changed([](auto& r) { r.device_count = node::devices_max + 1; })));
  EXPECT_FALSE(accepted(changed([](auto& r) { r.unused = 1; })));
  EXPECT_FALSE(accepted(changed([](auto& r) { r.detail.fill('x'); })));
}

TEST(Protocol, carries_failures_and_cuts_what_is_too_long) {
  ReplyMessage reply;
  set_failure(reply,
              {.status = Status::io_error,
               .operation = "read",
               .object = std::string(1000, 'o'),
               .errno_value = 5,
               .detail = "why"});
  ASSERT_TRUE(accepted(reply));
  const Failure failure = failure_of(reply);
  EXPECT_EQ(failure.status, Status::io_error);
  EXPECT_EQ(failure.operation, "read");
  EXPECT_EQ(failure.object, std::string(159, 'o'));
  EXPECT_EQ(failure.errno_value, 5);
  EXPECT_EQ(failure.detail, "why");
}

TEST(Protocol, refuses_views_that_no_node_can_have) {
  node::NodeView view;
  view.devices.resize(1);
  view.devices[0].name[0] = 'g';
  view.devices[0].capacity_bytes = 10;
  view.reservations.push_back(
      {.record = {.id = 3, .ticket = 4, .size_bytes = 5, .wanted_bytes = 6}, .pid = 9});
  ReplyMessage reply;
  const auto decoded = [&] {
    const std::vector<std::byte> bytes = encode_view(view, reply);
    EXPECT_EQ(bytes.size(), view_bytes(reply));
    node::NodeView again;
    return decode_view(reply, bytes, again) && again.reservations.at(0).pid == 9 &&
           again.devices.at(0).name_view() == "g";
  };
  EXPECT_TRUE(decoded());
  view.reservations[0].record.device = 1;
  EXPECT_FALSE(decoded());
  view.reservations[0].record.device = 0;
  view.reservations[0].record.wanted_bytes = 11;
  EXPECT_FALSE(decoded());
  node::NodeView none;
  EXPECT_FALSE(decode_view(reply, {}, none)) << "fewer bytes than the counts say";
}

}  // namespace
}  // namespace hippogriff::noded
