#pragma once

/// @file
/// Figures of a device from a few measured steps and what is known of another one (P4: few-sample latency prediction).
/// The other device's file is the first guess; a handful of factors on it are moved as far as the measurements ask for,
/// and are drawn back to 1 where these say nothing. Pure; one thread.

#include <span>

#include "cost/step_model.h"

namespace kvist::cost {

struct StepSample {
  StepLoad load;
  double ns = 0;
};

struct Calibration {
  device::Device device;
  double error_before = 0, error_after = 0;  ///< Mean |log(predicted / measured)| over the samples.
};

/// A device that is known by its data sheet alone, with latencies, efficiencies and overheads of another one. Sizes on
/// the curves are scaled by the ratio of the peaks and bandwidths of the first processors.
device::Device Borrow(const device::Device& sheet, const device::Device& other);

/// Moves: the host's time per step; latencies; of matrix products the efficiency of memory, that of arithmetic and how
/// it grows with size; the efficiencies of both kinds of attention; those of experts. Least squares of logarithms, with
/// a small penalty for moving, by coordinate search.
/// @param guess  the device as known so far, and the model that was measured
/// REQUIRES: the guess makes a StepModel; it has no profile; every sample took time.
Calibration Calibrate(const StepModelOptions& guess, std::span<const StepSample> samples);

/// Mean |log(predicted / measured)|.
double MeanLogError(StepModel& model, std::span<const StepSample> samples);

}  // namespace kvist::cost
