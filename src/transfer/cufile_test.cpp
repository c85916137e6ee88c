// GPUDirect Storage: when it counts as real, and reads and writes through it, over a fake
// libcufile.
#include "transfer/cufile.hpp"

#include "testing/failure_of.hpp"
#include "testing/fake_cufile/fake_cufile.hpp"
#include "testing/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace hippogriff {
namespace {

constexpr const char* static_bar1 = "RegistryDwords: \"RMForceStaticBar1=1;ForceP2P=0;\"";

// A machine made of files, and the fake library.
class GdsTest : public ::testing::Test {
 protected:
  GdsTest() : fake(HIPPOGRIFF_FAKE_CUFILE) {
    machine.root = folder.path().string();
    machine.kernel_release = "6.8.0-40-generic";
    machine.cufile = HIPPOGRIFF_FAKE_CUFILE;
  }

  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder.path() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }

  void load_nvidia_fs() {
    write("dev/nvidia-fs0", "");
    fake.set("nvfs_major", 2);
  }

  void configure_p2pdma() {
    write("proc/driver/nvidia/params", static_bar1);
    write("boot/config-6.8.0-40-generic", "CONFIG_PCI=y\nCONFIG_PCI_P2PDMA=y");
    fake.set("feature_flags", static_cast<int>(cufile_feature_p2pdma) | 1);
  }

  void expect_not_real(const std::string& because) {
    const CuFileLoad load = load_cufile(machine);
    EXPECT_FALSE(load.presence.real);
    EXPECT_EQ(load.functions, nullptr);
    EXPECT_NE(load.presence.why_not.find(because), std::string::npos) << load.presence.why_not;
  }

  TemporaryFolder folder;
  testing::FakeCuFile fake;
  GdsMachine machine;
};

TEST_F(GdsTest, machine_without_cuda_hears_that_first) {
  load_nvidia_fs();
  machine.why_no_cuda = "no driver";
  expect_not_real("needs a CUDA device: no driver");
  EXPECT_EQ(fake.count("opens"), 0);
}

TEST_F(GdsTest, driver_is_not_opened_where_nothing_is_configured) {
  expect_not_real("nvidia-fs module is not loaded");
  expect_not_real("parameters cannot be read");
  write("proc/driver/nvidia/params", "RegistryDwords: \"\"");
  expect_not_real("NVreg_RegistryDwords=\"RMForceStaticBar1=1;");
  EXPECT_EQ(fake.count("opens"), 0);
}

TEST_F(GdsTest, p2pdma_needs_linux_6_2) {
  configure_p2pdma();
  for (const char* release : {"5.15.0-91-generic", "6.1.0", "6", ""}) {
    machine.kernel_release = release;
    expect_not_real("needs Linux 6.2 or newer, this is " + machine.kernel_release);
  }
  machine.kernel_release = "6.2.0";
  write("boot/config-6.2.0", "CONFIG_PCI_P2PDMA=y");
  EXPECT_TRUE(load_cufile(machine).presence.real);
}

TEST_F(GdsTest, p2pdma_needs_a_kernel_built_with_it) {
  configure_p2pdma();
  write("boot/config-6.8.0-40-generic", "# CONFIG_PCI_P2PDMA is not set");
  expect_not_real("needs a kernel built with CONFIG_PCI_P2PDMA");
  std::filesystem::remove(folder.path() / "boot/config-6.8.0-40-generic");
  expect_not_real("this one does not tell");
  write("proc/kallsyms", "0000000000000000 T pci_enable_device");
  expect_not_real("needs a kernel built with CONFIG_PCI_P2PDMA");
  write("proc/kallsyms", "0000000000000000 d p2pdma_pgmap_ops");
  EXPECT_TRUE(load_cufile(machine).presence.real);
}

TEST_F(GdsTest, static_bar1_is_asked_for_only_where_the_platform_needs_it) {
  configure_p2pdma();
  std::filesystem::remove(folder.path() / "proc/driver/nvidia/params");
  expect_not_real("parameters cannot be read");
  machine.needs_static_bar1 = false;
  EXPECT_TRUE(load_cufile(machine).presence.real);
}

TEST_F(GdsTest, missing_library_is_named) {
  load_nvidia_fs();
  machine.cufile = "/nonexistent/libcufile.so.0";
  expect_not_real("/nonexistent/libcufile.so.0");
  expect_not_real("install libcufile");
  machine.cufile = "libm.so.6";
  expect_not_real("lacks cuFileDriverOpen");
}

