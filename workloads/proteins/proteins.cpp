// The program `proteins`: a database on the device for all queries, then the candidates alone.
#include "workloads/proteins/proteins.hpp"

#include "workloads/proteins/blosum62.hpp"
#include "workloads/sharing/device.hpp"
#include "workloads/sharing/fasta.hpp"
#include "workloads/sharing/random.hpp"
#include "workloads/sharing/turn.hpp"

#include <algorithm>
#include <stdexcept>

namespace {

// A subject that goes to the second stage.
struct Candidate {
  std::uint32_t query = 0;
  std::uint32_t subject = 0;
  Seed seed;
  std::int32_t score = 0;
};

// Sequences side by side, as the device wants them.
struct Packed {
  std::vector<std::uint8_t> letters;
  std::vector<std::uint64_t> first = {0};

  void add(const Protein& protein) {
    letters.insert(letters.end(), protein.begin(), protein.end());
    first.push_back(letters.size());
  }

  [[nodiscard]] std::size_t size_bytes() const {
    return DeviceMemory::rounded(letters.size()) +
           DeviceMemory::rounded(first.size() * sizeof(std::uint64_t));
  }

  Sequences copy_in(DeviceMemory& memory) const {
    return {memory.copy_in(letters), memory.copy_in(first)};
  }
};

std::vector<Protein> write_and_read(std::uint64_t count,
                                    const Options& options,
                                    std::string (*make)(const Options&, std::uint64_t)) {
  const ScratchFile file = make_scratch_file();
  for (std::uint64_t number = 0; number < count; ++number) {
    write_fasta(file.get(), {{"protein" + std::to_string(number), make(options, number)}});
  }
  rewind_to_read(file.get());
  std::vector<Protein> proteins;
  for (const FastaRecord& record : FastaReader(file.get()).read(count)) {
    proteins.push_back(encode(record.letters));
  }
  return proteins;
}

std::vector<std::int8_t> score_table() {
  return {blosum62, blosum62 + sizeof(blosum62)};
}

// What a candidate takes on the device beside its letters.
constexpr std::size_t candidate_bytes =
    sizeof(std::uint64_t) + sizeof(std::uint32_t) + 2 * sizeof(std::int32_t);

// Candidates that are aligned together.
struct Chunk {
  Packed subjects;
  std::vector<std::uint32_t> query_of;
  std::vector<std::int32_t> diagonals;
};

class Search {
 public:
  explicit Search(const Options& options) : options_(options), turn_(options) {
    queries_ = write_and_read(options.number("queries"), options, make_query);
    subjects_ = write_and_read(options.number("sequences"), options, make_subject);
    result_.phases.end("generate");
    for (const Protein& subject : subjects_) {
      database_.add(subject);
    }
    for (const Protein& query : queries_) {
      packed_queries_.add(query);
      words_.push_back(make_words(query));
      words_max_ = std::max(words_max_, words_.back().places.size());
    }
    result_.phases.end("words");
  }

  Result run() {
    result_.data_bytes = early_size_bytes();
    result_.memory_bytes = memory_to_hold(options_, result_.data_bytes);
    turn_.take(result_.memory_bytes);
    result_.phases.end("wait");
    result_.device = turn_.device();
    device_ = open_device(result_.device);
    result_.phases.end("context");
    find_candidates();
    // The rest of the search wants less: others get the difference without waiting for its end.
    const std::size_t late_bytes =
        std::max<std::size_t>(result_.memory_bytes / 4 * 3, late_size_bytes());
    turn_.give(result_.memory_bytes - late_bytes);
    align_candidates(late_bytes);
    turn_.give(late_bytes);
    answer();
    result_.phases.end("answer");
    if (options_.check()) {
      check_alignments();
    }
    return result_;
  }

 private:
  [[nodiscard]] std::size_t early_size_bytes() const {
    const std::size_t tables = DeviceMemory::rounded(sizeof(blosum62)) +
                               DeviceMemory::rounded(options_.number("query")) +
                               DeviceMemory::rounded((word_count + 1) * sizeof(std::uint32_t)) +
                               DeviceMemory::rounded(words_max_ * sizeof(std::uint32_t));
    return std::max(
        late_size_bytes(),
        database_.size_bytes() + tables + DeviceMemory::rounded(subjects_.size() * sizeof(Seed)));
  }

  // What stage two wants beside its candidates, and with one of them.
  [[nodiscard]] std::size_t fixed_size_bytes() const {
    return packed_queries_.size_bytes() + 8 * DeviceMemory::rounded(1) +
           DeviceMemory::rounded(sizeof(blosum62));
  }

  [[nodiscard]] std::size_t late_size_bytes() const {
    std::size_t longest = 0;
    for (const Protein& subject : subjects_) {
      longest = std::max(longest, subject.size());
    }
    return DeviceMemory::rounded(fixed_size_bytes() + longest + candidate_bytes);
  }

