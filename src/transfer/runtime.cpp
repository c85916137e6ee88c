// Devices come and go, transfers are checked, routed, started and accounted for.
#include "transfer/runtime.hpp"

#include "device/cuda_device.hpp"
#include "device/host_device.hpp"
#include "transfer/cost_model.hpp"
#include "transfer/depth_controller.hpp"
#include "transfer/outlook.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

namespace hippogriff {

namespace {

constexpr std::chrono::milliseconds prefetch_patience{200};

EngineOptions engine_options(const Settings& settings,
                             Trace* trace,
                             std::uint64_t pinbuffer_bytes) {
  return {.pinbuffer_bytes = pinbuffer_bytes,
          .parking_bytes = settings.parking_bytes,
          .threads_max = settings.threads_max,
          .mapped_after_bytes = settings.mapped_after_bytes,
          .trace = trace};
}

std::shared_ptr<Device> make_device(const std::string& name) {
  if (const auto index = cuda_index(name)) {
    const CudaPresence& presence = cuda_presence();
    if (*index < presence.device_count) {
      return make_cuda_device(*index);
    }
    if (presence.forked) {
      throw Error({.status = Status::forked,
                   .operation = "open device",
                   .object = name,
                   .detail = presence.why_not});
    }
    throw_invalid("open device",
                  name,
                  presence.device_count == 0
                      ? presence.why_not
                      : "this machine has " + std::to_string(presence.device_count) +
                            " CUDA devices, counted from cuda:0");
  }
  throw_invalid("open device", name, "a device is called host, or cuda:0, cuda:1, ...");
}

}  // namespace

std::optional<int> cuda_index(const std::string& name) {
  constexpr std::string_view prefix = "cuda:";
  if (name == "cuda") {
    return 0;
  }
  if (name.size() <= prefix.size() || name.size() > prefix.size() + 4 ||
      !name.starts_with(prefix)) {
    return std::nullopt;
  }
  int index = 0;
  for (const char digit : std::string_view(name).substr(prefix.size())) {
    if (digit < '0' || digit > '9') {
      return std::nullopt;
    }
    index = 10 * index + (digit - '0');
  }
  return index;
}

Runtime::Runtime(Settings settings, std::shared_ptr<Storage> storage)
    : settings_(std::move(settings)),
      storage_(std::move(storage)),
      calibration_(settings_.calibration_file),
      trace_(settings_.trace_file.empty() ? nullptr
                                          : std::make_unique<Trace>(settings_.trace_file)),
      fixed_devices_(false) {}

Runtime::Runtime(Settings settings,
                 std::shared_ptr<Storage> storage,
                 std::vector<std::shared_ptr<Device>> devices)
    : settings_(std::move(settings)),
      storage_(std::move(storage)),
      calibration_(settings_.calibration_file),
      trace_(settings_.trace_file.empty() ? nullptr
                                          : std::make_unique<Trace>(settings_.trace_file)),
      fixed_devices_(true) {
  const std::lock_guard lock(mutex_);
  for (auto& device : devices) {
    add_device_locked(std::move(device));
  }
}

Runtime::~Runtime() = default;

bool Runtime::shutdown(std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  prefetcher_.stop(Clock::now());
  bool ended = true;
  for (DeviceState* state : opened_devices()) {
    state->in_flight.close();
    state->small.stop();
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    // Callers' threads may be in the short path or in a copy: their memory must outlive that.
    if (state->engine->stop(std::max(left, std::chrono::milliseconds(1))) &&
        state->in_flight.wait_empty(deadline)) {
      state->free_all();
    } else {
      ended = false;
    }
  }
  // A hint that a drive does not come back from is nobody's failure.
  prefetcher_.stop(Clock::now() + prefetch_patience);
  try {
    calibration_.save();
  } catch (const Error& error) {
    std::fprintf(stderr, "hippogriff: the calibration was not saved: %s\n", error.what());
  }
  return ended;
}

void Runtime::add_device_locked(std::shared_ptr<Device> device) {
  const std::string name = device->info().name;
  if (first_device_.empty()) {
    first_device_ = name;
  }
  // No word to the driver where only host is used: that would take time.
  const std::uint64_t pinbuffer_bytes =
      fixed_devices_   ? settings_.pinbuffer_bytes
      : name == "host" ? settings_.host_pinbuffer_bytes()
                       : settings_.gpu_pinbuffer_bytes(cuda_presence().device_count);
  if (settings_.mapped_after_bytes == 0 && device->info().can.registers_aside) {
    static_cast<void>(device->registers_aside(std::chrono::milliseconds(0)));
  }
  auto state = std::make_unique<DeviceState>(
      std::move(device), storage_, engine_options(settings_, trace_.get(), pinbuffer_bytes));
  DeviceState& opened = *(devices_[name] = std::move(state));
  if (!fixed_devices_ && name != "host") {
    opened.engine->begin_head_start([&small = opened.small] { small.prepare(); });
  }
}

DeviceState& Runtime::open_device_locked(const std::string& name) {
  const auto found = devices_.find(name);
  if (found != devices_.end()) {
    return *found->second;
  }
  if (fixed_devices_) {
    throw_invalid("open device", name, "there is no such device");
  }
  if (ended_) {
    throw Error({.status = Status::not_initialized,
                 .operation = "open device",
                 .object = name,
                 .detail = "the runtime is shutting down"});
  }
  std::shared_ptr<Device> device = name == "host" ? make_host_locked() : make_device(name);
  // Before the device is there for good: where the node is busy the next call asks again.
  auto claim = memory_claim(name);
  add_device_locked(std::move(device));
  DeviceState& opened = *devices_.at(name);
  opened.memory_claim = std::move(claim);
  return opened;
}

std::unique_ptr<node::BackgroundClaim> Runtime::memory_claim(const std::string& device) const {
  const auto share = this->share();
  if (share == nullptr || !share->waits_at_first_use()) {
    return nullptr;
  }
  try {
    return std::make_unique<node::BackgroundClaim>(share->first_use(NodeShare::identify(device)),
                                                   share);
  } catch (const Error& error) {
    if (error.failure().status != Status::invalid_argument) {
      throw;
    }
    return nullptr;  // of no account: such a device is not shared
  }
}

std::shared_ptr<Device> Runtime::make_host_locked() {
  HostDeviceOptions options;
  options.link_bytes_per_second = settings_.host_link_bytes_per_second;
  if (const auto share = this->share()) {
    const SharedDeviceFacts facts = NodeShare::identify("host");
    try {
      const node::Account& account = share->account(facts);
      options.ledger = share->ledger(facts);
      options.memory_bytes = account.follows() ? account.limit_bytes() : 0;
    } catch (const Error& error) {
      if (share->waits_at_first_use() && error.failure().status == Status::busy) {
        throw;  // it would have its memory without waiting for it
      }
      alone_because_ = error.what();
    }
  }
  return make_host_device(options);
}

void Runtime::join_node(std::shared_ptr<NodeShare> share, std::string why_not) {
  const std::scoped_lock lock(mutex_, traffic_mutex_);
  share_ = std::move(share);
  alone_because_ = std::move(why_not);
}

std::string Runtime::full_name_locked(const std::string& name) const {
  std::string wanted = name.empty() ? settings_.device : name;
  if (wanted.empty() && fixed_devices_) {
    wanted = first_device_;
  }
  if (wanted.empty()) {
    const int current = cuda_presence().device_count > 0 ? std::max(0, current_cuda_device()) : -1;
    wanted = current >= 0 ? "cuda:" + std::to_string(current) : "host";
  }
  return wanted == "cuda" ? "cuda:0" : wanted;
}

DeviceState& Runtime::device(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return open_device_locked(full_name_locked(name));
}

Runtime::Place Runtime::locate(DeviceAddress address) {
  const std::lock_guard lock(mutex_);
  for (auto& [name, state] : devices_) {
    if (const auto own = state->allocation_of(address)) {
      return {*state, *own};
    }
    if (name.starts_with("cuda")) {
      continue;  // the driver knows better than a search
    }
    if (const auto found = state->device->find(address)) {
      return {*state, *found};
    }
  }
  if (!fixed_devices_ && cuda_presence().device_count > 0) {
    if (const auto place = locate_cuda_memory(address)) {
      DeviceState& state = open_device_locked("cuda:" + std::to_string(place->device_index));
      // The device knows which of the memory that it holds is nobody's.
      if (const auto found = state.device->find(address)) {
        return {state, *found};
      }
    }
  }
  throw_invalid("find the device of a pointer",
                "it is not device memory; allocate with hippogriff_malloc or the device's own "
                "allocator");
}

std::vector<DeviceState*> Runtime::opened_devices() {
  const std::lock_guard lock(mutex_);
  std::vector<DeviceState*> states;
  for (auto& entry : devices_) {
    states.push_back(entry.second.get());
  }
  return states;
}

std::vector<Runtime::KnownDevice> Runtime::known_devices() {
  if (!fixed_devices_) {
    device("host");
  }
  std::map<std::string, KnownDevice> known;
  for (DeviceState* state : opened_devices()) {
    const DeviceInfo& info = state->device->info();
    known[info.name] = {info, state};
  }
  for (int index = 0; !fixed_devices_ && index < cuda_presence().device_count; ++index) {
    const std::string name = "cuda:" + std::to_string(index);
    if (!known.contains(name)) {
      known[name] = {describe_cuda_device(index), nullptr};
    }
  }
  std::vector<KnownDevice> devices;
  for (auto& [name, device] : known) {
    devices.push_back(std::move(device));
  }
  // GPUs first, and cuda:2 before cuda:10.
  std::ranges::sort(devices, {}, [](const KnownDevice& device) {
    const std::string& name = device.info.name;
    return std::tuple(!name.starts_with("cuda:"), name.size(), name);
  });
  return devices;
}

bool Runtime::free(DeviceAddress address) {
  for (DeviceState* state : opened_devices()) {
    if (state->free(address)) {
      return true;
    }
  }
  return false;
}

RuntimeStats Runtime::stats() const {
  const std::lock_guard lock(traffic_mutex_);
  return stats_;
}

std::vector<std::string> Runtime::notices() {
  constexpr const char* advice =
      ": raise the limit of locked memory (ulimit -l unlimited, docker run --ulimit memlock=-1, "
      "systemd LimitMEMLOCK=infinity)";
  std::vector<std::string> sentences;
  for (DeviceState* state : opened_devices()) {
    const std::string refusal = state->engine->pinning_refusal();
    if (!refusal.empty()) {
      sentences.push_back("copies to and from " + state->device->info().name +
                          " go through memory that is not pinned, several times slower (" +
                          refusal + ")" + advice);
    }
  }
  if (storage_->queue_kind().find(locked_memory_refusal) != std::string::npos) {
    sentences.push_back(
        "drives are read and written by threads instead of io_uring, with more CPU "
        "time" +
        std::string(advice));
  }
  const std::lock_guard lock(mutex_);
  if (!alone_because_.empty()) {
    sentences.push_back("other programs do not know what this one uses (" + alone_because_ + ")");
  }
  return sentences;
}

Runtime::Outlook Runtime::outlook(DeviceState& state, File& file, const OutlookRequest& request) {
  TransferFacts facts =
      facts_of(*state.device, file, request.extent, request.direction, request.read_ahead_bytes);
  facts.device_ready = request.device_ready;
  facts.in_place = request.in_place;
  facts.new_memory = request.new_memory;
  facts.hashes = request.hashes;
  if (request.host_memory_bytes > 0) {
    const std::uint64_t slots =
        HostBudget(request.host_memory_bytes).bytes() / Pinbuffer::slot_bytes;
    facts.slots_max = static_cast<std::uint32_t>(std::min<std::uint64_t>(slots, any_slots));
  }
  facts.cores = settings_.cores == 0 ? usable_cores() : settings_.cores;
  facts.channels_max = settings_.channels_max;
  if (request.scattered && !facts.host_addressable) {
    facts.channels_max = std::min(facts.channels_max, EngineShape::scattered_channels_max);
  }
  const TransferWay way = way_of(state, file, request.direction);
  node::ShownTransfer shown{.device = way.device,
                            .drive = uses_drive(facts) ? way.drive : "",
                            .sends = request.direction == Direction::send,
                            .bytes_total = request.extent.size,
                            .started_ns = node::monotonic_ns()};
  if (request.notice != nullptr) {
    request.notice->show(shown);
  }
  const bool looks = request.extent.size > SmallPath::size_bytes_max;
  const TransferLoad load = load_of(state, way, looks ? share() : nullptr);
  facts.parked_sends_wait = request.direction == Direction::recv &&
                            (state.engine->sends_wait_for_memory() || load.others_want_memory > 0);
  const Calibration calibration = calibration_.get(link_key(state.device->info()), way.drive);
  Outlook outlook{facts, choose(facts, load, calibration, request.forced)};
  if (request.notice != nullptr) {
    describe_plan(shown, outlook.decision.chosen, outlook.decision.choice().plan);
    request.notice->show(shown);
  }
  return outlook;
}

RoutingDecision Runtime::choose(const TransferFacts& facts,
                                const TransferLoad& load,
                                const Calibration& calibration,
                                Route forced) const {
  if (forced != Route::automatic || settings_.routes.empty()) {
    return choose_route(facts, load, calibration, forced);
  }
  for (std::size_t index = 0; index + 1 < settings_.routes.size(); ++index) {
    try {
      return choose_route(facts, load, calibration, settings_.routes[index]);
    } catch (const Error& error) {
      if (error.failure().status != Status::unsupported) {
        throw;
      }
    }
  }
  return choose_route(facts, load, calibration, settings_.routes.back());
}

TransferWay Runtime::way_of(const DeviceState& state, const File& file, Direction direction) {
  return {.device = node::device_key(state.device->info().uuid),
          .drive = drive_key(file.facts()),
          .direction = direction};
}

TransferLoad Runtime::load_of(const DeviceState& state,
                              const TransferWay& way,
                              const std::shared_ptr<NodeShare>& share) const {
  TransferLoad load;
  load.busy_channels = state.engine->busy_channels();
  if (share != nullptr) {
    add_others(load, share->transfers_of_others(), way, node::monotonic_ns());
  }
  const std::lock_guard lock(traffic_mutex_);
  for (const auto& entry : active_) {
    const Active& active = entry.second;
    load.link_transfers += active.device == &state && active.direction == way.direction ? 1 : 0;
    load.drive_transfers += !way.drive.empty() && active.drive == way.drive ? 1 : 0;
  }
  return load;
}

std::shared_ptr<NodeShare> Runtime::share() const {
  const std::lock_guard lock(traffic_mutex_);
  return share_;
}

// Small transfers are over before anybody could plan by them.
std::unique_ptr<node::TransferNotice> Runtime::notice_of(std::uint64_t size_bytes) const {
  const auto node = size_bytes > SmallPath::size_bytes_max ? share() : nullptr;
  return node != nullptr ? node->notice_transfer() : nullptr;
}

std::unique_ptr<node::ArrayNotice> Runtime::notice_array() const {
  const auto node = share();
  return node != nullptr ? node->notice_array() : nullptr;
}

// A depth that was only guessed bounds nobody's looking for a better one, but all together look no
// deeper than one alone would.
std::uint32_t Runtime::drive_depth_max(const Transfer& transfer, const DeviceState& state) const {
  const TransferWay way = way_of(state, transfer.file(), transfer.request().direction);
  TransferLoad load = load_of(state, way, share());
  if (load.others_on_drive.processes == 0) {
    return std::numeric_limits<std::uint32_t>::max();
  }
  load.drive_transfers -= std::min(load.drive_transfers, 1U);  // itself
  const Calibration calibration = calibration_.get(link_key(state.device->info()), way.drive);
  return drive_depth_share(
      calibration.drive.measured ? calibration.drive.depth : DepthController::tried_max, load);
}

bool Runtime::others_need_drive(const File& file) const {
  const auto node = share();
  return node != nullptr && any_needs_drive(node->transfers_of_others(), drive_key(file.facts()));
}

// What others move at the same time makes rates look low.
bool Runtime::ran_alone(const Transfer& transfer, const DeviceState& state) const {
  if (!transfer.alone || prefetcher_.reads()) {
    return false;
  }
  if (transfer.notice == nullptr) {
    return true;
  }
  const TransferWay way = way_of(state, transfer.file(), transfer.request().direction);
  return !any_others(load_of(state, way, share()));
}

}  // namespace hippogriff
