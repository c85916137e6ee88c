// Stream-ordered allocation and the pools behind it.
#include "shim/accounts.hpp"
#include "shim/captures.hpp"
#include "shim/wrapper.hpp"

#include <array>
#include <memory>

namespace hippogriff::shim {
namespace {

// The functions of one flavour of default stream.
struct Legacy {
  static constexpr Function allocate = Function::cuMemAllocAsync;
  static constexpr Function allocate_from_pool = Function::cuMemAllocFromPoolAsync;
  static constexpr Function is_capturing = Function::cuStreamIsCapturing;
};

struct PerThread {
  static constexpr Function allocate = Function::cuMemAllocAsync_ptsz;
  static constexpr Function allocate_from_pool = Function::cuMemAllocFromPoolAsync_ptsz;
  static constexpr Function is_capturing = Function::cuStreamIsCapturing_ptsz;
};

// In a capture the call makes a node of a graph, which is counted when the graph is instantiated.
template <typename Flavour>
bool makes_a_node(CUstream stream) noexcept {
  return may_capture() && is_capturing<Flavour::is_capturing>(stream);
}

template <typename Call>
CUresult allocate_in(const std::shared_ptr<Pool>& pool,
                     CUdeviceptr* address,
                     std::size_t size_bytes,
                     Call&& call) {
  if (pool == nullptr || !pool->is_counted()) {
    return call();
  }
  if (!pool->take(size_bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = call();
  if (result == CUDA_SUCCESS) {
    accounts().live.put(Kind::memory, *address, {size_bytes, pool->device(), nullptr, pool});
  } else {
    pool->untake(size_bytes);
  }
  return result;
}

template <typename Flavour>
CUresult CUDAAPI allocate_in_stream(CUdeviceptr* address, std::size_t size_bytes, CUstream stream) {
  const auto call = [&] {
    return real<decltype(::cuMemAllocAsync)>(Flavour::allocate)(address, size_bytes, stream);
  };
  Place place;
  if (makes_a_node<Flavour>(stream)) {
    return call();
  }
  switch (stream_place(stream, &place)) {
    case Standing::nowhere:
      return call();
    case Standing::refused:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case Standing::found:
      break;
  }
  return allocate_in(accounts().pools.current(place.device), address, size_bytes, call);
}

template <typename Flavour>
CUresult CUDAAPI allocate_from_pool(CUdeviceptr* address,
                                    std::size_t size_bytes,
                                    CUmemoryPool handle,
                                    CUstream stream) {
  const auto call = [&] {
    return real<decltype(::cuMemAllocFromPoolAsync)>(Flavour::allocate_from_pool)(
        address, size_bytes, handle, stream);
  };
  Place place;
  if (makes_a_node<Flavour>(stream)) {
    return call();
  }
  switch (stream_place(stream, &place)) {
    case Standing::nowhere:
      return call();
    case Standing::refused:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case Standing::found:
      break;
  }
  return allocate_in(accounts().pools.find(handle, place.device), address, size_bytes, call);
}

CUresult CUDAAPI create_pool(CUmemoryPool* handle, const CUmemPoolProps* properties) {
  const CUresult result = HIPPO_REAL(cuMemPoolCreate)(handle, properties);
  if (result == CUDA_SUCCESS) {
    accounts().pools.add(*handle, counted_device(properties->location));
  }
  return result;
}

CUresult CUDAAPI destroy_pool(CUmemoryPool handle) {
  const std::shared_ptr<Pool> pool = accounts().pools.remove(handle);
  const CUresult result = HIPPO_REAL(cuMemPoolDestroy)(handle);
  if (pool != nullptr && result == CUDA_SUCCESS) {
    pool->close();
  } else if (pool != nullptr) {
    accounts().pools.restore(handle, pool);
  }
  return result;
}

CUresult CUDAAPI trim_pool(CUmemoryPool handle, std::size_t keep_bytes) {
  const CUresult result = HIPPO_REAL(cuMemPoolTrimTo)(handle, keep_bytes);
  if (result == CUDA_SUCCESS) {
    if (const auto pool = accounts().pools.known(handle); pool != nullptr) {
      pool->settle();
    }
  }
  return result;
}

CUresult CUDAAPI set_device_pool(CUdevice device, CUmemoryPool pool) {
  const CUresult result = HIPPO_REAL(cuDeviceSetMemPool)(device, pool);
  accounts().pools.forget_current();
  return result;
}

CUresult CUDAAPI set_location_pool(CUmemLocation* location,
                                   CUmemAllocationType type,
                                   CUmemoryPool pool) {
  const CUresult result = HIPPO_REAL(cuMemSetMemPool)(location, type, pool);
  accounts().pools.forget_current();
  return result;
}

// Pools that are somebody's already: here we see whether their memory is a device's.
template <Function Symbol>
CUresult CUDAAPI get_location_pool(CUmemoryPool* pool,
                                   CUmemLocation* location,
                                   CUmemAllocationType type) {
  const CUresult result = real<decltype(::cuMemGetMemPool)>(Symbol)(pool, location, type);
  if (result == CUDA_SUCCESS) {
    accounts().pools.add(*pool, counted_device(*location));
  }
  return result;
}

}  // namespace

std::span<const Wrapper> pool_wrappers() noexcept {
  using F = Function;
  static const std::array wrappers = {
      HIPPO_WRAPPER(cuMemAllocAsync, &allocate_in_stream<Legacy>),
      HIPPO_WRAPPER(cuMemAllocAsync_ptsz, &allocate_in_stream<PerThread>),
      HIPPO_WRAPPER(cuMemAllocFromPoolAsync, &allocate_from_pool<Legacy>),
      HIPPO_WRAPPER(cuMemAllocFromPoolAsync_ptsz, &allocate_from_pool<PerThread>),
      HIPPO_WRAPPER(cuMemPoolCreate, &create_pool),
      HIPPO_WRAPPER(cuMemPoolDestroy, &destroy_pool),
      HIPPO_WRAPPER(cuMemPoolTrimTo, &trim_pool),
      HIPPO_WRAPPER(cuDeviceSetMemPool, &set_device_pool),
      HIPPO_WRAPPER(cuMemSetMemPool, &set_location_pool),
      HIPPO_WRAPPER(cuMemGetMemPool, &get_location_pool<F::cuMemGetMemPool>),
      HIPPO_WRAPPER(cuMemGetDefaultMemPool, &get_location_pool<F::cuMemGetDefaultMemPool>),
  };
  return wrappers;
}

}  // namespace hippogriff::shim
