#include <algorithm>
#include <numeric>

#include "sched/policy.h"

namespace kvist::sched {
namespace {

class ChunkedPolicy final : public SchedulerPolicy {
 public:
  explicit ChunkedPolicy(const ChunkedOptions& options) : options_(options) {}

  std::string_view Name() const override { return "chunked"; }

  void Decide(std::span<const RequestView> running, std::span<const RequestView> waiting, const StepBudget& budget,
              TimeNs /*now*/, StepDecision& decision) override {
    decision.Clear();
    left_ = budget;
    Rank(running);
    for (size_t i = 0; i < kept_; ++i) {  // kept_ shrinks while later requests are preempted.
      if (IsDecode(At(running, i))) AdvanceRunning(running, i, 1, decision);
    }
    for (size_t i = 0; i < kept_; ++i) {
      if (!IsDecode(At(running, i))) AdvanceRunning(running, i, Missing(At(running, i)), decision);
    }
    if (!decision.preempt.empty()) return;  // Memory is short: admit nobody.
    for (const RequestView& view : waiting) {
      if (!Admit(view, decision)) break;  // First come, first served: nobody overtakes.
    }
  }

 private:
  static uint32_t Missing(const RequestView& view) { return view.tokens_known - view.tokens_computed; }
  static bool IsDecode(const RequestView& view) { return Missing(view) == 1; }

  /// Most urgent first, then in order of admission: who comes last loses the least progress and gives way first.
  void Rank(std::span<const RequestView> running) {
    kept_ = running.size();
    order_.resize(kept_);
    std::iota(order_.begin(), order_.end(), 0u);
    std::ranges::sort(order_, {}, [&](uint32_t i) { return std::pair(running[i].priority, i); });
  }
  const RequestView& At(std::span<const RequestView> running, size_t rank) const { return running[order_[rank]]; }

  uint32_t BlocksFor(const RequestView& view, uint32_t tokens) const {
    uint32_t wanted = (view.tokens_computed + tokens + left_.block_tokens - 1) / left_.block_tokens;
    return wanted > view.blocks_held ? wanted - view.blocks_held : 0;
  }

  /// The most of `tokens` that the free blocks have room for.
  uint32_t Fitting(const RequestView& view, uint32_t tokens) const {
    const uint64_t room = (uint64_t{view.blocks_held} + left_.blocks_free) * left_.block_tokens;
    return room <= view.tokens_computed
               ? 0
               : static_cast<uint32_t>(std::min<uint64_t>(tokens, room - view.tokens_computed));
  }

  uint32_t ChunkOf(uint32_t missing) const { return std::min({missing, options_.chunk_tokens_max, left_.tokens_max}); }

  void Take(const RequestView& view, uint32_t tokens, StepDecision& decision) {
    left_.blocks_free -= BlocksFor(view, tokens);
    left_.tokens_max -= tokens;
    --left_.requests_max;
    decision.advance.push_back({view.id, tokens});
  }

  void AdvanceRunning(std::span<const RequestView> running, size_t i, uint32_t missing, StepDecision& decision) {
    uint32_t tokens = ChunkOf(missing);
    if (tokens == 0 || left_.requests_max == 0) return;
    while (BlocksFor(At(running, i), tokens) > left_.blocks_free) {
      if (kept_ == i + 1) {
        if (i > 0) return Preempt(At(running, i), decision);
        tokens = Fitting(At(running, i), tokens);  // Alone and still short: as far as it goes.
        if (tokens == 0) return;
        break;
      }
      Preempt(At(running, kept_ - 1), decision);
    }
    Take(At(running, i), tokens, decision);
  }

  /// Takes a running request off, with what this step had planned for it. REQUIRES: it is the last of those kept.
  void Preempt(const RequestView& view, StepDecision& decision) {
    --kept_;
    decision.preempt.push_back(view.id);
    left_.blocks_free += view.blocks_own;
    auto planned = std::ranges::find(decision.advance, view.id, &Advance::request);
    if (planned == decision.advance.end()) return;
    left_.blocks_free += BlocksFor(view, planned->tokens);
    left_.tokens_max += planned->tokens;
    ++left_.requests_max;
    decision.advance.erase(planned);
  }

  bool Admit(const RequestView& view, StepDecision& decision) {
    uint32_t tokens = ChunkOf(Missing(view));
    if (tokens == 0 || left_.requests_max == 0) return false;
    // The whole known text must fit beside the others, or the request would be preempted before its first token. Who is
    // alone starts all the same: nothing else would ever give it room.
    if (BlocksFor(view, Missing(view)) > left_.blocks_free) {
      tokens = Fitting(view, tokens);
      if (kept_ > 0 || !decision.advance.empty() || tokens == 0) return false;
      Take(view, tokens, decision);
      return false;
    }
    left_.blocks_free -= BlocksFor(view, Missing(view)) - BlocksFor(view, tokens);
    Take(view, tokens, decision);
    return true;
  }

  ChunkedOptions options_;
  StepBudget left_;
  std::vector<uint32_t> order_;  ///< Of the running requests, by rank.
  size_t kept_ = 0;              ///< Those that are not preempted: the first kept_ of the order.
};

}  // namespace

std::unique_ptr<SchedulerPolicy> NewChunkedPolicy(const ChunkedOptions& options) {
  return std::make_unique<ChunkedPolicy>(options);
}

}  // namespace kvist::sched
