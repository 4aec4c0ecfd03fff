#pragma once

/// @file
/// What tests of policies share: views of requests, and a small world in which a policy decides steps until all
/// requests have their answers. Threads: none shared.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "sched/policy.h"
#include "sched/tenant_share.h"

namespace kvist::sched {

inline constexpr StepBudget kBudget{.tokens_max = 64, .requests_max = 8, .blocks_free = 100, .block_tokens = 16};

inline RequestView View(uint64_t id, uint32_t known, uint32_t computed) {
  return {.id = RequestId{id},
          .tokens_known = known,
          .tokens_computed = computed,
          .context_tokens = computed,
          .blocks_held = (computed + 15) / 16,
          .blocks_own = (computed + 15) / 16};
}

/// Of a request in a decision; 0 = none.
inline uint32_t TokensOf(const StepDecision& decision, uint64_t id) {
  for (const Advance& advance : decision.advance) {
    if (advance.request == RequestId{id}) return advance.tokens;
  }
  return 0;
}

/// The prompts that a decision advances, in order.
inline std::vector<uint64_t> IdsOf(const StepDecision& decision) {
  std::vector<uint64_t> ids;
  for (const Advance& advance : decision.advance) ids.push_back(advance.request.value);
  return ids;
}

/// Time is what steps cost; requests come when they come, and give as many tokens as they say.
class PolicyWorld {
 public:
  struct Spec {
    int64_t at_ns = 0;
    uint32_t prompt = 1, output = 1;
    uint32_t tenant = 0;
    uint8_t priority = 128;
    int64_t next_token_ns = 0;  ///< Wished; 0 = nothing.
  };
  struct Outcome {
    int64_t first_token_ns = -1, end_ns = -1;  ///< Since the start; -1 = not yet.
    int64_t token_gap_max_ns = 0;
    uint32_t preemptions = 0;
  };

  PolicyWorld(SchedulerPolicy& policy, uint32_t blocks, uint32_t tokens_max = 512, uint32_t requests_max = 16)
      : policy_(policy), blocks_(blocks), tokens_max_(tokens_max), requests_max_(requests_max) {}

  /// REQUIRES: in order of `at_ns`.
  std::vector<Outcome> Run(const std::vector<Spec>& specs) {
    outcomes_.assign(specs.size(), {});
    size_t next = 0;
    while (next < specs.size() || !running_.empty() || !waiting_.empty()) {
      if (running_.empty() && waiting_.empty()) now_ = std::max(now_, specs[next].at_ns);
      for (; next < specs.size() && specs[next].at_ns <= now_; ++next) Add(specs[next], next);
      if (!Step(specs)) break;
    }
    return outcomes_;
  }

 private:
  void Add(const Spec& spec, size_t index) {
    RequestView view = View(index + 1, spec.prompt, 0);
    view.tenant = TenantId{spec.tenant};
    view.priority = spec.priority;
    view.arrived_at = TimeNs{spec.at_ns};
    view.output_tokens_predicted = spec.output;
    share_.Enter(view.tenant);
    waiting_.push_back(view);
  }

  bool Step(const std::vector<Spec>& specs) {
    for (auto* views : {&running_, &waiting_}) {
      for (RequestView& view : *views) view.tenant_received = share_.Received(view.tenant);
    }
    const StepBudget budget{
        .tokens_max = tokens_max_, .requests_max = requests_max_, .blocks_free = blocks_, .block_tokens = 16};
    policy_.Decide(running_, waiting_, budget, TimeNs{now_}, decision_);
    const std::string_view fault = FindFault(running_, waiting_, budget, decision_);
    EXPECT_EQ(fault, "") << policy_.Name();
    const bool stuck = decision_.advance.empty() && decision_.preempt.empty();
    EXPECT_FALSE(stuck) << policy_.Name() << " does nothing at " << now_;
    if (stuck || !fault.empty()) return false;
    for (const RequestId id : decision_.preempt) Preempt(id);
    StepWork work;
    for (const Advance& advance : decision_.advance) {
      RequestView& view = Running(advance.request);
      work.Add(advance.tokens, view.tokens_computed, view.tokens_computed + advance.tokens == view.tokens_known);
      view.tokens_computed += advance.tokens;
      share_.Charge(view.tenant, advance.tokens);
      view.context_tokens = view.tokens_computed;
      const uint32_t held = (view.tokens_computed + 15) / 16;
      blocks_ -= held - view.blocks_held;
      view.blocks_held = view.blocks_own = held;
    }
    now_ += static_cast<int64_t>(budget.cost.Ns(work));
    for (const Advance& advance : decision_.advance) Sample(specs, advance.request);
    return true;
  }

  RequestView& Running(RequestId id) {
    const auto it = std::ranges::find(running_, id, &RequestView::id);
    if (it != running_.end()) return *it;
    const auto waits = std::ranges::find(waiting_, id, &RequestView::id);
    running_.push_back(*waits);
    waiting_.erase(waits);
    return running_.back();
  }

  void Preempt(RequestId id) {
    const auto it = std::ranges::find(running_, id, &RequestView::id);
    ++outcomes_[id.value - 1].preemptions;
    RequestView view = *it;
    running_.erase(it);
    blocks_ += view.blocks_held;
    view.tokens_computed = view.context_tokens = view.blocks_held = view.blocks_own = 0;
    waiting_.insert(std::ranges::upper_bound(waiting_, id, {}, &RequestView::id), view);
  }

  void Sample(const std::vector<Spec>& specs, RequestId id) {
    const auto it = std::ranges::find(running_, id, &RequestView::id);
    if (it->tokens_computed < it->tokens_known) return;
    Outcome& outcome = outcomes_[id.value - 1];
    if (it->output_tokens == 0) {
      outcome.first_token_ns = now_;
    } else {
      outcome.token_gap_max_ns = std::max(outcome.token_gap_max_ns, now_ - last_token_.at(id.value - 1));
    }
    last_token_.resize(specs.size());
    last_token_[id.value - 1] = now_;
    if (const int64_t wished = specs[id.value - 1].next_token_ns; wished > 0) {
      it->next_token_due = TimeNs{now_ + wished};
    }
    ++it->tokens_known;
    share_.Charge(it->tenant, 1);
    if (++it->output_tokens < specs[id.value - 1].output) return;
    outcome.end_ns = now_;
    blocks_ += it->blocks_held;
    share_.Leave(it->tenant);
    running_.erase(it);
  }

  SchedulerPolicy& policy_;
  uint32_t blocks_;
  const uint32_t tokens_max_, requests_max_;
  int64_t now_ = 0;
  std::vector<RequestView> running_, waiting_;
  std::vector<Outcome> outcomes_;
  std::vector<int64_t> last_token_;
  TenantShare share_;
  StepDecision decision_;
};

}  // namespace kvist::sched
