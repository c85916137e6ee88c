// LU decomposition on a CUDA GPU.
// lud_kernel.cu implements it; lud_kernel_absent.cpp does in builds without CUDA.
#pragma once

#include <cstddef>

// The number of CUDA GPUs; 0 also where there is no driver.
int lud_gpu_count();

// Decomposes a row-major n x n matrix in GPU memory in place, on the GPU that holds it and its
// default stream, and waits. Throws std::runtime_error with CUDA's words.
void lud_on_gpu(float* matrix, std::size_t n);

// A matrix in host memory there and back, for tests.
void lud_through_gpu(float* host_matrix, std::size_t n, int gpu);
