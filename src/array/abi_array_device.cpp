// The C functions of arrays that concern a GPU: views for programs without C++, rows on streams.
#include "array/array_handle.hpp"
#include "transfer/abi.hpp"

#include <cstring>
#include <string>

using hippogriff::array_view;
using hippogriff::guarded;
using hippogriff::throw_invalid;
using hippogriff::ondemand::array_of;
using hippogriff::ondemand::Cache;
using hippogriff::ondemand::DeviceAccess;
using hippogriff::ondemand::DeviceRows;
using hippogriff::ondemand::Direction;
using hippogriff::ondemand::StorageArray;

namespace {

DeviceAccess& device_access_of(hippogriff_storage_array* handle, const char* operation) {
  const StorageArray& array = array_of(handle);
  if (handle->device_access == nullptr) {
    hippogriff::throw_unsupported(
        operation, "threads of " + array.device().info().name + " use the array themselves");
  }
  return *handle->device_access;
}

std::size_t checked_element(std::size_t element_size) {
  if (element_size == 0) {
    throw_invalid("view array", "an element has no bytes");
  }
  return element_size;
}

DeviceRows checked_rows(const StorageArray& array, const hippogriff_device_rows* given) {
  constexpr const char* operation = "access array";
  if (given == nullptr || given->struct_size != sizeof(hippogriff_device_rows)) {
    throw_invalid(operation, "struct_size of the rows is not this library's");
  }
  if (given->number_size != 4 && given->number_size != 8) {
    throw_invalid(
        operation,
        "row numbers have " + std::to_string(given->number_size) + " bytes, and may have 4 or 8");
  }
  if (given->row_size == 0 || given->row_size > array.size_bytes()) {
    throw_invalid(operation,
                  "a row of " + std::to_string(given->row_size) + " bytes of an array of " +
                      std::to_string(array.size_bytes()));
  }
  if (given->count > UINT64_MAX / 2 / given->row_size ||
      given->count > UINT64_MAX / 2 / given->number_size) {
    throw_invalid(operation, "there are more rows than memory");
  }
  if (given->count != 0 && given->numbers % given->number_size != 0) {
    throw_invalid(operation, "the row numbers are not aligned to their size");
  }
  return {.numbers = {given->numbers},
          .memory = {given->memory},
          .count = given->count,
          .row_bytes = given->row_size,
          .number_bytes = given->number_size,
          .numbers_signed = given->number_signed != 0,
          .stream = given->stream};
}

void queue_rows(hippogriff_storage_array* handle,
                const hippogriff_device_rows* given,
                Direction direction) {
  DeviceAccess& access = device_access_of(handle, "access array on a stream");
  const StorageArray& array = *handle->array;
  const DeviceRows rows = checked_rows(array, given);
  if (direction == Direction::to_array && !array.cache().writable) {
    throw_invalid("write array", "the array was opened for reading");
  }
  if (rows.count != 0) {
    access.queue_rows(direction, rows);
  }
}

}  // namespace

int hippogriff_array_element_view(hippogriff_storage_array* array,
                                  size_t element_size,
                                  void* view,
                                  size_t* view_size,
                                  uint32_t* layout) {
  using View = array_view<unsigned char>;
  return guarded([&] {
    if (view_size == nullptr || layout == nullptr) {
      throw_invalid("view array", "there is no place for the view's size and layout");
    }
    *layout = hippogriff::ondemand::view_layout;
    const std::size_t room = *view_size;
    *view_size = sizeof(View);
    if (view == nullptr) {
      return;
    }
    if (room != sizeof(View)) {
      throw_invalid("view array", "a view has " + std::to_string(sizeof(View)) + " bytes");
    }
    StorageArray& the_array = array_of(array);
    the_array.note_view();
    const View made(the_array.cache(), the_array.size_bytes() / checked_element(element_size));
    std::memcpy(view, &made, sizeof made);
  });
}

int hippogriff_array_view_address(hippogriff_storage_array* array,
                                  size_t element_size,
                                  uint64_t* address) {
  return guarded([&] {
    if (address == nullptr) {
      throw_invalid("view array", "there is no place for the address");
    }
    *address = device_access_of(array, "view array").view(checked_element(element_size)).value;
  });
}

int hippogriff_array_after(hippogriff_storage_array* array, void* stream) {
  return guarded([&] {
    static_cast<void>(array_of(array));
    if (array->device_access != nullptr) {
      array->device_access->after(stream);
    }
  });
}

int hippogriff_array_wait(hippogriff_storage_array* array) {
  return guarded([&] {
    static_cast<void>(array_of(array));
    if (array->device_access != nullptr) {
      array->device_access->wait();
    }
  });
}

int hippogriff_array_gather_async(hippogriff_storage_array* array,
                                  const hippogriff_device_rows* rows) {
  return guarded([&] { queue_rows(array, rows, Direction::from_array); });
}

int hippogriff_array_scatter_async(hippogriff_storage_array* array,
                                   const hippogriff_device_rows* rows) {
  return guarded([&] { queue_rows(array, rows, Direction::to_array); });
}

int hippogriff_array_prefetch_async(hippogriff_storage_array* array,
                                    const hippogriff_device_rows* rows) {
  return guarded([&] {
    DeviceAccess& access = device_access_of(array, "ask ahead on a stream");
    const DeviceRows wanted = checked_rows(array_of(array), rows);
    if (wanted.count != 0) {
      access.queue_prefetch(wanted);
    }
  });
}

int hippogriff_array_zero_copy_async(hippogriff_storage_array* array,
                                     const hippogriff_device_rows* rows) {
  return guarded([&] {
    DeviceAccess& access = device_access_of(array, "read array past its cache on a stream");
    const DeviceRows wanted = checked_rows(array_of(array), rows);
    if (wanted.count != 0) {
      access.queue_zero_copy(wanted);
    }
  });
}
