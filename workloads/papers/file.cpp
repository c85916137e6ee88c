// Reading and writing whole extents, and inputs that are checked before anybody believes them.
#include "workloads/papers/file.hpp"

#include "workloads/sharing/random.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t numbers_max = 8;
constexpr std::array<char, 8> file_magic = {'h', 'i', 'p', 'p', 'o', 'i', 'n', '1'};

// The beginning of an input file, little-endian; zeros up to a page follow.
struct Header {
  std::array<char, 8> magic;
  std::array<char, 16> program;
  std::array<std::uint64_t, numbers_max> numbers;
};

static_assert(sizeof(Header) == 88 && sizeof(Header) <= page_bytes);

[[noreturn]] void throw_errno(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

Header make_header(const Format& format, const Numbers& numbers) {
  Header header{};
  header.magic = file_magic;
  const std::string_view program = format.program;
  std::copy(program.begin(), program.end(), header.program.begin());
  for (std::size_t i = 0; i < numbers.options().size(); ++i) {
    header.numbers.at(i) = numbers.options()[i].value;
  }
  return header;
}

std::uint64_t file_bytes(const std::vector<Section>& sections) {
  const Section& last = sections.back();
  return last.offset_bytes + last.size_bytes;
}

Numbers numbers_of_size(const File& file, const Format& format) {
  Numbers numbers(format.numbers);
  try {
    numbers.set(format.numbers.at(0).name, format.number_of_bytes(file.size_bytes()));
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(file.path() + " is no input of " + format.program + ": " +
                             error.what());
  }
  return numbers;
}

Numbers read_numbers(const File& file, const Format& format) {
  if (format.number_of_bytes != nullptr) {
    return numbers_of_size(file, format);
  }
  Numbers numbers(format.numbers);
  Header header{};
  if (file.size_bytes() < page_bytes) {
    throw std::runtime_error(file.path() + " is no input: it has " +
                             std::to_string(file.size_bytes()) + " bytes, less than its header");
  }
  file.read(&header, sizeof(header), 0);
  const Header expected = make_header(format, numbers);
  if (header.magic != expected.magic || header.program != expected.program) {
    throw std::runtime_error(file.path() + " is no input of " + format.program);
  }
  try {
    for (std::size_t i = 0; i < format.numbers.size(); ++i) {
      numbers.set(format.numbers[i].name, header.numbers.at(i));
    }
    static_cast<void>(format.array_bytes(numbers));
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(file.path() + " is damaged: " + error.what());
  }
  return numbers;
}

// Where a symbolic link leads, also to nothing, so that it stays one; empty for what is there and
// no regular file.
std::string place_of(const std::string& path) {
  constexpr int links_max = 40;  // Linux's own
  std::filesystem::path place = path;
  for (int count = 0; count < links_max && std::filesystem::is_symlink(place); ++count) {
    place = place.parent_path() / std::filesystem::read_symlink(place);
  }
  const bool is_free = !std::filesystem::exists(place);
  return is_free || std::filesystem::is_regular_file(place) ? place.string() : std::string();
}

std::string folder_of(const std::string& place) {
  const std::string folder = std::filesystem::path(place).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Of the same folder, and short whatever the place is called.
std::string random_name(const std::string& place) {
  std::random_device source;
  const std::uint64_t number = (std::uint64_t{source()} << 32U) | source();
  return folder_of(place) + "/.hippogriff-" + std::to_string(number);
}

std::string link_of(int fd) {
  return "/proc/self/fd/" + std::to_string(fd);
}

OwnedDescriptor open_named(const std::string& place, int access, std::string& name) {
  for (;;) {
    name = random_name(place);
    const int fd = open(name.c_str(), access | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd >= 0) {
      return {fd};
    }
    if (errno != EEXIST) {
      throw_errno("open " + place);
    }
  }
}

// A new file in the folder of `place`: without a name where it can be given one later, else `name`
// says which it has.
OwnedDescriptor open_beside(const std::string& place, int access, std::string& name) {
  const int fd = open(folder_of(place).c_str(), access | O_TMPFILE | O_CLOEXEC, 0666);
  if (fd >= 0 && ::access(link_of(fd).c_str(), F_OK) == 0) {
    return {fd};
  }
  if (fd >= 0) {
    close(fd);
  } else if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) {
    throw_errno("open " + place);
  }
  return open_named(place, access, name);
}

}  // namespace

std::vector<Section> sections_of(const Format& format, const Numbers& numbers) {
  std::vector<Section> sections;
  std::uint64_t end = format.number_of_bytes == nullptr ? page_bytes : 0;
  for (const std::uint64_t size : format.array_bytes(numbers)) {
    const std::uint64_t begin = (end + page_bytes - 1) / page_bytes * page_bytes;
    sections.push_back({begin, size});
    end = begin + size;
  }
  return sections;
}

void write_header(const File& file, const Format& format, const Numbers& numbers) {
  const Header header = make_header(format, numbers);
  file.write(&header, sizeof(header), 0);
}

// What is only read has a size, or is refused later: a FIFO is not waited for until somebody
// writes.
File::File(std::string path, int flags)
    : path_(std::move(path)),
      fd_(open(path_.c_str(),
               flags | O_CLOEXEC | ((flags & O_ACCMODE) == O_RDONLY ? O_NONBLOCK : 0),
               0666)) {
  if (fd_ < 0) {
    throw_errno("open " + path_);
  }
}

