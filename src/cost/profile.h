#pragma once

/// @file
/// Measured latencies of one model on one device by kind of layer, read from CSV tables: dense.csv (layer, tokens,
/// time_us), per_sequence.csv (layer, sequences, time_us) and attention.csv (prefill_chunk, kv_prefill, n_decode,
/// kv_decode, time_us), as published profiles of serving simulators have them. Between rows values are interpolated
/// linearly; beyond the last one they are extended in proportion, before the first one they stay what it says, and both
/// are counted. A folder with steps.csv (the columns of
/// attention.csv) has times of whole steps instead, as `kvist calibrate --steps` writes them. Threads: one.

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace kvist::cost {

/// How far something that was asked for lies outside of what was measured.
struct Excess {
  double factor = 1;       ///< So many times the largest count measured, or the smallest so many times it; 1 = inside.
  std::string_view where;  ///< Which count: "attention.csv, n_decode"; of a literal.

  bool any() const { return factor > 1; }
  /// Keeps the worst.
  void See(double count, double first, double last, std::string_view place) {
    const double beyond = count <= last ? 1 : last > 0 ? count / last : 1 + count;
    // None of something is as good as one.
    const double below = count < first ? first / std::max(count, 1.0) : 1;
    const double most = std::max(beyond, below);
    if (most > factor) *this = {most, place};
  }
};

/// A measured function of one count.
class LatencyLine {
 public:
  void Add(double count, double ns) { points_[count] = ns; }
  bool empty() const { return points_.empty(); }
  double first() const { return points_.empty() ? 0 : points_.begin()->first; }
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
  using Names = std::array<std::string_view, 4>;
  /// @param names  of the counts, for `excess`
  double At(const Place& place, const Names& names, Excess& excess) const {
    return Between(root_, place, 0, names, excess);
  }

 private:
  struct Node {
    std::map<double, Node> next;
    double ns = 0;
  };

  static double Between(const Node& node, const Place& place, size_t axis, const Names& names, Excess& excess);

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
  double AttentionNs(const AttentionLoad& load, Excess& excess) const;

  /// It has times of whole steps, and of nothing else.
  bool has_steps() const { return !steps_.empty(); }
  double StepNs(const AttentionLoad& load, Excess& excess) const;

  /// The excess of rows of layers, and of rows of the head.
  void SeeRows(double tokens, double sampled, Excess& excess) const;

 private:
  const LatencyLine& Line(const std::string& name) const;
  static double At(const LatencyGrid& grid, const AttentionLoad& load, const LatencyGrid::Names& names, Excess& excess);

  std::map<std::string, LatencyLine, std::less<>> lines_;
  LatencyGrid attention_, steps_;
};

/// Steps that were priced from a profile, and those of them for which something lay outside of it.
struct ProfileUse {
  uint64_t steps = 0, outside = 0;
  Excess worst;

  void Count(const Excess& excess) {
    ++steps;
    if (excess.any()) ++outside;
    if (excess.factor > worst.factor) worst = excess;
  }
  ProfileUse& operator+=(const ProfileUse& other) {
    steps += other.steps;
    outside += other.outside;
    if (other.worst.factor > worst.factor) worst = other.worst;
    return *this;
  }
};

}  // namespace kvist::cost
