// A protein database search in the manner of BLASTP: words alike seed ungapped alignments, and the
// best of those are aligned again, with gaps, in a band.
//
// Database and queries are made from the seed, written as FASTA and read back. Early, the database
// is on the device, and every query is matched with all of it; later only the candidates are
// there, in three quarters of the memory. The device computes nearly all of the time.
#pragma once

#include "workloads/proteins/proteins_work.hpp"
#include "workloads/sharing/program.hpp"

#include <string>
#include <string_view>
#include <vector>

// Numbers of amino acids.
using Protein = std::vector<std::uint8_t>;

// The places in a query of the words that are alike to each of the 8000 words.
struct WordTable {
  std::vector<std::uint32_t> first_place;
  std::vector<std::uint32_t> places;
};

std::vector<NumberOption> proteins_options();
Result run_proteins(const Options& options);

// Query `number`, and sequence `number` of the database; every tenth sequence holds a changed piece
// of a query. As letters.
std::string make_query(const Options& options, std::uint64_t number);
std::string make_subject(const Options& options, std::uint64_t number);

// Throws std::runtime_error for letters that are no amino acids.
Protein encode(std::string_view letters);

WordTable make_words(const Protein& query);

// The oracles. Stage one without words: every place with every place; stage two with whole
// matrices, the cells beyond `half_band` diagonals from `diagonal` left out.
Seed seed_by_all_places(const Protein& query, const Protein& subject);
int align_by_matrices(const Protein& query, const Protein& subject, int diagonal, int half_band);
