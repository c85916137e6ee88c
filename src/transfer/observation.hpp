// What a finished transfer teaches about the machine.
#pragma once

#include "transfer/calibration.hpp"

namespace hippogriff {

// Moves the rates of `calibration` a quarter of the way towards what was seen, and nothing for
// observations that teach nothing: see CalibrationStore::observe.
//
// Direct transfers are lower bounds. Each thread reads or writes in place and waits for one piece
// at a time, and makes the memory's new pages on the way: a drive, or the page cache, was at least
// as fast, and may have been faster. Parked ones say nothing of any one thing: their threads' time
// is reading, waiting for the device or for parking, and copying piece by piece, in turns.
void learn(Calibration& calibration, const Observation& seen);

}  // namespace hippogriff
