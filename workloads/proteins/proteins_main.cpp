// The command `proteins`: what it computes and its options are in proteins.hpp.
#include "workloads/proteins/proteins.hpp"

#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  const std::vector<std::string_view> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  return run_program("proteins", words, proteins_options(), run_proteins);
}
