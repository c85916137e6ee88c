// What a finished transfer teaches about the machine.
#pragma once

#include "transfer/calibration.hpp"

namespace hippogriff {

// Moves the rates of `calibration` a quarter of the way towards what was seen, and nothing for
// observations that teach nothing: see CalibrationStore::observe.
void learn(Calibration& calibration, const Observation& seen);

}  // namespace hippogriff
