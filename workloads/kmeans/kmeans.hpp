// k-means by Lloyd's iterations: each point joins the nearest centre, each centre becomes the mean
// of its points (Lloyd, "Least squares quantization in PCM", 1982).
#pragma once

#include "workloads/kmeans/kmeans_kernel.hpp"
#include "workloads/papers/program.hpp"

// Input: points x features float32. Output: int32 the cluster of each point, then clusters x
// features float32 the centres that they were nearest to, then as many the means of the clusters.
// It ends after so many iterations, or when no point changed its cluster.
Format kmeans_format();
std::uint64_t kmeans_output_bytes(const Numbers& numbers);

// Which point is the first centre of a cluster.
std::uint64_t kmeans_first_point(const Numbers& numbers, std::uint64_t cluster);

// Confirms for every point that its centre is the nearest, and that the means are means. Where it
// is not too long all iterations are made again in double.
Verdict kmeans_check(const Input& in, const File& out);
