// The null driver's plain, stream-ordered, array and virtual memory.
#include "testing/null_cuda/null_state.hpp"

#include <algorithm>
#include <type_traits>

using null_cuda::Block;
using null_cuda::Pool;
using null_cuda::state;

namespace {

using Guard = std::scoped_lock<std::mutex>;

CUresult allocate(std::uint64_t* address, std::uint64_t size_bytes) {
  const Guard lock(state().mutex);
  Block block{.size_bytes = size_bytes};
  const CUresult result = null_cuda::current(&block.context, &block.device);
  return result == CUDA_SUCCESS ? null_cuda::add_block(address, block) : result;
}

template <typename Handle>
CUresult allocate_handle(Handle* handle, std::uint64_t size_bytes) {
  std::uint64_t address = 0;
  const CUresult result = allocate(&address, size_bytes);
  if (result == CUDA_SUCCESS) {
    if constexpr (std::is_pointer_v<Handle>) {
      *handle = reinterpret_cast<Handle>(address);
    } else {
      *handle = address;
    }
  }
  return result;
}

CUresult free_one(std::uint64_t address) {
  const Guard lock(state().mutex);
  return null_cuda::free_block(address);
}

// An allocation in a stream: a node when the stream is being captured.
CUresult allocate_in(Pool* pool, CUdeviceptr* address, std::size_t size_bytes, CUstream stream) {
  const Guard lock(state().mutex);
  auto* const known = reinterpret_cast<null_cuda::Stream*>(stream);
  if (known != nullptr && known->in_graphics) {
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (known != nullptr && known->capture != nullptr) {
    null_cuda::Node node = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .allocation = {}, .child = {}};
    node.allocation.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, pool->device};
    node.allocation.bytesize = size_bytes;
    reinterpret_cast<std::vector<null_cuda::Node>*>(known->capture)->push_back(node);
    *address = null_cuda::new_address();
    return CUDA_SUCCESS;
  }
  std::uint64_t found = 0;
  const CUresult result = null_cuda::add_block(
      &found, {.size_bytes = size_bytes, .device = pool->device, .pool = pool});
  *address = found;
  return result;
}

CUresult allocate_async(CUdeviceptr* address, std::size_t size_bytes, CUstream stream) {
  CUcontext context = nullptr;
  int device = 0;
  Pool* pool = nullptr;
  {
    const Guard lock(state().mutex);
    const auto* const known = reinterpret_cast<null_cuda::Stream*>(stream);
    if (known != nullptr) {
      null_cuda::context_stack().push_back(known->context);
    }
    const CUresult result = null_cuda::current(&context, &device);
    if (known != nullptr) {
      null_cuda::context_stack().pop_back();
    }
    if (result != CUDA_SUCCESS) {
      return result;
    }
    pool =
        reinterpret_cast<Pool*>(state().devices.at(static_cast<std::size_t>(device)).current_pool);
  }
  return allocate_in(pool, address, size_bytes, stream);
}

std::uint64_t element_bytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_FLOAT:
      return 4;
    case CU_AD_FORMAT_HALF:
      return 2;
    default:
      return 1;
  }
}

std::uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR& array, unsigned level) {
  const auto half = [level](std::size_t extent) {
    return std::max<std::uint64_t>(extent >> level, 1);
  };
  return half(array.Width) * half(array.Height) * half(array.Depth) * array.NumChannels *
         element_bytes(array.Format);
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* address, std::size_t size_bytes) {
  return allocate_handle(address, size_bytes);
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr* address, std::size_t size_bytes, unsigned) {
  return allocate_handle(address, size_bytes);
}

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr* address,
                                    std::size_t* pitch_bytes,
                                    std::size_t width_bytes,
                                    std::size_t height,
                                    unsigned) {
  const std::size_t unit = state().row_alignment_bytes;
  *pitch_bytes = (width_bytes + unit - 1) / unit * unit;
  return allocate_handle(address, *pitch_bytes * height);
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr address) {
  return free_one(address);
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr address, CUstream) {
  return free_one(address);
}

CUresult CUDAAPI cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream) {
  return free_one(address);
}

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr* address, std::size_t size_bytes, CUstream stream) {
  return allocate_async(address, size_bytes, stream);
}

CUresult CUDAAPI cuMemAllocAsync_ptsz(CUdeviceptr* address,
                                      std::size_t size_bytes,
                                      CUstream stream) {
  return allocate_async(address, size_bytes, stream);
}

CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr* address,
                                         std::size_t size_bytes,
                                         CUmemoryPool pool,
                                         CUstream stream) {
  return allocate_in(reinterpret_cast<Pool*>(pool), address, size_bytes, stream);
}

