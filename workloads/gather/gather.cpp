// Gathers rows of a file that is larger than the cache it comes through, beside a mapping of the
// file and loading all of it. usage: gather FILE SIZE_BYTES ROWS [ROW_BYTES [CACHE_BYTES]]
//
// FILE is made. Every word that comes back is compared with what was written.
#include <hippogriff/array.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

struct Wish {
  std::string path;
  std::uint64_t size_bytes = 0;
  std::uint64_t row_bytes = 512;
  std::uint64_t cache_bytes = 0;
  std::vector<std::uint64_t> rows;
};

[[noreturn]] void fail(const char* operation, const std::string& path) {
  throw std::system_error(errno, std::generic_category(), std::string(operation) + " " + path);
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0) {
      fail("open", path);
    }
  }

  ~Descriptor() { static_cast<void>(::close(fd_)); }

  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

std::uint64_t word_at(std::uint64_t index) {
  return (index + 1) * 0x9E3779B97F4A7C15U;
}

void make_file(const Wish& wish) {
  const Descriptor file(wish.path, O_WRONLY | O_CREAT | O_TRUNC);
  std::vector<std::uint64_t> piece(mib / sizeof(std::uint64_t));
  for (std::uint64_t done = 0; done < wish.size_bytes;) {
    for (std::uint64_t i = 0; i < piece.size(); ++i) {
      piece[i] = word_at(done / sizeof(std::uint64_t) + i);
    }
    const ssize_t count = ::write(file.get(), piece.data(), std::min(mib, wish.size_bytes - done));
    if (count <= 0 || count % sizeof(std::uint64_t) != 0) {
      fail("write", wish.path);
    }
    done += static_cast<std::uint64_t>(count);
  }
  if (::fdatasync(file.get()) != 0) {
    fail("sync", wish.path);
  }
}

void drop_from_page_cache(const Wish& wish) {
  const Descriptor file(wish.path, O_RDONLY);
  if (const int error = ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED); error != 0) {
    errno = error;
    fail("drop the page cache of", wish.path);
  }
}

using Rows = std::vector<std::uint64_t>;  // their words, one row after the other

void check(const Wish& wish, const Rows& gathered) {
  const std::uint64_t words = wish.row_bytes / sizeof(std::uint64_t);
  for (std::uint64_t i = 0; i < gathered.size(); ++i) {
    if (gathered[i] != word_at(wish.rows[i / words] * words + i % words)) {
      throw std::runtime_error("row " + std::to_string(wish.rows[i / words]) + " is wrong");
    }
  }
}

void through_the_cache(const Wish& wish, Rows& to) {
  const hippogriff::array<std::uint64_t> array(wish.path,
                                               {.device = "host", .cache_size = wish.cache_bytes});
  if (hippogriff_array_gather(
          array.get(), wish.rows.data(), wish.rows.size(), wish.row_bytes, to.data()) != 0) {
    hippogriff_error error{};
    hippogriff_last_error(&error);
    throw std::runtime_error(error.message);
  }
}

void from_a_mapping(const Wish& wish, Rows& to) {
  const Descriptor file(wish.path, O_RDONLY);
  void* mapping = ::mmap(nullptr, wish.size_bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (mapping == MAP_FAILED) {
    fail("map", wish.path);
  }
  auto* place = reinterpret_cast<char*>(to.data());
  for (const std::uint64_t row : wish.rows) {
    std::memcpy(place, static_cast<const char*>(mapping) + row * wish.row_bytes, wish.row_bytes);
    place += wish.row_bytes;
  }
  static_cast<void>(::munmap(mapping, wish.size_bytes));
}

void after_loading_all(const Wish& wish, Rows& to) {
  const Descriptor file(wish.path, O_RDONLY);
  std::vector<char> all(wish.size_bytes);
  for (std::uint64_t done = 0; done < all.size();) {
    const ssize_t count =
        ::pread(file.get(), all.data() + done, all.size() - done, static_cast<off_t>(done));
    if (count <= 0) {
      fail("read", wish.path);
    }
    done += static_cast<std::uint64_t>(count);
  }
  auto* place = reinterpret_cast<char*>(to.data());
  for (const std::uint64_t row : wish.rows) {
    std::memcpy(place, all.data() + row * wish.row_bytes, wish.row_bytes);
    place += wish.row_bytes;
  }
}

struct Way {
  const char* name;
  void (*gather)(const Wish&, Rows&);
  std::uint64_t memory_bytes;
};

void measure(const Wish& wish) {
  const Way ways[] = {{"StorageArray", &through_the_cache, wish.cache_bytes},
                      {"mmap", &from_a_mapping, 0},
                      {"load all", &after_loading_all, wish.size_bytes}};
  Rows gathered(wish.rows.size() * wish.row_bytes / sizeof(std::uint64_t));
  std::printf("%zu rows of %llu bytes from %llu MiB\n%-14s %12s %12s %14s\n",
              wish.rows.size(),
              static_cast<unsigned long long>(wish.row_bytes),
              static_cast<unsigned long long>(wish.size_bytes / mib),
              "way",
              "cold, s",
              "cached, s",
              "own memory MiB");
  for (const Way& way : ways) {
    double seconds[2] = {};
    for (double& each : seconds) {
      if (&each == &seconds[0]) {
        drop_from_page_cache(wish);
      }
      std::ranges::fill(gathered, 0);
      const auto begin = std::chrono::steady_clock::now();
      way.gather(wish, gathered);
      each = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      check(wish, gathered);
    }
    std::printf("%-14s %12.3f %12.3f %14.0f\n",
                way.name,
                seconds[0],
                seconds[1],
                static_cast<double>(way.memory_bytes) / mib);
  }
  std::printf("verified: every word of every row\n");
}

std::uint64_t number(const char* text) {
  char* end = nullptr;
  errno = 0;
  const std::uint64_t value = std::strtoull(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || *text == '-') {
    throw std::invalid_argument(std::string(text) + " is no number");
  }
  return value;
}

Wish parsed(int argc, char** argv) {
  if (argc < 4 || argc > 6) {
    throw std::invalid_argument("usage: gather FILE SIZE_BYTES ROWS [ROW_BYTES [CACHE_BYTES]]");
  }
  Wish wish;
  wish.path = argv[1];
  wish.row_bytes = argc > 4 ? number(argv[4]) : wish.row_bytes;
  if (wish.row_bytes == 0 || wish.row_bytes % sizeof(std::uint64_t) != 0) {
    throw std::invalid_argument("ROW_BYTES is no multiple of 8");
  }
  wish.size_bytes = number(argv[2]) / wish.row_bytes * wish.row_bytes;
  if (wish.size_bytes == 0) {
    throw std::invalid_argument("SIZE_BYTES is less than a row");
  }
  wish.cache_bytes = argc > 5 ? number(argv[5]) : std::max(mib, wish.size_bytes / 16);
  wish.rows.resize(number(argv[3]));
  std::mt19937_64 random(1);
  std::ranges::generate(wish.rows, [&] { return random() % (wish.size_bytes / wish.row_bytes); });
  return wish;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Wish wish = parsed(argc, argv);
    make_file(wish);
    measure(wish);
    return EXIT_SUCCESS;
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "gather: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gather: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
