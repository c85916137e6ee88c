// Which file is the real libcuda.so.1.
#pragma once

#include <string>
#include <vector>

namespace hippogriff::shim {

// The files to try, best first, without duplicates: what HIPPOGRIFF_CUDA_DRIVER says, and nothing
// else where it names a path; else libcuda.so.1 in LD_LIBRARY_PATH, in the loader's cache, in the
// well-known folders. None is the file `ourselves` (by device and inode). Empty when the variable
// is set to nothing: CUDA is off.
std::vector<std::string> driver_candidates(const std::string& ourselves);

// The paths that a cache of the dynamic loader (the bytes of /etc/ld.so.cache, untrusted) has for a
// library's name.
std::vector<std::string> cached_paths(const std::string& cache, const std::string& library);

}  // namespace hippogriff::shim
