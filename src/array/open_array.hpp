// Opening arrays by the options of C.
#pragma once

#include "array/array_handle.hpp"

#include <memory>

namespace hippogriff::ondemand {

// Throws Error for what cannot be; nothing is left then, and files that were there are as they
// were: those of mode w+ are emptied when all else has been done.
[[nodiscard]] std::unique_ptr<hippogriff_storage_array> open_array(
    const hippogriff_array_options* asked);

}  // namespace hippogriff::ondemand
