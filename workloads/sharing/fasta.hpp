// FASTA, the text format of sequences: ">name" and lines of letters.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

struct FastaRecord {
  std::string name;
  std::string letters;
};

struct CloseFile {
  void operator()(FILE* file) const { static_cast<void>(std::fclose(file)); }
};

using ScratchFile = std::unique_ptr<FILE, CloseFile>;

// A file without a name that ends with the handle. Throws std::system_error.
ScratchFile make_scratch_file();

// Appends records, in lines of 60 letters. Throws std::system_error.
void write_fasta(FILE* file, const std::vector<FastaRecord>& records);

// Flushes, and goes to the beginning to read. Throws std::system_error.
void rewind_to_read(FILE* file);

// Reads a file record by record from its beginning. Throws std::runtime_error for text that is no
// FASTA, std::system_error for a file that cannot be read.
class FastaReader {
 public:
  explicit FastaReader(FILE* file) : file_(file) {}

  // Up to `count` records; fewer only at the end.
  std::vector<FastaRecord> read(std::size_t count);

 private:
  bool next_line(std::string& line);

  FILE* file_;
  std::string pending_;  // the next record's ">name", when it has been read
};
