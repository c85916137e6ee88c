// Calibrations: the file's format, the file itself, and learning from transfers.
#include "transfer/calibration.hpp"

#include "base/error.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

namespace hippogriff {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// A folder of its own for each test, gone afterwards.
class CalibrationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "hippogriff-calibration-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
    file = folder / "cache" / "hippogriff" / "calibration.json";
  }

  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }

  void write(const std::string& text) const {
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
  }

  [[nodiscard]] std::string read() const {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    return text.str();
  }

  fs::path folder;
  fs::path file;
};

CalibrationFile example() {
  const Calibration made = default_calibration("cuda:0", "vda");
  CalibrationFile file;
  file.links["GPU-1234"] = made.link;
  file.links["host"] = default_calibration("host", "").link;
  file.drives["vda"] = made.drive;
  file.drives[""] = default_calibration("host", "nvme0n1").drive;
  file.drives["vda"].measured = true;
  file.host = made.host;
  file.host_measured = true;
  return file;
}

Calibration faster_link(Calibration calibration, double factor) {
  calibration.link.to_device.bytes_per_second *= factor;
  return calibration;
}

// --- the format ---

TEST(CalibrationFormat, what_is_written_is_read_back_exactly) {
  EXPECT_EQ(parse_calibration(format_calibration(example())), example());
}

TEST(CalibrationFormat, figures_that_were_measured_are_listed_by_name) {
  CalibrationFile file = example();
  file.links["host"].measured_figures = 0b100101;
  file.drives["vda"].measured_figures = 0b1000;
  file.host_measured_figures = 0b11;
  Json json = Json::parse(format_calibration(file));
  EXPECT_EQ(json["links"]["host"]["measured_figures"],
            Json::array({"to_device", "latency_seconds", "register_new_pages"}));
  EXPECT_EQ(json["drives"]["vda"]["measured_figures"], Json::array({"depth"}));
  EXPECT_EQ(json["host"]["measured_figures"],
            Json::array({"cached_read_per_channel", "cached_read_max"}));
  EXPECT_EQ(parse_calibration(json.dump()), file);
  json["host"]["measured_figures"].push_back("what a later version measures");
  EXPECT_EQ(parse_calibration(json.dump()), file);
  for (const Json& wrong : {Json("depth"), Json::array({1}), Json(std::vector<std::string>(65))}) {
    json["host"]["measured_figures"] = wrong;
    EXPECT_THROW(parse_calibration(json.dump()), Error) << wrong.dump();
  }
}

TEST(CalibrationFormat, unknown_members_are_ignored) {
  Json json = Json::parse(format_calibration(example()));
  json["source"] = "measured by hand";
  json["links"]["host"]["colour"] = nullptr;
  EXPECT_EQ(parse_calibration(json.dump()), example());
}

void expect_refused(const Json& json, const std::string& why) {
  try {
    parse_calibration(json.dump());
    ADD_FAILURE() << "took " << why;
  } catch (const Error& error) {
    EXPECT_EQ(error.failure().status, Status::invalid_argument) << why;
    EXPECT_FALSE(error.failure().detail.empty());
  }
}

void visit_leaves(const Json& json,
                  const Json::json_pointer& at,
                  const std::function<void(const Json::json_pointer&)>& visit) {
  if (!json.is_object()) {
    visit(at);
    return;
  }
  for (const auto& item : json.items()) {
    visit_leaves(item.value(), at / item.key(), visit);
  }
}

TEST(CalibrationFormat, every_member_is_required_and_checked) {
  const Json good = Json::parse(format_calibration(example()));
  int leaves = 0;
  visit_leaves(good, Json::json_pointer(), [&](const Json::json_pointer& at) {
    ++leaves;
    Json absent = good;
    absent[at.parent_pointer()].erase(at.back());
    if (at.back() == "measured_figures") {
      EXPECT_NO_THROW(parse_calibration(absent.dump())) << "files of before have no such list";
    } else {
      expect_refused(absent, "without " + at.to_string());
    }
    for (const Json& wrong : {Json("text"), Json(nullptr), Json::array({1}), Json::object()}) {
      Json bad = good;
      bad[at] = wrong;
      expect_refused(bad, at.to_string() + " = " + wrong.dump());
    }
    if (good.at(at).is_number()) {
      for (const double wrong : {-1.0, -1e-300, 1e14, 1e308}) {
        Json bad = good;
        bad[at] = wrong;
        expect_refused(bad, at.to_string() + " = " + std::to_string(wrong));
      }
    }
  });
  EXPECT_GT(leaves, 40);
}

