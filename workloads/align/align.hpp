// Short reads of DNA against a reference: where a read of 25 letters is, up to k of them wrong.
//
// The reference and the reads are made from the seed, written as FASTA and read back. The index is
// made once on the host. Then batch after batch: reads are parsed (host), matched (device), and
// written out (host); the device memory is held for the time of the matching alone.
#pragma once

#include "workloads/align/align_work.hpp"
#include "workloads/sharing/program.hpp"

#include <string>
#include <string_view>
#include <vector>

// The windows of a reference, sorted; places[i] is where windows[i] begins.
struct WindowIndex {
  std::vector<std::uint64_t> windows;
  std::vector<std::uint32_t> places;
};

std::vector<NumberOption> align_options();
Result run_align(const Options& options);

// ACGT from the seed, with repeats: a tenth is copied from elsewhere in it.
std::string make_reference(const Options& options);

// Read `number`: a piece of the reference with up to mismatches + 1 letters changed, and every
// tenth of its own.
std::string make_read(const Options& options, const std::string& reference, std::uint64_t number);

// 25 letters in 50 bits. Throws std::runtime_error for another length or letter.
std::uint64_t pack(std::string_view letters);

WindowIndex make_index(const std::string& reference);

// The answer for one read, by comparing it with every window, letter by letter.
AlignHit align_letter_by_letter(const std::string& reference,
                                const std::string& read,
                                std::uint32_t mismatches_max);
