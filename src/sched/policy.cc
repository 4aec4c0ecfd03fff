#include "sched/policy.h"

#include <algorithm>
#include <array>

#include "absl/container/flat_hash_map.h"

namespace kvist::sched {
namespace {

constexpr std::array kPolicies{
    PolicyEntry{"fair-deadline", "order of fair, chunks of deadline: for people who talk", NewFairDeadlinePolicy},
    PolicyEntry{"fair", "the tenant that received least first, in it by age and what is left to read", NewFairPolicy},
    PolicyEntry{"deadline", "earliest deadline first, chunks that keep the next tokens of others in time",
                NewDeadlinePolicy},
    PolicyEntry{"chunked", "first come, first served; prompts in chunks beside running decodes", NewChunkedPolicy},
    PolicyEntry{"splitfuse", "first come, first served; steps of one size, filled with prompts", NewSplitFusePolicy},
    PolicyEntry{"sjf", "what is expected to end first goes first, with ageing", NewSjfPolicy},
    PolicyEntry{"prefix-batch", "offline: who shares a beginning goes together, long answers first",
                NewPrefixBatchPolicy},
    PolicyEntry{"fcfs", "first come, first served; whole prompts before anything else, for comparison", NewFcfsPolicy},
};

uint32_t BlocksMissing(const RequestView& view, uint32_t tokens_after, uint32_t block_tokens) {
  uint32_t wanted = (tokens_after + block_tokens - 1) / block_tokens;
  return wanted > view.blocks_held ? wanted - view.blocks_held : 0;
}

/// Part of a request in a decision.
struct Named {
  uint32_t advanced = 0, preempted = 0;  ///< How often.
  uint32_t tokens = 0;
  const RequestView* view = nullptr;
  bool running = false;
};

}  // namespace

std::span<const PolicyEntry> Policies() {
  return kPolicies;
}

const PolicyEntry* FindPolicy(std::string_view name) {
  auto it = std::ranges::find(kPolicies, name, &PolicyEntry::name);
  return it == kPolicies.end() ? nullptr : &*it;
}

std::string_view FindFault(std::span<const RequestView> running, std::span<const RequestView> waiting,
                           const StepBudget& budget, const StepDecision& decision) {
  absl::flat_hash_map<RequestId, Named> named;
  named.reserve(decision.advance.size() + decision.preempt.size());
  uint64_t tokens = 0, blocks = 0, released = 0;
  for (const RequestId id : decision.preempt) ++named[id].preempted;
  for (const Advance& advance : decision.advance) {
    Named& request = named[advance.request];
    ++request.advanced;
    request.tokens = advance.tokens;
    tokens += advance.tokens;
  }
  for (const auto* views : {&running, &waiting}) {
    for (const RequestView& view : *views) {
      if (const auto it = named.find(view.id); it != named.end()) {
        it->second.view = &view;
        it->second.running = views == &running;
      }
    }
  }
  for (const auto& [id, request] : named) {
    if (request.view == nullptr) return "names an unknown request";
    const RequestView& view = *request.view;
    if (request.preempted > 0 && !request.running) return "preempts a request that is not running";
    if (request.preempted > 1) return "preempts a request twice";
    if (request.advanced > 1) return "advances a request twice";
    if (request.preempted > 0 && request.advanced > 0) return "advances a preempted request";
    if (request.preempted > 0) {
      released += view.blocks_own;
      continue;
    }
    if (request.tokens == 0 || request.tokens > view.tokens_known - view.tokens_computed) {
      return "advances by a number of tokens that the request does not have";
    }
    blocks += BlocksMissing(view, view.tokens_computed + request.tokens, budget.block_tokens);
  }
  if (tokens > budget.tokens_max) return "exceeds the token budget";
  if (decision.advance.size() > budget.requests_max) return "exceeds the request budget";
  if (blocks > budget.blocks_free + released) return "exceeds the free blocks";
  return "";
}

}  // namespace kvist::sched
