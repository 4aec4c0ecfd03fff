#include "exec/cpu/executor_testutil.h"

#include <algorithm>
#include <cstdio>

#include "base/check.h"

namespace kvist::exec {
TestExecutor::TestExecutor(const std::string& path, const Options& options)
    : TestExecutor(ValueOrDie(model::LoadModel(path)), options) {}

TestExecutor::TestExecutor(std::shared_ptr<const model::Model> model, const Options& options)
    : memory_({.frames_count = options.frames_count,
               .layout = LayoutOf(model->spec, options.kv_type),
               .reuse = options.reuse}) {
  executor_ = ValueOrDie(CpuExecutor::Create(
      model,
      {.threads = options.threads,
       .isa = options.isa,
       .tokens_per_step_max = options.tokens_per_step_max,
       .slices_per_step_max = 64,
       .context_tokens_max = options.context_tokens != 0 ? options.context_tokens : model->spec.context_length,
       .frames_count = options.frames_count,
       .kv_type = options.kv_type,
       .load = options.load},
      memory_.spans(), clock_));
}

step::StepResult TestExecutor::Execute(step::StepPlan plan) {
  absl::Status status = executor_->Submit(std::move(plan));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  KVIST_CHECK(status.ok());
  while (true) {
    std::optional<step::StepResult> result = ValueOrDie(executor_->Poll());
    if (result) return *std::move(result);
    std::this_thread::yield();
  }
}

std::vector<std::vector<float>> TestExecutor::Logits(const std::vector<Run>& runs) {
  std::vector<std::vector<float>> logits(runs.size());
  std::vector<RequestId> ids;
  for (const Run& run : runs) {
    ids.push_back(RequestId{next_id_++});
    memory_.Begin(ids.back(), 0, run.tokens);
  }
  std::vector<uint32_t> done(runs.size(), 0);
  for (uint32_t step = 0;; ++step) {
    step::StepPlan plan;
    std::vector<size_t> who;
    bool waiting = false;
    for (size_t i = 0; i < runs.size(); ++i) {
      const uint32_t left = static_cast<uint32_t>(runs[i].tokens.size()) - done[i];
      if (left == 0) continue;
      if (step < runs[i].skip_steps) {
        waiting = true;
        continue;
      }
      const uint32_t count = std::min(left, runs[i].chunk);
      KVIST_CHECK(memory_.Reserve(ids[i], done[i] + count));
      const SpanId span = memory_.SpanOf(ids[i]);
      plan.slices.push_back({.request = ids[i],
                             .position = done[i],
                             .tokens_begin = static_cast<uint32_t>(plan.tokens.size()),
                             .tokens_count = count,
                             .segments_begin = static_cast<uint32_t>(plan.segments.size()),
                             .segments_count = 1,
                             .tail = span,
                             .tail_begin = done[i],
                             .commit_count = count,
                             .logits_rows = count});
      plan.segments.push_back({span, 0, done[i] + count});
      for (uint32_t t = 0; t < count; ++t) plan.tokens.push_back({runs[i].tokens[done[i] + t]});
      who.push_back(i);
    }
    if (who.empty() && !waiting) break;
    if (who.empty()) continue;
    step::StepResult result = Execute(std::move(plan));
    auto row = result.logits.begin();
    for (size_t s = 0; s < who.size(); ++s) {
      const uint32_t count = result.plan.slices[s].tokens_count;
      const auto end = row + static_cast<std::ptrdiff_t>(size_t{count} * vocab());
      logits[who[s]].insert(logits[who[s]].end(), row, end);
      row = end;
      memory_.Commit(ids[who[s]], std::span(runs[who[s]].tokens).subspan(done[who[s]], count));
      done[who[s]] += count;
    }
  }
  for (RequestId id : ids) memory_.End(id);
  return logits;
}

std::vector<float> TestExecutor::Scores(const std::vector<TokenId>& tokens, uint32_t chunk) {
  const RequestId id{next_id_++};
  memory_.Begin(id, 0, tokens);
  std::vector<float> scores;
  for (uint32_t done = 0; done + 1 < tokens.size();) {
    const uint32_t count = std::min<uint32_t>(chunk, static_cast<uint32_t>(tokens.size()) - 1 - done);
    KVIST_CHECK(memory_.Reserve(id, done + count));
    const SpanId span = memory_.SpanOf(id);
    step::StepPlan plan;
    plan.slices.push_back({.request = id,
                           .position = done,
                           .tokens_count = count,
                           .segments_count = 1,
                           .tail = span,
                           .tail_begin = done,
                           .commit_count = count,
                           .scores_count = count});
    plan.segments.push_back({span, 0, done + count});
    for (uint32_t t = 0; t < count; ++t) {
      plan.tokens.push_back({tokens[done + t]});
      plan.score_targets.push_back(tokens[done + t + 1]);
    }
    const step::StepResult result = Execute(std::move(plan));
    scores.insert(scores.end(), result.scores.begin(), result.scores.end());
    memory_.Commit(id, std::span(tokens).subspan(done, count));
    done += count;
  }
  memory_.End(id);
  return scores;
}

}  // namespace kvist::exec
