// What is believed of /proc and /sys, and what is not.
#include "base/kernel_text.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

namespace hippogriff {
namespace {

// Of a thread that is called so, up to field 24, as the kernel writes it.
std::string stat_of(const std::string& name,
                    const std::string& threads = "3",
                    const std::string& start = "2546229") {
  return "42 (" + name + ") S 1 42 42 34816 -1 4194304 125 0 0 0 5 6 0 0 20 0 " + threads + " 0 " +
         start + " 3133440 416\n";
}

std::string lock_of(const std::string& file, const std::string& offset) {
  return "7: OFDLCK ADVISORY  WRITE -1 " + file + " " + offset + " EOF";
}

std::string clocks_of(const std::string& monotonic, const std::string& boottime) {
  return "monotonic  " + monotonic + "\nboottime  " + boottime + "\n";
}

TEST(ParseOpenFileLock, knows_the_file_and_the_first_byte) {
  const auto lock =
      parse_open_file_lock("7: OFDLCK ADVISORY  WRITE -1 103:1a:4242 1099511627776 1099511627776");
  ASSERT_TRUE(lock.has_value());
  EXPECT_EQ(lock->device_major, 0x103U);
  EXPECT_EQ(lock->device_minor, 0x1aU);
  EXPECT_EQ(lock->inode, 4242U);
  EXPECT_EQ(lock->offset_bytes, std::int64_t{1} << 40);
}

TEST(ParseOpenFileLock, leaves_out_other_locks_and_those_who_wait) {
  EXPECT_FALSE(parse_open_file_lock("1: POSIX  ADVISORY  WRITE 3127 08:01:262146 10 20"));
  EXPECT_FALSE(parse_open_file_lock("1: FLOCK  ADVISORY  WRITE 991 fe:00:77 0 EOF"));
  EXPECT_FALSE(parse_open_file_lock("1: -> OFDLCK ADVISORY  WRITE -1 00:1a:4242 10 20"));
}

TEST(ParseOpenFileLock, believes_no_number_that_cannot_be) {
  EXPECT_TRUE(parse_open_file_lock(lock_of("ffffffff:ff:18446744073709551615", "0")));
  EXPECT_TRUE(parse_open_file_lock(lock_of("00:1a:1", "9223372036854775807")));
  for (const std::string& file : {std::string("100000000:1a:1"),
                                  std::string("-1:1a:1"),
                                  std::string("00:1a:18446744073709551616"),
                                  std::string("00:1a:-1"),
                                  std::string("00:1a:1x"),
                                  std::string("00:1a:"),
                                  std::string("00:1a"),
                                  std::string("0x0:1a:1"),
                                  std::string("00:1a:1\0", 8)}) {
    EXPECT_FALSE(parse_open_file_lock(lock_of(file, "0"))) << file;
  }
  for (const char* offset : {"9223372036854775808", "-1", "+1", "1k", "EOF"}) {
    EXPECT_FALSE(parse_open_file_lock(lock_of("00:1a:1", offset))) << offset;
  }
}

TEST(ParseOpenFileLock, takes_lines_that_end_anywhere_or_never) {
  const std::string line = lock_of("00:1a:4242", "77");
  const std::size_t whole = line.find(" EOF") - 1;
  for (std::size_t size = 0; size < whole; ++size) {
    EXPECT_FALSE(parse_open_file_lock(line.substr(0, size))) << size;
  }
  EXPECT_FALSE(parse_open_file_lock(std::string(std::size_t{1} << 20, '7')));
  EXPECT_FALSE(parse_open_file_lock("7: OFDLCK " + std::string(std::size_t{1} << 20, '7')));
  EXPECT_FALSE(parse_open_file_lock(lock_of("00:1a:1", std::string(std::size_t{1} << 20, '7'))));
  EXPECT_TRUE(parse_open_file_lock(line + std::string(std::size_t{1} << 20, ' ')));
}

TEST(ParseProcessStat, takes_what_follows_the_last_parenthesis) {
  for (const std::string& name : {std::string("cat"),
                                  std::string(),
                                  std::string(") Z 1 2 3"),
                                  std::string("a\nb\0c", 5),
                                  std::string(std::size_t{1} << 20, '(')}) {
    const auto stat = parse_process_stat(stat_of(name));
    ASSERT_TRUE(stat.has_value()) << name.substr(0, 20);
    EXPECT_EQ(stat->state, 'S');
    EXPECT_EQ(stat->thread_count, 3U);
    EXPECT_EQ(stat->start_ticks, 2546229U);
  }
}

TEST(ParseProcessStat, believes_no_number_that_cannot_be) {
  EXPECT_TRUE(parse_process_stat(stat_of("a", "18446744073709551615", "18446744073709551615")));
  for (const std::string& number : {std::string("-1"),
                                    std::string("18446744073709551616"),
                                    std::string("1e3"),
                                    std::string("0x10"),
                                    std::string("3\0", 2)}) {
    EXPECT_FALSE(parse_process_stat(stat_of("a", number))) << number;
    EXPECT_FALSE(parse_process_stat(stat_of("a", "3", number))) << number;
  }
  EXPECT_FALSE(parse_process_stat("42 (a) SS 1 42 42"));
  EXPECT_FALSE(parse_process_stat(std::string(std::size_t{1} << 20, ')')));
}

TEST(ParseProcessStat, believes_no_start_that_the_text_may_have_cut) {
  const std::string text = stat_of("cat");
  const std::size_t whole = text.find("2546229 ") + std::string("2546229").size();
  for (std::size_t size = 0; size <= whole; ++size) {
    EXPECT_FALSE(parse_process_stat(text.substr(0, size))) << size;
  }
  EXPECT_TRUE(parse_process_stat(text.substr(0, whole + 1)));
}

TEST(ParseClockOffsets, adds_seconds_and_nanoseconds) {
  const auto offsets = parse_clock_offsets(clocks_of("3600  7", "-3600 999999999"));
  ASSERT_TRUE(offsets.has_value());
  EXPECT_EQ(offsets->monotonic_ns, 3'600'000'000'007);
  EXPECT_EQ(offsets->boottime_ns, -3'599'000'000'001);
  const auto unshifted = parse_clock_offsets("monotonic 0 0\nboottime 0 0");
  ASSERT_TRUE(unshifted.has_value());
  EXPECT_EQ(unshifted->boottime_ns, 0);
}

TEST(ParseClockOffsets, believes_no_shift_that_cannot_be) {
  EXPECT_TRUE(parse_clock_offsets(clocks_of("9223372035 999999999", "-9223372035 0")));
  for (const std::string& shift : {std::string("9223372036 0"),
                                   std::string("-9223372036 0"),
                                   std::string("9223372036854775807 0"),
                                   std::string("99999999999999999999 0"),
                                   std::string("0 -1"),
                                   std::string("0 1000000000"),
                                   std::string("0.5 0"),
                                   std::string("0 0\0", 4),
                                   std::string("0"),
                                   std::string()}) {
    EXPECT_FALSE(parse_clock_offsets(clocks_of(shift, "0 0"))) << shift;
    EXPECT_FALSE(parse_clock_offsets(clocks_of("0 0", shift))) << shift;
  }
  EXPECT_FALSE(parse_clock_offsets(""));
  EXPECT_FALSE(parse_clock_offsets("monotonic 0 0\n"));
  EXPECT_FALSE(parse_clock_offsets("boottime 0 0\nmonotonic 0 0\n"));
  EXPECT_FALSE(parse_clock_offsets(clocks_of(std::string(std::size_t{1} << 20, '9'), "0 0")));
}

TEST(ParseCpuMax, rounds_up_to_whole_cores) {
  EXPECT_EQ(parse_cpu_max("200000 100000\n"), 2U);
  EXPECT_EQ(parse_cpu_max("200001 100000"), 3U);
  EXPECT_EQ(parse_cpu_max("1000 100000\n"), 1U);
  EXPECT_EQ(parse_cpu_max("4294967295 1\n"), UINT32_MAX);
}

TEST(ParseCpuMax, knows_no_limit_of_what_is_none) {
  for (const std::string& text : {std::string("max 100000\n"),
                                  std::string(),
                                  std::string("\n"),
                                  std::string("200000"),
                                  std::string("0 100000"),
                                  std::string("200000 0"),
                                  std::string("-200000 100000"),
                                  std::string("200000 -100000"),
                                  std::string("200000 100000\0", 14),
                                  std::string("18446744073709551616 100000"),
                                  std::string(std::size_t{1} << 20, '2')}) {
    EXPECT_FALSE(parse_cpu_max(text)) << text.substr(0, 40);
  }
}

// Beyond 32 bits they were counted from 0 again, and a quota near 2^64 was one of a single core.
TEST(ParseCpuMax, knows_no_limit_of_more_cores_than_a_number_holds) {
  EXPECT_FALSE(parse_cpu_max("4294967296 1"));
  EXPECT_FALSE(parse_cpu_max("4294967298 1"));
  EXPECT_FALSE(parse_cpu_max("18446744073709551615 1"));
  EXPECT_EQ(parse_cpu_max("18446744073709551615 18446744073709551615"), 1U);
}

TEST(ParseMemory, finds_the_line_wherever_it_is) {
  const std::string text = "MemTotal:  12341992 kB\nMemFree: 1 kB\nMemAvailable:   2 kB\n";
  EXPECT_EQ(parse_memory(text, "MemAvailable:"), 2048U);
  EXPECT_EQ(parse_memory(text, "MemTotal:"), std::uint64_t{12341992} * 1024);
  EXPECT_EQ(parse_memory("Odd line\n\nMemAvailable: 18014398509481983 kB", "MemAvailable:"),
            UINT64_MAX - 1023);
  EXPECT_EQ(parse_memory(std::string(std::size_t{1} << 20, 'x') + "\nMemAvailable: 0 kB",
                         "MemAvailable:"),
            0U);
}

TEST(ParseMemory, believes_no_number_that_cannot_be) {
  for (const std::string& text : {std::string(),
                                  std::string("\n\n"),
                                  std::string("MemTotal: 12341992 kB\n"),
                                  std::string("MemAvailable:"),
                                  std::string("MemAvailable: 4"),
                                  std::string("MemAvailable: 4 MB\n"),
                                  std::string("MemAvailable: -4 kB\n"),
                                  std::string("MemAvailable: 4\0 kB\n", 20),
                                  std::string("MemAvailable: 18014398509481984 kB\n"),
                                  std::string("MemAvailable: 18446744073709551616 kB\n"),
                                  std::string(std::size_t{1} << 20, '4')}) {
    EXPECT_FALSE(parse_memory(text, "MemAvailable:")) << text.substr(0, 40);
  }
}

TEST(ParseField, finds_the_line_by_its_whole_name) {
  const std::string text = "anon 5\nfile 77\nactive_file 8\nodd 9 9\n";
  EXPECT_EQ(parse_field(text, "file"), 77U);
  EXPECT_EQ(parse_field(text, "active_file"), 8U);
  EXPECT_FALSE(parse_field(text, "inactive_file"));
  EXPECT_FALSE(parse_field(text, "odd"));
  EXPECT_FALSE(parse_field("file", "file"));
  EXPECT_FALSE(parse_field("file -5", "file"));
}

TEST(ParseNumber, takes_one_number_and_nothing_else) {
  EXPECT_EQ(parse_number("1073741824\n"), 1073741824U);
  EXPECT_EQ(parse_number("0"), 0U);
  for (const char* text : {"", "\n", "max\n", "-5\n", "5 5\n", "18446744073709551616\n", "0x10"}) {
    EXPECT_FALSE(parse_number(text)) << text;
  }
}

TEST(ParseCgroup, finds_the_group_of_either_version) {
  EXPECT_EQ(parse_cgroup("0::/system.slice/job 7:8\n", ""), "/system.slice/job 7:8");
  EXPECT_EQ(parse_cgroup("4:memory:/old\n0::/new\n", ""), "/new");
  EXPECT_EQ(parse_cgroup("0::/new\n4:memory:/old\n", "memory"), "/old");
  EXPECT_EQ(parse_cgroup("4:cpuset,memory:/old\n", "memory"), "/old");
  EXPECT_EQ(parse_cgroup("4:memory,cpuset:/old\n", "memory"), "/old");
  EXPECT_EQ(parse_cgroup("0::/\n", ""), "");
  EXPECT_EQ(parse_cgroup("0::/..x\n", ""), "/..x");
  for (const char* text :
       {"", "\n", "4:memory\n", "4:memory:\n", "4:memory:old\n", "5:memory2,xmemory:/x\n"}) {
    EXPECT_FALSE(parse_cgroup(text, "")) << text;
    EXPECT_FALSE(parse_cgroup(text, "memory")) << text;
  }
  EXPECT_FALSE(parse_cgroup("0::/../other\n", "")) << "outside of what is mounted here";
}

}  // namespace
}  // namespace hippogriff
