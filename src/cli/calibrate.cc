/// @file
/// `kvist calibrate [MODEL] -o FILE.toml`: this machine as a device file, from a few measured steps of a model. With
/// --profile, the same of a device that somebody else has measured.

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "base/prng.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/device_flags.h"
#include "cli/model_flags.h"
#include "cli/progress.h"
#include "cli/ranges.h"
#include "kernels/dispatch.h"
#include "kernels/peak.h"
#include "lab/machine.h"
#include "lab/measured_shape.h"
#include "lab/step_speed.h"
#include "modelfile/inspect.h"
#include "platform/anonymous_memory.h"
#include "platform/interrupt.h"
#include "platform/text_file.h"
#include "platform/thread_pool.h"
#include "serve/json_output.h"

namespace kvist::cli {
namespace {

constexpr uint32_t kCalibrationRounds = 5;
constexpr uint32_t kHeldOut = 200;

struct CalibrateFlags {
  ModelFlags model;
  DeviceFlags device;
  std::string output, like, steps;
  uint32_t decodes_max = 16, context_max = 2048;
  uint32_t samples = 10;
  uint64_t seed = 1;
  bool json = false;
};

struct Outcome {
  cost::Calibration calibration;
  size_t samples = 0;
  boost::json::array steps;  ///< Of the samples: what was measured, and what the calibrated device makes of it.
  std::optional<lab::Steadiness> steadiness;         ///< Of --steps.
  double held_out_before = -1, held_out_after = -1;  ///< -1 = there were none.
};

/// Writes steps.csv of cost::Profile.
absl::StatusOr<lab::Steadiness> MeasureProfile(const CalibrateFlags& flags, runtime::Runtime& runtime,
                                               StatusLine& line) {
  const step::ExecutorLimits& limits = runtime.executor->Limits();
  std::vector<lab::MeasuredStep> steps = lab::StepGrid(limits, flags.decodes_max, flags.context_max);
  lab::StepSpeedOptions options;
  options.progress = [&](uint32_t round) {
    line.Show(fmt::format("steps, round {} of {}", round, options.rounds));
    return !Interrupted();
  };
  KVIST_RETURN_IF_ERROR(lab::MeasureSteps(*runtime.executor, *runtime.memory, runtime.clock, options, steps));
  std::string text = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n";
  for (const lab::MeasuredStep& step : steps) {
    text += fmt::format("{},{},{},{},{:.2f}\n", step.chunk, step.before, step.decodes, step.view, step.seconds * 1e6);
  }
  std::error_code error;
  std::filesystem::create_directories(flags.steps, error);
  KVIST_RETURN_IF_ERROR(WriteTextFile(flags.steps + "/steps.csv", text));
  return lab::SteadinessOf(steps);
}

absl::StatusOr<Outcome> CalibrateMachine(CalibrateFlags& flags) {
  flags.model.runtime.reuse = false;
  KVIST_ASSIGN_OR_RETURN(const runtime::RuntimeOptions options, ResolveOptions(flags.model));
  KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Runtime> runtime, runtime::Start(options));
  KVIST_RETURN_IF_ERROR(runtime->cpu->weights().WaitForBackground());
  const model::Model& model = *runtime->model;
  const ModelSummary summary = Summarize(*model.file);
  StatusLine line;
  line.Show("reading memory");
  ThreadPool pool(runtime->threads);
  KVIST_ASSIGN_OR_RETURN(lab::ReadBandwidth bandwidth, lab::ReadBandwidth::Create(pool, summary.tensor_bytes));
  bandwidth.Measure(kCalibrationRounds);
  const DType main = summary.types.empty() ? DType::kF32 : summary.types.front().dtype;
  const kernels::Isa isa = options.isa.empty() ? kernels::BestIsa() : *kernels::ParseIsa(options.isa);
  lab::MachineFacts facts{
      .title = fmt::format("This machine: {} threads, {}", runtime->threads, runtime->executor->Name()),
      .capacity_bytes = static_cast<double>(AvailableMemoryBytes()),
      .bytes_per_s = bandwidth.MedianBytesPerS(),
      .multiply_adds_per_s = lab::PeakMultiplyAddsPerS(pool, isa, kernels::PeakKindOf(main))};
  if (facts.multiply_adds_per_s <= 0) return absl::InvalidArgumentError("the reference has no peak to calibrate from");
  const step::ExecutorLimits& limits = runtime->executor->Limits();
  lab::SpeedOptions speeds = lab::CalibrationSpeeds(limits.context_tokens_max);
  speeds.progress = [&](std::string_view name, uint32_t round) {
    line.Show(fmt::format("{}, round {} of {}", name, round, speeds.repetitions));
    return !Interrupted();
  };
  KVIST_ASSIGN_OR_RETURN(const std::vector<lab::Speed> measured,
                         lab::MeasureSpeed(*runtime->executor, *runtime->memory, runtime->clock, speeds));
  std::optional<lab::Steadiness> steadiness;
  if (!flags.steps.empty()) {
    KVIST_ASSIGN_OR_RETURN(steadiness, MeasureProfile(flags, *runtime, line));
  }
  const cost::StepModelOptions guess{
      .device = lab::GuessOf(facts), .shape = lab::ShapeOf(model), .weights = lab::WeightsOf(model)};
  const std::vector<cost::StepSample> samples =
      lab::SamplesOf(measured, limits.tokens_per_step_max, guess.shape.window);
  Outcome outcome{
      .calibration = cost::Calibrate(guess, samples), .samples = samples.size(), .steps = {}, .steadiness = steadiness};
  cost::StepModelOptions calibrated = guess;
  calibrated.device = outcome.calibration.device;
  KVIST_ASSIGN_OR_RETURN(cost::StepModel step_model, cost::StepModel::Create(std::move(calibrated)));
  for (const cost::StepSample& sample : samples) {
    outcome.steps.push_back({{"tokens", sample.load.tokens},
                             {"requests", sample.load.requests},
                             {"keys", sample.load.decode_keys + sample.load.prompt_keys},
                             {"measured_us", sample.ns * 1e-3},
                             {"predicted_us", step_model.Cost(sample.load).ns() * 1e-3}});
  }
  return outcome;
}

/// Loads over the range that a server sees, the same for the same draw.
cost::StepLoad DrawLoad(Prng& prng, uint32_t window) {
  const auto between = [&](double low, double high) {
    return static_cast<uint32_t>(low * std::pow(high / low, prng.Uniform()));
  };
  cost::StepLoad load;
  const uint64_t kind = prng.Below(3);  // Single tokens, a prompt, both.
  if (kind != 1) {
    const uint32_t count = between(1, 128), context = between(64, 8192);
    for (uint32_t i = 0; i < count; ++i) load.Add(1, context, true, window);
  }
  if (kind != 0) load.Add(between(16, 1900), prng.Below(2) == 0 ? 0 : between(64, 4096), true, window);
  return load;
}

/// The device is known by its profile, and by its data sheet, which --device has.
absl::StatusOr<Outcome> CalibrateProfile(const CalibrateFlags& flags) {
  KVIST_ASSIGN_OR_RETURN(cost::StepModel measured, StepModelOf(flags.device));
  DeviceFlags without = flags.device;
  without.profile.clear();
  KVIST_ASSIGN_OR_RETURN(cost::StepModel guess, StepModelOf(without));
  if (!flags.like.empty()) {
    KVIST_ASSIGN_OR_RETURN(const device::Device other, DeviceCatalog(flags.device.folder).FindDevice(flags.like));
    cost::StepModelOptions borrowed = guess.options();
    borrowed.device = cost::Borrow(borrowed.device, other);
    KVIST_ASSIGN_OR_RETURN(guess, cost::StepModel::Create(std::move(borrowed)));
  }
  const uint32_t window = guess.options().shape.window;
  Prng prng(flags.seed);
  const auto draw = [&](uint32_t count) {
    std::vector<cost::StepSample> samples;
    for (uint32_t i = 0; i < count; ++i) {
      const cost::StepLoad load = DrawLoad(prng, window);
      samples.push_back({load, measured.Cost(load).ns()});
    }
    return samples;
  };
  const std::vector<cost::StepSample> held_out = draw(kHeldOut), samples = draw(flags.samples);
  Outcome outcome{.calibration = cost::Calibrate(guess.options(), samples), .samples = samples.size(), .steps = {}};
  cost::StepModelOptions options = guess.options();
  options.device = outcome.calibration.device;
  KVIST_ASSIGN_OR_RETURN(cost::StepModel calibrated, cost::StepModel::Create(std::move(options)));
  outcome.held_out_before = cost::MeanLogError(guess, held_out);
  outcome.held_out_after = cost::MeanLogError(calibrated, held_out);
  return outcome;
}

/// More than a tenth of the steps took another time in each round.
bool IsBusy(const lab::Steadiness& steadiness) {
  return steadiness.unsteady * 10 > steadiness.steps;
}

absl::Status RunCalibrate(CalibrateFlags& flags) {
  const bool profiled = !flags.device.profile.empty();
  if (profiled && flags.device.device.empty()) {
    return absl::InvalidArgumentError("--profile needs --device, with the data sheet");
  }
  KVIST_ASSIGN_OR_RETURN(const Outcome outcome, profiled ? CalibrateProfile(flags) : CalibrateMachine(flags));
  const cost::Calibration& calibration = outcome.calibration;
  if (!flags.output.empty()) {
    const std::string source =
        profiled ? Cat("kvist calibrate: ", outcome.samples, " steps of a profile, from ", flags.device.device)
                 : Cat("kvist calibrate: ", outcome.samples, " measured steps");
    KVIST_RETURN_IF_ERROR(WriteTextFile(flags.output, device::FormatDevice(calibration.device, source)));
  }
  if (const auto& steadiness = outcome.steadiness; steadiness && IsBusy(*steadiness)) {
    fmt::print(stderr,
               "warning: {} of {} steps took {:.0f} % longer in one round than in another: is this machine doing "
               "something else? --steps is only as good as it is idle\n",
               steadiness->unsteady, steadiness->steps, 100 * lab::kUnsteady);
  }
  if (flags.json) {
    boost::json::object out = {{"samples", outcome.samples},
                               {"error_before", calibration.error_before},
                               {"error_after", calibration.error_after},
                               {"steps", outcome.steps}};
    if (const auto& steadiness = outcome.steadiness) {
      out["step_profile"] = {{"steps", steadiness->steps},
                             {"median_spread", steadiness->median_spread},
                             {"worst_spread", steadiness->worst_spread},
                             {"unsteady", steadiness->unsteady}};
    }
    if (outcome.held_out_before >= 0) {
      out["held_out"] = {
          {"steps", kHeldOut}, {"error_before", outcome.held_out_before}, {"error_after", outcome.held_out_after}};
    }
    fmt::print("{}\n", serve::JsonText(out));
    return FlushOutput();
  }
  fmt::print("{} samples: mean error {:.1f} % as guessed, {:.1f} % calibrated\n", outcome.samples,
             100 * calibration.error_before, 100 * calibration.error_after);
  if (const auto& steadiness = outcome.steadiness) {
    fmt::print("{} whole steps: times of a step differ by {:.1f} % between rounds (median), {:.0f} % at worst\n",
               steadiness->steps, 100 * steadiness->median_spread, 100 * steadiness->worst_spread);
  }
  if (outcome.held_out_before >= 0) {
    fmt::print("{} other steps: mean error {:.1f} % as guessed, {:.1f} % calibrated\n", kHeldOut,
               100 * outcome.held_out_before, 100 * outcome.held_out_after);
  }
  return FlushOutput();
}

}  // namespace

