#include "exec/cpu/experts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "kernels/scalar_math.h"

namespace kvist::exec {

void ChooseExperts(const float* scores, const model::ExpertSpec& spec, uint32_t* chosen, float* weights) {
  KVIST_CHECK(spec.used >= 1 && spec.used <= spec.count && spec.count <= model::kExpertsMax);
  float max = scores[0];
  bool has_nan = false;
  for (uint32_t i = 0; i < spec.count; ++i) {
    has_nan |= std::isnan(scores[i]);
    max = scores[i] > max ? scores[i] : max;
  }
  if (has_nan || std::isinf(max)) {
    for (uint32_t i = 0; i < spec.used; ++i) {
      chosen[i] = i;
      weights[i] = std::numeric_limits<float>::quiet_NaN();
    }
    return;
  }
  std::array<float, model::kExpertsMax> p;
  kernels::ExpRow(scores, spec.count, max, 1.0f, p.data());
  float sum = 0;
  for (uint32_t i = 0; i < spec.count; ++i) sum += p[i];
  for (uint32_t i = 0; i < spec.count; ++i) p[i] /= sum;

  std::array<uint32_t, model::kExpertsMax> order;
  const auto end = order.begin() + spec.count;
  std::iota(order.begin(), end, 0);
  std::partial_sort(order.begin(), order.begin() + spec.used, end,
                    [&p](uint32_t a, uint32_t b) { return p[a] != p[b] ? p[a] > p[b] : a < b; });
  float chosen_sum = 0;
  for (uint32_t i = 0; i < spec.used; ++i) {
    chosen[i] = order[i];
    weights[i] = p[order[i]];
    chosen_sum += weights[i];
  }
  for (uint32_t i = 0; i < spec.used; ++i) {
    if (spec.normalised) weights[i] /= chosen_sum;
    weights[i] *= spec.scale;
  }
}

void ExpertGroups::Reserve(uint32_t tokens_max, uint32_t count_max, uint32_t used_max) {
  const size_t slots_max = size_t{tokens_max} * used_max;
  chosen_.resize(slots_max);
  slots_.resize(slots_max);
  weights_.resize(slots_max);
  counts_.resize(count_max);
  active_.resize(count_max);
}

void ExpertGroups::Group(uint32_t tokens, const model::ExpertSpec& spec) {
  const uint32_t slots = tokens * spec.used;
  std::fill_n(counts_.begin(), spec.count, 0u);
  for (uint32_t i = 0; i < slots; ++i) ++counts_[chosen_[i]];
  active_count_ = 0;
  cost_ = 0;
  uint32_t next = 0;
  for (uint32_t expert = 0; expert < spec.count; ++expert) {
    const uint32_t count = counts_[expert];
    counts_[expert] = next;
    if (count == 0) continue;
    active_[active_count_++] = {.expert = expert, .first_slot = next, .slots = count, .cost_before = cost_};
    next += count;
    cost_ += CostOf(count);
  }
  for (uint32_t i = 0; i < slots; ++i) slots_[i] = counts_[chosen_[i]]++;
}

}  // namespace kvist::exec
