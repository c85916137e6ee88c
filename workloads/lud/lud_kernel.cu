// Tiled LU kernels: per step of 32 columns one diagonal tile, its row and column of tiles, the
// rest.
#include "lud_kernel.hpp"

#include <stdexcept>
#include <string>

namespace {

constexpr int tile = 32;           // rows and columns of a tile
constexpr int patch = 64;          // rows and columns that a block of update_rest owns
constexpr int patch_threads = 16;  // in each direction; every thread owns 4 x 4 elements
constexpr int per_thread = patch / patch_threads;

using Tile = float[tile][tile + 1];  // one more column: no two rows start in the same bank

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string("lud: ") + what + ": " + cudaGetErrorString(status));
  }
}

// Loads a tile, with zeros (ones on the diagonal, so that divisions stay finite) beyond the matrix.
__device__ void load_tile(Tile& to, const float* matrix, int n, int row, int column) {
  for (int y = threadIdx.y; y < tile; y += blockDim.y) {
    const int i = row + y;
    const int j = column + static_cast<int>(threadIdx.x);
    const bool inside = i < n && j < n;
    const float padding = i == j ? 1.0F : 0.0F;
    to[y][threadIdx.x] = inside ? matrix[static_cast<size_t>(i) * n + j] : padding;
  }
}

__device__ void store_tile(const Tile& from, float* matrix, int n, int row, int column) {
  for (int y = threadIdx.y; y < tile; y += blockDim.y) {
    const int i = row + y;
    const int j = column + static_cast<int>(threadIdx.x);
    if (i < n && j < n) {
      matrix[static_cast<size_t>(i) * n + j] = from[y][threadIdx.x];
    }
  }
}

// The tile at (k, k). One block of 32 x 32 threads.
__global__ void factor_diagonal(float* matrix, int n, int k) {
  __shared__ Tile a;
  load_tile(a, matrix, n, k, k);
  __syncthreads();
  const int x = threadIdx.x;
  const int y = threadIdx.y;
  for (int p = 0; p < tile - 1; ++p) {
    if (x == p && y > p) {
      a[y][p] /= a[p][p];
    }
    __syncthreads();
    if (x > p && y > p) {
      a[y][x] -= a[y][p] * a[p][x];
    }
    __syncthreads();
  }
  store_tile(a, matrix, n, k, k);
}

// The tiles right of (blockIdx.y 0) and below (1) the diagonal tile. Blocks of 32 x 8 threads; one
// thread of the first row owns a column of U or a row of L.
__global__ void solve_perimeter(float* matrix, int n, int k) {
  __shared__ Tile diagonal;
  __shared__ Tile side;
  const int far = k + tile * (1 + static_cast<int>(blockIdx.x));
  const bool below = blockIdx.y == 1;
  const int row = below ? far : k;
  const int column = below ? k : far;
  load_tile(diagonal, matrix, n, k, k);
  load_tile(side, matrix, n, row, column);
  __syncthreads();
  const int t = threadIdx.x;
  if (threadIdx.y == 0 && below) {
    for (int p = 0; p < tile; ++p) {
      float value = side[t][p];
      for (int q = 0; q < p; ++q) {
        value -= side[t][q] * diagonal[q][p];
      }
      side[t][p] = value / diagonal[p][p];
    }
  } else if (threadIdx.y == 0) {
    for (int p = 1; p < tile; ++p) {
      float value = side[p][t];
      for (int q = 0; q < p; ++q) {
        value -= diagonal[p][q] * side[q][t];
      }
      side[p][t] = value;
    }
  }
  __syncthreads();
  store_tile(side, matrix, n, row, column);
}

// Subtracts (column of L tiles) x (row of U tiles) from everything right of and below the step.
// Blocks of 16 x 16 threads own 64 x 64 elements, each thread 4 x 4 of them, 16 apart.
__global__ void update_rest(float* matrix, int n, int k) {
  __shared__ float lower[tile][patch + 1];
  __shared__ float upper[tile][patch];
  const int row = k + tile + patch * static_cast<int>(blockIdx.y);
  const int column = k + tile + patch * static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.y) * patch_threads + static_cast<int>(threadIdx.x);
  for (int e = thread; e < tile * patch; e += patch_threads * patch_threads) {
    const int i = row + e / tile;
    lower[e % tile][e / tile] = i < n ? matrix[static_cast<size_t>(i) * n + k + e % tile] : 0.0F;
    const int j = column + e % patch;
    upper[e / patch][e % patch] = j < n ? matrix[static_cast<size_t>(k + e / patch) * n + j] : 0.0F;
  }
  __syncthreads();
  float sum[per_thread][per_thread] = {};
#pragma unroll 8
  for (int p = 0; p < tile; ++p) {
    float l[per_thread];
    float u[per_thread];
    for (int s = 0; s < per_thread; ++s) {
      l[s] = lower[p][threadIdx.y + s * patch_threads];
      u[s] = upper[p][threadIdx.x + s * patch_threads];
    }
    for (int y = 0; y < per_thread; ++y) {
      for (int x = 0; x < per_thread; ++x) {
        sum[y][x] += l[y] * u[x];
      }
    }
  }
  for (int y = 0; y < per_thread; ++y) {
    for (int x = 0; x < per_thread; ++x) {
      const int i = row + static_cast<int>(threadIdx.y) + y * patch_threads;
      const int j = column + static_cast<int>(threadIdx.x) + x * patch_threads;
      if (i < n && j < n) {
        matrix[static_cast<size_t>(i) * n + j] -= sum[y][x];
      }
    }
  }
}

}  // namespace

int lud_gpu_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return 0;
  }
  return count;
}

void lud_on_gpu(float* matrix, std::size_t size) {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, matrix), "asking whose memory it is");
  check(cudaSetDevice(attributes.device), "choosing the GPU");
  const int n = static_cast<int>(size);
  for (int k = 0; k < n; k += tile) {
    factor_diagonal<<<1, dim3(tile, tile)>>>(matrix, n, k);
    check(cudaGetLastError(), "launching factor_diagonal");
    const int rest = n - k - tile;
    if (rest > 0) {
      const unsigned tiles = static_cast<unsigned>((rest + tile - 1) / tile);
      solve_perimeter<<<dim3(tiles, 2), dim3(tile, 8)>>>(matrix, n, k);
      check(cudaGetLastError(), "launching solve_perimeter");
      const unsigned patches = static_cast<unsigned>((rest + patch - 1) / patch);
      update_rest<<<dim3(patches, patches), dim3(patch_threads, patch_threads)>>>(matrix, n, k);
      check(cudaGetLastError(), "launching update_rest");
    }
  }
  check(cudaDeviceSynchronize(), "waiting for the kernels");
}

void lud_through_gpu(float* host_matrix, std::size_t n, int gpu) {
  check(cudaSetDevice(gpu), "choosing the GPU");
  const std::size_t size_bytes = n * n * sizeof(float);
  void* device_matrix = nullptr;
  check(cudaMalloc(&device_matrix, size_bytes), "cudaMalloc");
  try {
    check(cudaMemcpy(device_matrix, host_matrix, size_bytes, cudaMemcpyHostToDevice),
          "copying to the GPU");
    lud_on_gpu(static_cast<float*>(device_matrix), n);
    check(cudaMemcpy(host_matrix, device_matrix, size_bytes, cudaMemcpyDeviceToHost),
          "copying from the GPU");
  } catch (...) {
    static_cast<void>(cudaFree(device_matrix));
    throw;
  }
  check(cudaFree(device_matrix), "cudaFree");
}
