#include "sched/policy.h"

#include <algorithm>
#include <array>

namespace kvist::sched {
namespace {

constexpr std::array kPolicies{
    PolicyEntry{"chunked", "first come, first served; prompts in chunks beside running decodes", NewChunkedPolicy},
};

uint32_t BlocksMissing(const RequestView& view, uint32_t tokens_after, uint32_t block_tokens) {
  uint32_t wanted = (tokens_after + block_tokens - 1) / block_tokens;
  return wanted > view.blocks_held ? wanted - view.blocks_held : 0;
}

const RequestView* FindView(std::span<const RequestView> views, RequestId id) {
  auto it = std::ranges::find(views, id, &RequestView::id);
  return it == views.end() ? nullptr : &*it;
}

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
  uint64_t tokens = 0, blocks = 0, released = 0;
  for (size_t i = 0; i < decision.preempt.size(); ++i) {
    const RequestView* view = FindView(running, decision.preempt[i]);
    if (view == nullptr) return "preempts a request that is not running";
    if (std::ranges::count(decision.preempt, decision.preempt[i]) > 1) return "preempts a request twice";
    released += view->blocks_own;
  }
  for (const Advance& advance : decision.advance) {
    if (std::ranges::count(decision.advance, advance.request, &Advance::request) > 1) return "advances a request twice";
    if (std::ranges::count(decision.preempt, advance.request) > 0) return "advances a preempted request";
    const RequestView* view = FindView(running, advance.request);
    if (view == nullptr) view = FindView(waiting, advance.request);
    if (view == nullptr) return "advances an unknown request";
    if (advance.tokens == 0 || advance.tokens > view->tokens_known - view->tokens_computed) {
      return "advances by a number of tokens that the request does not have";
    }
    tokens += advance.tokens;
    blocks += BlocksMissing(*view, view->tokens_computed + advance.tokens, budget.block_tokens);
  }
  if (tokens > budget.tokens_max) return "exceeds the token budget";
  if (decision.advance.size() > budget.requests_max) return "exceeds the request budget";
  if (blocks > budget.blocks_free + released) return "exceeds the free blocks";
  return "";
}

}  // namespace kvist::sched
