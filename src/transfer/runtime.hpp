// The runtime: devices, storage, the router's knowledge, and every transfer in flight. What the C
// ABI starts at init and ends at deinit; holds no global state.
#pragma once

#include "transfer/device_state.hpp"
#include "transfer/first_read.hpp"
#include "transfer/node_share.hpp"
#include "transfer/prefetcher.hpp"
#include "transfer/settings.hpp"
#include "transfer/shared_load.hpp"

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace hippogriff {

// Counters of one route and direction since init.
struct RouteStats {
  std::uint64_t transfers = 0;
  std::uint64_t bytes = 0;
  double seconds = 0;
};

struct RuntimeStats {
  std::array<std::array<RouteStats, lane_count>, 2> lanes{};  // [direction][lane]
  RouteStats small[2];                                        // the short path
  std::uint64_t finished = 0;
  std::uint64_t failed = 0;
  std::uint64_t cancelled = 0;
};

// A transfer as a caller asks for it.
struct Submission {
  Direction direction = Direction::send;
  int fd = -1;                // or
  std::string path;           // when fd < 0
  DeviceAddress address;      // null: allocate (send)
  Destinations destinations;  // send: instead of address, offset and size
  std::uint64_t offset = 0;
  std::uint64_t size = 0;  // 0: the rest
  std::string device;      // "" : the pointer's, else the current one
  Route route = Route::automatic;
  std::uint32_t flags = 0;
  void* stream = nullptr;
  std::int64_t memory_timeout_ms = 0;
  std::uint64_t host_memory_bytes = 0;  // at most so much of the pinbuffer and the parking; 0: any
  std::shared_ptr<LandingChecksums> checksums;  // of `destinations` in host memory; null: none
};

// Thread-safe.
class Runtime {
 public:
  // Throws Error for a setting that cannot be used. Devices are opened at their first use.
  Runtime(Settings settings, std::shared_ptr<Storage> storage);
  // For tests: with these devices only, the first being the default.
  Runtime(Settings settings,
          std::shared_ptr<Storage> storage,
          std::vector<std::shared_ptr<Device>> devices);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Cancels, joins, frees, saves the calibration. False when a thread would not end: the runtime
  // must then be left to the end of the process.
  bool shutdown(std::chrono::milliseconds patience);
  // Before the first device is opened: what device `host` gives out is agreed upon with the other
  // processes of the machine. Null: with nobody, for the reason given.
  void join_node(std::shared_ptr<NodeShare> share, std::string why_not = {});

  // Throws Error for the caller's mistakes; what goes wrong later is the transfer's failure.
  std::shared_ptr<Transfer> submit(Submission given);
  // Begins to read what a submission would send into the page cache. Throws Error for the caller's
  // mistakes; as much as there is room for, see Prefetcher.
  void prefetch(const Submission& submission);
  // The short path, when the transfer is plain enough. False: submit it.
  bool transfer_small(const Submission& submission);

  // "" is the default: HIPPOGRIFF_DEVICE, else the device current on this thread, else host.
  DeviceState& device(const std::string& name);

  // The device that an address belongs to, and the allocation around it. Throws
  // Error(invalid_argument) when it is no device's.
  struct Place {
    DeviceState& state;
    AllocationInfo allocation;
  };

  Place locate(DeviceAddress address);

  // A device as far as it is known without opening it.
  struct KnownDevice {
    DeviceInfo info;
    DeviceState* state = nullptr;  // nullptr: not open
  };

  // All devices of this machine. Opens `host` and no GPU, which would get a context.
  std::vector<KnownDevice> known_devices();
  std::vector<DeviceState*> opened_devices();
  bool free(DeviceAddress address);

  // What the router sees and chooses for an extent.
  struct OutlookRequest {
    Range extent;
    Direction direction = Direction::send;
    Route forced = Route::automatic;
    bool device_ready = true;
    bool scattered = false;  // to several destinations
    bool in_place = true;    // memory is aligned as the file is; see TransferFacts
    bool new_memory = false;
    bool hashes = false;                 // what lands is hashed
    std::uint64_t read_ahead_bytes = 0;  // of its beginning, which are in memory of ours
    std::uint64_t host_memory_bytes = 0;
    // Told what is found out before the others are looked at, so that of two processes that begin
    // at once one sees the other; and the plan then.
    node::TransferNotice* notice = nullptr;
  };

  struct Outlook {
    TransferFacts facts;
    RoutingDecision decision;
  };

  Outlook outlook(DeviceState& state, File& file, const OutlookRequest& request);

  // For other processes to see an array of this one; null where nobody can.
  [[nodiscard]] std::unique_ptr<node::ArrayNotice> notice_array() const;

  [[nodiscard]] Storage& storage() { return *storage_; }

  [[nodiscard]] const std::shared_ptr<Storage>& shared_storage() const { return storage_; }

  [[nodiscard]] CalibrationStore& calibration() { return calibration_; }

  [[nodiscard]] RuntimeStats stats() const;

  // What makes transfers of this process slower than they could be, and what to change: sentences.
  [[nodiscard]] std::vector<std::string> notices();

  [[nodiscard]] const Settings& settings() const { return settings_; }

 private:
  static TransferWay way_of(const DeviceState& state, const File& file, Direction direction);
  // With other processes' transfers where there is a share.
  [[nodiscard]] TransferLoad load_of(const DeviceState& state,
                                     const TransferWay& way,
                                     const std::shared_ptr<NodeShare>& share) const;
  // By the settings' routes where none is forced.
  [[nodiscard]] RoutingDecision choose(const TransferFacts& facts,
                                       const TransferLoad& load,
                                       const Calibration& calibration,
                                       Route forced) const;
  [[nodiscard]] std::shared_ptr<NodeShare> share() const;
  [[nodiscard]] std::unique_ptr<node::TransferNotice> notice_of(std::uint64_t size_bytes) const;

  struct Active {
    std::weak_ptr<Transfer> transfer;
    std::string drive;
    Direction direction = Direction::send;
    const DeviceState* device = nullptr;
  };

  std::shared_ptr<Transfer> submit_checked(const Submission& submission);
  std::shared_ptr<Transfer> start(const Submission& submission,
                                  TransferRequest request,
                                  DeviceState& state);
  DeviceAddress try_allocate(const Submission& submission, std::uint64_t size, DeviceState& state);
  void launch(const Submission& submission,
              const std::shared_ptr<Transfer>& transfer,
              DeviceState& state);
  void set_memory_deadline(const Submission& submission,
                           Transfer& transfer,
                           DeviceState& state) const;
  static void prepare_file(Transfer& transfer);
  static void released(Transfer& transfer, DeviceState& state);
  void transfer_ended(const Transfer& transfer, const DeviceState& state);
  void observe(const Transfer& transfer, const DeviceState& state);
  [[nodiscard]] std::uint32_t drive_depth_max(const Transfer& transfer,
                                              const DeviceState& state) const;
  void let_ask_for_others(Transfer& transfer, const DeviceState& state, bool by_drive);
  [[nodiscard]] bool others_need_drive(const File& file) const;
  // Whether a transfer moves data from or to the drive a file is on, of whichever process.
  [[nodiscard]] bool drive_is_needed(const File& file) const;
  [[nodiscard]] bool ran_alone(const Transfer& transfer, const DeviceState& state) const;
  // Whether a send would make a GPU's context first, by whichever route.
  [[nodiscard]] bool opens_gpu(const Submission& submission);
  // What a submission would send is read into memory of ours, or into the page cache, for as long
  // as the pointer is there. Null where nothing is. The runtime must outlive it.
  std::shared_ptr<FirstRead> first_read(const Submission& submission) noexcept;
  std::shared_ptr<const void> prefetch_for(const Submission& submission) noexcept;
  [[nodiscard]] std::uint32_t first_reads_allowed(const File& file) const;
  FirstRead::ReadsAllowed show_first_read(const std::shared_ptr<File>& file, Range extent);
  [[nodiscard]] std::string full_name_locked(const std::string& name) const;
  DeviceState& open_device_locked(const std::string& name);
  std::shared_ptr<Device> make_host_locked();
  std::unique_ptr<node::BackgroundClaim> memory_claim(const std::string& device) const;
  void add_device_locked(std::shared_ptr<Device> device);

  const Settings settings_;
  const std::shared_ptr<Storage> storage_;
  CalibrationStore calibration_;
  std::unique_ptr<Trace> trace_;
  const bool fixed_devices_;

  mutable std::mutex traffic_mutex_;  // guards the next three; a leaf, held for a moment
  std::shared_ptr<NodeShare> share_;
  std::map<const Transfer*, Active> active_;
  RuntimeStats stats_;
  std::atomic<bool> first_read_runs_{false};

  // Its thread looks at what is above, and engines look at it.
  Prefetcher prefetcher_{settings_.parking_bytes,
                         [this](const File& file) { return drive_is_needed(file); }};

  mutable std::mutex mutex_;
  std::string alone_because_;
  bool ended_ = false;  // shutdown began: no more devices
  std::map<std::string, std::unique_ptr<DeviceState>> devices_;
  std::string first_device_;
};

}  // namespace hippogriff