TEST(CalibrationFormat, limits_hold_at_the_limit_and_not_past_it) {
  const auto with_rate = [](double bytes_per_second) {
    Json json = Json::parse(format_calibration(example()));
    json["links"]["host"]["to_device"]["bytes_per_second"] = bytes_per_second;
    return json;
  };
  EXPECT_NO_THROW(parse_calibration(with_rate(1e13).dump()));
  expect_refused(with_rate(std::nextafter(1e13, 1e14)), "over 10 TB/s");
  EXPECT_NO_THROW(parse_calibration(with_rate(1e3).dump()));
  expect_refused(with_rate(std::nextafter(1e3, 0)), "under 1 KB/s");

  CalibrationFile many = example();
  many.links.clear();
  for (int index = 0; index < 256; ++index) {
    many.links["cuda:" + std::to_string(index)] = example().links.begin()->second;
  }
  EXPECT_EQ(parse_calibration(format_calibration(many)), many);
  many.links["one more"] = many.links.begin()->second;
  EXPECT_THROW(format_calibration(many), Error);

  CalibrationFile named = example();
  named.drives[std::string(256, 'n')] = named.drives.begin()->second;
  EXPECT_EQ(parse_calibration(format_calibration(named)), named);
  named.drives[std::string(257, 'n')] = named.drives.begin()->second;
  EXPECT_THROW(format_calibration(named), Error);

  const std::string good = format_calibration(example());
  const std::size_t room = (std::size_t{1} << 20) - good.size();
  EXPECT_NO_THROW(parse_calibration(good + std::string(room, ' ')));
  EXPECT_THROW(parse_calibration(good + std::string(room + 1, ' ')), Error);
}

TEST(CalibrationFormat, depth_is_a_whole_number_from_1_to_1024) {
  Json json = Json::parse(format_calibration(example()));
  Json& depth = json["drives"]["vda"]["depth"];
  for (const double good : {1.0, 1024.0}) {
    depth = good;
    EXPECT_NO_THROW(parse_calibration(json.dump()));
  }
  for (const double bad : {0.0, 1025.0, 2.5}) {
    depth = bad;
    expect_refused(json, "depth " + std::to_string(bad));
  }
}

TEST(CalibrationFormat, broken_text_is_refused) {
  const std::string good = format_calibration(example());
  for (std::size_t size = 0; size < good.size() - 2; size += 7) {
    EXPECT_THROW(parse_calibration(good.substr(0, size)), Error) << size;
  }
  for (const std::string& bad : {std::string("[]"),
                                 std::string("null"),
                                 std::string("{}"),
                                 std::string("1e999"),
                                 std::string("\xff\xfe"),
                                 std::string(100, '\0'),
                                 good + "x",
                                 std::string(500000, '['),
                                 "{\"format\":" + std::string(500000, '[')}) {
    EXPECT_THROW(parse_calibration(bad), Error);
  }
}

TEST(CalibrationFormat, not_a_number_and_infinity_are_not_written) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(), -1.0, 0.0}) {
    CalibrationFile file = example();
    file.links["host"].to_device.bytes_per_second = bad;
    EXPECT_THROW(format_calibration(file), Error) << bad;
  }
  CalibrationFile file = example();
  file.drives["\xff\xff"] = file.drives.begin()->second;
  EXPECT_THROW(format_calibration(file), Error);
}

// --- the file ---

TEST_F(CalibrationTest, without_a_file_there_are_defaults_that_are_not_measured) {
  const CalibrationStore store(file);
  EXPECT_FALSE(store.measured("GPU-1234", "vda"));
  const Calibration known = store.get("GPU-1234", "vda");
  EXPECT_EQ(known.link, default_calibration("GPU-1234", "vda").link);
  EXPECT_GT(known.link.to_device.bytes_per_second, 1e10);
  EXPECT_NE(store.get("host", "vda").link, known.link);
  EXPECT_NE(store.get("host", "nvme0n1").drive, known.drive);
}

