// The C function that computes checksums: checks, the device of the memory, ordering.
#include "transfer/abi.hpp"
#include "transfer/options.hpp"

#include <algorithm>
#include <span>

using hippogriff::AllocationInfo;
using hippogriff::DeviceAddress;
using hippogriff::DeviceState;
using hippogriff::MemoryPart;
using hippogriff::throw_invalid;

namespace {

constexpr const char* operation = "compute checksums";
// As many as a transfer may have segments.
constexpr std::size_t parts_max = std::size_t{1} << 24;

std::vector<MemoryPart> parts_of(std::span<const hippogriff_memory> given) {
  std::vector<MemoryPart> parts;
  parts.reserve(given.size());
  for (const hippogriff_memory& part : given) {
    if (part.size > 0) {
      if (part.address == nullptr) {
        throw_invalid(operation, "the address of a part is NULL");
      }
      parts.push_back({{reinterpret_cast<std::uintptr_t>(part.address)}, part.size});
    }
  }
  return parts;
}

hippogriff_options checked(const hippogriff_options* given) {
  const hippogriff_options options = hippogriff::checked_options(given);
  constexpr std::uint32_t known = HIPPOGRIFF_AFTER_STREAM | HIPPOGRIFF_HOST_MEMORY;
  if (options.route != HIPPOGRIFF_ROUTE_AUTO || (options.flags & ~known) != 0 ||
      options.memory_timeout_ms != 0 || options.host_memory != 0 ||
      hippogriff::asks_for_checksums(options)) {
    throw_invalid(operation,
                  "of the options only device, stream, AFTER_STREAM and HOST_MEMORY count");
  }
  return options;
}

// The device of the first part, when none is named.
DeviceState& device_of(hippogriff::Runtime& runtime,
                       const hippogriff_options& options,
                       DeviceAddress first) {
  const std::string name = options.device == nullptr ? "" : options.device;
  if ((options.flags & HIPPOGRIFF_HOST_MEMORY) == 0) {
    return name.empty() ? runtime.locate(first).state : runtime.device(name);
  }
  DeviceState& state = runtime.device(name.empty() ? "host" : name);
  if (!state.device->info().can.host_addressable) {
    throw_invalid(operation,
                  "ordinary host memory needs the device host without HIPPOGRIFF_HOST_LINK, not " +
                      state.device->info().name + " as it is");
  }
  return state;
}

// Every part must lie in an allocation of the device: a kernel that reads beyond ends the context.
// Many parts lie in few allocations.
void check_memory(DeviceState& state, std::span<const MemoryPart> parts) {
  AllocationInfo allocation;
  for (const MemoryPart& part : parts) {
    if (part.address.value - allocation.base.value >= allocation.size_bytes) {
      auto found = state.allocation_of(part.address);
      if (!found) {
        found = state.device->find(part.address);
      }
      if (!found) {
        throw_invalid(operation, "a part is not memory of device " + state.device->info().name);
      }
      allocation = *found;
    }
    if (part.size_bytes > allocation.room_from(part.address)) {
      throw_invalid(operation,
                    "a part of " + std::to_string(part.size_bytes) +
                        " bytes is in device memory that holds only " +
                        std::to_string(allocation.room_from(part.address)) +
                        " from its address on");
    }
  }
}

std::vector<hippogriff::Range> ranges_of(std::span<const MemoryPart> parts) {
  std::vector<hippogriff::Range> ranges;
  ranges.reserve(parts.size());
  for (const MemoryPart& part : parts) {
    ranges.push_back({part.address.value, part.size_bytes});
  }
  return ranges;
}

void compute(const std::vector<MemoryPart>& parts,
             std::uint64_t block_bytes,
             const hippogriff_options& options,
             std::span<std::uint64_t> checksums) {
  const auto runtime = hippogriff::current_runtime();
  if (checksums.empty()) {
    return;
  }
  DeviceState& state = device_of(*runtime, options, parts.front().address);
  const hippogriff::DeviceScope scope(*state.device);
  if ((options.flags & HIPPOGRIFF_HOST_MEMORY) == 0) {
    check_memory(state, parts);
  }
  const hippogriff::InFlight::Reads reads(state.in_flight, ranges_of(parts));
  std::unique_ptr<hippogriff::Event> after;
  if ((options.flags & HIPPOGRIFF_AFTER_STREAM) != 0) {
    after = state.device->create_event();
    state.device->borrow_stream(options.stream)->record(*after);
  }
  const hippogriff::Settings& settings = runtime->settings();
  const std::uint32_t cores = settings.cores == 0 ? hippogriff::usable_cores() : settings.cores;
  state.checksum.compute(
      parts, block_bytes, after.get(), std::min(cores, settings.threads_max), checksums);
}

}  // namespace

extern "C" int hippogriff_checksum(const hippogriff_memory* parts,
                                   size_t count,
                                   size_t block_bytes,
                                   const hippogriff_options* options,
                                   uint64_t* checksums,
                                   size_t checksum_count) {
  return hippogriff::guarded([&] {
    if ((parts == nullptr && count > 0) || (checksums == nullptr && checksum_count > 0)) {
      throw_invalid(operation, "parts or checksums is NULL");
    }
    if (count > parts_max) {
      throw_invalid(operation, "count is more than " + std::to_string(parts_max));
    }
    const std::vector<MemoryPart> memory = parts_of(std::span(parts, count));
    const std::uint64_t blocks = hippogriff::count_blocks(memory, block_bytes);
    if (blocks != checksum_count) {
      throw_invalid(operation,
                    "the parts have " + std::to_string(blocks) + " blocks, and checksum_count is " +
                        std::to_string(checksum_count));
    }
    compute(memory, block_bytes, checked(options), std::span(checksums, checksum_count));
  });
}
