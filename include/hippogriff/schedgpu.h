/* schedGPU's interface, by its own names: reserve device memory before it is allocated.
 *
 * Values returned are cudaError_t's. Functions may be called from any thread; memory is reserved
 * for the process, and freed when it ends; a thread that waits for memory of a device holds the
 * process's other calls for that device up, also those that give memory back.
 * Devices count as CUDA counts them in this process; where no GPU is, device 0 is hippogriff's
 * `host`. Sizes are bytes.
 *
 * Source: Reaño, "On the Enhancement of Remote GPU Virtualization in High Performance Clusters",
 * chapter 6, and schedGPU's API reference. hippogriff.h has the same with more
 * (hippogriff_reserve).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef HIPPOGRIFF_SCHEDGPU_H_
#define HIPPOGRIFF_SCHEDGPU_H_

#include <hippogriff/hippogriff.h>

#include <stddef.h>

/* NOLINTBEGIN(readability-identifier-naming): schedGPU's names */

#ifdef __cplusplus
extern "C" {
#endif

/** To be called first. `timeout_in_seconds` is how long preCudaMalloc may block; a higher
 * `priority` means served later. Returns cudaSuccess (0), or cudaErrorUnknown (999): ask
 *  hippogriff_last_error. A second call changes both numbers. */
HIPPOGRIFF_API int schedGPUInit(int timeout_in_seconds, int priority);

/** Waits until `bytes` more of the device's memory can be allocated safely, and reserves them. A
 *  `*device` below 0 means any device, or any of the `valid_devices_len` ones in `valid_devices`
 *  (NULL: all): the one with the most free memory, which is stored. `bytes` 0: all of the device.
 *  Returns cudaSuccess; cudaErrorNotReady (600) when it is not free, now with `block` 0, or within
 *  the time; cudaErrorMemoryAllocation (2) when no device is that large, or when all who hold its
 *  memory wait for more; cudaErrorInvalidDevice (101), cudaErrorInvalidValue (1),
 *  cudaErrorInitializationError (3) before schedGPUInit. */
HIPPOGRIFF_API int preCudaMalloc(
    int* device, size_t bytes, int block, const int* valid_devices, int valid_devices_len);

/** Gives `bytes` of what this process reserved on the device back (0: all of it), after cudaFree.
 *  cudaErrorInvalidValue when that is more than it has. With the last byte the process takes its
 *  leave. */
HIPPOGRIFF_API int postCudaFree(int device, size_t bytes);

#ifdef __cplusplus
}

// As the reference declares them.
inline int schedGPUInit(int timeout_in_seconds) {
  return schedGPUInit(timeout_in_seconds, 0);
}

inline int schedGPUInit() {
  return schedGPUInit(60, 0);
}

inline int preCudaMalloc(int& device,
                         size_t bytes,
                         bool block = true,
                         const int* valid_devices = nullptr,
                         int valid_devices_len = 0) {
  return preCudaMalloc(&device, bytes, block ? 1 : 0, valid_devices, valid_devices_len);
}
#endif

/* NOLINTEND(readability-identifier-naming) */

#endif /* HIPPOGRIFF_SCHEDGPU_H_ */
