#pragma once

/// @file
/// What a step has to do at least, whatever the implementation: bytes to read and multiply-adds to make. With the
/// machine's limits (machine.h) this says how near a measured speed is to the possible one. Pure; any thread.

#include <cstdint>

#include "model/model.h"
#include "tensor/kv_type.h"

namespace kvist::lab {

struct Work {
  /// Weights once a step as they lie in the file (of experts, those that ExpertsNeeded expects), keys and values once a
  /// step.
  double bytes = 0;
  double multiply_adds = 0;  ///< Of the matrix products and of attention.

  Work& operator+=(const Work& other) {
    bytes += other.bytes;
    multiply_adds += other.multiply_adds;
    return *this;
  }
};

/// Experts of a layer that `rows` tokens need together, as expected when each token's choice is equally likely to be
/// any: count * (1 - (1 - used / count)^rows). `used` for one token, all for many. Trained routers prefer some experts,
/// and tokens of one text choose alike, so real steps need fewer.
double ExpertsNeeded(const model::ExpertSpec& experts, double rows);

/// One step in which each of `sequences` goes on by `tokens` after `depth` tokens; the last row of each is sampled when
/// `sample`. @param shared_depth  of the depth, first tokens that all sequences have in common.
Work WorkOfStep(const model::Model& model, KvType kv_type, uint32_t sequences, uint32_t tokens, uint32_t depth,
                bool sample, uint32_t shared_depth = 0);

}  // namespace kvist::lab
