#pragma once

/// @file
/// A device file for tests and fuzzers, with everything in it.

#include <string_view>

namespace kvist::device {

inline constexpr std::string_view kSmallDevice = R"(
title = "A small device"
links = ["wire"]
source = "nobody"
[[memory]]
name = "ram"
capacity_gib = 8
bandwidth_gb_s = 100
source = "of the memory"
[[processor]]
name = "one"
memory = "ram"
launch_us = 5
gap_us = 1
source = "of the processor"
[processor.peak_tflops]
f32 = 1
bf16 = 10
source = "of the peaks"
[processor.matmul]
latency_us = 2
compute_efficiency = [[1e8, 0.2], [1e10, 0.8]]
memory_efficiency = 0.8
source = "of these figures"
[processor.matmul.fp8]
latency_us = 3
source = "of these figures"
[processor.prompt_attention]
latency_us = 2
source = "of these figures"
[processor.decode_attention]
latency_us = 2
source = "of these figures"
[processor.elementwise]
latency_us = 1
source = "of these figures"
[step]
overhead_us = 50
source = "of the host"
[power]
idle_w = 5
busy_w = 20
source = "of the plug"
)";

}  // namespace kvist::device