TEST_F(GdsTest, nvidia_fs_is_real_and_compatibility_mode_goes_off) {
  load_nvidia_fs();
  fake.set("control_flags", static_cast<int>(cufile_control_compatibility));
  const CuFileLoad load = load_cufile(machine);
  EXPECT_TRUE(load.presence.real) << load.presence.why_not;
  EXPECT_EQ(load.presence.why_not, "");
  EXPECT_NE(load.functions, nullptr);
  EXPECT_EQ(fake.count("control_flags"), 0);
  EXPECT_EQ(fake.count("p2pdma_wanted"), 0);
}

TEST_F(GdsTest, p2pdma_is_real_without_nvidia_fs) {
  configure_p2pdma();
  const CuFileLoad load = load_cufile(machine);
  EXPECT_TRUE(load.presence.real) << load.presence.why_not;
  EXPECT_EQ(fake.count("p2pdma_wanted"), 1);
}

TEST_F(GdsTest, compatibility_mode_that_stays_on_is_not_real) {
  load_nvidia_fs();
  fake.set("control_flags", static_cast<int>(cufile_control_compatibility));
  fake.set("ignores_parameters", 1);
  expect_not_real("compatibility mode is on");
  fake.set("ignores_parameters", 0);
  fake.set("use_count", 1);  // somebody else set cuFile up: their setting stands
  expect_not_real("compatibility mode is on");
  EXPECT_NE(fake.count("control_flags"), 0);
}

TEST_F(GdsTest, configured_machine_whose_driver_finds_nothing_is_not_real) {
  configure_p2pdma();
  fake.set("feature_flags", 0xf);
  expect_not_real("neither nvidia-fs nor PCI P2PDMA");
}

TEST_F(GdsTest, failing_driver_is_told_with_its_error) {
  load_nvidia_fs();
  fake.set("open_result", 5004);
  expect_not_real("cuFile error 5004, nvidia-fs and libcufile are of different versions");
  fake.set("open_result", 5999);
  expect_not_real("cuFile error 5999)");
  fake.set("open_result", 0);
  fake.set("properties_result", 5005);
  expect_not_real("cuFile error 5005");
}

TEST_F(GdsTest, driver_that_somebody_opened_before_is_used) {
  load_nvidia_fs();
  fake.set("open_result", cufile_error_already_open);
  EXPECT_TRUE(load_cufile(machine).presence.real);
}

TEST(Gds, this_process_has_an_answer_with_a_reason) {
  const GdsPresence& presence = gds_presence();
  EXPECT_EQ(presence.real, presence.why_not.empty());
  EXPECT_EQ(presence.real, cufile_library() != nullptr);
}

std::ptrdiff_t descriptors_now() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

// A file of 64 KiB and memory that stands for a device's.
class CuFileTest : public GdsTest {
 protected:
  static constexpr std::size_t file_bytes = 65536;

  void SetUp() override {
    load_nvidia_fs();
    loaded = load_cufile(machine);
    ASSERT_NE(loaded.functions, nullptr);
    for (std::size_t index = 0; index < file_bytes; ++index) {
      content[index] = static_cast<std::byte>(index * 31 + index / 251);
    }
    storage = make_system_storage();
    std::ofstream(folder.file("data"), std::ios::binary)
        .write(reinterpret_cast<const char*>(content.data()), file_bytes);
    disk_file = storage->open(folder.file("data"), FileAccess::read_write);
    if (!disk_file->facts().direct) {
      GTEST_SKIP() << "no O_DIRECT in " << folder.path();
    }
    static_cast<void>(gds_presence());  // the CUDA driver opens files for good
    descriptors_before = descriptors_now();
  }

  void TearDown() override {
    EXPECT_EQ(fake.count("handles"), 0) << "a handle leaked";
    if (disk_file != nullptr && disk_file->facts().direct) {
      EXPECT_EQ(descriptors_now(), descriptors_before) << "a descriptor leaked";
    }
  }

  DeviceAddress memory() { return {reinterpret_cast<std::uint64_t>(device_bytes.data())}; }

  CuFileLoad loaded;
  std::shared_ptr<Storage> storage;
  std::shared_ptr<File> disk_file;
  std::vector<std::byte> content = std::vector<std::byte>(file_bytes);
  std::vector<std::byte> device_bytes = std::vector<std::byte>(2 * file_bytes);
  std::ptrdiff_t descriptors_before = 0;
};

