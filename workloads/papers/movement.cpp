// The calls of hippogriff, with failures as exceptions.
#include "workloads/papers/movement.hpp"

#include <hippogriff/hippogriff.h>

#include <algorithm>

namespace {

void expect_moved(std::size_t expected, std::size_t moved) {
  if (moved != expected) {
    throw_hippogriff_error();
  }
}

}  // namespace

void* Hippogriff::send(const File& in, const Section& part) {
  void* memory = nullptr;
  expect_moved(part.size_bytes,
               hippogriff_send(in.fd(), &memory, part.offset_bytes, part.size_bytes));
  memory_.count(part.size_bytes);
  return memory;
}

void Hippogriff::recv(const File& out, void* memory, std::size_t size_bytes) {
  expect_moved(size_bytes, hippogriff_recv(out.fd(), memory, 0, size_bytes));
}

std::string Hippogriff::report() const {
  char* json = nullptr;
  if (hippogriff_stats(&json) != HIPPOGRIFF_OK) {
    throw_hippogriff_error();
  }
  std::string stats = json;
  hippogriff_free_string(json);
  std::replace(stats.begin(), stats.end(), '\n', ' ');  // a result is one line
  return R"({"way": "hippogriff", "stats": )" + stats + "}";
}
