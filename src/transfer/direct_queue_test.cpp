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

TEST(DirectQueue, requests_leave_the_next_one_at_a_step_of_the_drive) {
  constexpr std::uint64_t cut = WorkMap::cut_bytes;
  for (std::uint64_t alignment = cut; alignment <= FileFacts::direct_alignment_max;
       alignment *= 2) {
    // Those of HIPPOGRIFF_PIECE, and whatever few slots make of the usual size.
    for (std::uint64_t bytes = FileFacts::direct_alignment_max; bytes <= Pinbuffer::slot_bytes;
         bytes += 1000) {
      const std::uint64_t whole = whole_steps(bytes, alignment);
      ASSERT_GT(whole, 0U) << alignment << " of " << bytes;
      ASSERT_EQ(whole % alignment, 0U) << alignment << " of " << bytes;
      ASSERT_LE(whole, std::min(bytes, widened_piece_max(alignment))) << alignment;
    }
  }
  EXPECT_EQ(whole_steps(Pinbuffer::slot_bytes, cut), Pinbuffer::slot_bytes);
}

}  // namespace
}  // namespace hippogriff
