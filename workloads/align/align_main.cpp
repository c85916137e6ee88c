// The command `align`: what it computes and its options are in align.hpp.
#include "workloads/align/align.hpp"

#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  const std::vector<std::string_view> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  return run_program("align", words, align_options(), run_align);
}