CUresult CUDAAPI cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* address,
                                              std::size_t size_bytes,
                                              CUmemoryPool pool,
                                              CUstream stream) {
  return allocate_in(reinterpret_cast<Pool*>(pool), address, size_bytes, stream);
}

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool* handle, const CUmemPoolProps* properties) {
  const Guard lock(state().mutex);
  state().pools.push_back(std::make_unique<Pool>(Pool{.device = properties->location.id}));
  *handle = reinterpret_cast<CUmemoryPool>(state().pools.back().get());
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool handle) {
  const Guard lock(state().mutex);
  auto* const pool = reinterpret_cast<Pool*>(handle);
  pool->destroyed = true;
  pool->reserved_bytes = pool->used_bytes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool handle, std::size_t keep_bytes) {
  const Guard lock(state().mutex);
  auto* const pool = reinterpret_cast<Pool*>(handle);
  pool->reserved_bytes = std::max<std::uint64_t>(
      pool->used_bytes, std::min<std::uint64_t>(pool->reserved_bytes, keep_bytes));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool handle,
                                       CUmemPool_attribute attribute,
                                       void* value) {
  const Guard lock(state().mutex);
  const auto* const pool = reinterpret_cast<Pool*>(handle);
  *static_cast<cuuint64_t*>(value) =
      attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? pool->reserved_bytes : pool->used_bytes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  const Guard lock(state().mutex);
  *pool = state().devices.at(static_cast<std::size_t>(device)).default_pool;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  const Guard lock(state().mutex);
  *pool = state().devices.at(static_cast<std::size_t>(device)).current_pool;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  const Guard lock(state().mutex);
  state().devices.at(static_cast<std::size_t>(device)).current_pool = pool;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuArrayCreate_v2(CUarray* handle, const CUDA_ARRAY_DESCRIPTOR* array) {
  const CUDA_ARRAY3D_DESCRIPTOR whole = {
      array->Width, array->Height, 0, array->Format, array->NumChannels, 0};
  return allocate_handle(handle, level_bytes(whole, 0));
}

CUresult CUDAAPI cuArray3DCreate_v2(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR* array) {
  return allocate_handle(handle, level_bytes(*array, 0));
}

CUresult CUDAAPI cuArrayDestroy(CUarray handle) {
  return free_one(reinterpret_cast<std::uint64_t>(handle));
}

CUresult CUDAAPI cuMipmappedArrayCreate(CUmipmappedArray* handle,
                                        const CUDA_ARRAY3D_DESCRIPTOR* array,
                                        unsigned levels) {
  std::uint64_t sum = 0;
  for (unsigned level = 0; level < levels; ++level) {
    sum += level_bytes(*array, level);
  }
  return allocate_handle(handle, sum);
}

CUresult CUDAAPI cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  return free_one(reinterpret_cast<std::uint64_t>(handle));
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle,
                             std::size_t size_bytes,
                             const CUmemAllocationProp* properties,
                             unsigned long long) {
  const Guard lock(state().mutex);
  const int device = properties->location.id;
  if (const CUresult result = null_cuda::admit(device, size_bytes); result != CUDA_SUCCESS) {
    return result;
  }
  auto physical = std::make_shared<null_cuda::Physical>();
  *physical = {size_bytes, device, 1};
  *handle = null_cuda::new_address();
  state().handles[*handle] = std::move(physical);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  const Guard lock(state().mutex);
  const auto found = state().handles.find(handle);
  if (found == state().handles.end()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (--found->second->references == 0) {
    state().handles.erase(found);
    state().free_addresses.push_back(handle);
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  const Guard lock(state().mutex);
  const auto mapping = state().mappings.find(reinterpret_cast<std::uint64_t>(address));
  if (mapping == state().mappings.end()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (const auto& [known, physical] : state().handles) {
    if (physical == mapping->second.second) {
      ++physical->references;
      *handle = known;
      return CUDA_SUCCESS;
    }
  }
  *handle = null_cuda::new_address();
  mapping->second.second->references = 1;
  state().handles[*handle] = mapping->second.second;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr address,
                          std::size_t size_bytes,
                          std::size_t,
                          CUmemGenericAllocationHandle handle,
                          unsigned long long) {
  const Guard lock(state().mutex);
  const auto found = state().handles.find(handle);
  if (found == state().handles.end() || state().mappings.count(address) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  state().mappings[address] = {size_bytes, found->second};
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, std::size_t size_bytes) {
  const Guard lock(state().mutex);
  const auto first = state().mappings.lower_bound(address);
  const auto last = state().mappings.lower_bound(address + size_bytes);
  if (first == last) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  state().mappings.erase(first, last);
  return CUDA_SUCCESS;
}

#pragma GCC visibility pop
}  // extern "C"
