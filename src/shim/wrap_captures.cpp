// Captures of streams under way, counted where they begin and end.
#include "shim/captures.hpp"
#include "shim/wrapper.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hippogriff::shim {
namespace {

std::atomic<std::int64_t>& captures() noexcept {
  static constinit std::atomic<std::int64_t> count{0};
  return count;
}

template <typename Call>
CUresult begin_capture(Call&& call) {
  // Before the driver knows of it: at no moment are there fewer than there are.
  captures().fetch_add(1, std::memory_order_acq_rel);
  const CUresult result = call();
  if (result != CUDA_SUCCESS) {
    captures().fetch_sub(1, std::memory_order_acq_rel);
  }
  return result;
}

template <Function Symbol>
CUresult CUDAAPI begin(CUstream stream) {
  return begin_capture([&] { return real<CUresult CUDAAPI(CUstream)>(Symbol)(stream); });
}

template <Function Symbol>
CUresult CUDAAPI begin_in_mode(CUstream stream, CUstreamCaptureMode mode) {
  return begin_capture(
      [&] { return real<decltype(::cuStreamBeginCapture_v2)>(Symbol)(stream, mode); });
}

template <Function Symbol>
CUresult CUDAAPI begin_to_graph(CUstream stream,
                                CUgraph graph,
                                const CUgraphNode* dependencies,
                                const CUgraphEdgeData* edges,
                                std::size_t count,
                                CUstreamCaptureMode mode) {
  return begin_capture([&] {
    return real<decltype(::cuStreamBeginCaptureToGraph)>(Symbol)(
        stream, graph, dependencies, edges, count, mode);
  });
}

// What the headers of the build may lack; pointers to their structures and functions go through.
using BeginAgain = CUresult CUDAAPI(CUstream, CUstreamCaptureMode, CUgraph, void*, void*);
using BeginInGraphics = CUresult CUDAAPI(CUstream, void*);
using EndInGraphics = CUresult CUDAAPI(CUstream);

template <Function Symbol>
CUresult CUDAAPI
begin_again(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, void* differs, void* data) {
  return begin_capture(
      [&] { return real<BeginAgain>(Symbol)(stream, mode, graph, differs, data); });
}

// For the command list of a graphics API. The driver allows no allocation there.
template <Function Symbol>
CUresult CUDAAPI begin_in_graphics(CUstream stream, void* parameters) {
  return begin_capture([&] { return real<BeginInGraphics>(Symbol)(stream, parameters); });
}

// Nobody says that the driver calls these streams capturing: it counts until the end succeeds.
template <Function Symbol>
CUresult CUDAAPI end_in_graphics(CUstream stream) {
  const CUresult result = real<EndInGraphics>(Symbol)(stream);
  if (result == CUDA_SUCCESS) {
    captures().fetch_sub(1, std::memory_order_acq_rel);
  }
  return result;
}

template <Function Symbol, Function Ask>
CUresult CUDAAPI end(CUstream stream, CUgraph* graph) {
  const bool was_capturing = is_capturing<Ask>(stream);
  const CUresult result = real<decltype(::cuStreamEndCapture)>(Symbol)(stream, graph);
  // Some failures end the capture, others leave it.
  if (was_capturing && (result == CUDA_SUCCESS || !is_capturing<Ask>(stream))) {
    captures().fetch_sub(1, std::memory_order_acq_rel);
  }
  return result;
}

}  // namespace

bool may_capture() noexcept {
  return captures().load(std::memory_order_acquire) != 0;
}

std::span<const Wrapper> capture_wrappers() noexcept {
  using F = Function;
  static const std::array wrappers = {
      HIPPO_WRAPPER(cuStreamBeginCapture, &begin<F::cuStreamBeginCapture>),
      HIPPO_WRAPPER(cuStreamBeginCapture_ptsz, &begin<F::cuStreamBeginCapture_ptsz>),
      HIPPO_WRAPPER(cuStreamBeginCapture_v2, &begin_in_mode<F::cuStreamBeginCapture_v2>),
      HIPPO_WRAPPER(cuStreamBeginCapture_v2_ptsz, &begin_in_mode<F::cuStreamBeginCapture_v2_ptsz>),
      HIPPO_WRAPPER(cuStreamBeginCaptureToGraph, &begin_to_graph<F::cuStreamBeginCaptureToGraph>),
      HIPPO_WRAPPER(cuStreamBeginCaptureToGraph_ptsz,
                    &begin_to_graph<F::cuStreamBeginCaptureToGraph_ptsz>),
      HIPPO_WRAPPER(cuStreamEndCapture, (&end<F::cuStreamEndCapture, F::cuStreamIsCapturing>)),
      HIPPO_WRAPPER(cuStreamEndCapture_ptsz,
                    (&end<F::cuStreamEndCapture_ptsz, F::cuStreamIsCapturing_ptsz>)),
      make_wrapper<BeginAgain>(F::cuStreamBeginRecaptureToGraph,
                               &begin_again<F::cuStreamBeginRecaptureToGraph>),
      make_wrapper<BeginAgain>(F::cuStreamBeginRecaptureToGraph_ptsz,
                               &begin_again<F::cuStreamBeginRecaptureToGraph_ptsz>),
      make_wrapper<BeginInGraphics>(F::cuStreamBeginCaptureToCig,
                                    &begin_in_graphics<F::cuStreamBeginCaptureToCig>),
      make_wrapper<BeginInGraphics>(F::cuStreamBeginCaptureToCig_ptsz,
                                    &begin_in_graphics<F::cuStreamBeginCaptureToCig_ptsz>),
      make_wrapper<EndInGraphics>(F::cuStreamEndCaptureToCig,
                                  &end_in_graphics<F::cuStreamEndCaptureToCig>),
      make_wrapper<EndInGraphics>(F::cuStreamEndCaptureToCig_ptsz,
                                  &end_in_graphics<F::cuStreamEndCaptureToCig_ptsz>),
  };
  return wrappers;
}

}  // namespace hippogriff::shim