TEST_F(CuFileTest, read_places_the_range_at_the_device_offset) {
  CuFile file(*loaded.functions, *disk_file);
  file.read({4097, 10'001}, memory(), 333);
  EXPECT_EQ(std::memcmp(device_bytes.data() + 333, content.data() + 4097, 10'001), 0);
  EXPECT_EQ(device_bytes[332], std::byte{0});
  EXPECT_EQ(device_bytes[333 + 10'001], std::byte{0});
}

TEST_F(CuFileTest, write_places_the_memory_in_the_range) {
  device_bytes[7] = std::byte{0xaa};
  device_bytes[8] = std::byte{0xbb};
  CuFile file(*loaded.functions, *disk_file);
  file.write({100, 2}, memory(), 7);
  std::vector<std::byte> back(4);
  ASSERT_EQ(disk_file->read(back, 99), 4U);
  EXPECT_EQ(back,
            (std::vector<std::byte>{content[99], std::byte{0xaa}, std::byte{0xbb}, content[102]}));
}

TEST_F(CuFileTest, short_results_are_continued) {
  fake.set("io_bytes_max", 4096);
  CuFile file(*loaded.functions, *disk_file);
  file.read({1, 50'000}, memory(), 0);
  EXPECT_EQ(std::memcmp(device_bytes.data(), content.data() + 1, 50'000), 0);
  file.write({0, file_bytes}, memory(), 0);
  std::vector<std::byte> back(file_bytes);
  ASSERT_EQ(disk_file->read(back, 0), file_bytes);
  EXPECT_EQ(std::memcmp(back.data(), device_bytes.data(), file_bytes), 0);
}

TEST_F(CuFileTest, end_of_file_inside_the_range_is_a_short_file) {
  CuFile file(*loaded.functions, *disk_file);
  const Failure failure = failure_of([&] { file.read({file_bytes - 10, 11}, memory(), 0); });
  EXPECT_EQ(failure.status, Status::short_file);
  EXPECT_EQ(failure.offset, file_bytes);
  EXPECT_EQ(failure.object, disk_file->facts().path);
}

TEST_F(CuFileTest, failures_say_operation_path_offset_and_cause) {
  CuFile file(*loaded.functions, *disk_file);
  fake.set("io_result", -1);
  fake.set("io_errno", EIO);
  Failure failure = failure_of([&] { file.read({512, 512}, memory(), 0); });
  EXPECT_EQ(failure.status, Status::io_error);
  EXPECT_EQ(failure.errno_value, EIO);
  EXPECT_EQ(failure.operation, "cuFile read");
  EXPECT_EQ(failure.offset, 512U);
  fake.set("io_errno", ENOSPC);
  failure = failure_of([&] { file.write({512, 512}, memory(), 0); });
  EXPECT_EQ(failure.operation, "cuFile write");
  EXPECT_EQ(failure.errno_value, ENOSPC);
  fake.set("io_result", -5012);
  failure = failure_of([&] { file.read({0, 512}, memory(), 0); });
  EXPECT_EQ(failure.status, Status::device_error);
  EXPECT_EQ(failure.detail, "cuFile error 5012, the address is not device memory");
  fake.set("io_result", -EINVAL);
  failure = failure_of([&] { file.write({0, 512}, memory(), 0); });
  EXPECT_EQ(failure.status, Status::io_error);
  EXPECT_EQ(failure.errno_value, EINVAL);
}

TEST_F(CuFileTest, file_that_cufile_refuses_is_unsupported) {
  fake.set("register_result", 5008);
  const Failure failure = failure_of([&] { const CuFile file(*loaded.functions, *disk_file); });
  EXPECT_EQ(failure.status, Status::unsupported);
  EXPECT_EQ(failure.object, disk_file->facts().path);
  EXPECT_EQ(failure.detail, "cuFile error 5008, not supported for this file");
}

TEST_F(CuFileTest, one_file_may_be_registered_by_several_lanes) {
  CuFile first(*loaded.functions, *disk_file);
  {
    CuFile second(*loaded.functions, *disk_file);
    EXPECT_EQ(fake.count("handles"), 2);
    second.read({0, 100}, memory(), 0);
  }
  first.read({0, file_bytes}, memory(), 0);
  EXPECT_EQ(std::memcmp(device_bytes.data(), content.data(), file_bytes), 0);
}

TEST_F(CuFileTest, process_without_gpudirect_storage_says_why) {
  if (gds_presence().real) {
    GTEST_SKIP() << "GPUDirect Storage is real here";
  }
  const Failure failure = failure_of([&] { const CuFile file(*disk_file); });
  EXPECT_EQ(failure.status, Status::unsupported);
  EXPECT_EQ(failure.detail, gds_presence().why_not);
}

}  // namespace
}  // namespace hippogriff