TEST_F(CalibrationTest, what_was_put_is_there_after_save_and_load) {
  const Calibration made = faster_link(default_calibration("GPU-1234", "vda"), 2);
  {
    CalibrationStore store(file);
    store.put("GPU-1234", "vda", made);
    EXPECT_TRUE(store.measured("GPU-1234", "vda"));
    EXPECT_FALSE(store.measured("GPU-1234", "nvme0n1"));
    store.save();
  }
  const CalibrationStore store(file);
  EXPECT_TRUE(store.measured("GPU-1234", "vda"));
  const Calibration known = store.get("GPU-1234", "vda");
  EXPECT_EQ(known.link.to_device, made.link.to_device);
  EXPECT_EQ(known.drive.direct_read, made.drive.direct_read);
  EXPECT_EQ(known.host, made.host);
}

TEST_F(CalibrationTest, what_was_measured_is_known_figure_by_figure) {
  {
    CalibrationStore store(file);
    Calibration partial;
    partial.link.to_host = {12e9, 0};
    partial.link.latency_seconds = 0;
    partial.drive.latency_seconds = 0;
    partial.drive.depth = 0;
    partial.host.cached_read_max = 9e9;
    store.put("GPU-1", "vda", partial);
    const Calibration known = store.get("GPU-1", "vda");
    EXPECT_EQ(known.link.measured_figures, 0b10U);
    EXPECT_EQ(known.drive.measured_figures, 0U);
    EXPECT_EQ(store.host_measured_figures(), 0b10U);
    // What was not measured is not made up either.
    EXPECT_EQ(known.drive.depth, default_calibration("GPU-1", "vda").drive.depth);
    EXPECT_EQ(known.link.latency_seconds, default_calibration("GPU-1", "").link.latency_seconds);
    partial = {};
    partial.link.latency_seconds = 3e-6;
    partial.drive.latency_seconds = 70e-6;
    store.put("GPU-1", "vda", partial);
    store.save();
  }
  const CalibrationStore store(file);
  EXPECT_EQ(store.get("GPU-1", "vda").link.measured_figures, 0b110U);
  EXPECT_EQ(store.get("GPU-1", "vda").drive.measured_figures, 0b1100U);  // with its depth
  EXPECT_EQ(store.get("GPU-1", "vda").drive.latency_seconds, 70e-6);
  EXPECT_EQ(store.host_measured_figures(), 0b10U);
}

TEST_F(CalibrationTest, rates_of_zero_stay_as_they_were) {
  CalibrationStore store(file);
  Calibration partial;
  partial.link.to_device = {12e9, 0};
  store.put("GPU-1", "vda", partial);
  const Calibration known = store.get("GPU-1", "vda");
  EXPECT_EQ(known.link.to_device.bytes_per_second, 12e9);
  EXPECT_EQ(known.link.to_host, default_calibration("GPU-1", "vda").link.to_host);
  EXPECT_EQ(known.host, default_calibration("GPU-1", "vda").host);
}

TEST_F(CalibrationTest, what_cannot_be_is_refused_and_changes_nothing) {
  CalibrationStore store(file);
  Calibration bad = default_calibration("GPU-1", "vda");
  bad.link.to_device.bytes_per_second = -5;
  EXPECT_THROW(store.put("GPU-1", "vda", bad), Error);
  EXPECT_THROW(store.put(std::string(300, 'g'), "vda", default_calibration("g", "vda")), Error);
  EXPECT_FALSE(store.measured("GPU-1", "vda"));
  store.save();
  EXPECT_FALSE(fs::exists(file));
}

TEST_F(CalibrationTest, the_file_and_its_folders_are_the_users_alone) {
  CalibrationStore store(file);
  store.put("GPU-1", "vda", default_calibration("GPU-1", "vda"));
  store.save();
  struct stat status{};
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600U);
  ASSERT_EQ(::stat(file.parent_path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700U);
}

