// The null driver's streams, captures and graphs, as far as they allocate.
#include "testing/null_cuda/null_state.hpp"

#include <algorithm>
#include <utility>

using null_cuda::Node;
using null_cuda::state;

namespace {

using Guard = std::scoped_lock<std::mutex>;
using Nodes = std::vector<Node>;

Nodes& nodes_of(CUgraph graph) {
  return *reinterpret_cast<Nodes*>(graph);
}

// Graphs of one device only.
std::uint64_t bytes_of(CUgraph graph, int* device) {
  std::uint64_t sum = 0;
  for (const Node& node : nodes_of(graph)) {
    if (node.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
      sum += node.allocation.bytesize;
      *device = node.allocation.poolProps.location.id;
    } else if (node.type == CU_GRAPH_NODE_TYPE_GRAPH) {
      sum += bytes_of(node.child, device);
    }
  }
  return sum;
}

CUresult instantiate(CUgraphExec* handle, CUgraph graph) {
  const Guard lock(state().mutex);
  int device = 0;
  const std::uint64_t size_bytes = bytes_of(graph, &device);
  auto& facts = state().devices.at(static_cast<std::size_t>(device));
  const std::uint64_t used = facts.graph_used_bytes + size_bytes;
  const std::uint64_t needed =
      used > facts.graph_reserved_bytes ? used - facts.graph_reserved_bytes : 0;
  if (const CUresult result = null_cuda::admit(device, needed); result != CUDA_SUCCESS) {
    return result;
  }
  facts.graph_used_bytes = used;
  facts.graph_reserved_bytes += needed;
  *handle = reinterpret_cast<CUgraphExec>(null_cuda::new_address());
  state().executables[*handle] = {device, size_bytes};
  return CUDA_SUCCESS;
}

CUresult add_node(CUgraphNode* node, CUgraph graph, const Node& added) {
  const Guard lock(state().mutex);
  nodes_of(graph).push_back(added);
  *node = reinterpret_cast<CUgraphNode>(&nodes_of(graph).back());
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned) {
  *stream =
      reinterpret_cast<CUstream>(new null_cuda::Stream{null_cuda::context_stack().back(), nullptr});
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream stream) {
  delete reinterpret_cast<null_cuda::Stream*>(stream);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamGetCtx(CUstream stream, CUcontext* context) {
  *context = reinterpret_cast<null_cuda::Stream*>(stream)->context;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  const Guard lock(state().mutex);
  const auto* const known = reinterpret_cast<null_cuda::Stream*>(stream);
  const bool captures = known != nullptr && (known->capture != nullptr || known->in_graphics);
  *status = captures ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  ++state().capture_questions;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphCreate(CUgraph* graph, unsigned) {
  *graph = reinterpret_cast<CUgraph>(new Nodes);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphDestroy(CUgraph graph) {
  delete reinterpret_cast<Nodes*>(graph);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode) {
  return cuGraphCreate(&reinterpret_cast<null_cuda::Stream*>(stream)->capture, 0);
}

// Those of CUDA 13.1 and 13.3, which our headers do not declare.
// NOLINTBEGIN(readability-identifier-naming): the driver's names
CUresult CUDAAPI
cuStreamBeginRecaptureToGraph(CUstream stream, CUstreamCaptureMode, CUgraph graph, void*, void*) {
  nodes_of(graph).clear();
  reinterpret_cast<null_cuda::Stream*>(stream)->capture = graph;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamBeginCaptureToCig(CUstream stream, void* parameters) {
  if (parameters == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  reinterpret_cast<null_cuda::Stream*>(stream)->in_graphics = true;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamEndCaptureToCig(CUstream stream) {
  const bool captured =
      std::exchange(reinterpret_cast<null_cuda::Stream*>(stream)->in_graphics, false);
  return captured ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

// NOLINTEND(readability-identifier-naming)

CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  auto* const known = reinterpret_cast<null_cuda::Stream*>(stream);
  if (known->capture == nullptr) {
    return CUDA_ERROR_ILLEGAL_STATE;
  }
  *graph = known->capture;
  known->capture = nullptr;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode* node,
                                        CUgraph graph,
                                        const CUgraphNode*,
                                        std::size_t,
                                        CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  return add_node(node, graph, {CU_GRAPH_NODE_TYPE_MEM_ALLOC, *parameters, nullptr});
}

CUresult CUDAAPI cuGraphAddChildGraphNode(
    CUgraphNode* node, CUgraph graph, const CUgraphNode*, std::size_t, CUgraph child) {
  return add_node(node, graph, {CU_GRAPH_NODE_TYPE_GRAPH, {}, child});
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  Nodes& known = nodes_of(graph);
  for (std::size_t index = 0; nodes != nullptr && index < known.size(); ++index) {
    nodes[index] = reinterpret_cast<CUgraphNode>(&known[index]);
  }
  *count = known.size();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  *type = reinterpret_cast<Node*>(node)->type;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphMemAllocNodeGetParams(CUgraphNode node,
                                              CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  *parameters = reinterpret_cast<Node*>(node)->allocation;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* graph) {
  *graph = reinterpret_cast<Node*>(node)->child;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec* handle,
                                             CUgraph graph,
                                             unsigned long long) {
  return instantiate(handle, graph);
}

CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec* handle,
                                              CUgraph graph,
                                              CUDA_GRAPH_INSTANTIATE_PARAMS*) {
  return instantiate(handle, graph);
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec handle) {
  const Guard lock(state().mutex);
  const auto found = state().executables.find(handle);
  if (found == state().executables.end()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto [device, size_bytes] = found->second;
  state().devices.at(static_cast<std::size_t>(device)).graph_used_bytes -= size_bytes;
  state().executables.erase(found);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGraphMemTrim(CUdevice device) {
  const Guard lock(state().mutex);
  auto& facts = state().devices.at(static_cast<std::size_t>(device));
  facts.graph_reserved_bytes = facts.graph_used_bytes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetGraphMemAttribute(CUdevice device,
                                              CUgraphMem_attribute attribute,
                                              void* value) {
  const Guard lock(state().mutex);
  const auto& facts = state().devices.at(static_cast<std::size_t>(device));
  *static_cast<cuuint64_t*>(value) = attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT
                                         ? facts.graph_reserved_bytes
                                         : facts.graph_used_bytes;
  return CUDA_SUCCESS;
}

#pragma GCC visibility pop
}  // extern "C"
