// AtomicFile: commit, no commit, links, modes, faults, and a writer killed at any moment.
#include "storage/atomic_file.hpp"

#include "storage/descriptor.hpp"
#include "testing/eventually.hpp"
#include "testing/faulty_storage.hpp"
#include "testing/storage_fixture.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

namespace hippogriff {
namespace {

namespace fs = std::filesystem;

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

class AtomicFiles : public ::testing::TestWithParam<TemporaryKind> {
 protected:
  void write(AtomicFile& file, const std::string& text) {
    write_all(*file.file(), std::as_bytes(std::span(text)), 0);
  }

  // Names in the folder, sorted.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(home.path())) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  TemporaryFolder home;
  std::string target = home.file("f");
  std::shared_ptr<Storage> storage = make_system_storage(QueueKind::threads);
};

using Names = std::vector<std::string>;

TEST_P(AtomicFiles, commit_shows_the_new_content_and_nothing_else) {
  put(target, "old");
  AtomicFile file(storage, target, GetParam());
  write(file, "new content");
  EXPECT_EQ(content_of(target), "old");
  file.commit();
  EXPECT_EQ(content_of(target), "new content");
  EXPECT_EQ(names(), Names{"f"});
  EXPECT_EQ(failure_of([&] { file.commit(); }).status, Status::invalid_argument);
}

TEST_P(AtomicFiles, without_commit_the_old_content_stays) {
  put(target, "old");
  {
    AtomicFile file(storage, target, GetParam());
    write(file, "new content");
  }
  EXPECT_EQ(content_of(target), "old");
  EXPECT_EQ(names(), Names{"f"});
}

TEST_P(AtomicFiles, a_file_that_was_not_there_appears_whole) {
  const mode_t mask = ::umask(027);
  {
    AtomicFile file(storage, target, GetParam());
    write(file, "new");
    EXPECT_FALSE(fs::exists(target));
    file.commit();
  }
  ::umask(mask);
  EXPECT_EQ(content_of(target), "new");
  EXPECT_EQ(fs::status(target).permissions(), fs::perms(0640));
}

TEST_P(AtomicFiles, a_relative_path_is_one_of_the_folder_where_the_file_was_begun) {
  const fs::path before = fs::current_path();
  const TemporaryFolder elsewhere;
  put(elsewhere.file("f"), "a stranger");
  fs::current_path(home.path());
  AtomicFile file(storage, "f", GetParam());
  write(file, "new");
  fs::current_path(elsewhere.path());
  file.commit();
  fs::current_path(before);
  EXPECT_EQ(content_of(target), "new");
  EXPECT_EQ(content_of(elsewhere.file("f")), "a stranger");
}

TEST_P(AtomicFiles, what_is_discarded_takes_no_room_while_others_hold_it) {
  AtomicFile file(storage, target, GetParam());
  write(file, "new content");
  const std::shared_ptr<File> held = file.file();
  file.discard();
  EXPECT_EQ(held->size_now(), 0U);
  EXPECT_EQ(names(), Names{});
}

TEST_P(AtomicFiles, nothing_is_replaced_in_a_folder_that_cannot_be_opened_for_its_sync) {
  put(target, "old");
  AtomicFile file(storage, target, GetParam());
  write(file, "new content");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(0);  // what the folder would get
  ::close(next);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Failure failure = failure_of([&] { file.commit(); });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(failure.errno_value, EMFILE);
  EXPECT_EQ(content_of(target), "old");
  file.discard();
  EXPECT_EQ(content_of(target), "old");
  EXPECT_EQ(names(), Names{"f"});
}

TEST_P(AtomicFiles, a_file_that_comes_to_be_meanwhile_is_replaced) {
  AtomicFile file(storage, target, GetParam());
  write(file, "new");
  put(target, "somebody else's");
  file.commit();
  EXPECT_EQ(content_of(target), "new");
  EXPECT_EQ(names(), Names{"f"});
}

TEST(AtomicFile, has_no_name_but_the_targets_where_there_is_none_to_replace) {
  const TemporaryFolder home;
  const auto plan = std::make_shared<FaultPlan>();
  const auto faulty = make_faulty_storage(make_system_storage(), plan);
  AtomicFile file(faulty, home.file("f"));
  if (!fs::is_empty(home.path())) {
    GTEST_SKIP() << "no files without a name here";
  }
  plan->add({.point = FaultPoint::rename, .kind = FaultKind::hold});
  std::thread committing([&] { file.commit(); });
  EXPECT_TRUE(hippogriff::testing::eventually([&] { return plan->struck() > 0; }));
  EXPECT_TRUE(fs::is_empty(home.path())) << "what a kill would leave";
  plan->release();
  committing.join();
  EXPECT_TRUE(fs::exists(home.file("f")));
}

TEST_P(AtomicFiles, the_mode_of_the_replaced_file_is_kept) {
  put(target, "old");
  ASSERT_EQ(::chmod(target.c_str(), 0604), 0);
  AtomicFile file(storage, target, GetParam());
  file.commit();
  EXPECT_EQ(fs::status(target).permissions(), fs::perms(0604));
  EXPECT_EQ(fs::file_size(target), 0U);
}

TEST_P(AtomicFiles, a_file_that_is_made_private_meanwhile_stays_private) {
  put(target, "old");
  ASSERT_EQ(::chmod(target.c_str(), 0644), 0);
  AtomicFile file(storage, target, GetParam());
  ASSERT_EQ(::chmod(target.c_str(), 0600), 0);
  file.commit();
  EXPECT_EQ(fs::status(target).permissions(), fs::perms(0600));
}

TEST_P(AtomicFiles, a_link_of_proc_is_followed_to_a_file_that_has_a_name_only) {
  put(target, "old");
  const Descriptor open_file(::open(target.c_str(), O_RDWR | O_CLOEXEC));
  const std::string link = "/proc/self/fd/" + std::to_string(open_file.get());
  AtomicFile file(storage, link, GetParam());
  write(file, "new");
  file.commit();
  EXPECT_EQ(content_of(target), "new");
  const auto status = [&] {
    return failure_of([&] { AtomicFile(storage, link, GetParam()); }).status;
  };
  EXPECT_EQ(status(), Status::invalid_argument);
  put(target + " (deleted)", "what the link's text names");
  EXPECT_EQ(status(), Status::invalid_argument);
  EXPECT_EQ(names(), (Names{"f", "f (deleted)"}));
}

TEST_P(AtomicFiles, a_link_is_followed_and_stays) {
  fs::create_directory(home.file("far"));
  put(home.file("far/target"), "old");
  fs::create_symlink("far/target", home.file("middle"));
  fs::create_symlink(home.file("middle"), home.file("link"));
  AtomicFile file(storage, home.file("link"), GetParam());
  write(file, "new");
  file.commit();
  EXPECT_TRUE(fs::is_symlink(home.file("link")));
  EXPECT_TRUE(fs::is_symlink(home.file("middle")));
  EXPECT_EQ(content_of(home.file("far/target")), "new");
  EXPECT_FALSE(fs::is_symlink(home.file("far/target")));
}

TEST_P(AtomicFiles, a_link_to_nothing_creates_its_target) {
  fs::create_symlink("target", home.file("link"));
  AtomicFile file(storage, home.file("link"), GetParam());
  file.commit();
  EXPECT_EQ(names(), (Names{"link", "target"}));
}

TEST_P(AtomicFiles, what_cannot_be_replaced_is_refused_and_leaves_nothing) {
  fs::create_symlink("loop", home.file("loop"));
  const auto status = [&](const std::string& path) {
    return failure_of([&] { AtomicFile(storage, path, GetParam()); }).status;
  };
  EXPECT_EQ(status(""), Status::invalid_argument);
  EXPECT_EQ(status(home.path().string()), Status::invalid_argument);
  EXPECT_EQ(status(home.path().string() + "/"), Status::invalid_argument);
  EXPECT_EQ(status("/dev/null"), Status::invalid_argument);
  EXPECT_EQ(status(home.file("loop")), Status::io_error);
  EXPECT_EQ(status(home.file("none/f")), Status::io_error);
  EXPECT_EQ(names(), Names{"loop"});
}

TEST_P(AtomicFiles, a_read_only_file_is_not_replaced) {
  // The folder may be written by anybody: only the file itself says no.
  const TemporaryFolder open_folder("/dev/shm");
  const std::string path = open_folder.file("f");
  put(path, "old");
  ASSERT_EQ(::chmod(open_folder.path().c_str(), 0777), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0444), 0);
  const bool is_root = ::geteuid() == 0;
  ASSERT_TRUE(!is_root || ::seteuid(65534) == 0);
  const Failure failure = failure_of([&] { AtomicFile(storage, path, GetParam()); });
  ASSERT_TRUE(!is_root || ::seteuid(0) == 0);
  EXPECT_EQ(failure.errno_value, EACCES);
  EXPECT_EQ(failure.object, path);
}

TEST_P(AtomicFiles, names_of_the_largest_length_work_and_longer_ones_do_not) {
  const std::string longest(255, 'n');
  AtomicFile file(storage, home.file(longest), GetParam());
  file.commit();
  EXPECT_EQ(names(), Names{longest});
  EXPECT_EQ(
      failure_of([&] { AtomicFile(storage, home.file(longest + "n"), GetParam()); }).errno_value,
      ENAMETOOLONG);
}

TEST_P(AtomicFiles, every_fault_on_the_way_leaves_the_old_content) {
  put(target, "old");
  for (const FaultPoint point :
       {FaultPoint::open, FaultPoint::write, FaultPoint::sync, FaultPoint::rename}) {
    const auto plan = std::make_shared<FaultPlan>();
    const auto faulty = make_faulty_storage(storage, plan);
    plan->add({.point = point, .errno_value = EIO});
    const Failure failure = failure_of([&] {
      AtomicFile file(faulty, target, GetParam());
      write(file, "new");
      file.commit();
    });
    EXPECT_EQ(failure.errno_value, EIO);
    EXPECT_EQ(content_of(target), "old");
    EXPECT_EQ(names(), Names{"f"});
  }
}

TEST_P(AtomicFiles, messages_name_the_target) {
  AtomicFile file(storage, target, GetParam());
  EXPECT_EQ(file.file()->facts().path, target);
  EXPECT_EQ(file.target(), target);
}

// Replaces the file by versions of one letter each, for ever.
[[noreturn]] void write_versions(const std::shared_ptr<Storage>& storage,
                                 const std::string& path,
                                 TemporaryKind kind,
                                 std::size_t size) {
  for (unsigned version = 0;; ++version) {
    const std::vector<std::byte> bytes(size, static_cast<std::byte>('a' + version % 26));
    AtomicFile file(storage, path, kind);
    write_all(*file.file(), bytes, 0);
    file.commit();
  }
}

TEST_P(AtomicFiles, a_writer_killed_at_any_moment_leaves_one_whole_version) {
  constexpr std::size_t size = 300000;
  constexpr int rounds = 25;
  std::mt19937 generator(std::random_device{}());
  std::uniform_int_distribution<int> delay_us(0, 15000);
  put(target, std::string(size, '0'));
  for (int round = 0; round < rounds; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      write_versions(storage, target, GetParam(), size);
    }
    ::usleep(static_cast<useconds_t>(delay_us(generator)));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer failed by itself";
    const std::string content = content_of(target);
    ASSERT_EQ(content, std::string(size, content.empty() ? '?' : content[0]));
    for (const std::string& name : names()) {
      EXPECT_TRUE(name == "f" || name.starts_with(".f.hippogriff-")) << name;
    }
  }
}

std::string kind_name(const ::testing::TestParamInfo<TemporaryKind>& info) {
  return info.param == TemporaryKind::named ? "named" : "automatic";
}

INSTANTIATE_TEST_SUITE_P(Kinds,
                         AtomicFiles,
                         ::testing::Values(TemporaryKind::automatic, TemporaryKind::named),
                         kind_name);

}  // namespace
}  // namespace hippogriff
