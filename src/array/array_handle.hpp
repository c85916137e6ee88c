// What is behind hippogriff_storage_array.
#pragma once

#include "array/device_access.hpp"
#include "array/storage_array.hpp"

#include <hippogriff/array.h>

#include <memory>

struct hippogriff_storage_array {
  std::unique_ptr<hippogriff::ondemand::StorageArray> array;
  // On a device whose memory the host does not reach; null on others.
  std::unique_ptr<hippogriff::ondemand::DeviceAccess> device_access;
  std::uint64_t generation = 0;  // of the process that made it
};

namespace hippogriff::ondemand {

// The array behind a handle. Throws Error(invalid_argument, forked).
StorageArray& array_of(hippogriff_storage_array* handle);

}  // namespace hippogriff::ondemand
