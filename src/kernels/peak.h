#pragma once

/// @file
/// What an instruction set can at most do here, measured: the yardstick of matrix products (kernels_bench, `kvist
/// bench`). Any thread. Non-goals: bandwidth of memory, several threads at once (call it on each).

#include <cstdint>

#include "kernels/kernel_table.h"

namespace kvist::kernels {

/// What a product multiplies.
enum class PeakKind : uint8_t {
  kInt8,  ///< 8-bit integers, 32-bit sums: TDPBSSD, VPDPBUSD, or VPMADDUBSW with its two helpers on AVX2.
  kBf16,  ///< bf16 with f32 sums: TDPBF16PS; a set without it multiplies as f32.
  kF32,   ///< f32 fused multiply-adds.
};

/// The kind that products with weights of this type are made of.
PeakKind PeakKindOf(DType dtype);

/// Operations per second (two per multiply-add) of the calling thread on registers alone, the best of several short
/// runs, so that a neighbour's load hardly shows. Takes about 10 ms. 0 for the reference, which has no peak.
/// REQUIRES: `isa` is one of SupportedIsas.
double MeasurePeakOpsPerS(Isa isa, PeakKind kind);

}  // namespace kvist::kernels
