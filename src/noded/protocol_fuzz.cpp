// Any bytes as a request, and as a reply with a view: refused, or they are what encoding them again
// gives, and all that is read out of them is in its range.
#include "base/error.hpp"
#include "noded/protocol.hpp"
#include "noded/run_token.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace {

using namespace hippogriff::noded;  // NOLINT(google-build-using-namespace): a program of one file

// Missing bytes are zero.
template <typename Message>
std::array<std::byte, sizeof(Message)> padded(std::span<const std::byte> bytes) {
  std::array<std::byte, sizeof(Message)> whole{};
  std::copy_n(bytes.begin(), std::min(bytes.size(), whole.size()), whole.begin());
  return whole;
}

void check_request(std::span<const std::byte> bytes) {
  const auto whole = padded<RequestMessage>(bytes);
  RequestMessage request;
  if (decode_request(whole, request)) {
    HIPPO_ASSERT(std::memcmp(&request, whole.data(), whole.size()) == 0);
    HIPPO_ASSERT(request.id != 0 && request.name.back() == '\0' && request.timeout_ms >= 0);
    if (request.operation == Operation::hello && request.name.front() != '\0') {
      const auto token = RunToken::parse(request.name.data());
      HIPPO_ASSERT(token && token->text() == request.name.data());
    }
  }
}

void check_reply(std::span<const std::byte> bytes) {
  ReplyMessage reply;
  if (!decode_reply(padded<ReplyMessage>(bytes), reply)) {
    return;
  }
  const hippogriff::Failure failure = failure_of(reply);
  ReplyMessage again = reply;
  set_failure(again, failure);
  HIPPO_ASSERT(std::memcmp(&again, &reply, sizeof(reply)) == 0);
  HIPPO_ASSERT(view_bytes(reply) <= view_bytes_max);
  const auto rest = bytes.subspan(std::min(bytes.size(), sizeof(ReplyMessage)));
  hippogriff::node::NodeView view;
  if (decode_view(reply, rest, view)) {
    const std::vector<std::byte> same = encode_view(view, again);
    HIPPO_ASSERT(std::memcmp(&again, &reply, sizeof(reply)) == 0);
    HIPPO_ASSERT(std::equal(same.begin(), same.end(), rest.begin(), rest.end()));
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  const auto bytes = std::as_bytes(std::span(data, size_bytes));
  check_request(bytes);
  check_reply(bytes);
  return 0;
}
