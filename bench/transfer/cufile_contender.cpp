// NVIDIA's cuFile, only where GPUDirect Storage is real: its compatibility mode is another ring.
#include "transfer/contender.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace bench {

namespace {

// cuFile's binary interface, as far as it is needed.
struct CuFileError {
  int error = 0;
  int cuda_status = 0;
};

struct CuFileDescription {
  int type = 1;  // an ordinary descriptor

  union {
    int fd;
    void* handle;
  } handle = {};

  const void* operations = nullptr;
};

struct CuFile {
  CuFileError (*driver_open)() = nullptr;
  CuFileError (*handle_register)(void**, CuFileDescription*) = nullptr;
  void (*handle_deregister)(void*) = nullptr;
  ssize_t (*read)(void*, void*, std::size_t, off_t, off_t) = nullptr;
  ssize_t (*write)(void*, const void*, std::size_t, off_t, off_t) = nullptr;
  std::string why_not;
};

template <class Function>
void load(void* library, const char* name, Function& function, std::string& why_not) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    why_not = std::string("libcufile lacks ") + name;
  }
}

const CuFile& cufile() {
  static const CuFile api = [] {
    CuFile loaded;
    // Opening the driver without nvidia-fs fails, and in some releases closes descriptor 0.
    if (access("/dev/nvidia-fs0", F_OK) != 0) {
      loaded.why_not = "no GPUDirect Storage: /dev/nvidia-fs0 does not exist";
      return loaded;
    }
    setenv("CUFILE_ALLOW_COMPAT_MODE", "false", 1);  // NOLINT(concurrency-mt-unsafe)
    void* library = dlopen("libcufile.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      loaded.why_not = "libcufile.so.0 cannot be opened";
      return loaded;
    }
    load(library, "cuFileDriverOpen", loaded.driver_open, loaded.why_not);
    load(library, "cuFileHandleRegister", loaded.handle_register, loaded.why_not);
    load(library, "cuFileHandleDeregister", loaded.handle_deregister, loaded.why_not);
    load(library, "cuFileRead", loaded.read, loaded.why_not);
    load(library, "cuFileWrite", loaded.write, loaded.why_not);
    if (loaded.why_not.empty() && loaded.driver_open().error != 0) {
      loaded.why_not = "cuFileDriverOpen failed";
    }
    return loaded;
  }();
  return api;
}

class CuFileThreads : public Contender {
 public:
  explicit CuFileThreads(const Bench& bench) : bench_(bench) {}

  [[nodiscard]] std::string name() const override { return "cufile"; }

  [[nodiscard]] nlohmann::json parameters() const override {
    return {{"threads", threads}, {"piece_bytes", piece}};
  }

  [[nodiscard]] std::string refusal(const Case& what) const override {
    if (!bench_.device.is_gpu()) {
      return "there is no GPU";
    }
    if (what.place->in_memory) {
      return "there is no drive";
    }
    return cufile().why_not;
  }

  nlohmann::json run(const Case& what) override {
    const bool sending = what.direction == Direction::send;
    const Descriptor file(sending ? what.place->source() : what.place->target(),
                          (sending ? O_RDONLY : O_RDWR) | O_DIRECT);
    CuFileDescription description;
    description.handle.fd = file.get();
    void* handle = nullptr;
    const CuFileError status = cufile().handle_register(&handle, &description);
    if (status.error != 0) {
      throw std::runtime_error("cuFileHandleRegister: " + std::to_string(status.error));
    }
    const std::unique_ptr<void, void (*)(void*)> owner(handle, cufile().handle_deregister);
    std::atomic<std::uint64_t> next = 0;
    std::atomic<ssize_t> failed = 0;
    {
      std::vector<std::jthread> workers;
      for (unsigned t = 0; t < threads; ++t) {
        workers.emplace_back([&] { work(sending, handle, what.size, next, failed); });
      }
    }
    if (failed != 0) {
      throw std::runtime_error("cuFile moved less than asked: " + std::to_string(failed));
    }
    return nullptr;
  }

  [[nodiscard]] double expected_rate(const Case& /*what*/) const override {
    return expected_drive_rate;
  }

 private:
  static constexpr unsigned threads = 8;
  static constexpr std::uint64_t piece = std::uint64_t{16} << 20U;

  void work(bool sending,
            void* handle,
            std::uint64_t size,
            std::atomic<std::uint64_t>& next,
            std::atomic<ssize_t>& failed) {
    bench_.device.make_current();
    void* memory = reinterpret_cast<void*>(bench_.device_memory);  // NOLINT: an address by value
    for (;;) {
      const std::uint64_t offset = next.fetch_add(piece);
      if (offset >= size || failed != 0) {
        return;
      }
      const std::uint64_t count = std::min(piece, size - offset);
      const auto at = static_cast<off_t>(offset);
      const ssize_t moved = sending ? cufile().read(handle, memory, count, at, at)
                                    : cufile().write(handle, memory, count, at, at);
      if (moved != static_cast<ssize_t>(count)) {
        failed = moved == 0 ? -1 : moved;
      }
    }
  }

  Bench bench_;
};

}  // namespace

void add_cufile(Contenders& to, const Bench& bench) {
  to.push_back(std::make_unique<CuFileThreads>(bench));
}

}  // namespace bench
