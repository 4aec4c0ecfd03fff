#pragma once

/// @file
/// A model file and this machine in the terms of the cost model: the numbers of the model, a first guess of the
/// machine, measured steps. Threads: one. Non-goals: fitting (cost/calibrate.h).

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cost/calibrate.h"
#include "lab/speed.h"
#include "model/model.h"

namespace kvist::lab {

/// The numbers of a model; its name is "file".
cost::ModelShape ShapeOf(const model::Model& model);
/// The number format that comes nearest to its weights in bytes.
device::Number WeightsOf(const model::Model& model);

/// What is known of a machine before its steps were measured.
struct MachineFacts {
  std::string title;
  double capacity_bytes = 0;
  double bytes_per_s = 0;          ///< Read from memory by all threads.
  double multiply_adds_per_s = 0;  ///< Of all threads, in the kind that the model's products have.
};

/// A device of one processor that comes half as near to its limits.
device::Device GuessOf(const MachineFacts& facts);

/// What to measure: prompts and decodes, from nothing and after a context, ten kinds at most.
SpeedOptions CalibrationSpeeds(uint32_t context_tokens_max);

/// Medians as samples. Prompts that took several steps are left out.
std::vector<cost::StepSample> SamplesOf(const std::vector<Speed>& speeds, uint32_t tokens_per_step_max,
                                        uint32_t window);

}  // namespace kvist::lab
