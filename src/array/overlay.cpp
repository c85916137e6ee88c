// The file without a name, and the bits of what is in it.
#include "array/overlay.hpp"

#include "base/error.hpp"
#include "base/own_descriptor.hpp"
#include "storage/descriptor.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

namespace hippogriff::ondemand {

namespace {

constexpr std::uint64_t bits = 64;

// -1 and errno where the folder does not take a file.
Descriptor file_without_name(const std::string& folder) {
  Descriptor file(retry_interrupted([&] {
    return own_descriptor(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600));
  }));
  if (file.valid() || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) {
    return file;
  }
  std::string name = folder + "/.hippogriff-changes-XXXXXX";  // NFS, and others without O_TMPFILE
  Descriptor named(own_descriptor(::mkostemp(name.data(), O_CLOEXEC)));
  if (named.valid()) {
    static_cast<void>(::unlink(name.c_str()));
  }
  return named;
}

}  // namespace

Overlay::Overlay(Storage& storage, const OverlayOptions& options)
    : size_bytes_(options.size_bytes), line_bytes_(options.line_bytes) {
  const auto name = [&] { return "changes of " + options.array + " in " + folder_; };
  int errno_value = ENOENT;
  for (const std::string& folder : options.folders) {
    folder_ = folder;
    const Descriptor file = file_without_name(folder);
    if (file.valid()) {
      file_ = {storage.adopt_as(file.get(), FileAccess::read_write, name()), name()};
      break;
    }
    errno_value = errno;
  }
  if (file_.file == nullptr) {
    throw_io("make a file for", name(), no_offset, errno_value);
  }
  const std::uint64_t lines = (size_bytes_ - 1) / line_bytes_ + 1;
  const std::size_t words = (lines - 1) / bits + 1;
  void* memory = ::mmap(nullptr,
                        words * sizeof(std::uint64_t),
                        PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                        -1,
                        0);
  if (memory == MAP_FAILED) {
    throw Error({.status = Status::out_of_host_memory,
                 .operation = "remember",
                 .object = name(),
                 .errno_value = errno});
  }
  written_ = {static_cast<std::uint64_t*>(memory), words};
}

Overlay::~Overlay() {
  static_cast<void>(::munmap(written_.data(), written_.size_bytes()));
}

std::optional<std::uint64_t> Overlay::line_with(Range range) const {
  const std::uint64_t line = range.offset / line_bytes_;
  if (range.size == 0 || (range.end() - 1) / line_bytes_ != line) {
    return std::nullopt;
  }
  return line;
}

bool Overlay::is_line(Range range) const {
  return range.offset % line_bytes_ == 0 &&
         range.size == std::min<std::uint64_t>(line_bytes_, size_bytes_ - range.offset);
}

bool Overlay::has(std::uint64_t line) const {
  const std::atomic_ref<std::uint64_t> word(written_[line / bits]);
  return (word.load(std::memory_order_acquire) >> (line % bits) & 1U) != 0;
}

void Overlay::note(std::uint64_t line) {
  const std::atomic_ref<std::uint64_t> word(written_[line / bits]);
  word.fetch_or(std::uint64_t{1} << (line % bits), std::memory_order_release);
}

std::vector<std::string> overlay_folders(const Backing& backing) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here changes the environment
  if (const char* given = std::getenv("TMPDIR"); given != nullptr && *given != '\0') {
    return {given};
  }
  std::vector<std::string> folders;
  if (!backing.in_memory()) {
    const auto beside = std::filesystem::path(backing.files.front().name).parent_path();
    folders.push_back(beside.empty() ? "." : beside.string());
  }
  folders.insert(folders.end(), {"/var/tmp", "/tmp"});
  return folders;
}

}  // namespace hippogriff::ondemand
