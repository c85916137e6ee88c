// What of one transfer is parked: data of a send until its device is ready, results of a receive
// until its file has them. And who drains and writes a receive meanwhile.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

namespace hippogriff {

// A piece of the file in a place of the parking, which is the transfer's until it gives it back.
struct ParkedPiece {
  std::byte* memory = nullptr;   // the place
  std::uint64_t lead_bytes = 0;  // where in it the piece begins
  std::uint64_t offset = 0;      // in the file
  std::uint64_t size_bytes = 0;

  [[nodiscard]] std::byte* bytes() const { return memory + lead_bytes; }
};

// Thread-safe. Waits only where it says so. Nothing is given back here: who takes a place has it,
// and nothing throws but adding, which then takes nothing.
class ParkedPieces {
 public:
  void add(ParkedPiece piece);

  // Bytes that nobody has taken yet.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_.load(); }

  [[nodiscard]] std::optional<ParkedPiece> take_newest();

  // --- receives: one task drains the device while others write ---
  // False when another one drains.
  [[nodiscard]] bool begin_draining();
  void end_draining();
  [[nodiscard]] bool draining() const;
  // What the file may have only when it has all the rest.
  void add_last(ParkedPiece piece);
  // A place that was written and can be filled again; nullptr when there is none.
  [[nodiscard]] std::byte* take_spare();
  // Waits up to `time` for one. False when none is to come, because nothing is being written.
  [[nodiscard]] bool await_spare(std::chrono::milliseconds time);

  // False when `most` tasks write.
  [[nodiscard]] bool begin_writing(std::uint32_t most);
  void end_writing();
  // What has been parked longest. The last piece only when as many bytes as it has are missing.
  [[nodiscard]] std::optional<ParkedPiece> take_to_write(std::uint64_t missing_bytes);
  // Waits up to `time` for a piece. False when none is to come, because nobody drains.
  [[nodiscard]] bool await_piece(std::chrono::milliseconds time);
  // The file has a piece that was taken to write, or never will: its place can be filled again.
  void written(std::byte* place);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ParkedPiece> pieces_;  // the oldest first
  std::optional<ParkedPiece> last_;
  std::byte* spare_ = nullptr;  // the newest; each begins with the address of the one before
  std::uint32_t writers_ = 0;
  std::uint32_t being_written_ = 0;  // pieces
  bool draining_ = false;
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace hippogriff