TEST_F(CalibrationTest, save_leaves_no_temporary_file_and_skips_when_nothing_changed) {
  CalibrationStore store(file);
  store.put("GPU-1", "vda", default_calibration("GPU-1", "vda"));
  store.save();
  const auto entries =
      std::distance(fs::directory_iterator(file.parent_path()), fs::directory_iterator());
  EXPECT_EQ(entries, 1);
  fs::remove(file);
  store.save();
  EXPECT_FALSE(fs::exists(file));
}

TEST_F(CalibrationTest, broken_files_are_ignored_with_one_warning_and_replaced) {
  ::testing::internal::CaptureStderr();
  for (const std::string& text : {std::string("{"), std::string(2 << 20, ' '), std::string("{}")}) {
    write(text);
    CalibrationStore store(file);
    EXPECT_FALSE(store.measured("GPU-1", "vda"));
    EXPECT_EQ(store.get("GPU-1", "vda").link, default_calibration("GPU-1", "vda").link);
    store.put("GPU-1", "vda", default_calibration("GPU-1", "vda"));
    store.save();
    EXPECT_NO_THROW(parse_calibration(read()));
  }
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  EXPECT_LE(std::count(warnings.begin(), warnings.end(), '\n'), 1);
}

TEST_F(CalibrationTest, a_fifo_or_a_folder_in_its_place_does_not_hang) {
  fs::create_directories(file.parent_path());
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_FALSE(CalibrationStore(file).measured("GPU-1", "vda"));
  fs::remove(file);
  fs::create_directories(file);
  CalibrationStore store(file);
  EXPECT_FALSE(store.measured("GPU-1", "vda"));
  store.put("GPU-1", "vda", default_calibration("GPU-1", "vda"));
  EXPECT_THROW(store.save(), Error);
}

TEST_F(CalibrationTest, what_is_not_read_for_its_kind_is_not_replaced_and_links_stay) {
  fs::create_directories(file.parent_path());
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  CalibrationStore store(file);
  store.put("GPU-1", "vda", default_calibration("GPU-1", "vda"));
  EXPECT_THROW(store.save(), Error);
  EXPECT_TRUE(fs::is_fifo(file));
  fs::remove(file);
  fs::create_symlink(folder / "elsewhere", file);
  std::ofstream(folder / "elsewhere") << "{}";
  store.save();
  EXPECT_TRUE(fs::is_symlink(file));
  EXPECT_TRUE(CalibrationStore(folder / "elsewhere").measured("GPU-1", "vda"));
}

TEST_F(CalibrationTest, a_save_that_fails_says_where_and_is_tried_again) {
  std::ofstream(folder / "cache") << "a file where a folder should be";
  CalibrationStore store(file);
  store.put("GPU-1", "vda", default_calibration("GPU-1", "vda"));
  try {
    store.save();
    FAIL() << "saved below a file";
  } catch (const Error& error) {
    EXPECT_EQ(error.failure().status, Status::io_error);
    EXPECT_NE(error.failure().errno_value, 0);
    EXPECT_NE(error.failure().object.find(folder.string()), std::string::npos);
  }
  fs::remove(folder / "cache");
  store.save();
  EXPECT_TRUE(CalibrationStore(file).measured("GPU-1", "vda"));
}

TEST_F(CalibrationTest, processes_keep_what_others_measured_about_other_devices) {
  CalibrationStore first(file);
  CalibrationStore second(file);
  first.put("GPU-1", "vda", default_calibration("GPU-1", "vda"));
  second.put("GPU-2", "vdb", default_calibration("GPU-2", "vdb"));
  first.save();
  second.save();
  const CalibrationStore third(file);
  EXPECT_TRUE(third.measured("GPU-1", "vda"));
  EXPECT_TRUE(third.measured("GPU-2", "vdb"));
}

