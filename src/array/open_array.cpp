// Opening an array: checks, files by mode, the controller that a process has.
#include "array/open_array.hpp"

#include "array/file_windows.hpp"
#include "array/io_choice.hpp"
#include "array/loading.hpp"
#include "array/overlay.hpp"
#include "array/read_choice.hpp"
#include "base/machine_memory.hpp"
#include "transfer/abi.hpp"
#include "transfer/runtime.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hippogriff::ondemand {

namespace {

constexpr std::uint32_t controller_threads_max = 4;

// They sleep where there is nothing to copy. Machines with fewer cores have none to spare.
constexpr std::uint32_t copiers_max = 8;
constexpr std::uint32_t crewed_cores = 8;

// One controller for all arrays of a process, as long as there are any.
struct SharedController {
  explicit SharedController(std::uint64_t of_generation) : generation(of_generation) {}

  const std::uint64_t generation;
  std::mutex mutex;
  std::weak_ptr<Controller> controller;
};

// A forked child has another one: the parent's threads, and perhaps its lock, are not the child's.
SharedController& shared_controller() {
  static std::atomic<SharedController*> present{nullptr};
  SharedController* shared = present.load();
  while (shared == nullptr || shared->generation != process_generation()) {
    auto fresh = std::make_unique<SharedController>(process_generation());
    if (present.compare_exchange_strong(shared, fresh.get())) {
      shared = fresh.release();
    }
  }
  return *shared;
}

std::uint32_t controller_threads() {
  return std::clamp(usable_cores() / 2, 1U, controller_threads_max);
}

std::uint32_t copiers() {
  return usable_cores() < crewed_cores ? 0 : std::min(usable_cores() / 2, copiers_max);
}

std::shared_ptr<Controller> controller_for(Runtime& runtime) {
  SharedController& shared = shared_controller();
  const std::scoped_lock lock(shared.mutex);
  auto controller = shared.controller.lock();
  if (controller == nullptr || !controller->works()) {
    controller = std::make_shared<Controller>(
        runtime.shared_storage(), controller_threads(), CopyCrewOptions{.threads = copiers()});
    shared.controller = controller;
  }
  return controller;
}

hippogriff_array_options checked(const hippogriff_array_options* given) {
  constexpr const char* operation = "open array";
  if (given == nullptr) {
    throw_invalid(operation, "the options are NULL");
  }
  if (given->struct_size != sizeof(hippogriff_array_options)) {
    throw_invalid(operation,
                  "struct_size is " + std::to_string(given->struct_size) + ", not " +
                      std::to_string(sizeof(hippogriff_array_options)));
  }
  const int said = (given->path != nullptr ? 1 : 0) + (given->memory != nullptr ? 1 : 0) +
                   (given->paths != nullptr ? 1 : 0);
  if (said != 1) {
    throw_invalid(operation, "an array is a file (path), files (paths) or memory: one of them");
  }
  if (given->paths != nullptr &&
      (given->path_count == 0 || given->path_count > backing_files_max)) {
    throw_invalid(operation, "an array has 1 to 64 files");
  }
  if (given->paths == nullptr && given->path_count != 0) {
    throw_invalid(operation, "path_count without paths");
  }
  if (given->memory != nullptr && (given->layout != nullptr || given->stripe_size != 0)) {
    throw_invalid(operation, "memory has no layout and no stripes");
  }
  if (given->memory != nullptr && (given->size == 0 || given->offset != 0)) {
    throw_invalid(operation, "memory has a size and no offset");
  }
  if (given->wait_limit_ms < 0 || given->wait_limit_ms > longest_timeout_ms) {
    throw_invalid(operation, "wait_limit_ms is negative or longer than ten years");
  }
  return *given;
}

// Layout and stripe of several files; 0: copies of each other.
std::uint64_t stripe_of(const hippogriff_array_options& options) {
  constexpr std::uint64_t usual_stripe_bytes = std::uint64_t{1} << 20;
  const std::string_view layout = options.layout != nullptr  ? options.layout
                                  : options.stripe_size != 0 ? "striped"
                                  : options.paths == nullptr ? "replicated"  // the one file
                                                             : "";
  if (layout == "striped") {
    return options.stripe_size == 0 ? usual_stripe_bytes : options.stripe_size;
  }
  if (layout != "replicated") {
    throw_invalid("open array",
                  "several files are \"striped\" or \"replicated\": say which, not \"" +
                      std::string(layout) + "\"");
  }
  if (options.stripe_size != 0) {
    throw_invalid("open array", "replicated files have no stripes");
  }
  return 0;
}

BackingRequest file_request(const hippogriff_array_options& options) {
  BackingRequest request;
  if (options.path != nullptr) {
    request.paths.emplace_back(options.path);
  } else {
    for (const char* path : std::span(options.paths, options.path_count)) {
      if (path == nullptr) {
        throw_invalid("open array", "a path is NULL");
      }
      request.paths.emplace_back(path);
    }
  }
  request.mode = options.mode == nullptr ? "r" : options.mode;
  request.file_offset = options.offset;
  request.size_bytes = options.size;
  request.stripe_bytes = stripe_of(options);
  return request;
}

Backing memory_backing(const hippogriff_array_options& options, std::string_view mode) {
  Backing backing;
  backing.memory = {static_cast<std::byte*>(options.memory), options.size};
  backing.size_bytes = options.size;
  backing.writable = mode != "r";
  backing.name = "memory";
  return backing;
}

void check_new_files(StorageArrayOptions options, const BackingRequest& request) {
  options.backing.name = name_of(request.paths);
  if (request.size_bytes == 0 || request.file_offset > UINT64_MAX - request.size_bytes) {
    throw_invalid("open array " + options.backing.name,
                  "mode w+ makes a file and needs the array's size");
  }
  options.backing.size_bytes = request.size_bytes;
  options.backing.stripe_bytes = request.stripe_bytes;
  StorageArray::check_options(options);
}

Backing backing_of(Runtime& runtime,
                   const hippogriff_array_options& options,
                   const StorageArrayOptions& given) {
  const std::string_view mode = options.mode == nullptr ? "r" : options.mode;
  if (mode != "r" && mode != "r+" && mode != "w+" && mode != "c") {
    throw_invalid("open array", "mode \"" + std::string(mode) + "\" is not r, r+, w+ or c");
  }
  IoWish wish{.kind = io_kind_of(options.io == nullptr ? "auto" : options.io),
              .line_bytes = given.line_bytes};
  if (options.memory != nullptr) {
    return memory_backing(options, mode);
  }
  const BackingRequest request = file_request(options);
  if (mode == "w+") {
    check_new_files(given, request);
  }
  Backing backing = open_backing(runtime.storage(), request);
  const std::uint64_t available = machine_memory().available;
  wish.available_bytes = available - std::min(available, FileWindows::all_in_place_bytes());
  choose_io(backing, wish);
  return backing;
}

void add_overlay(Runtime& runtime,
                 const hippogriff_array_options& options,
                 StorageArrayOptions& given) {
  const bool said = options.overlay_folder != nullptr;
  given.backing.overlay = std::make_shared<Overlay>(
      runtime.storage(),
      OverlayOptions{.array = given.backing.name,
                     .size_bytes = given.backing.size_bytes,
                     .line_bytes = given.line_bytes,
                     .folders = said ? std::vector<std::string>{options.overlay_folder}
                                     : overlay_folders(given.backing)});
}

}  // namespace

