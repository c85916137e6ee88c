// The calls of hippogriff, with failures as exceptions.
#include "workloads/papers/movement.hpp"

#include <hippogriff/hippogriff.h>

namespace {

void expect_moved(std::size_t expected, std::size_t moved) {
  if (moved != expected) {
    throw_hippogriff_error();
  }
}

}  // namespace

void* send_bytes(const Job& job, std::size_t section) {
  const Section& part = job.in.section(section);
  void* memory = nullptr;
  expect_moved(part.size_bytes,
               hippogriff_send(job.in.fd(), &memory, part.offset_bytes, part.size_bytes));
  return memory;
}

void recv_bytes(const Job& job, void* memory, std::size_t size_bytes) {
  expect_moved(size_bytes, hippogriff_recv(job.out.fd(), memory, 0, size_bytes));
  job.out.sync();
}
