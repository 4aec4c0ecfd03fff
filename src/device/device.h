#pragma once

/// @file
/// What an accelerator, a link or a drive can do, as plain numbers read from devices/*.toml (device_file.h). Threads:
/// any. Non-goals: what work costs on it (cost/).
///
/// A processor does a kind of work in latency + operations / (peak x efficiency) or bytes / (bandwidth x efficiency),
/// whichever takes longer: the roofline of Williams, Waterman, Patterson, CACM 52(4), 2009, with efficiencies that
/// change with size. Where both take about as long it takes somewhat longer than either (cost/operation.cc).

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/curve.h"

namespace kvist::device {

inline constexpr double kGibi = 1024.0 * 1024 * 1024;

/// How numbers are kept, or multiplied.
enum class Number : uint8_t { kF32, kBf16, kFp8, kInt8, kFp4, kInt4 };
inline constexpr size_t kNumbers = 6;
inline constexpr std::array<std::string_view, kNumbers> kNumberNames = {"f32", "bf16", "fp8", "int8", "fp4", "int4"};

std::optional<Number> FindNumber(std::string_view name);

/// Bytes of a weight, scales included: formats of 4 bits carry one byte of scale for each 32 (MX, OCP 2023).
double BytesOf(Number number);

/// Kinds of work that differ in how near they come to the peaks.
enum class Work : uint8_t { kMatmul, kPrompt, kDecode, kExperts, kElementwise };
inline constexpr size_t kWorks = 5;
/// Multiplication by weights; attention of prompts; attention of single tokens; experts of a mixture; all the rest.
inline constexpr std::array<std::string_view, kWorks> kWorkNames = {"matmul", "prompt_attention", "decode_attention",
                                                                    "experts", "elementwise"};

/// How a processor does one kind of work.
struct Rates {
  double latency_ns = 0;          ///< Of one operation, from start to end when there is nothing in it.
  Curve compute_efficiency{0.7};  ///< Of the peak, by operations.
  Curve memory_efficiency{0.8};   ///< Of the bandwidth, by bytes; above 1 when they come from a cache.
};

/// The same for one kind of work: in general, and for numbers that differ.
struct WorkRates {
  Rates all;
  std::array<std::optional<Rates>, kNumbers> of;

  const Rates& For(Number number) const {
    const std::optional<Rates>& own = of[static_cast<size_t>(number)];
    return own ? *own : all;
  }
};

/// A unit that computes out of one memory.
struct Processor {
  std::string name, memory;
  std::array<double, kNumbers> peak_flops = {};        ///< Operations a second, dense; 0 = cannot.
  std::array<std::optional<WorkRates>, kWorks> rates;  ///< Absent = does not do this work.
  double launch_ns = 0;                                ///< An operation that the host starts by itself takes no less.
  double gap_ns = 0;                                   ///< Between two operations.
  double mixed_reread = 0;  ///< Share of the heads beyond the first of a group for which a step that also reads prompts
                            ///< reads keys and values anew.

  /// The peak in the narrowest format that it has and that holds `number`. 0 = none.
  double PeakOf(Number number) const;
};

struct Memory {
  std::string name;
  std::string same_as;                       ///< Another one, of whose bytes this is another view; "" = has its own.
  double capacity_bytes = 0, bandwidth = 0;  ///< Bytes a second.
  double latency_ns = 0;
};

/// A way between devices, or between a device and its host.
struct Link {
  std::string name, title;
  double bandwidth = 0;            ///< Bytes a second, one way, of one device.
  double latency_ns = 0;           ///< Of a message between two devices (alpha).
  double setup_ns = 0;             ///< Of the host, before a transfer that is not part of a captured step.
  Curve efficiency{0.8};           ///< Of the bandwidth, by bytes of the message.
  Curve reduce_efficiency{0.8};    ///< The same of sums over all devices.
  uint32_t devices_max = 0;        ///< That it joins; 0 = any number.
  bool reduces_in_switch = false;  ///< The switch adds up (NVLink SHARP).
};

struct Drive {
  std::string name, title;
  double capacity_bytes = 0;
  double read_bandwidth = 0, write_bandwidth = 0;  ///< Bytes a second.
  double read_latency_ns = 0, write_latency_ns = 0;
};

/// What the host adds to a step.
struct Overheads {
  double step_ns = 0;       ///< Per step, after the device has ended: nothing runs meanwhile.
  double request_ns = 0;    ///< The same, for each request in it.
  double eager_tokens = 0;  ///< Steps of more tokens are not captured; 0 = all are.
  double graph_rows = 0;    ///< Captured steps are padded to a multiple of so many rows; 0 = they are not.
};

struct Power {
  double idle_w = 0;
  double busy_w = 0;  ///< At the peak of either arithmetic or memory.
};

struct Device {
  std::string name, title;
  std::vector<Memory> memories;       ///< The first one holds weights and KV, unless a processor has another.
  std::vector<Processor> processors;  ///< At least one.
  std::vector<std::string> links;     ///< Names; the first one joins devices of a group.
  Overheads overheads;
  Power power;

  const Memory& MemoryOf(const Processor& processor) const;
  /// Of all memories.
  double capacity_bytes() const;
};

}  // namespace kvist::device