std::unique_ptr<hippogriff_storage_array> open_array(const hippogriff_array_options* asked) {
  const hippogriff_array_options options = checked(asked);
  const auto runtime = current_runtime();
  const LoadKind load = load_kind_of(options.load == nullptr ? "auto" : options.load);
  StorageArrayOptions given;
  given.device = runtime->device(options.device == nullptr ? "" : options.device).device;
  given.controller = controller_for(*runtime);
  given.notice = runtime->notice_array();
  given.cache_bytes = options.cache_size == 0 ? given.cache_bytes : options.cache_size;
  given.line_bytes = options.line_size == 0 ? given.line_bytes : options.line_size;
  given.queue_count = options.queue_count;
  given.queue_depth = options.queue_depth;
  if (options.wait_limit_ms != 0) {
    given.wait_limit = std::chrono::milliseconds(options.wait_limit_ms);
  }
  given.backing = backing_of(*runtime, options, given);
  if (options.mode != nullptr && std::string_view(options.mode) == "c") {
    StorageArray::check_options(given);
    add_overlay(*runtime, options, given);
  }
  auto handle = std::make_unique<hippogriff_storage_array>();
  handle->array = std::make_unique<StorageArray>(given);
  std::function<bool()> interrupted;
  if (options.interrupted != nullptr) {
    interrupted = [&options] { return options.interrupted(options.context) != 0; };
  }
  load_at_opening(*handle->array, *runtime, load, interrupted);
  // They share out copies, or whoever serves the queue copies itself.
  choose_reads_at_opening(*handle->array, load, std::max(copiers(), controller_threads()));
  if (!given.device->info().can.host_addressable) {
    handle->device_access = std::make_unique<DeviceAccess>(*handle->array);
  }
  handle->generation = process_generation();
  if (given.backing.is_new) {
    empty_files(given.backing);
  }
  return handle;
}

}  // namespace hippogriff::ondemand
