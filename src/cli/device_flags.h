#pragma once

/// @file
/// Flags that name an emulated device and a model on it, and how they become a cost model. One thread.

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "absl/status/statusor.h"
#include "cost/step_model.h"
#include "device/device_file.h"

namespace kvist::cli {

struct DeviceFlags {
  std::string device;      ///< Name or file; empty = none was asked for.
  std::string shape_flag;  ///< What AddDeviceFlags called it.
  std::string shape, dtype = "bf16", kv_dtype = "bf16", link, profile;
  std::string folder;  ///< Of device files; empty = KVIST_DEVICES, else what was installed.
  uint32_t tensor_parallel = 1, pipeline_parallel = 1;
  double memory_share = 0.9;
};

/// --device and all that belongs to it. @param shape_flag  e.g. "--model"
void AddDeviceFlags(CLI::App& command, DeviceFlags& flags, const std::string& shape_flag);

/// Where device files lie: `given`, else KVIST_DEVICES, else beside the installed binary, else in the source tree.
device::Catalog DeviceCatalog(const std::string& given);

/// Errors: those of files and of StepModel::Create.
absl::StatusOr<cost::StepModel> StepModelOf(const DeviceFlags& flags);

/// Blocks of 16 tokens beside the weights. Errors: ResourceExhausted when there is no room for two.
absl::StatusOr<uint32_t> KvBlocksOf(const DeviceFlags& flags, const cost::StepModel& model);

}  // namespace kvist::cli
