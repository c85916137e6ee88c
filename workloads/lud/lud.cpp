// The papers' example: LU decomposition of a matrix that comes from a file and goes to a file.
// `lud run` is their listing with hippogriff; `lud baseline` is the program it replaces.
#include "lud_cpu.hpp"
#include "lud_kernel.hpp"
#include "lud_oracle.hpp"

#include <hippogriff/hippogriff.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace {

constexpr std::size_t order_max = 46340;  // n * n still counts in the kernels' 32-bit integers
constexpr std::uint64_t default_seed = 2016;

constexpr const char* usage =
    "usage: lud generate FILE N [SEED]        write a random N x N matrix of float32\n"
    "       lud run IN OUT [--device DEVICE] [--json]  decompose IN into OUT through hippogriff\n"
    "       lud baseline IN OUT [--device DEVICE] [--json]  the same with read, malloc, "
    "cudaMemcpy\n"
    "       lud check IN OUT                  compare L U of OUT with IN\n"
    "DEVICE is cuda:0, cuda:1, ... or host; without it the first GPU, else host.\n";

// Where a program's seconds go.
class Stopwatch {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return seconds;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Of a run: in is hippogriff_send's, out hippogriff_recv's. Of a baseline the copies are a part of
// each.
struct Times {
  double start_seconds = 0;
  double in_seconds = 0;
  double copy_in_seconds = 0;
  double kernel_seconds = 0;
  double copy_out_seconds = 0;
  double out_seconds = 0;
};

class File {
 public:
  File(const char* path, int flags) : fd_(open(path, flags | O_CLOEXEC, 0666)) {
    if (fd_ < 0) {
      throw std::system_error(errno, std::generic_category(), std::string("open ") + path);
    }
  }

  ~File() { close(fd_); }

  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] int fd() const { return fd_; }

  // Until the bytes are on the drive, which makes the programs' ways out comparable.
  void sync() const {
    if (fdatasync(fd_) != 0) {
      throw std::system_error(errno, std::generic_category(), "fdatasync");
    }
  }

 private:
  int fd_;
};

[[noreturn]] void throw_last_error(const char* call) {
  hippogriff_error error;
  hippogriff_last_error(&error);
  throw std::runtime_error(std::string(call) + ": " + error.message);
}

// Ends the runtime on every way out, so that errors leave nothing behind.
class Session {
 public:
  Session() {
    if (hippogriff_init() != HIPPOGRIFF_OK) {
      throw_last_error("hippogriff_init");
    }
  }

  ~Session() { hippogriff_deinit(); }

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
};

void lud_kernel(void* matrix, std::size_t n) {
  auto* elements = static_cast<float*>(matrix);
  lud_is_gpu_memory(matrix) ? lud_on_gpu(elements, n) : lud_on_cpu(elements, n);
}

// The papers' listing. `device` NULL leaves allocating to hippogriff_send, as they do.
Times run(const File& in, const File& out, std::size_t n, const char* device) {
  const std::size_t size = n * n * sizeof(float);
  Times times;
  Stopwatch watch;
  const Session session;  // hippogriff_init(), and hippogriff_deinit() at the end
  void* d_m = nullptr;
  if (device != nullptr && hippogriff_malloc(device, size, &d_m) != HIPPOGRIFF_OK) {
    throw_last_error("hippogriff_malloc");
  }
  times.start_seconds = watch.lap();
  if (hippogriff_send(in.fd(), &d_m, 0, size) != size) {
    throw_last_error("hippogriff_send");
  }
  times.in_seconds = watch.lap();
  lud_kernel(d_m, n);
  times.kernel_seconds = watch.lap();
  if (hippogriff_recv(out.fd(), d_m, 0, size) != size) {
    throw_last_error("hippogriff_recv");
  }
  out.sync();
  times.out_seconds = watch.lap();
  return times;
}

std::uint64_t parse_number(std::string_view text, std::uint64_t max) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number > max) {
    throw std::invalid_argument("not a number up to " + std::to_string(max) + ": " +
                                std::string(text));
  }
  return number;
}

// The GPU that a device's name means, or -1 for the CPU.
int gpu_of(const char* device) {
  const int count = lud_gpu_count();
  if (device == nullptr) {
    return count > 0 ? 0 : -1;
  }
  const std::string_view name(device);
  if (name == "host") {
    return -1;
  }
  if (!name.starts_with("cuda:") || count == 0) {
    throw std::invalid_argument("no such device here: " + std::string(name));
  }
  return static_cast<int>(parse_number(name.substr(5), static_cast<std::uint64_t>(count - 1)));
}

