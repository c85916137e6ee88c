// Requests that are widened to a drive's alignment stay within their slots.
#include "transfer/direct_queue.hpp"

#include <gtest/gtest.h>

namespace hippogriff {
namespace {

TEST(DirectQueue, widened_pieces_fit_a_slot_wherever_they_begin) {
  constexpr std::uint64_t cut = WorkMap::cut_bytes;
  for (std::uint64_t alignment = cut; alignment <= FileFacts::direct_alignment_max;
       alignment *= 2) {
    const std::uint64_t piece = widened_piece_max(alignment);
    EXPECT_GE(piece, Pinbuffer::slot_bytes / 2) << alignment;
    for (std::uint64_t begin = 0; begin < 2 * alignment; begin += cut) {
      const std::uint64_t widened =
          align_up(begin + piece, alignment) - align_down(begin, alignment);
      EXPECT_LE(widened, Pinbuffer::slot_bytes) << alignment << " at " << begin;
    }
  }
  EXPECT_EQ(widened_piece_max(cut), Pinbuffer::slot_bytes) << "of usual drives nothing is lost";
}

}  // namespace
}  // namespace hippogriff
