// The compiled kernel of xxh3_kernel.cu, for every architecture we name and as PTX.
#pragma once

namespace hippogriff::xxh3 {

// What cuModuleLoadData takes; it tells its own size.
const void* kernel_image() noexcept;

}  // namespace hippogriff::xxh3