// The conventional program: a host buffer, read, copies, write.
Times baseline(const File& in, const File& out, std::size_t n, int gpu) {
  const std::size_t size = n * n * sizeof(float);
  Times times;
  Stopwatch watch;
  const std::unique_ptr<void, decltype(&std::free)> memory(std::malloc(size), &std::free);
  auto* matrix = static_cast<float*>(memory.get());
  if (matrix == nullptr) {
    throw std::bad_alloc();
  }
  lud_read(in.fd(), matrix, size, 0, "IN");
  times.in_seconds = watch.lap();
  if (gpu < 0) {
    lud_on_cpu(matrix, n);
    times.kernel_seconds = watch.lap();
  } else {
    const LudBaselineTimes steps = lud_baseline_on_gpu(matrix, n, gpu);
    times.copy_in_seconds = steps.to_device_seconds;
    times.in_seconds += times.copy_in_seconds;
    times.kernel_seconds = steps.kernel_seconds;
    times.copy_out_seconds = steps.to_host_seconds;
    times.out_seconds = times.copy_out_seconds;
    watch.lap();
  }
  lud_write(out.fd(), matrix, size, 0, "OUT");
  out.sync();
  times.out_seconds += watch.lap();
  return times;
}

void report(const char* what, std::size_t n, const Times& times) {
  const double gigabytes = static_cast<double>(n * n * sizeof(float)) * 1e-9;
  std::printf("%s %zu x %zu: in %.3f s (%.2f GB/s), kernel %.3f s, out %.3f s (%.2f GB/s)\n",
              what,
              n,
              n,
              times.in_seconds,
              gigabytes / times.in_seconds,
              times.kernel_seconds,
              times.out_seconds,
              gigabytes / times.out_seconds);
}

// As the papers' other programs tell it: see workloads/papers.
void report_json(const char* what, std::size_t n, const Times& times) {
  const std::size_t bytes = n * n * sizeof(float);
  const auto rows = static_cast<double>(n);
  std::printf(
      "{\"program\": \"lud\", \"verb\": \"%s\", \"input_bytes\": %zu, \"output_bytes\": %zu, "
      "\"kernel_operations\": %.9g, \"numbers\": {\"rows\": %zu}, \"seconds\": {\"start\": %.9g, ",
      what,
      bytes,
      bytes,
      2.0 / 3.0 * rows * rows * rows,
      n,
      times.start_seconds);
  if (std::string_view(what) == "run") {
    std::printf("\"send\": %.9g, \"kernels\": %.9g, \"recv\": %.9g}}\n",
                times.in_seconds,
                times.kernel_seconds,
                times.out_seconds);
    return;
  }
  std::printf(
      "\"read\": %.9g, \"copy_in\": %.9g, \"kernels\": %.9g, \"copy_out\": %.9g, \"write\": "
      "%.9g}}\n",
      times.in_seconds - times.copy_in_seconds,
      times.copy_in_seconds,
      times.kernel_seconds,
      times.copy_out_seconds,
      times.out_seconds - times.copy_out_seconds);
}

int decompose(const std::vector<const char*>& words, const char* device, bool json) {
  const bool conventional = std::string_view(words[0]) == "baseline";
  const File in(words[1], O_RDONLY);
  const std::size_t n = lud_order_of(in.fd(), words[1]);
  if (n > order_max) {
    throw std::invalid_argument("matrices go up to " + std::to_string(order_max) + " rows, not " +
                                std::to_string(n));
  }
  const File out(words[2], O_RDWR | O_CREAT | O_TRUNC);
  const int gpu = gpu_of(device);
  if (gpu >= 0) {
    lud_prepare_gpu(gpu);
  }
  const Times times = conventional ? baseline(in, out, n, gpu) : run(in, out, n, device);
  json ? report_json(words[0], n, times) : report(words[0], n, times);
  return EXIT_SUCCESS;
}

int check(const char* matrix_path, const char* result_path) {
  const LudResidual residual = lud_check(matrix_path, result_path);
  const bool good = residual.worst <= 1.0;
  std::printf("%s: the largest residual is %.3g of what rounding may cause (row %zu, %s)\n",
              good ? "correct" : "WRONG",
              residual.worst,
              residual.worst_row,
              residual.every_element ? "every element" : "random combinations of columns");
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

int dispatch(const std::vector<const char*>& words, const char* device, bool json) {
  const std::string_view verb = words.empty() ? "" : words[0];
  if (verb == "generate" && (words.size() == 3 || words.size() == 4)) {
    const std::size_t n = parse_number(words[2], order_max);
    if (n == 0) {
      throw std::invalid_argument("a matrix has at least one row");
    }
    lud_generate(words[1], n, words.size() == 4 ? parse_number(words[3], ~0ULL) : default_seed);
    return EXIT_SUCCESS;
  }
  if ((verb == "run" || verb == "baseline") && words.size() == 3) {
    return decompose(words, device, json);
  }
  if (verb == "check" && words.size() == 3) {
    return check(words[1], words[2]);
  }
  static_cast<void>(std::fputs(usage, stderr));
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<const char*> words;
    const char* device = nullptr;
    bool json = false;
    for (int i = 1; i < argc; ++i) {
      if (std::string_view(argv[i]) == "--device" && i + 1 < argc) {
        device = argv[++i];
      } else if (std::string_view(argv[i]) == "--json") {
        json = true;
      } else {
        words.push_back(argv[i]);
      }
    }
    return dispatch(words, device, json);
  } catch (const std::exception& error) {
    static_cast<void>(std::fprintf(stderr, "lud: %s\n", error.what()));
    return EXIT_FAILURE;
  }
}
