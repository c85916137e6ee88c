// The Euler equations of a gas on a mesh of tetrahedra: finite volumes, three Runge-Kutta stages an
// iteration, time steps of the elements' own (Corrigan, Camelli, Loehner, Wallin, "Running
// unstructured grid-based CFD solvers on modern graphics hardware", 2009). Fluxes are Rusanov's.
#pragma once

#include "workloads/cfd/cfd_kernel.hpp"
#include "workloads/papers/program.hpp"

// Input, n elements: float32 volumes; int32 [4][n] the element behind each face, cfd_wall or
// cfd_far; float32 [4][3][n] each face's area times its normal outwards. Output: float32 [5][n]
// density, momentum in x, y and z, and energy, all by volume.
Format cfd_format();
std::uint64_t cfd_output_bytes(const Numbers& numbers);
std::uint64_t cfd_elements(const Numbers& numbers);

// The gas that comes from afar, and is everywhere at first: Mach 1.2 along x, at pressure 1.
CfdGas cfd_far_gas();

// In double, another time: all elements of small meshes, else some with all that they depend on.
// Everywhere density and pressure must be above 0.
Verdict cfd_check(const Input& in, const File& out);
