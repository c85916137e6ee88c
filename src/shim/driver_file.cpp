// Looks for the real driver where the dynamic loader would, past ourselves.
#include "shim/driver_file.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

namespace hippogriff::shim {
namespace {

constexpr const char* driver_name = "libcuda.so.1";
constexpr const char* loader_cache = "/etc/ld.so.cache";
constexpr const char* well_known_folders[] = {
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
};

// The loader's cache as glibc has written it since 2.2: this header, the entries, the strings.
constexpr std::string_view cache_magic = "glibc-ld.so.cache1.1";
constexpr std::size_t cache_header_bytes = 48;
constexpr std::size_t cache_entry_bytes = 24;

std::uint32_t word_at(std::string_view bytes, std::size_t offset) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + offset, sizeof(word));
  return word;
}

std::string_view text_at(std::string_view bytes, std::size_t offset) {
  if (offset >= bytes.size()) {
    return {};
  }
  const std::string_view rest = bytes.substr(offset);
  const std::size_t end = rest.find('\0');
  return end == std::string_view::npos ? std::string_view{} : rest.substr(0, end);
}

std::string read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class Candidates {
 public:
  explicit Candidates(const std::string& ourselves) {
    ours_known_ = ::stat(ourselves.c_str(), &ours_) == 0;
  }

  void add(const std::string& path) {
    struct stat facts = {};
    if (path.empty() || path.front() != '/' || ::stat(path.c_str(), &facts) != 0) {
      return;
    }
    const bool is_ours =
        ours_known_ && facts.st_dev == ours_.st_dev && facts.st_ino == ours_.st_ino;
    if (!is_ours && std::find(paths.begin(), paths.end(), path) == paths.end()) {
      paths.push_back(path);
    }
  }

  std::vector<std::string> paths;

 private:
  struct stat ours_ = {};
  bool ours_known_ = false;
};

void add_search_path(Candidates& candidates, const char* folders, const std::string& name) {
  std::string_view rest = folders == nullptr ? "" : folders;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find_first_of(":;"), rest.size());
    candidates.add(std::string(rest.substr(0, end)) + "/" + name);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

}  // namespace

std::vector<std::string> cached_paths(const std::string& cache, const std::string& library) {
  std::vector<std::string> paths;
  const std::size_t begin = cache.find(cache_magic);
  if (begin == std::string::npos || cache.size() - begin < cache_header_bytes) {
    return paths;
  }
  // Offsets count from the header's begin.
  const std::string_view bytes = std::string_view(cache).substr(begin);
  const std::size_t room = (bytes.size() - cache_header_bytes) / cache_entry_bytes;
  const std::size_t count = std::min<std::size_t>(word_at(bytes, cache_magic.size()), room);
  for (std::size_t index = 0; index < count; ++index) {
    const std::size_t entry = cache_header_bytes + index * cache_entry_bytes;
    if (text_at(bytes, word_at(bytes, entry + 4)) == library) {
      paths.emplace_back(text_at(bytes, word_at(bytes, entry + 8)));
    }
  }
  return paths;
}

std::vector<std::string> driver_candidates(const std::string& ourselves) {
  Candidates candidates(ourselves);
  std::string name = driver_name;
  // `hippogriff run` points HIPPOGRIFF_CUDA_DRIVER, which libhippogriff reads too, at ourselves.
  const char* moved = ::secure_getenv("HIPPOGRIFF_SHIM_DRIVER");
  const char* chosen = moved != nullptr ? moved : ::secure_getenv("HIPPOGRIFF_CUDA_DRIVER");
  if (chosen != nullptr) {
    name = chosen;
    if (name.empty() || name.find('/') != std::string::npos) {
      char* whole = name.empty() ? nullptr : ::realpath(name.c_str(), nullptr);
      candidates.add(whole == nullptr ? "" : whole);
      std::free(whole);
      return candidates.paths;
    }
  }
  add_search_path(candidates, ::secure_getenv("LD_LIBRARY_PATH"), name);
  for (const std::string& path : cached_paths(read_file(loader_cache), name)) {
    candidates.add(path);
  }
  for (const char* folder : well_known_folders) {
    candidates.add(std::string(folder) + "/" + name);
  }
  return candidates.paths;
}

}  // namespace hippogriff::shim
