// Locks of slots: whose they are, also where files of other file systems have the same inode.
#include "node/life.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

namespace hippogriff::node {
namespace {

// A file in memory with the lock of a client.
class LockedFile {
 public:
  explicit LockedFile(std::uint32_t client) : fd_(::memfd_create("segment", MFD_CLOEXEC)) {
    struct flock range{};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    range.l_start = slots_lock_offset + client;
    range.l_len = 1;
    EXPECT_EQ(::fcntl(fd_, F_OFD_SETLK, &range), 0);
    EXPECT_EQ(::fstat(fd_, &facts_), 0);
  }

  ~LockedFile() { ::close(fd_); }

  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

  [[nodiscard]] int fd() const { return fd_; }

  [[nodiscard]] const struct stat& facts() const { return facts_; }

 private:
  int fd_;
  struct stat facts_{};
};

TEST(Life, locks_are_told_with_the_device_and_the_inode_of_their_file) {
  const LockedFile file(7);
  const auto found = has_slot_lock([&](const SlotLock& lock) {
    return lock.device == file.facts().st_dev && lock.inode == file.facts().st_ino &&
           lock.client == 7;
  });
  ASSERT_TRUE(found.has_value()) << "/proc/locks cannot be read";
  EXPECT_TRUE(*found);
  EXPECT_EQ(lock_device(file.fd()), file.facts().st_dev);
}

TEST(Life, a_lock_in_a_file_of_the_same_inode_on_another_device_is_somebody_elses) {
  const LockedFile file(7);
  const Viewer viewer;
  ClientIdentity identity;
  identity.origin_inode = file.facts().st_ino;
  identity.origin_device = file.facts().st_dev;
  EXPECT_TRUE(viewer.lives(identity, 7, false));
  EXPECT_FALSE(viewer.lives(identity, 8, false)) << "another slot";
  identity.origin_device = file.facts().st_dev + 1;
  EXPECT_FALSE(viewer.lives(identity, 7, false));
  identity.origin_device = 0;
  EXPECT_TRUE(viewer.lives(identity, 7, false)) << "the device is not known: the inode counts";
}

TEST(Life, of_a_file_that_is_not_in_tmpfs_the_device_is_not_known) {
  const int fd = ::open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(lock_device(fd), 0U);
  ::close(fd);
}

}  // namespace
}  // namespace hippogriff::node
