// The two-dimensional discrete wavelet transform of an image by the reversible 5/3 wavelet of
// JPEG 2000 (Le Gall and Tabatabai, 1988; lifting: Sweldens, 1996).
#pragma once

#include "workloads/dwt2d/dwt2d_kernel.hpp"
#include "workloads/papers/program.hpp"

// Input: red, green and blue of each pixel, a byte each, row by row. Output: a plane of int16 for
// each colour (less 128), row by row. Of every level the low frequencies are at the top left, where
// the next level goes on; horizontally high ones are at the right, vertically high ones below.
Format dwt2d_format();
std::uint64_t dwt2d_output_bytes(const Numbers& numbers);

// In pixels; a height of 0 means a square.
std::uint64_t dwt2d_height(const Numbers& numbers);

// Transforms back, plane by plane, and compares every pixel. The transform loses nothing, so that
// no other coefficients give the image.
Verdict dwt2d_check(const Input& in, const File& out);
