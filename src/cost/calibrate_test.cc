#include "cost/calibrate.h"

#include <gtest/gtest.h>

#include "device/device_file.h"

namespace kvist::cost {
namespace {

StepModelOptions DeviceOptions(std::string_view device) {
  const device::Catalog catalog(KVIST_SOURCE_DIR "/devices");
  return {.device = *catalog.FindDevice(device), .shape = *FindModelShape("llama-3.2-3b")};
}

std::vector<StepSample> Measured(std::string_view device, std::span<const StepLoad> loads) {
  StepModel model = *StepModel::Create(DeviceOptions(device));
  std::vector<StepSample> samples;
  for (const StepLoad& load : loads) samples.push_back({load, model.Cost(load).ns()});
  return samples;
}

StepLoad Load(uint32_t decodes, uint32_t context, uint32_t prompt) {
  StepLoad load;
  for (uint32_t i = 0; i < decodes; ++i) load.Add(1, context, true, 0);
  if (prompt > 0) load.Add(prompt, context, true, 0);
  return load;
}

const StepLoad kTen[] = {Load(1, 100, 0), Load(8, 500, 0), Load(64, 500, 0), Load(1, 8000, 0),    Load(32, 4000, 0),
                         Load(0, 0, 64),  Load(0, 0, 256), Load(0, 0, 1024), Load(0, 4000, 1024), Load(16, 1000, 500)};
const StepLoad kOthers[] = {Load(3, 300, 0), Load(24, 2000, 0), Load(128, 1000, 0),  Load(4, 6000, 0),
                            Load(0, 0, 128), Load(0, 0, 700),   Load(0, 2000, 2000), Load(40, 700, 300)};

TEST(Calibrate, TenStepsOfAnUnknownDevicePredictItsOtherSteps) {
  for (const auto& [known, unknown] : {std::pair("rtx-4090", "rtx-pro-6000"), {"h100", "rtx-4090"}, {"l4", "h200"}}) {
    StepModelOptions options = DeviceOptions(unknown);
    options.device = Borrow(options.device, DeviceOptions(known).device);
    StepModel borrowed = *StepModel::Create(options);
    const Calibration calibration = Calibrate(options, Measured(unknown, kTen));
    EXPECT_LT(calibration.error_after, 0.05) << known << " for " << unknown;
    EXPECT_NEAR(calibration.error_before, MeanLogError(borrowed, Measured(unknown, kTen)), 0.02);
    options.device = calibration.device;
    StepModel model = *StepModel::Create(std::move(options));
    const double others = MeanLogError(model, Measured(unknown, kOthers));
    EXPECT_LT(others, 0.08) << known << " for " << unknown;
    EXPECT_LT(others, 0.6 * MeanLogError(borrowed, Measured(unknown, kOthers))) << known << " for " << unknown;
  }
}

TEST(Calibrate, WhatIsKnownAlreadyStays) {
  const Calibration calibration = Calibrate(DeviceOptions("h100"), Measured("h100", kTen));
  EXPECT_LT(calibration.error_before, 1e-9);
  EXPECT_LT(calibration.error_after, 0.01);
  const Calibration nothing = Calibrate(DeviceOptions("h100"), {});
  StepModelOptions options = DeviceOptions("h100");
  options.device = nothing.device;
  StepModel model = *StepModel::Create(std::move(options));
  EXPECT_LT(MeanLogError(model, Measured("h100", kOthers)), 0.01);
}

TEST(Calibrate, AWrittenFileSaysTheSame) {
  const Calibration calibration = Calibrate(DeviceOptions("l4"), Measured("h200", kTen));
  const std::string text = device::FormatDevice(calibration.device, "measured \"here\"");
  const absl::StatusOr<device::Device> read = device::ParseDevice(text, "x/l4.toml");
  ASSERT_TRUE(read.ok()) << read.status() << text;
  StepModelOptions options = DeviceOptions("l4");
  options.device = calibration.device;
  StepModel written = *StepModel::Create(options);
  options.device = *read;
  StepModel again = *StepModel::Create(options);
  for (const StepLoad& load : kOthers) EXPECT_NEAR(again.Cost(load).ns() / written.Cost(load).ns(), 1, 1e-4);
}

}  // namespace
}  // namespace kvist::cost
