// Writing and reading FASTA in scratch files.
#include "workloads/sharing/fasta.hpp"

#include <array>
#include <cerrno>
#include <stdexcept>
#include <string_view>
#include <system_error>

namespace {

constexpr std::size_t line_letters = 60;

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

void put(FILE* file, std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), file) != text.size()) {
    throw_errno("write a scratch file");
  }
}

}  // namespace

ScratchFile make_scratch_file() {
  ScratchFile file(std::tmpfile());
  if (!file) {
    throw_errno("make a scratch file");
  }
  return file;
}

void write_fasta(FILE* file, const std::vector<FastaRecord>& records) {
  for (const FastaRecord& record : records) {
    put(file, ">" + record.name + "\n");
    const std::string_view letters = record.letters;
    for (std::size_t first = 0; first < letters.size(); first += line_letters) {
      put(file, letters.substr(first, line_letters));
      put(file, "\n");
    }
  }
}

void rewind_to_read(FILE* file) {
  if (std::fflush(file) != 0 || std::fseek(file, 0, SEEK_SET) != 0) {
    throw_errno("rewind a scratch file");
  }
}

bool FastaReader::next_line(std::string& line) {
  line.clear();
  std::array<char, 256> piece{};
  while (std::fgets(piece.data(), piece.size(), file_) != nullptr) {
    line += piece.data();
    if (line.ends_with('\n')) {
      line.pop_back();
      return true;
    }
  }
  if (std::ferror(file_) != 0) {
    throw_errno("read a scratch file");
  }
  return !line.empty();
}

std::vector<FastaRecord> FastaReader::read(std::size_t count) {
  std::vector<FastaRecord> records;
  std::string line;
  while (true) {
    const bool more = pending_.empty() ? next_line(line) : (line.swap(pending_), true);
    pending_.clear();
    if (!more) {
      return records;
    }
    if (line.starts_with('>')) {
      if (records.size() == count) {
        pending_ = line;
        return records;
      }
      records.push_back({line.substr(1), ""});
    } else if (records.empty()) {
      throw std::runtime_error("no FASTA: letters before the first name");
    } else {
      records.back().letters += line;
    }
  }
}
