// What most files include, read once for many. clang-tidy sees none of it: there a file that lacks
// an include does not compile.
#pragma once

#ifndef __clang_analyzer__
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>
#endif
