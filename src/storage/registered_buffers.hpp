// Memory that a ring holds registered: the kernel then looks its pages up once, not for every
// request.
#pragma once

#include <liburing.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace hippogriff {

// The errno with which the system refused to register memory last; 0: it never did, or has done it
// since. Shared by the queues of a storage.
using RegistrationRefusal = std::shared_ptr<std::atomic<int>>;

// Registers what is used often enough. Registering 2 MiB of 4 KiB pages takes 120 us, and 1 MiB
// read into them saves 50; of huge pages both are a twentieth. So a buffer that is used only once
// or twice costs nothing, and none more than twice what was best. Where the system refuses (a
// kernel before 5.19, memory it cannot pin) nothing more is tried, and requests stay plain; where
// it only has no room now (a small RLIMIT_MEMLOCK, no memory) it is asked again later, less and
// less often.
//
// Not thread-safe. The ring must outlive it, and no request may be in flight when it is destroyed.
class RegisteredBuffers {
 public:
  // `refusal` may be null.
  RegisteredBuffers(io_uring& ring, RegistrationRefusal refusal)
      : ring_(ring), refusal_(std::move(refusal)) {}

  ~RegisteredBuffers();
  RegisteredBuffers(const RegisteredBuffers&) = delete;
  RegisteredBuffers& operator=(const RegisteredBuffers&) = delete;
  RegisteredBuffers(RegisteredBuffers&&) = delete;
  RegisteredBuffers& operator=(RegisteredBuffers&&) = delete;

  // Counts a use of `memory` in `buffer`. Returns the buffer's index in the ring, or -1 where the
  // request must be plain.
  int use(std::span<const std::byte> buffer, std::span<const std::byte> memory);

  [[nodiscard]] std::size_t count() const { return registered_count_; }

  // From this use on a buffer is registered.
  static constexpr std::uint32_t uses_min = 3;
  // So many uses that might register something stay plain after a refusal that may pass; twice as
  // many after each further one.
  static constexpr std::uint32_t pause_uses_min = 64;
  static constexpr std::uint32_t pause_uses_max = 1U << 16U;

 private:
  struct Buffer {
    const std::byte* data = nullptr;
    std::size_t size_bytes = 0;
    std::uint32_t uses = 0;
    bool registered = false;
  };

  Buffer* find(std::span<const std::byte> buffer);
  [[nodiscard]] bool may_try() noexcept;
  bool make_table();
  void try_register(Buffer& buffer);
  void give_up(int errno_value);

  io_uring& ring_;
  RegistrationRefusal refusal_;
  std::vector<Buffer> buffers_;  // in the order of the ring's indices
  std::size_t registered_count_ = 0;
  bool has_table_ = false;
  bool refused_ = false;
  std::uint32_t plain_uses_left_ = 0;
  std::uint32_t pause_uses_ = pause_uses_min;
};

// In words: why memory was not registered.
std::string explain_registration(int errno_value);

// Tries it with as much ordinary memory as a slot has. "" when it works, else why not.
std::string why_no_registered_buffers();

}  // namespace hippogriff
