#pragma once

/// @file
/// The time and energy of one step of one model on one group of devices. Pure but for what it remembers of rows that it
/// has priced before. Threads: one. Non-goals: which requests are in a step, and when it starts.
///
/// Operations follow each other; each goes to the processor where it ends first (operation.h). Tensor parallel devices
/// share heads, features and experts evenly and add up after attention and after the feed-forward part of each layer
/// (Megatron-LM, arXiv 1909.08053). Pipeline stages hold equal parts of the layers; a step's requests are cut into as
/// many parts as there are stages, which follow each other through them.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "cost/model_shape.h"
#include "cost/operation.h"
#include "cost/profile.h"
#include "cost/step_load.h"
#include "cost/transfer.h"
#include "device/device.h"

namespace kvist::cost {

struct StepModelOptions {
  device::Device device;
  std::optional<device::Link> link;  ///< Of a group; needed for more than one device.
  ModelShape shape;
  device::Number weights = device::Number::kBf16;
  device::Number keys = device::Number::kBf16;  ///< And values.
  uint32_t tensor_parallel = 1, pipeline_parallel = 1;
  std::optional<Profile> profile;  ///< Measured latencies of this model on this device, in place of the device's.
};

/// Nanoseconds of a step by what they go to; they add up to the whole.
struct StepCost {
  double matmul_ns = 0, attention_ns = 0, experts_ns = 0, other_ns = 0;
  double links_ns = 0, host_ns = 0;
  double flops = 0, bytes = 0;  ///< Of all devices.
  double joules = 0;            ///< Of all devices.
  StepCost& operator+=(const StepCost& other);
  double ns() const { return matmul_ns + attention_ns + experts_ns + other_ns + links_ns + host_ns; }
};

/// Experts that see at least one of `tokens` tokens, when each token chooses evenly: E (1 - (1 - k / E)^T).
double ActiveExperts(uint32_t experts, uint32_t used, double tokens);

class StepModel {
 public:
  /// Errors: InvalidArgument for parallelism that does not divide the model or has no link, for experts on a device
  /// that has no figures for them; ResourceExhausted when the weights do not fit.
  static absl::StatusOr<StepModel> Create(StepModelOptions options);

  StepCost Cost(const StepLoad& load);

  /// No step of up to `tokens_max` tokens takes less, whatever is in it; 0 where times of whole steps are measured.
  double FloorNs(uint32_t tokens_max);

  double weight_bytes() const { return weight_bytes_; }  ///< Of one device.
  /// Of one device. Layers with a window are not counted: what they keep of a request does not grow with it.
  double kv_bytes_per_token() const;
  /// Blocks of KV memory in `memory_share` of a device's memory, beside the weights.
  uint64_t KvBlocks(double memory_share, uint32_t block_tokens) const;
  const StepModelOptions& options() const { return options_; }
  /// Of options().profile, by Cost; nothing without one.
  const ProfileUse& profile_use() const { return profile_use_; }

 private:
  explicit StepModel(StepModelOptions options);

  /// What a stage does for rows alone, whatever their views are.
  struct Rows {
    double matmul_ns = 0, experts_ns = 0, other_ns = 0, links_ns = 0;
    double flops = 0, bytes = 0;
    bool known = false;
  };
  /// One kind of operation of a stage: its time, `times` over.
  struct Sum {
    double ns = 0, flops = 0, bytes = 0;
  };

  StepCost StageCost(const StepLoad& load);
  double WholeNs(const StepLoad& load, Excess& excess) const;
  const Rows& RowsOf(uint32_t tokens);
  const Rows& HeadOf(uint32_t rows);
  Rows MakeRows(uint32_t tokens) const;
  Rows MakeHead(uint32_t rows) const;
  void AddFeedForward(double tokens, bool captured, Rows& rows) const;
  void AddExperts(double tokens, bool captured, Rows& rows) const;
  void AddProfiledRows(double tokens, Rows& rows) const;
  void Add(const Operation& operation, double times, bool captured, double& ns, Rows& rows) const;
  Operation Matmul(double rows, double from, double to, device::Number weights) const;
  Operation Elementwise(double bytes) const { return {device::Work::kElementwise, 0, bytes, device::Number::kBf16}; }
  Operation Attention(device::Work work, double pairs, double keys, double rows) const;
  Sum AttentionOf(const StepLoad& load, bool windowed, bool captured, Excess& excess) const;
  bool IsCaptured(double tokens) const;
  double PaddedRows(double tokens) const;
  double Joules(double ns, double flops, double bytes) const;

  StepModelOptions options_;
  double weight_bytes_ = 0;
  double layers_ = 0, expert_layers_ = 0, full_layers_ = 0;  ///< Of a stage.
  device::Number dense_number_;                              ///< Of weights that are no experts.
  std::vector<Rows> rows_, head_;                            ///< By rows.
  ProfileUse profile_use_;
};

}  // namespace kvist::cost
