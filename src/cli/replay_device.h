#pragma once

/// @file
/// The part of `kvist replay` that runs the engine on an emulated device. One thread.

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "cli/device_flags.h"

namespace kvist::cli {

struct ReplayDeviceFlags {
  DeviceFlags device;
  std::string policy = "chunked";
  uint32_t tokens_per_step_max = 8192, requests_max = 256;
  uint32_t concurrency = 0, requests = 0;  ///< 0 = by the trace's times; all of it.
  uint32_t replicas = 1, copies = 1;
  std::string route = "least-loaded";
  std::string host_memory, host_link = "pcie5";  ///< Empty = none.
  bool real_time = false, no_reuse = false, plan_behind = false;

  bool HasHost() const { return !host_memory.empty(); }
};

void AddReplayDeviceFlags(CLI::App& command, ReplayDeviceFlags& flags);

/// @param blocks  of KV memory; 0 = what the device has room for
absl::Status ReplayDevice(const ReplayDeviceFlags& flags, const std::vector<std::string>& traces, uint32_t blocks,
                          bool json);

}  // namespace kvist::cli
