// What the array programs have in common: their command lines, the JSON they print, their main.
#pragma once

#include "workloads/sharing/program.hpp"

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Words and --NAME VALUE. Everything throws std::invalid_argument for what it cannot take.
class Arguments {
 public:
  // `switches` are options without a value.
  Arguments(int argc, char** argv, std::span<const std::string_view> switches);

  // Number `index` of what is no option; "" when there are fewer.
  [[nodiscard]] std::string word(std::size_t index) const;

  [[nodiscard]] std::size_t word_count() const { return words_.size(); }

  // Each option is asked for once, known by that, and its default if nobody gave it.
  [[nodiscard]] std::string text(std::string_view name, std::string_view otherwise);
  [[nodiscard]] std::uint64_t number(const NumberOption& option);
  [[nodiscard]] bool given(std::string_view name);

  // An option that nobody has asked for is a mistake.
  void refuse_others() const;

 private:
  std::vector<std::string> words_;
  std::vector<std::pair<std::string, std::string>> options_;
};

// A JSON object that grows by a member at a time. Names and texts are put down as they are.
class JsonObject {
 public:
  JsonObject& text(std::string_view name, std::string_view value);
  JsonObject& number(std::string_view name, std::uint64_t value);
  JsonObject& number(std::string_view name, double value);
  JsonObject& raw(std::string_view name, const std::string& json);
  JsonObject& seconds(const Phases& phases);
  JsonObject& add(const JsonObject& others);  // their members

  [[nodiscard]] std::string str() const { return "{" + members_ + "}"; }

 private:
  std::string members_;
};

// A list of objects.
std::string json_list(const std::vector<std::string>& items);

// The modes that a word names: one of them, several with commas between, or "all".
std::vector<std::string> chosen_modes(const std::string& words,
                                      std::initializer_list<std::string_view> all);

// A line to standard output; a failure to write it is one of the program: std::system_error.
void print_line(const std::string& line);

// What a program over arrays does. `usage` says it to people; `switches` are its options without a
// value, beside --check and --json.
struct ArrayProgram {
  const char* name;
  const char* usage;
  int (*generate)(Arguments& words);
  int (*run)(Arguments& words);
  std::span<const std::string_view> switches;
};

// `generate FILE` or `run FILE`, with options; tells failures. Exit status: 0; 1 wrong or failed; 2
// the command line is; 3 there was no device memory.
int array_program_main(int argc, char** argv, const ArrayProgram& program);