File::~File() {
  close(fd_);
}

std::uint64_t File::size_bytes() const {
  struct stat facts{};
  if (fstat(fd_, &facts) != 0) {
    throw_errno("stat " + path_);
  }
  return static_cast<std::uint64_t>(facts.st_size);
}

void File::read(void* to, std::size_t size_bytes, std::uint64_t offset) const {
  for (std::size_t done = 0; done < size_bytes;) {
    const ssize_t count = pread(
        fd_, static_cast<char*>(to) + done, size_bytes - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno != EINTR) {
      throw_errno("read " + path_);
    }
    if (count == 0) {
      throw std::runtime_error("read " + path_ + ": ends at byte " + std::to_string(offset + done));
    }
    done += count > 0 ? static_cast<std::size_t>(count) : 0;
  }
}

void File::write(const void* from, std::size_t size_bytes, std::uint64_t offset) const {
  for (std::size_t done = 0; done < size_bytes;) {
    const ssize_t count = pwrite(fd_,
                                 static_cast<const char*>(from) + done,
                                 size_bytes - done,
                                 static_cast<off_t>(offset + done));
    if (count < 0 && errno != EINTR) {
      throw_errno("write " + path_);
    }
    done += count > 0 ? static_cast<std::size_t>(count) : 0;
  }
}

void File::sync() const {
  if (fdatasync(fd_) != 0) {
    throw_errno("fdatasync " + path_);
  }
}

NewFile::NewFile(const std::string& path, int access)
    : place_(place_of(path)),
      file_(place_.empty() ? File(path, access | O_CREAT | O_TRUNC)
                           : File(place_, open_beside(place_, access, name_))) {
  struct stat facts{};
  if (place_.empty() || stat(place_.c_str(), &facts) != 0) {
    return;
  }
  if (fchmod(file_.fd(), facts.st_mode & 07777U) != 0 || unlink(place_.c_str()) != 0) {
    const int failure = errno;
    unlink(name_.c_str());
    errno = failure;
    throw_errno("replace " + place_);
  }
}

NewFile::~NewFile() {
  if (!name_.empty() && unlink(name_.c_str()) != 0) {
    static_cast<void>(
        std::fprintf(stderr, "what there is of %s could not be removed\n", name_.c_str()));
  }
}

void NewFile::keep() {
  if (place_.empty()) {
    return;
  }
  while (name_.empty()) {
    std::string name = random_name(place_);
    if (linkat(AT_FDCWD, link_of(file_.fd()).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) ==
        0) {
      name_ = std::move(name);
    } else if (errno != EEXIST) {
      throw_errno("give " + place_ + " its name");
    }
  }
  if (rename(name_.c_str(), place_.c_str()) != 0) {
    throw_errno("rename " + name_ + " to " + place_);
  }
  name_.clear();
  place_.clear();
}

std::uint64_t Numbers::at(std::string_view name) const {
  const auto found = std::find_if(
      options_.begin(), options_.end(), [&](const auto& each) { return name == each.name; });
  if (found == options_.end()) {
    throw std::out_of_range("no number of that name: " + std::string(name));
  }
  return found->value;
}

void Numbers::set(std::string_view name, std::uint64_t value) {
  const auto found = std::find_if(
      options_.begin(), options_.end(), [&](const auto& each) { return name == each.name; });
  if (found == options_.end()) {
    throw std::invalid_argument("unknown option: --" + std::string(name));
  }
  if (value < found->min || value > found->max) {
    throw std::invalid_argument(std::string(name) + " is from " + std::to_string(found->min) +
                                " to " + std::to_string(found->max) + ", not " +
                                std::to_string(value));
  }
  found->value = value;
}

Input::Input(const std::string& path, const Format& format)
    : file_(path, O_RDONLY),
      numbers_(read_numbers(file_, format)),
      sections_(sections_of(format, numbers_)) {
  const std::uint64_t expected = file_bytes(sections_);
  if (file_.size_bytes() != expected) {
    throw std::runtime_error(path + " is damaged: it has " + std::to_string(file_.size_bytes()) +
                             " bytes, its header says " + std::to_string(expected));
  }
}

void Input::read(void* to, std::size_t section) const {
  const Section& place = sections_.at(section);
  file_.read(to, place.size_bytes, place.offset_bytes);
}

InputWriter::InputWriter(const std::string& path, Format format, Numbers numbers)
    : file_(path, O_WRONLY),
      format_(std::move(format)),
      numbers_(std::move(numbers)),
      sections_(sections_of(format_, numbers_)) {}

void InputWriter::finish() {
  const File& file = file_.file();
  if (ftruncate(file.fd(), static_cast<off_t>(file_bytes(sections_))) != 0) {
    throw_errno("ftruncate " + file.path());
  }
  if (format_.number_of_bytes == nullptr) {
    write_header(file, format_, numbers_);
  }
  file_.keep();
}

std::uint64_t RandomField::bits(std::uint64_t stream, std::uint64_t index) const {
  Random of_stream(seed_ ^ (stream << 56U));
  return Random(of_stream.next() + index).next();
}
