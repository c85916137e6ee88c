// A few threads at once, for one measurement.
#pragma once

#include <functional>

namespace bench {

// Calls work(0) to work(count - 1), each on a thread of its own, waits for all, and throws the
// first exception that came out of any.
void run_threads(unsigned count, const std::function<void(unsigned)>& work);

}  // namespace bench
