// Rows of an array to memory and back, or asked for ahead, and its dirty lines to the storage. Any
// grid of groups of row_kernel_threads threads. Results are visible to who waits for the kernel's
// end; what was asked for may come later.
#include "array/row_moves.hpp"

namespace {

using namespace hippogriff::ondemand;

__device__ uint64_t thread_index() {
  return static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ uint64_t thread_count() {
  return static_cast<uint64_t>(gridDim.x) * blockDim.x;
}

// A thread a row.
template <bool Writes, typename T>
__device__ void move_words(const RowMoves& moves) {
  auto* memory = reinterpret_cast<T*>(moves.memory);
  for (uint64_t i = thread_index(); i < moves.count; i += thread_count()) {
    T value{};
    if constexpr (Writes) {
      value = memory[i];
    }
    uint64_t number = 0;
    const bool there = moves.number_of(i, number);
    const uint64_t offset = moves.base + number * sizeof(T);
    const NvmeStatus status = there ? coalesced<Writes>(moves.cache, offset, value)
                                    : moves.cache.noted(NvmeStatus::out_of_range);
    moves.note(status);
    if constexpr (!Writes) {
      memory[i] = status == NvmeStatus::success ? value : T{};
    }
  }
}

// A warp a part of a row.
template <bool Writes>
__device__ void move_rows(const RowMoves& moves) {
  const uint64_t each = moves.parts_each();
  const uint64_t parts = moves.count * each;
  for (uint64_t part = thread_index() / 32; part < parts; part += thread_count() / 32) {
    moves.move_part<Writes>(Lanes::warp(), part / each, part % each);
  }
}

template <bool Writes>
__device__ void move_all(const RowMoves& moves) {
  if (!moves.is_words()) {
    move_rows<Writes>(moves);
  } else if (moves.row_bytes == 4) {
    move_words<Writes, uint32_t>(moves);
  } else {
    move_words<Writes, uint64_t>(moves);
  }
}

}  // namespace

// Two groups a multiprocessor: where more must fit the compiler spills registers.
extern "C" __global__ void __launch_bounds__(row_kernel_threads, 2)
    hippogriff_array_gather(const __grid_constant__ RowMoves moves) {
  move_all<false>(moves);
}

extern "C" __global__ void __launch_bounds__(row_kernel_threads, 2)
    hippogriff_array_scatter(const __grid_constant__ RowMoves moves) {
  move_all<true>(moves);
}

extern "C" __global__ void __launch_bounds__(row_kernel_threads, 2)
    hippogriff_array_flush(const __grid_constant__ RowMoves moves) {
  const uint64_t lane = thread_index() % 32;
  for (uint64_t place = thread_index() - lane; place < moves.cache.places.place_count();
       place += thread_count()) {
    moves.note(
        moves.cache.noted(moves.cache.flush_places(Lanes::warp(), static_cast<uint32_t>(place))));
  }
}

// A lane a line; a warp that finds no slot asks for no more.
extern "C" __global__ void __launch_bounds__(row_kernel_threads, 2)
    hippogriff_array_prefetch(const __grid_constant__ RowMoves moves) {
  const uint64_t count = moves.ask_count();
  for (uint64_t first = thread_index() / 32 * 32; first < count; first += thread_count()) {
    if (!moves.ask(Lanes::warp(), first)) {
      return;
    }
  }
}

// A warp a row.
extern "C" __global__ void __launch_bounds__(row_kernel_threads)
    hippogriff_array_zero_copy(const __grid_constant__ RowMoves moves) {
  for (uint64_t row = thread_index() / 32; row < moves.count; row += thread_count() / 32) {
    moves.read_past(Lanes::warp(), row);
  }
}
