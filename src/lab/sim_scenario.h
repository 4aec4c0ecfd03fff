#pragma once

/// @file
/// What a simulated world is made of and what goes wrong in it: plain data, drawn from a seed or read from a TOML file
/// (docs/simulation.md). Pure but for reading files. Non-goals: what the world does with it (world.h).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace kvist::lab {

/// Something that goes wrong, once.
struct SimFault {
  enum class Kind : uint8_t {
    kCrash,        ///< The worker's process ends, and begins again `for_s` later.
    kPowerLoss,    ///< The same, and what its drive had not synced may be lost.
    kSlow,         ///< Steps take `amount` times as long.
    kPartition,    ///< Nothing gets to the worker or from it.
    kLoss,         ///< So large a share of all messages is lost.
    kDrive,        ///< Operations of the worker's drive go wrong in every way, each with this chance.
    kDriveFull,    ///< No room on the drive.
    kBitRot,       ///< `amount` bytes on the drive change.
    kClockJump,    ///< The worker's clock is ahead by `amount` seconds more from now on.
    kStepFailure,  ///< The step under way fails: no device memory.
    kNoMeters,     ///< There is no room for meters of new requests.
  };
  Kind kind = Kind::kCrash;
  double at_s = 0, for_s = 0;
  uint32_t worker = 0;  ///< Where it is about one.
  double amount = 0;
  friend bool operator==(const SimFault&, const SimFault&) = default;
};

std::string_view FaultName(SimFault::Kind kind);

struct SimScenario {
  uint64_t seed = 1;
  double seconds = 10;  ///< Virtual; what has begun by then may end.
  uint32_t workers = 2;
  uint32_t frames = 48;               ///< Of each worker.
  std::string policy;                 ///< "" = each worker's drawn from the seed.
  uint32_t cold_memory = 0;           ///< Blocks that each worker's cold memory has room for; 0 = none.
  bool drive = true;                  ///< Workers keep blocks on one.
  std::string admission = "through";  ///< Which.
  uint32_t tokens_per_step = 64, requests_per_step = 8;
  uint32_t waiting_max = 64;  ///< Requests in a worker's queue.
  uint32_t clients = 6;
  uint32_t tenants = 2;
  double think_s = 0.3;                         ///< Between turns, mean.
  double cancel_share = 0.1;                    ///< Of requests.
  double drop_share = 0.1;                      ///< With operations on the cache.
  double long_share = 0.03;                     ///< Of prompts that fit no worker.
  double delay_min_ms = 0.1, delay_max_ms = 2;  ///< Of a message.
  double loss_share = 0;                        ///< Of messages, always.
  double duplicate_share = 0;
  std::vector<SimFault> faults;
  friend bool operator==(const SimScenario&, const SimScenario&) = default;
};

/// What a seed stands for.
SimScenario DrawScenario(uint64_t seed, double seconds);

/// Errors: InvalidArgument, "PATH:LINE:COLUMN: ..." or "PATH: fault[2].at: ...".
absl::StatusOr<SimScenario> ParseScenario(std::string_view text, const std::string& path);
absl::StatusOr<SimScenario> ReadScenario(const std::string& path);
/// ParseScenario gives it back.
std::string EncodeScenario(const SimScenario& scenario);

}  // namespace kvist::lab
