// Graphs made on a device are those that the processor makes, byte for byte: on device host by the
// kernels' code, and on a GPU where there is one.
#include "workloads/graph/edges.hpp"
#include "workloads/graph/graph_file.hpp"
#include "workloads/sharing/device.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

namespace {

// A new folder, which goes with everything in it.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "hippogriff-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }

  ~Folder() { std::filesystem::remove_all(path_); }

  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] std::string file(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

constexpr std::uint64_t all_at_once = std::uint64_t{1} << 30U;

std::vector<GraphWish> wishes() {
  std::vector<GraphWish> all;
  for (const GraphKind kind : {GraphKind::kronecker, GraphKind::uniform}) {
    for (const std::uint64_t memory_bytes :
         {std::uint64_t{4096}, std::uint64_t{100'000}, all_at_once}) {
      all.push_back({kind, 1, 1, 27'491, memory_bytes});
      all.push_back({kind, 9, 3, 27'491, memory_bytes});
      all.push_back({kind, 12, 16, 5, memory_bytes});
    }
    all.push_back({kind, 15, 16, 27'491, all_at_once});
    all.push_back({kind, 7, 1024, 1, all_at_once});  // most of it is drawn again and again
  }
  return all;
}

void expect_the_same(const std::string& device_name) {
  const Folder folder;
  const auto device = open_device(device_name);
  for (const GraphWish& wish : wishes()) {
    const std::string what = "kind " + std::to_string(static_cast<int>(wish.kind)) + ", scale " +
                             std::to_string(wish.scale) + ", memory " +
                             std::to_string(wish.memory_bytes);
    generate_graph(folder.file("processor"), wish);
    generate_graph_on(*device, device_name, folder.file("device"), wish);
    const GraphFile graph(folder.file("device"));  // says what is wrong with it
    EXPECT_EQ(graph.vertices(), std::uint64_t{1} << wish.scale) << what;
    EXPECT_TRUE(bytes_of(folder.file("device")) == bytes_of(folder.file("processor"))) << what;
  }
}

TEST(GraphsMadeOnADevice, are_those_of_the_processor_by_the_kernels_code_on_device_host) {
  expect_the_same("host");
}

TEST(GraphsMadeOnADevice, are_those_of_the_processor_on_a_gpu) {
  if (gpu_count() == 0) {
    GTEST_SKIP() << "there is no GPU";
  }
  expect_the_same("cuda:0");
}

TEST(GraphsMadeOnADevice, replace_what_was_longer) {
  const Folder folder;
  const auto device = open_device("host");
  std::ofstream(folder.file("graph")) << std::string(1 << 20, 'x');
  const GraphWish wish{.scale = 4, .memory_bytes = 4096};
  generate_graph_on(*device, "host", folder.file("graph"), wish);
  EXPECT_EQ(GraphFile(folder.file("graph")).vertices(), 16U);
}

TEST(DrawnEdges, of_a_seed_are_always_the_same) {
  const Edges kronecker(GraphWish{.scale = 26});
  EXPECT_EQ(kronecker.count(), std::uint64_t{1} << 30U);
  const Edges again(GraphWish{.scale = 26});
  const Edges other(GraphWish{.scale = 26, .seed = 1});
  std::uint64_t different = 0;
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    const Edge edge = kronecker.at(i * 100'003);
    EXPECT_LT(edge.a, kronecker.vertices());
    EXPECT_LT(edge.b, kronecker.vertices());
    EXPECT_EQ(edge.a, again.at(i * 100'003).a);
    different += edge.b != other.at(i * 100'003).b ? 1 : 0;
  }
  EXPECT_GT(different, 9900U);
}

}  // namespace
