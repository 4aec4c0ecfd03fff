#include "cost/calibrate.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace kvist::cost {
namespace {

using device::Work;

constexpr double kPenalty = 1e-3;  // Of a factor e, beside one sample that is wrong by e.
constexpr double kCacheMost = 4;   // As device files allow.
constexpr double kFirstStep = 0.5, kLastStep = 0.005;
constexpr int kRoundsMax = 400;

/// Logarithms of factors, 0 = as guessed; but kTilt is an exponent.
enum Factor : uint8_t { kHost, kLatency, kMemory, kCompute, kTilt, kPrompt, kDecode, kExperts, kFactors };
using Factors = std::array<double, kFactors>;

void Scale(device::Rates& rates, double latency, double compute, double tilt, double pivot, double memory) {
  rates.latency_ns *= latency;
  rates.compute_efficiency = rates.compute_efficiency.Scaled(compute, tilt, pivot, 1);
  rates.memory_efficiency = rates.memory_efficiency.Scaled(memory, 0, 1, kCacheMost);
}

/// @param pivot  operations of a product for which a tilt changes nothing
device::Device Moved(const device::Device& guess, const Factors& factors, double pivot) {
  device::Device device = guess;
  const auto factor = [&](Factor which) { return std::exp(factors[which]); };
  // From nothing, too: a guess of 0 could not be scaled.
  device.overheads.step_ns = (guess.overheads.step_ns + 1e3) * factor(kHost) - 1e3;
  device.overheads.step_ns = std::max(device.overheads.step_ns, 0.0);
  for (device::Processor& processor : device.processors) {
    for (size_t work = 0; work < device::kWorks; ++work) {
      if (!processor.rates[work]) continue;
      const auto scale = [&](device::Rates& rates) {
        switch (static_cast<Work>(work)) {
          case Work::kMatmul:
            return Scale(rates, factor(kLatency), factor(kCompute), factors[kTilt], pivot, factor(kMemory));
          case Work::kPrompt:
            return Scale(rates, factor(kLatency), factor(kPrompt), 0, 1, factor(kPrompt));
          case Work::kDecode:
            return Scale(rates, factor(kLatency), factor(kDecode), 0, 1, factor(kDecode));
          case Work::kExperts:
            return Scale(rates, factor(kLatency), factor(kExperts), 0, 1, factor(kExperts));
          case Work::kElementwise:
            return Scale(rates, factor(kLatency), 1, 0, 1, 1);
        }
      };
      scale(processor.rates[work]->all);
      for (std::optional<device::Rates>& own : processor.rates[work]->of) {
        if (own) scale(*own);
      }
    }
  }
  return device;
}

StepModel ModelOf(const StepModelOptions& guess, const Factors& factors, double pivot) {
  StepModelOptions options = guess;
  options.device = Moved(guess.device, factors, pivot);
  absl::StatusOr<StepModel> model = StepModel::Create(std::move(options));
  KVIST_CHECK(model.ok());
  return *std::move(model);
}

}  // namespace

device::Device Borrow(const device::Device& sheet, const device::Device& other) {
  device::Device device = sheet;
  const device::Processor& from = other.processors.front();
  const double bandwidth = sheet.MemoryOf(sheet.processors.front()).bandwidth / other.MemoryOf(from).bandwidth;
  const double peak = sheet.processors.front().PeakOf(device::Number::kBf16) / from.PeakOf(device::Number::kBf16);
  const auto scale = [&](device::Rates& rates) {
    rates.compute_efficiency = rates.compute_efficiency.Stretched(peak);
    rates.memory_efficiency = rates.memory_efficiency.Stretched(bandwidth);
  };
  for (device::Processor& processor : device.processors) {
    processor.rates = from.rates;
    processor.launch_ns = from.launch_ns;
    processor.gap_ns = from.gap_ns;
    processor.mixed_reread = from.mixed_reread;
    for (std::optional<device::WorkRates>& work : processor.rates) {
      if (!work) continue;
      scale(work->all);
      for (std::optional<device::Rates>& own : work->of) {
        if (own) scale(*own);
      }
    }
  }
  device.overheads = other.overheads;
  return device;
}

double MeanLogError(StepModel& model, std::span<const StepSample> samples) {
  double sum = 0;
  for (const StepSample& sample : samples) sum += std::abs(std::log(model.Cost(sample.load).ns() / sample.ns));
  return samples.empty() ? 0 : sum / static_cast<double>(samples.size());
}

Calibration Calibrate(const StepModelOptions& guess, std::span<const StepSample> samples) {
  const ModelShape& shape = guess.shape;
  const double pivot = 2.0 * 64 * shape.width * std::max(shape.ffn_width, shape.width);
  const auto loss = [&](const Factors& factors) {
    StepModel model = ModelOf(guess, factors, pivot);
    double sum = 0;
    for (const StepSample& sample : samples) {
      const double error = std::log(model.Cost(sample.load).ns() / sample.ns);
      sum += error * error;
    }
    for (const double factor : factors) sum += kPenalty * factor * factor;
    return sum;
  };
  Factors best{};
  double best_loss = loss(best);
  double step = kFirstStep;
  for (int round = 0; round < kRoundsMax && step > kLastStep; ++round) {
    const double before = best_loss;
    for (size_t i = 0; i < kFactors; ++i) {
      for (const double sign : {1.0, -1.0}) {
        Factors tried = best;
        tried[i] += sign * (i == kTilt ? step / 4 : step);
        const double tried_loss = loss(tried);
        if (tried_loss < best_loss) best = tried, best_loss = tried_loss;
      }
    }
    if (best_loss > 0.999 * before) step /= 2;
  }
  StepModel first = ModelOf(guess, {}, pivot), last = ModelOf(guess, best, pivot);
  return {.device = last.options().device,
          .error_before = MeanLogError(first, samples),
          .error_after = MeanLogError(last, samples)};
}

}  // namespace kvist::cost
