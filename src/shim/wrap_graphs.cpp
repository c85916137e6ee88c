// Memory that graphs allocate: counted when a graph is instantiated. Then a refusal comes at a call
// that may run out of memory, and launching, which programs do thousands of times a second, stays
// as it is. The price: graphs that would share memory one after the other are counted side by side.
#include "shim/accounts.hpp"
#include "shim/wrapper.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace hippogriff::shim {
namespace {

constexpr int nesting_max = 16;

void add_bytes(GraphBytes& total, int device, std::uint64_t size_bytes) {
  for (auto& [pool, sum_bytes] : total) {
    if (pool->device() == device) {
      sum_bytes = size_bytes > UINT64_MAX - sum_bytes ? UINT64_MAX : sum_bytes + size_bytes;
      return;
    }
  }
  if (std::shared_ptr<Pool> pool = accounts().pools.graph_memory(device); pool != nullptr) {
    total.emplace_back(std::move(pool), size_bytes);
  }
}

// What the graph's nodes, and those of its child graphs, allocate. Throws std::bad_alloc.
void add_graph(GraphBytes& total, CUgraph graph, int nesting) {
  std::size_t count = 0;
  if (nesting > nesting_max ||
      HIPPO_REAL(cuGraphGetNodes)(graph, nullptr, &count) != CUDA_SUCCESS) {
    return;
  }
  std::vector<CUgraphNode> nodes(count);
  if (HIPPO_REAL(cuGraphGetNodes)(graph, nodes.data(), &count) != CUDA_SUCCESS) {
    return;
  }
  nodes.resize(count < nodes.size() ? count : nodes.size());
  for (CUgraphNode node : nodes) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (HIPPO_REAL(cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS) {
      continue;
    }
    CUgraph child = nullptr;
    CUDA_MEM_ALLOC_NODE_PARAMS allocation = {};
    if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
        HIPPO_REAL(cuGraphChildGraphNodeGetGraph)(node, &child) == CUDA_SUCCESS) {
      add_graph(total, child, nesting + 1);
    } else if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
               HIPPO_REAL(cuGraphMemAllocNodeGetParams)(node, &allocation) == CUDA_SUCCESS &&
               counted_device(allocation.poolProps.location) >= 0) {
      add_bytes(total, allocation.poolProps.location.id, allocation.bytesize);
    }
  }
}

void give(const GraphBytes& taken, std::size_t count) noexcept {
  for (std::size_t index = 0; index < count; ++index) {
    taken[index].first->free(taken[index].second);
  }
}

bool take(const GraphBytes& wanted) noexcept {
  for (std::size_t index = 0; index < wanted.size(); ++index) {
    if (!wanted[index].first->take(wanted[index].second)) {
      give(wanted, index);
      return false;
    }
  }
  return true;
}

template <typename Call>
CUresult instantiate_counted(CUgraphExec* handle, CUgraph graph, Call&& call) {
  GraphBytes wanted;
  try {
    add_graph(wanted, graph, 0);
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (!take(wanted)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = call();
  if (result != CUDA_SUCCESS) {
    give(wanted, wanted.size());
    return result;
  }
  if (!wanted.empty()) {
    try {
      const std::lock_guard lock(accounts().graphs_mutex);
      accounts().graphs[*handle] = std::move(wanted);
    } catch (const std::bad_alloc&) {
      return result;  // the bytes stay counted
    }
  }
  return result;
}

template <Function Symbol>
CUresult CUDAAPI instantiate_with_log(
    CUgraphExec* handle, CUgraph graph, CUgraphNode* error_node, char* log, std::size_t log_bytes) {
  return instantiate_counted(handle, graph, [&] {
    return real<decltype(::cuGraphInstantiate_v2)>(Symbol)(
        handle, graph, error_node, log, log_bytes);
  });
}

CUresult CUDAAPI instantiate(CUgraphExec* handle, CUgraph graph, unsigned long long flags) {
  return instantiate_counted(
      handle, graph, [&] { return HIPPO_REAL(cuGraphInstantiateWithFlags)(handle, graph, flags); });
}

template <Function Symbol>
CUresult CUDAAPI instantiate_with_parameters(CUgraphExec* handle,
                                             CUgraph graph,
                                             CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  return instantiate_counted(handle, graph, [&] {
    return real<decltype(::cuGraphInstantiateWithParams)>(Symbol)(handle, graph, parameters);
  });
}

GraphBytes claim(CUgraphExec handle) noexcept {
  Accounts& books = accounts();
  const std::lock_guard lock(books.graphs_mutex);
  const auto found = books.graphs.find(handle);
  if (found == books.graphs.end()) {
    return {};
  }
  GraphBytes taken = std::move(found->second);
  books.graphs.erase(found);
  return taken;
}

CUresult CUDAAPI destroy(CUgraphExec handle) {
  GraphBytes taken = claim(handle);
  const CUresult result = HIPPO_REAL(cuGraphExecDestroy)(handle);
  if (result == CUDA_SUCCESS) {
    give(taken, taken.size());
  } else if (!taken.empty()) {
    try {
      const std::lock_guard lock(accounts().graphs_mutex);
      accounts().graphs[handle] = std::move(taken);
    } catch (const std::bad_alloc&) {
      return result;  // the bytes stay counted
    }
  }
  return result;
}

CUresult CUDAAPI trim(CUdevice device) {
  const CUresult result = HIPPO_REAL(cuDeviceGraphMemTrim)(device);
  if (const auto pool = accounts().pools.graph_memory(device); pool != nullptr) {
    pool->settle();
  }
  return result;
}

}  // namespace

std::span<const Wrapper> graph_wrappers() noexcept {
  using F = Function;
  static const std::array wrappers = {
      HIPPO_WRAPPER(cuGraphInstantiate, &instantiate_with_log<F::cuGraphInstantiate>),
      HIPPO_WRAPPER(cuGraphInstantiate_v2, &instantiate_with_log<F::cuGraphInstantiate_v2>),
      HIPPO_WRAPPER(cuGraphInstantiateWithFlags, &instantiate),
      HIPPO_WRAPPER(cuGraphInstantiateWithParams,
                    &instantiate_with_parameters<F::cuGraphInstantiateWithParams>),
      HIPPO_WRAPPER(cuGraphInstantiateWithParams_ptsz,
                    &instantiate_with_parameters<F::cuGraphInstantiateWithParams_ptsz>),
      HIPPO_WRAPPER(cuGraphExecDestroy, &destroy),
      HIPPO_WRAPPER(cuDeviceGraphMemTrim, &trim),
  };
  return wrappers;
}

}  // namespace hippogriff::shim
