// The program `align`: an index, and batches that go from a file to the device and to a file.
#include "workloads/align/align.hpp"

#include "workloads/sharing/device.hpp"
#include "workloads/sharing/fasta.hpp"
#include "workloads/sharing/random.hpp"
#include "workloads/sharing/turn.hpp"

#include <algorithm>
#include <stdexcept>

namespace {

// Writes the reference and the reads, each as a FASTA file.
void write_input(const Options& options, FILE* reference_file, FILE* reads_file) {
  const std::string reference = make_reference(options);
  write_fasta(reference_file, {{"reference", reference}});
  for (std::uint64_t number = 0; number < options.number("reads"); ++number) {
    write_fasta(reads_file,
                {{"read" + std::to_string(number), make_read(options, reference, number)}});
  }
  rewind_to_read(reference_file);
  rewind_to_read(reads_file);
}

std::size_t data_size_bytes(const WindowIndex& index, std::size_t reads) {
  return DeviceMemory::rounded(index.windows.size() * sizeof(std::uint64_t)) +
         DeviceMemory::rounded(index.places.size() * sizeof(std::uint32_t)) +
         DeviceMemory::rounded(reads * sizeof(std::uint64_t)) +
         DeviceMemory::rounded(reads * sizeof(AlignHit));
}

std::vector<AlignHit> match(DeviceMemory& memory,
                            const Device& device,
                            const WindowIndex& index,
                            const std::vector<std::uint64_t>& reads,
                            std::uint32_t mismatches_max) {
  AlignWork work{};
  work.windows = memory.copy_in(index.windows);
  work.places = memory.copy_in(index.places);
  work.window_count = static_cast<std::uint32_t>(index.windows.size());
  work.mismatches_max = mismatches_max;
  work.reads = memory.copy_in(reads);
  work.hits = memory.cut<AlignHit>(reads.size());
  run_work(device, work, reads.size());
  return memory.copy_out(work.hits, reads.size());
}

// One line a read: its name, how many places match, the best of them and its mismatches.
void write_hits(FILE* file,
                const std::vector<FastaRecord>& records,
                const std::vector<AlignHit>& hits) {
  for (std::size_t i = 0; i < hits.size(); ++i) {
    if (std::fprintf(file,
                     "%s\t%u\t%d\t%d\n",
                     records[i].name.c_str(),
                     hits[i].count,
                     static_cast<int>(hits[i].place),
                     static_cast<int>(hits[i].best)) < 0) {
      throw std::runtime_error("write matches: the file system is full");
    }
  }
}

// The run's state from batch to batch.
class Aligner {
 public:
  explicit Aligner(const Options& options) : options_(options), turn_(options) {
    reference_file_ = make_scratch_file();
    reads_file_ = make_scratch_file();
    hits_file_ = make_scratch_file();
    write_input(options_, reference_file_.get(), reads_file_.get());
    result_.phases.end("generate");
    reference_ = FastaReader(reference_file_.get()).read(1).at(0).letters;
    index_ = make_index(reference_);
    result_.phases.end("index");
  }

  Result run() {
    const std::uint64_t count = options_.number("reads");
    const std::uint64_t batches = std::min(options_.number("batches"), count);
    const std::uint64_t in_batch = (count + batches - 1) / batches;
    result_.data_bytes = data_size_bytes(index_, in_batch);
    result_.memory_bytes = memory_to_hold(options_, result_.data_bytes);
    FastaReader reader(reads_file_.get());
    while (true) {
      const std::vector<FastaRecord> records = reader.read(in_batch);
      if (records.empty()) {
        break;
      }
      batch(records);
    }
    result_.device = turn_.device();
    result_.checksum = checksum_.text();
    result_.answer = "{\"reads\": " + std::to_string(first_) +
                     ", \"matched\": " + std::to_string(matched_) + "}";
    return result_;
  }

 private:
  void batch(const std::vector<FastaRecord>& records) {
    std::vector<std::uint64_t> reads(records.size());
    std::transform(records.begin(), records.end(), reads.begin(), [](const FastaRecord& record) {
      return pack(record.letters);
    });
    result_.phases.end("parse");
    turn_.take(result_.memory_bytes);
    result_.phases.end("wait");
    if (!device_) {
      device_ = open_device(turn_.device());
      result_.phases.end("context");
    }
    const std::vector<AlignHit> hits = match_on_device(reads);
    turn_.give(result_.memory_bytes);
    result_.phases.end("device");
    write_hits(hits_file_.get(), records, hits);
    for (const AlignHit& hit : hits) {
      checksum_.add(hit.count);
      checksum_.add((std::uint64_t{hit.best} << 32U) | hit.place);
      matched_ += hit.count > 0 ? 1 : 0;
    }
    result_.phases.end("write");
    check(records, hits);
    first_ += records.size();
  }

  std::vector<AlignHit> match_on_device(const std::vector<std::uint64_t>& reads) {
    DeviceMemory memory(*device_, result_.memory_bytes);
    return match(memory, *device_, index_, reads, mismatches_max());
  }

  void check(const std::vector<FastaRecord>& records, const std::vector<AlignHit>& hits) {
    if (!options_.check()) {
      return;
    }
    const std::uint64_t step = check_step(options_, options_.number("reads"));
    for (std::size_t i = 0; i < hits.size(); ++i) {
      if ((first_ + i) % step == 0) {
        ++result_.checked;
        const AlignHit right =
            align_letter_by_letter(reference_, records[i].letters, mismatches_max());
        result_.wrong += right == hits[i] ? 0 : 1;
      }
    }
    result_.phases.end("check");
  }

  [[nodiscard]] std::uint32_t mismatches_max() const {
    return static_cast<std::uint32_t>(options_.number("mismatches"));
  }

  const Options& options_;
  Turn turn_;
  Result result_;
  ScratchFile reference_file_;
  ScratchFile reads_file_;
  ScratchFile hits_file_;
  std::string reference_;
  WindowIndex index_;
  std::unique_ptr<Device> device_;
  Checksum checksum_;
  std::uint64_t first_ = 0;  // number of the batch's first read
  std::uint64_t matched_ = 0;
};

}  // namespace

std::vector<NumberOption> align_options() {
  return {{"reference", 5'200'000, read_letters, 1'000'000'000, "letters of the reference"},
          {"reads", 500'000, 1, 1'000'000'000, "reads of 25 letters"},
          {"batches", 10, 1, 1'000'000, "in which the reads are matched"},
          {"mismatches", 3, 0, 5, "letters of a read that may be wrong"}};
}

Result run_align(const Options& options) {
  return Aligner(options).run();
}
