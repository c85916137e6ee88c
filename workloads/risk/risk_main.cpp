// The command `risk`: what it computes and its options are in risk.hpp.
#include "workloads/risk/risk.hpp"

#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  const std::vector<std::string_view> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  return run_program("risk", words, risk_options(), run_risk);
}
