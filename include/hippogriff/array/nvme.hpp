// What NVMe fixes of commands, completions and statuses (NVM Express Base 2.0, NVM Command
// Set 1.0).
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_NVME_HPP_
#define HIPPOGRIFF_ARRAY_NVME_HPP_

#include <hippogriff/array/portable.hpp>

namespace hippogriff::ondemand {

inline constexpr uint32_t block_shift = 9;
inline constexpr uint32_t block_bytes = 1U << block_shift;  // of a logical block

enum class Opcode : uint8_t { flush = 0x00, write = 0x01, read = 0x02 };

// Status code type << 8 | status code, as in bits 11:1 of the completion's last word.
enum class NvmeStatus : uint16_t {
  success = 0x000,
  invalid_opcode = 0x001,
  invalid_field = 0x002,
  internal_error = 0x006,
  aborted = 0x007,      // here: the array has ended, see Ending
  interrupted = 0x021,  // here: a flush waited too long for a line that somebody kept
  out_of_range = 0x080,
  write_fault = 0x280,
  unrecovered_read = 0x281,
  access_denied = 0x286,
};

// A submission queue entry.
struct alignas(64) Command {
  uint8_t opcode = 0;
  uint8_t flags = 0;
  uint16_t id = 0;  // comes back with the completion
  uint32_t namespace_id = 1;
  uint64_t reserved = 0;
  uint64_t metadata = 0;
  uint64_t prp1 = 0;  // where the data goes to or comes from
  uint64_t prp2 = 0;
  uint32_t first_block_low = 0;
  uint32_t first_block_high = 0;
  uint32_t blocks_less_one = 0;  // bits 15:0
  uint32_t dword13 = 0;
  uint32_t dword14 = 0;
  uint32_t dword15 = 0;

  [[nodiscard]] HIPPO_ANYWHERE uint64_t first_block() const {
    return uint64_t{first_block_low} | (uint64_t{first_block_high} << 32U);
  }

  [[nodiscard]] HIPPO_ANYWHERE uint32_t block_count() const {
    return (blocks_less_one & 0xFFFFU) + 1;
  }
};

static_assert(sizeof(Command) == 64);

// Logical blocks that follow each other.
struct BlockRange {
  uint64_t first = 0;
  uint32_t count = 0;
};

HIPPO_ANYWHERE inline Command make_command(Opcode opcode, BlockRange blocks, uint64_t memory) {
  Command command;
  command.opcode = static_cast<uint8_t>(opcode);
  command.prp1 = memory;
  command.first_block_low = static_cast<uint32_t>(blocks.first);
  command.first_block_high = static_cast<uint32_t>(blocks.first >> 32U);
  command.blocks_less_one = blocks.count == 0 ? 0 : blocks.count - 1;
  return command;
}

// A completion queue entry. `result` is command specific; our controller puts an address there
// from which the reader itself copies, or 0 when the data is at prp1, as a drive leaves it.
// `last` holds SQ head (15:0), SQ identifier (31:16), command identifier (47:32), phase (48) and
// status (63:49); it is written last and read first, as one word.
struct alignas(16) Completion {
  uint64_t result = 0;
  uint64_t last = 0;
};

static_assert(sizeof(Completion) == 16);

struct CompletionWord {
  uint16_t submission_head = 0;
  uint16_t queue = 0;
  uint16_t command = 0;
  uint16_t status = 0;  // 15 bits; an NvmeStatus and the bits More and Do Not Retry
  bool phase = false;
};

HIPPO_ANYWHERE constexpr uint64_t pack(const CompletionWord& word) {
  return uint64_t{word.submission_head} | (uint64_t{word.queue} << 16U) |
         (uint64_t{word.command} << 32U) | (uint64_t{word.phase ? 1U : 0U} << 48U) |
         (uint64_t{word.status} << 49U);
}

HIPPO_ANYWHERE constexpr CompletionWord unpack(uint64_t last) {
  CompletionWord word;
  word.submission_head = static_cast<uint16_t>(last);
  word.queue = static_cast<uint16_t>(last >> 16U);
  word.command = static_cast<uint16_t>(last >> 32U);
  word.phase = ((last >> 48U) & 1U) != 0;
  word.status = static_cast<uint16_t>(last >> 49U);
  return word;
}

// The doorbell registers of a queue pair: written by whoever submits, read by the controller.
struct Doorbells {
  alignas(64) uint32_t submission_tail = 0;
  alignas(64) uint32_t completion_head = 0;
};

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_ARRAY_NVME_HPP_
