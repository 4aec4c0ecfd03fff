#pragma once

/// @file
/// Which experts the tokens of a step go through, and how that work is shared: tokens are grouped by expert, so that an
/// expert's weights are read once a step, and an idle expert's never. Memory is taken once, in Reserve. Non-goals: the
/// products themselves (Program).

#include <cstdint>
#include <span>
#include <vector>

#include "model/spec.h"

namespace kvist::exec {

/// Chooses experts for one token, as model::ExpertMlp defines it. In f32: e[i] = exp(score[i] - max) by
/// kernels::ExpRow; sum of e in order of i; p = e / sum; weights divided by their sum, added up best first, then times
/// scale. Without a softmax (a NaN, an infinite maximum) the first experts are taken with weight NaN.
/// @param scores   [spec.count]
/// @param chosen   [spec.used] best first
/// @param weights  [spec.used]
void ChooseExperts(const float* scores, const model::ExpertSpec& spec, uint32_t* chosen, float* weights);

/// The choices of one layer in one step. A slot is one (token, expert) pair; the slots of an expert lie side by side.
/// Threads: Choose for different tokens at once; Group by one; then reading by all.
class ExpertGroups {
 public:
  /// An expert that somebody needs.
  struct Active {
    uint32_t expert;
    uint32_t first_slot, slots;
    uint64_t cost_before;  ///< Of a row group of all experts before it.
  };
  /// Consecutive row groups of one matrix of one expert.
  struct Piece {
    const Active* active;
    uint32_t matrix;
    uint32_t group_begin, group_end;
  };

  /// Room for steps of `tokens_max` through layers of at most these experts.
  void Reserve(uint32_t tokens_max, uint32_t count_max, uint32_t used_max);

  void Choose(uint32_t token, const float* scores, const model::ExpertSpec& spec) {
    ChooseExperts(scores, spec, chosen_.data() + token * spec.used, weights_.data() + token * spec.used);
  }
  /// Call after all tokens have chosen.
  void Group(uint32_t tokens, const model::ExpertSpec& spec);

  /// In order of the experts.
  std::span<const Active> active() const { return {active_.data(), active_count_}; }
  /// Of a token, best expert first. @return [used]
  const uint32_t* SlotsOf(uint32_t token, uint32_t used) const { return slots_.data() + token * used; }
  const float* WeightsOf(uint32_t token, uint32_t used) const { return weights_.data() + token * used; }

  /// Part `part` of `parts` of the products of all active experts with `matrices` matrices of `row_groups` each: about
  /// equal work, each row group in exactly one part.
  /// @param visit  called with each Piece.
  template <class Visit>
  void ForPart(uint32_t part, uint32_t parts, uint32_t matrices, uint32_t row_groups, Visit&& visit) const {
    const uint64_t per_group = uint64_t{matrices} * row_groups, total = cost_ * per_group;
    const uint64_t begin = total * part / parts, end = total * (part + 1) / parts;
    for (const Active& active : this->active()) {
      for (uint32_t matrix = 0; matrix < matrices; ++matrix) {
        const uint64_t cost = CostOf(active.slots);
        const uint64_t before = active.cost_before * per_group + cost * matrix * row_groups;
        const uint32_t first = GroupsBefore(begin, before, cost, row_groups);
        const uint32_t last = GroupsBefore(end, before, cost, row_groups);
        if (first < last) visit(Piece{&active, matrix, first, last});
      }
    }
  }

 private:
  /// Of one row group: reading it from memory takes about as long as multiplying it with some tokens.
  static uint64_t CostOf(uint32_t slots) { return uint64_t{slots} + 4; }
  /// Row groups that begin before `at` on the line of all work, where the first begins at `before`.
  static uint32_t GroupsBefore(uint64_t at, uint64_t before, uint64_t cost, uint32_t row_groups) {
    if (at <= before) return 0;
    const uint64_t groups = (at - before + cost - 1) / cost;
    return groups < row_groups ? static_cast<uint32_t>(groups) : row_groups;
  }

  std::vector<uint32_t> chosen_, slots_;  ///< [tokens][used] best first.
  std::vector<float> weights_;            ///< [tokens][used]
  std::vector<uint32_t> counts_;          ///< [count] tokens of each expert, then its next free slot.
  std::vector<Active> active_;
  size_t active_count_ = 0;
  uint64_t cost_ = 0;
};

}  // namespace kvist::exec
