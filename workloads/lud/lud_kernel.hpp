// LU decomposition on a CUDA GPU: the kernel sequence and the conventional program around it.
// lud_kernel.cu implements it; lud_kernel_absent.cpp does in builds without CUDA.
#pragma once

#include <cstddef>

// Seconds that the conventional program spent in each step.
struct LudBaselineTimes {
  double to_device_seconds = 0;
  double kernel_seconds = 0;
  double to_host_seconds = 0;
};

// True when the address is a CUDA GPU's memory; false also where there is no driver.
bool lud_is_gpu_memory(const void* address);

// The number of CUDA GPUs; 0 also where there is no driver.
int lud_gpu_count();

// Makes the GPU's context, so that no step of either program pays for it. Throws as below.
void lud_prepare_gpu(int gpu);

// Decomposes a row-major n x n matrix in GPU memory in place, on the GPU that holds it and its
// default stream, and waits. Throws std::runtime_error with CUDA's words.
void lud_on_gpu(float* matrix, std::size_t n);

// cudaMalloc, cudaMemcpy in, the kernels, cudaMemcpy out, cudaFree: as programs did before.
LudBaselineTimes lud_baseline_on_gpu(float* host_matrix, std::size_t n, int gpu);