TEST_F(CalibrationTest, savers_at_the_same_time_never_leave_a_broken_file) {
  std::vector<std::thread> savers;
  savers.reserve(4);
  for (int saver = 0; saver < 4; ++saver) {
    savers.emplace_back([this, saver] {
      CalibrationStore store(file);
      const std::string device = "GPU-" + std::to_string(saver);
      for (int round = 1; round <= 10; ++round) {
        store.put(device, "vda", faster_link(default_calibration(device, "vda"), 1 + 0.01 * round));
        store.save();
        EXPECT_NO_THROW(parse_calibration(read()));
      }
    });
  }
  for (std::thread& saver : savers) {
    saver.join();
  }
  EXPECT_NO_THROW(parse_calibration(read()));
}

TEST_F(CalibrationTest, without_a_path_nothing_is_kept) {
  CalibrationStore store{fs::path()};
  store.put("GPU-1", "vda", default_calibration("GPU-1", "vda"));
  EXPECT_NO_THROW(store.save());
  EXPECT_TRUE(store.measured("GPU-1", "vda"));
}

TEST_F(CalibrationTest, what_was_only_observed_is_kept_but_not_called_measured) {
  const Observation seen{.lane = Lane::direct_io,
                         .direction = Direction::send,
                         .bytes = std::uint64_t{1} << 30,
                         .seconds = 0.1};
  {
    CalibrationStore store(file);
    store.observe("GPU-1", "vda", seen);
    store.save();
  }
  const CalibrationStore store(file);
  EXPECT_FALSE(store.measured("GPU-1", "vda"));
  EXPECT_GT(store.get("GPU-1", "vda").drive.direct_read.bytes_per_second,
            default_calibration("GPU-1", "vda").drive.direct_read.bytes_per_second);
}

TEST_F(CalibrationTest, what_was_seen_in_passing_does_not_replace_what_others_measured) {
  CalibrationStore ours(file);
  for (const Lane lane : {Lane::direct_io, Lane::buffered}) {
    ours.observe("GPU-1",
                 "vda",
                 {.lane = lane,
                  .direction = Direction::send,
                  .bytes = std::uint64_t{1} << 30,
                  .seconds = 0.1});
  }
  Calibration measured = default_calibration("GPU-1", "vda");
  measured.drive.direct_read.bytes_per_second = 5e9;
  {
    CalibrationStore theirs(file);
    theirs.put("GPU-1", "vda", measured);
    theirs.save();
  }
  const Calibration there = CalibrationStore(file).get("GPU-1", "vda");
  ours.save();
  const CalibrationStore after(file);
  EXPECT_TRUE(after.measured("GPU-1", "vda"));
  EXPECT_EQ(after.get("GPU-1", "vda").drive, there.drive);
  EXPECT_EQ(after.get("GPU-1", "vda").host, there.host);
}

// NOLINTBEGIN(concurrency-mt-unsafe): these tests have one thread.
class ScopedEnvironment {
 public:
  ScopedEnvironment(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) {
      before_ = before;
    }
    value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
  }

  ~ScopedEnvironment() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }

  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

// NOLINTEND(concurrency-mt-unsafe)

TEST(CalibrationFileName, comes_from_the_environment_or_the_users_cache) {
  const ScopedEnvironment home("HOME", "/home/somebody");
  const ScopedEnvironment cache("XDG_CACHE_HOME", nullptr);
  const ScopedEnvironment named("HIPPOGRIFF_CALIBRATION", nullptr);
  EXPECT_EQ(CalibrationStore::default_file(), "/home/somebody/.cache/hippogriff/calibration.json");
  const ScopedEnvironment relative("XDG_CACHE_HOME", "cache");
  EXPECT_EQ(CalibrationStore::default_file(), "/home/somebody/.cache/hippogriff/calibration.json");
  const ScopedEnvironment absolute("XDG_CACHE_HOME", "/var/cache/me");
  EXPECT_EQ(CalibrationStore::default_file(), "/var/cache/me/hippogriff/calibration.json");
  const ScopedEnvironment chosen("HIPPOGRIFF_CALIBRATION", "/etc/mine.json");
  EXPECT_EQ(CalibrationStore::default_file(), "/etc/mine.json");
  const ScopedEnvironment none("HIPPOGRIFF_CALIBRATION", "");
  EXPECT_TRUE(CalibrationStore::default_file().empty());
}

}  // namespace
}  // namespace hippogriff
