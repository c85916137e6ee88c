// Gathers numbers of a file that is larger than the cache, in a kernel, and compares them with the
// file. Usage: gather_cuda FILE_OF_FLOATS
// quickstart-begin
#include <hippogriff/array.cuh>

#include <cuda_runtime.h>

#include <new>
#include <stdexcept>
#include <vector>

__global__ void gather(hippogriff::array_view<float> data, float* out, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) {
    out[i] = data[i * 7919ULL % data.size()];  // what is not in the cache is read from the file
  }
}

std::vector<float> gathered(const char* path, int count) {
  const hippogriff::array<float> data(path, {.device = "cuda:0", .cache_size = 1 << 20});
  float* out = nullptr;
  if (cudaMallocManaged(&out, count * sizeof(float)) != cudaSuccess) {
    throw std::bad_alloc();
  }
  gather<<<(count + 255) / 256, 256>>>(data.view(), out, count);
  if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess) {
    throw std::runtime_error(cudaGetErrorString(error));
  }
  data.check_accesses();  // throws the first failure, with offset and errno
  const std::vector<float> numbers(out, out + count);
  cudaFree(out);
  return numbers;
}

// quickstart-end

#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: gather_cuda FILE_OF_FLOATS\n", stderr);
    return 2;
  }
  try {
    constexpr int count = 1 << 20;
    const std::vector<float> result = gathered(argv[1], count);
    std::ifstream file(argv[1], std::ios::binary | std::ios::ate);
    const auto size = static_cast<unsigned long long>(file.tellg()) / sizeof(float);
    for (int i = 0; i < count; i += 97) {
      std::array<char, sizeof(float)> bytes{};
      file.seekg(static_cast<std::streamoff>(i * 7919ULL % size * sizeof(float)));
      file.read(bytes.data(), bytes.size());
      if (std::memcmp(bytes.data(), &result[static_cast<std::size_t>(i)], bytes.size()) != 0) {
        std::fprintf(stderr, "number %d is wrong\n", i);
        return 1;
      }
    }
    std::printf("%d numbers are those of the file\n", count);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gather_cuda: %s\n", error.what());
    return 1;
  }
}
