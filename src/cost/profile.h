#pragma once

/// @file
/// Measured latencies of one model on one device by kind of layer, read from CSV tables: dense.csv (layer, tokens,
/// time_us), per_sequence.csv (layer, sequences, time_us) and attention.csv (prefill_chunk, kv_prefill, n_decode,
/// kv_decode, time_us), as published profiles of serving simulators have them. Between rows values are interpolated
/// linearly; outside they are extended in proportion, which is counted. A folder with steps.csv (the columns of
/// attention.csv) has times of whole steps instead, as `kvist calibrate --steps` writes them. Threads: one.

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace kvist::cost {

/// A measured function of one count.
class LatencyLine {
 public:
  void Add(double count, double ns) { points_[count] = ns; }
  bool empty() const { return points_.empty(); }
  double last() const { return points_.empty() ? 0 : points_.rbegin()->first; }
  /// 0 when empty. Below the first point: that; beyond the last: in proportion to the count.
  double At(double count) const;

 private:
  std::map<double, double> points_;
};

/// A measured function of four counts. Each value of the first count has its own values of the second one, and so on,
/// so that grids of different steps may lie in one table.
class LatencyGrid {
 public:
  using Place = std::array<double, 4>;

  void Add(const Place& place, double ns);
  bool empty() const { return root_.next.empty(); }
  /// @param outside  set when a count is beyond the last one measured
  double At(const Place& place, bool& outside) const { return Between(root_, place, 0, outside); }

 private:
  struct Node {
    std::map<double, Node> next;
    double ns = 0;
  };

  static double Between(const Node& node, const Place& place, size_t axis, bool& outside);

  Node root_;
};

class Profile {
 public:
  /// The attention of a step, of one layer.
  struct AttentionLoad {
    double prompt_tokens = 0, prompt_pairs = 0;
    double decodes = 0, decode_keys = 0;
  };

  /// Errors: NotFound and InvalidArgument with file and line.
  static absl::StatusOr<Profile> Load(const std::string& folder);

  double MatmulNs(double tokens) const;       ///< Of a layer.
  double ElementwiseNs(double tokens) const;  ///< Of a layer.
  double OnceNs(double tokens) const;         ///< Of a step: embedding, last norm.
  double HeadNs(double rows) const { return Line("lm_head").At(rows); }
  double SamplerNs(double rows) const { return Line("sampler").At(rows); }
  double AttentionNs(const AttentionLoad& load) const { return At(attention_, load); }

  /// It has times of whole steps, and of nothing else.
  bool has_steps() const { return !steps_.empty(); }
  double StepNs(const AttentionLoad& load) const { return At(steps_, load); }

  /// Loads that lay outside of what was measured, of all that AttentionNs or StepNs was asked for.
  uint64_t outside() const { return outside_; }
  uint64_t asked() const { return asked_; }

 private:
  const LatencyLine& Line(const std::string& name) const;
  double At(const LatencyGrid& grid, const AttentionLoad& load) const;

  std::map<std::string, LatencyLine, std::less<>> lines_;
  LatencyGrid attention_, steps_;
  mutable uint64_t outside_ = 0, asked_ = 0;
};

}  // namespace kvist::cost
