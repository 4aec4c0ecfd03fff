#include "lab/step_speed.h"

#include <algorithm>

#include "base/check.h"
#include "base/percentile.h"
#include "lab/sequences.h"

namespace kvist::lab {

std::vector<MeasuredStep> StepGrid(const step::ExecutorLimits& limits, uint32_t decodes_max, uint32_t context_max) {
  constexpr uint32_t kChunkMin = 8, kViewMin = 32;
  decodes_max = std::min(decodes_max, limits.slices_per_step_max - 1);
  const uint32_t chunk_max = limits.tokens_per_step_max - decodes_max;
  context_max = std::min(context_max, limits.context_tokens_max - chunk_max);
  const auto up_to = [](uint32_t begin, uint32_t end, uint32_t factor) {
    std::vector<uint32_t> values;
    for (uint32_t value = begin; value < end; value *= factor) values.push_back(value);
    values.push_back(end);
    return values;
  };
  std::vector<MeasuredStep> steps;
  for (const uint32_t decodes : up_to(1, decodes_max, 2)) {
    for (const uint32_t view : up_to(kViewMin, context_max, 4)) steps.push_back({.decodes = decodes, .view = view});
  }
  std::vector<uint32_t> befores = up_to(4 * kViewMin, context_max, 4);
  befores.insert(befores.begin(), 0);
  for (const uint32_t chunk : up_to(kChunkMin, chunk_max, 2)) {
    for (const uint32_t before : befores) {
      steps.push_back({.chunk = chunk, .before = before});
      for (const uint32_t decodes : up_to(1, decodes_max, 4)) {
        for (const uint32_t view : {kViewMin, context_max}) {
          steps.push_back({.chunk = chunk, .before = before, .decodes = decodes, .view = view});
        }
      }
    }
  }
  return steps;
}

absl::Status MeasureSteps(step::Executor& executor, kv::KvMemory& memory, const Clock& clock,
                          const StepSpeedOptions& options, std::vector<MeasuredStep>& steps) {
  KVIST_CHECK(options.rounds > 0);
  uint32_t decodes = 0, depth = 0, chunk = 0;
  for (const MeasuredStep& step : steps) {
    decodes = std::max(decodes, step.decodes);
    depth = std::max({depth, step.before, step.view});
    chunk = std::max(chunk, step.chunk);
  }
  Sequences sequences(executor, memory, clock, decodes + 1, depth, /*shared_depth=*/0);
  KVIST_RETURN_IF_ERROR(sequences.Reserve(1, chunk));
  KVIST_RETURN_IF_ERROR(sequences.Reserve(decodes + 1, 1));
  const auto go_on_in = [&](uint32_t round) -> Sequences::GoOn {
    return [&options, round] { return !options.progress || options.progress(round); };
  };
  KVIST_RETURN_IF_ERROR(sequences.Fill(go_on_in(0)));
  struct Times {
    std::vector<double> all, of_rounds;
  };
  std::vector<Times> times(steps.size());
  // In rounds, so that a disturbance does not fall on all measurements of one step. Single tokens follow each other, as
  // they do in a server: after a prompt the first ones are slower.
  constexpr uint32_t kInARow = 5, kFirstOnes = 2;
  std::vector<double> round_s;
  for (uint32_t round = 0; round <= options.rounds; ++round) {
    for (size_t i = 0; i < steps.size(); ++i) {
      const MeasuredStep& step = steps[i];
      const bool in_a_row = step.chunk == 0;
      round_s.clear();
      for (uint32_t time = 0; time < (in_a_row ? kInARow : 1); ++time) {
        KVIST_RETURN_IF_ERROR(sequences.Step(step.chunk, step.before, step.decodes, step.view, go_on_in(round)));
        if (!in_a_row || time >= kFirstOnes) round_s.push_back(sequences.StepSeconds());
      }
      if (round == 0) continue;
      times[i].all.insert(times[i].all.end(), round_s.begin(), round_s.end());
      times[i].of_rounds.push_back(Percentile(round_s, 0.5));
    }
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i].seconds = Percentile(times[i].all, 0.5);
    const auto [fastest, slowest] = std::ranges::minmax(times[i].of_rounds);
    steps[i].spread = fastest > 0 ? (slowest - fastest) / fastest : 0;
  }
  return absl::OkStatus();
}

Steadiness SteadinessOf(std::span<const MeasuredStep> steps) {
  std::vector<double> spreads;
  for (const MeasuredStep& step : steps) spreads.push_back(step.spread);
  return {.median_spread = Percentile(spreads, 0.5),
          .worst_spread = *std::ranges::max_element(spreads),
          .steps = steps.size(),
          .unsteady = static_cast<size_t>(std::ranges::count_if(spreads, [](double s) { return s > kUnsteady; }))};
}

}  // namespace kvist::lab