void AddCalibrate(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<CalibrateFlags>();
  CLI::App* command = app.add_subcommand(
      "calibrate", "This machine, or one that a profile was measured on, as a device file from a few measured steps");
  command->add_option("MODEL", flags->model.model, "GGUF file or the name of a fetched model; else the default model");
  AddModelFlags(*command, flags->model);
  command->add_option("-o,--output", flags->output, "Device file to write");
  command->add_option("--steps", flags->steps,
                      "Folder for steps.csv: measured times of whole steps of this model, a --profile of this machine");
  command->add_option("--decodes", flags->decodes_max, "With --steps: single tokens side by side, at most")
      ->transform(WholeNumber(1, 256))
      ->capture_default_str();
  command->add_option("--context", flags->context_max, "With --steps: tokens of contexts, at most")
      ->transform(WholeNumber(64, 1 << 17))
      ->capture_default_str();
  AddDeviceFlags(*command, flags->device, "--model-shape");
  command->add_option(
      "--like", flags->like,
      "With --profile: take only the data sheet of --device, and begin with the efficiencies of this one");
  command->add_option("--samples", flags->samples, "With --profile: steps to calibrate from")
      ->transform(WholeNumber(1, 1000))
      ->capture_default_str();
  command->add_option("--seed", flags->seed, "With --profile: of the steps that are drawn")->capture_default_str();
  command->add_flag("--json", flags->json, "One JSON object on standard output");
  command->callback([flags, &exit_code] {
    const absl::Status status = RunCalibrate(*flags);
    exit_code = status.ok() ? 0 : Report("calibrate", status);
  });
}

}  // namespace kvist::cli