  // Stage one.
  void find_candidates() {
    DeviceMemory memory(*device_, result_.memory_bytes);
    SeedWork work{};
    work.subjects = database_.copy_in(memory);
    work.scores = memory.copy_in(score_table());
    work.query_letters = static_cast<std::int32_t>(options_.number("query"));
    auto* query_memory = memory.cut<std::uint8_t>(options_.number("query"));
    auto* first_place = memory.cut<std::uint32_t>(word_count + 1);
    auto* places = memory.cut<std::uint32_t>(words_max_);
    work.query = query_memory;
    work.first_place = first_place;
    work.places = places;
    work.seeds = memory.cut<Seed>(subjects_.size());
    result_.phases.end("device");
    for (std::uint32_t q = 0; q < queries_.size(); ++q) {
      memory.write(query_memory, queries_[q]);
      memory.write(first_place, words_[q].first_place);
      memory.write(places, words_[q].places);
      run_work(*device_, work, subjects_.size());
      const std::vector<Seed> seeds = memory.copy_out(work.seeds, subjects_.size());
      result_.phases.end("device");
      keep_candidates(q, seeds);
      result_.phases.end("collect");
    }
  }

  void keep_candidates(std::uint32_t query, const std::vector<Seed>& seeds) {
    const auto cutoff = static_cast<std::int32_t>(options_.number("cutoff"));
    for (std::uint32_t s = 0; s < seeds.size(); ++s) {
      if (seeds[s].score >= cutoff) {
        candidates_.push_back({query, s, seeds[s], 0});
      }
    }
    if (options_.check()) {
      check_seeds(query, seeds);
    }
  }

  // Stage two, as many candidates at a time as the memory holds.
  void align_candidates(std::size_t memory_bytes) {
    DeviceMemory held(*device_, memory_bytes);
    for (std::size_t first = 0; first < candidates_.size();) {
      const Chunk chunk = next_chunk(first, memory_bytes);
      result_.phases.end("collect");
      held.clear();
      align_chunk(held, chunk, first);
      result_.phases.end("device");
      first += chunk.query_of.size();
    }
  }

  [[nodiscard]] Chunk next_chunk(std::size_t first, std::size_t memory_bytes) const {
    Chunk chunk;
    std::size_t taken = fixed_size_bytes();
    for (std::size_t c = first; c < candidates_.size(); ++c) {
      const Protein& subject = subjects_[candidates_[c].subject];
      taken += subject.size() + candidate_bytes;
      if (taken > memory_bytes) {
        break;
      }
      chunk.subjects.add(subject);
      chunk.query_of.push_back(candidates_[c].query);
      chunk.diagonals.push_back(candidates_[c].seed.diagonal);
    }
    return chunk;
  }

  void align_chunk(DeviceMemory& memory, const Chunk& chunk, std::size_t first) {
    const std::size_t count = chunk.query_of.size();
    BandWork work{};
    work.subjects = chunk.subjects.copy_in(memory);
    work.queries = packed_queries_.copy_in(memory);
    work.query_of = memory.copy_in(chunk.query_of);
    work.diagonals = memory.copy_in(chunk.diagonals);
    work.scores = memory.copy_in(score_table());
    work.alignment_scores = memory.cut<std::int32_t>(count);
    work.gap_first = gap_open + gap_extend;
    work.gap_next = gap_extend;
    run_work(*device_, work, count);
    const std::vector<std::int32_t> scores = memory.copy_out(work.alignment_scores, count);
    for (std::size_t i = 0; i < count; ++i) {
      candidates_[first + i].score = scores[i];
    }
  }

  void answer() {
    Checksum checksum;
    std::int32_t best = 0;
    for (const Candidate& each : candidates_) {
      checksum.add((std::uint64_t{each.query} << 32U) | each.subject);
      checksum.add(static_cast<std::uint64_t>(each.score));
      best = std::max(best, each.score);
    }
    result_.checksum = checksum.text();
    result_.answer = "{\"candidates\": " + std::to_string(candidates_.size()) +
                     ", \"best_score\": " + std::to_string(best) + "}";
  }

  void check_seeds(std::uint32_t query, const std::vector<Seed>& seeds) {
    const std::uint64_t step = check_step(options_, seeds.size() * queries_.size());
    for (std::size_t s = 0; s < seeds.size(); ++s) {
      if ((query * seeds.size() + s) % step == 0) {
        ++result_.checked;
        const Seed right = seed_by_all_places(queries_[query], subjects_[s]);
        result_.wrong += right == seeds[s] ? 0 : 1;
      }
    }
    result_.phases.end("check");
  }

  void check_alignments() {
    for (std::size_t c = 0; c < candidates_.size(); c += check_step(options_, candidates_.size())) {
      const Candidate& each = candidates_[c];
      ++result_.checked;
      const int right = align_by_matrices(
          queries_[each.query], subjects_[each.subject], each.seed.diagonal, band_half);
      result_.wrong += right == each.score ? 0 : 1;
    }
    result_.phases.end("check");
  }

  const Options& options_;
  Turn turn_;
  Result result_;
  std::vector<Protein> queries_;
  std::vector<Protein> subjects_;
  Packed packed_queries_;
  Packed database_;
  std::vector<WordTable> words_;  // by query
  std::size_t words_max_ = 0;     // places of the query that has the most
  std::unique_ptr<Device> device_;
  std::vector<Candidate> candidates_;
};

}  // namespace

std::vector<NumberOption> proteins_options() {
  return {{"sequences", 100'000, 1, 100'000'000, "proteins of the database"},
          {"letters", 350, 10, 100'000, "of such a protein, on average"},
          {"queries", 128, 1, 100'000, "proteins that are looked for"},
          {"query", 1000, word_letters, 100'000, "letters of a query"},
          {"cutoff", 38, word_score_min, 100'000, "least ungapped score of a candidate"}};
}

Result run_proteins(const Options& options) {
  return Search(options).run();
}
