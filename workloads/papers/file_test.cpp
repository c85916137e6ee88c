// What is there while a file is made, and after that, whoever else makes one there.
#include "workloads/papers/file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

// A folder of this test's own, removed with all that is in it.
class NewFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "papers_test_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }

  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_ / name).string();
  }

  void put(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
  }

  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream file(path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  [[nodiscard]] std::ptrdiff_t count() const {
    return std::distance(std::filesystem::directory_iterator(folder_), {});
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(NewFiles, a_fifo_that_nobody_writes_is_not_waited_for) {
  ASSERT_EQ(mkfifo(path("in").c_str(), 0600), 0);
  const File file(path("in"), O_RDONLY);
  EXPECT_EQ(file.size_bytes(), 0U);
}

TEST_F(NewFiles, that_are_made_at_once_do_not_mix) {
  NewFile first(path("in"), O_WRONLY);
  first.file().write("first", 5, 0);
  NewFile second(path("in"), O_WRONLY);
  second.file().write("2nd", 3, 0);
  first.keep();
  EXPECT_EQ(text("in"), "first");
  second.keep();
  EXPECT_EQ(text("in"), "2nd");
  EXPECT_EQ(count(), 1);
}

TEST_F(NewFiles, leave_files_and_links_of_others_alone) {
  put("in.writing", "mine");
  put("victim", "mine");
  ASSERT_EQ(symlink("victim", path("other.writing").c_str()), 0);
  for (const char* name : {"in", "other"}) {
    NewFile made(path(name), O_WRONLY);
    made.file().write("made", 4, 0);
    made.keep();
    EXPECT_EQ(text(name), "made");
  }
  EXPECT_EQ(text("in.writing"), "mine");
  EXPECT_EQ(text("victim"), "mine");
}

TEST_F(NewFiles, have_names_as_long_as_the_file_system_takes) {
  const std::string name(255, 'n');
  for (const char* made_of : {"one", "two"}) {
    NewFile made(path(name), O_WRONLY);
    made.file().write(made_of, 3, 0);
    made.keep();
    EXPECT_EQ(text(name), made_of);
  }
}

TEST_F(NewFiles, that_are_not_kept_leave_nothing) {
  put("in", "old");
  {
    const NewFile made(path("in"), O_WRONLY);
  }
  EXPECT_EQ(count(), 0);
}

TEST_F(NewFiles, of_who_is_killed_are_not_there) {
  const pid_t child = fork();
  if (child == 0) {
    const NewFile made(path("in"), O_WRONLY);
    made.file().write("part", 4, 0);
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(std::filesystem::exists(path("in")));
}

TEST_F(NewFiles, have_the_rights_of_those_before_them_and_links_lead_to_them) {
  put("in", "old");
  ASSERT_EQ(chmod(path("in").c_str(), 0640), 0);
  ASSERT_EQ(symlink("in", path("link").c_str()), 0);
  NewFile made(path("link"), O_WRONLY);
  made.file().write("new", 3, 0);
  made.keep();
  EXPECT_EQ(text("in"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(std::filesystem::status(path("in")).permissions(),
            static_cast<std::filesystem::perms>(0640));
}

}  // namespace
