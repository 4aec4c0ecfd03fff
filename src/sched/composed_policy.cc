#include "sched/composed_policy.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "sched/background.h"

namespace kvist::sched {
namespace {

constexpr uint32_t kDecodeTokensMax = 16;
/// While others are there, background work has its turn for so long of each such time. By the clock, so that a decision
/// follows from what it is given.
constexpr int64_t kTurnNs = 50'000'000, kTurnEveryNs = 1'000'000'000;
/// So many mean errors of the prediction are kept free.
constexpr double kMargin = 2;
constexpr double kUnbounded = std::numeric_limits<double>::infinity();

class ComposedPolicy final : public SchedulerPolicy {
 public:
  ComposedPolicy(const Rules& rules, const PolicyOptions& options) : rules_(rules), options_(options) {}

  std::string_view Name() const override { return rules_.name; }

  void Decide(std::span<const RequestView> running, std::span<const RequestView> waiting, const StepBudget& budget,
              TimeNs now, StepDecision& decision) override {
    const auto is_urgent = [](const RequestView& view) { return view.priority != kBackgroundPriority; };
    background_ns_ = kUnbounded;
    if (now.value % kTurnEveryNs >= kTurnNs &&
        (std::ranges::any_of(running, is_urgent) || std::ranges::any_of(waiting, is_urgent))) {
      background_ns_ = BackgroundStepNs(running, waiting, budget.cost, now);
    }
    DecideOnce(running, waiting, budget, now, decision);
    if (background_ns_ == kUnbounded || !decision.advance.empty() || !decision.preempt.empty()) return;
    background_ns_ = kUnbounded;  // The others cannot go on.
    DecideOnce(running, waiting, budget, now, decision);
  }

 private:
  void DecideOnce(std::span<const RequestView> running, std::span<const RequestView> waiting, const StepBudget& budget,
                  TimeNs now, StepDecision& decision) {
    decision.Clear();
    running_ = running;
    waiting_ = waiting;
    left_ = budget;
    work_ = {};
    decision_ = &decision;
    admitting_ = true;
    places_ = budget.requests_max;
    OrderVictims();
    StepFacts facts{.budget = budget, .options = options_, .now = now};
    SumDecodes(facts);
    limit_ = rules_.limit != nullptr ? rules_.limit(facts) : StepLimit{};
    // Background prompts go last, whatever the rule: what they may take is known when the others have their part.
    const bool prompts_first = rules_.prompts_first && (background_ns_ == kUnbounded || background_ns_ == 0);
    if (!prompts_first) AdvanceDecodes();
    AdvancePrompts(facts);
    if (prompts_first) AdvanceDecodes();
  }
  bool IsBounded(const RequestView& view) const {
    return background_ns_ != kUnbounded && view.priority == kBackgroundPriority;
  }
  bool Rests(const RequestView& view) const { return background_ns_ == 0 && IsBounded(view); }

  /// Most urgent first, then in order of admission: who comes last loses the least progress and gives way first.
  void OrderVictims() {
    kept_ = running_.size();
    order_.resize(kept_);
    place_.resize(kept_);
    std::iota(order_.begin(), order_.end(), 0u);
    std::ranges::sort(order_, {}, [&](uint32_t i) { return std::pair(running_[i].priority, i); });
    committed_ = 0;
    admitted_ = 0;
    for (uint32_t place = 0; place < kept_; ++place) {
      place_[order_[place]] = place;
      const RequestView& view = running_[order_[place]];
      committed_ += BlocksFor(view, Missing(view));
    }
  }
  bool Kept(uint32_t i) const { return place_[i] < kept_; }

  void SumDecodes(StepFacts& facts) {
    urgent_ = UINT8_MAX;
    for (const RequestView& view : running_) {
      if (IsDecode(view)) urgent_ = std::min(urgent_, view.priority);
    }
    StepWork work;
    for (const RequestView& view : running_) {
      if (!IsDecode(view)) continue;
      ++facts.decodes;
      if (view.priority != urgent_) continue;
      work.Add(Missing(view), view.context_tokens, /*samples=*/true);
      facts.next_token_due = std::min(facts.next_token_due, view.next_token_due);
    }
    facts.decode_ns = work.tokens > 0 ? left_.cost.Ns(work) : 0;
  }

  void AdvanceDecodes() {
    for (uint32_t place = 0; place < kept_; ++place) {  // kept_ shrinks while later requests are preempted.
      const RequestView& view = running_[order_[place]];
      if (!IsDecode(view) || Rests(view) || (view.priority != urgent_ && !InTime(view, Missing(view)))) continue;
      AdvanceRunning(order_[place], Missing(view));
    }
  }

  bool InTime(const RequestView& view, uint32_t tokens) const {
    const double step_ns = IsBounded(view) ? std::min(limit_.step_ns, background_ns_) : limit_.step_ns;
    if (step_ns == kUnbounded) return true;
    StepWork work = work_;
    work.Add(tokens, view.context_tokens, tokens == ToCompute(view));
    return left_.cost.Ns(work) <= step_ns;
  }

  // Prompts, those that run and those that wait, in one order.

  struct Candidate {
    uint8_t priority;
    bool not_granted;
    bool waits;  ///< And counts as that in the order.
    Rank rank;
    uint32_t index;  ///< Of running_ or waiting_.
    bool is_waiting;
    auto Key() const { return std::tuple(priority, not_granted, waits, rank, is_waiting, index); }
  };

  void CollectPrompts(const StepFacts& facts) {
    candidates_.clear();
    const auto add = [&](const RequestView& view, uint32_t index, bool waits) {
      const Rank rank = rules_.rank != nullptr ? rules_.rank(view, facts) : Rank{};
      candidates_.push_back({view.priority, !view.granted, waits && !rules_.overtake, rank, index, waits});
    };
    for (uint32_t i = 0; i < running_.size(); ++i) {
      if (Kept(i) && !IsDecode(running_[i]) && !Rests(running_[i])) add(running_[i], i, false);
    }
    for (uint32_t i = 0; i < waiting_.size(); ++i) {
      if (!Rests(waiting_[i])) add(waiting_[i], i, true);
    }
    std::ranges::sort(candidates_, {}, &Candidate::Key);
  }

  void AdvancePrompts(const StepFacts& facts) {
    CollectPrompts(facts);
    first_prompt_ = true;
    for (const Candidate& candidate : candidates_) {
      if (limit_.prompts == 0 || limit_.step_tokens == 0) return;
      if (candidate.is_waiting) {
        if (admitting_) admitting_ = Admit(waiting_[candidate.index]);
      } else if (Kept(candidate.index) && MakePart(running_[candidate.index])) {
        AdvanceRunning(candidate.index, ChunkOf(running_[candidate.index]));
      }
    }
  }

  /// Of a prompt in this step; 0 = it has no part in it.
  uint32_t ChunkOf(const RequestView& view) const {
    const uint32_t most = std::min({ToCompute(view), limit_.request_tokens, limit_.step_tokens, left_.tokens_max});
    if ((work_.tokens == 0 && !IsBounded(view)) || InTime(view, most)) return most;
    uint32_t fits = 0;
    for (uint32_t below = most + 1; fits + 1 < below;) {
      const uint32_t tokens = fits + (below - fits) / 2;
      (InTime(view, tokens) ? fits : below) = tokens;
    }
    if (first_prompt_ && !IsBounded(view)) return std::max(fits, 1u);
    return fits >= std::min(most, left_.block_tokens) ? fits : 0;  // Crumbs of many prompts end none of them.
  }

  // Memory.

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

  void Take(const RequestView& view, uint32_t tokens) {
    left_.blocks_free -= BlocksFor(view, tokens);
    left_.tokens_max -= tokens;
    --left_.requests_max;
    work_.Add(tokens, view.context_tokens, tokens == ToCompute(view));
    decision_->advance.push_back({view.id, tokens});
    if (IsDecode(view)) return;
    limit_.step_tokens -= std::min(tokens, limit_.step_tokens);
    if (limit_.prompts != UINT32_MAX) --limit_.prompts;
    first_prompt_ = false;
  }

  void AdvanceRunning(uint32_t i, uint32_t tokens) {
    const RequestView& view = running_[i];
    tokens = std::min(tokens, left_.tokens_max);
    if (tokens == 0 || left_.requests_max == 0) return;
    while (BlocksFor(view, tokens) > left_.blocks_free) {
      admitting_ = false;  // Memory is short.
      if (kept_ == place_[i] + 1) {
        if (place_[i] > 0) return PreemptLast();
        tokens = Fitting(view, tokens);  // Alone and still short: as far as it goes.
        if (tokens == 0) return;
        break;
      }
      PreemptLast();
    }
    committed_ -= BlocksFor(view, tokens);
    Take(view, tokens);
  }

  /// Takes the last of the running requests that are kept off, with what this step had planned for it.
  void PreemptLast() {
    const RequestView& view = running_[order_[--kept_]];
    decision_->preempt.push_back(view.id);
    left_.blocks_free += view.blocks_own;
    committed_ -= BlocksFor(view, Missing(view));
    const auto planned = std::ranges::find(decision_->advance, view.id, &Advance::request);
    if (planned == decision_->advance.end()) return;
    left_.blocks_free += BlocksFor(view, planned->tokens);
    committed_ += BlocksFor(view, planned->tokens);
    left_.tokens_max += planned->tokens;
    ++left_.requests_max;
    decision_->advance.erase(planned);
  }

  /// The least urgent running request gives way to this one. @return false when none is less urgent.
  bool PreemptFor(const RequestView& view) {
    if (kept_ == 0 || running_[order_[kept_ - 1]].priority <= view.priority) return false;
    PreemptLast();
    return true;
  }

  /// A part in the step, at the cost of less urgent requests when it is full. @return false when it stays full.
  bool MakePart(const RequestView& view) {
    while (left_.requests_max == 0 || left_.tokens_max == 0) {
      if (!PreemptFor(view)) return false;
    }
    return true;
  }

  /// Is there a place and memory for it, or would there be without those that are less urgent?
  bool HasRoom(const RequestView& view) const {
    size_t kept = kept_;
    int64_t free = left_.blocks_free - committed_;
    for (; kept > 0 && running_[order_[kept - 1]].priority > view.priority; --kept) {
      const RequestView& other = running_[order_[kept - 1]];
      free += int64_t{other.blocks_own} + BlocksFor(other, Missing(other));
    }
    return kept + admitted_ < places_ && BlocksFor(view, Missing(view)) <= free;
  }

  /// @return whether the next one may be admitted.
  bool Admit(const RequestView& view) {
    const bool alone = kept_ == 0 && decision_->advance.empty();
    if (!alone && !HasRoom(view)) return false;
    while (kept_ + admitted_ >= places_) {
      if (!PreemptFor(view)) return false;
    }
    if (!MakePart(view)) return false;
    uint32_t tokens = ChunkOf(view);
    if (tokens == 0) return false;
    // The whole known text must fit beside the others, or the request would be preempted before its first token. Who is
    // alone starts all the same: nothing else would ever give it room.
    while (BlocksFor(view, Missing(view)) + committed_ > left_.blocks_free) {
      if (PreemptFor(view)) continue;
      tokens = Fitting(view, tokens);
      if (alone && tokens > 0) Take(view, tokens);
      return false;
    }
    committed_ += BlocksFor(view, Missing(view)) - BlocksFor(view, tokens);
    Take(view, tokens);
    ++admitted_;
    return true;
  }

  const Rules rules_;
  const PolicyOptions options_;
  // Of one decision; the vectors keep their capacity.
  std::span<const RequestView> running_, waiting_;
  StepBudget left_;
  StepWork work_;
  StepLimit limit_;
  StepDecision* decision_ = nullptr;
  bool admitting_ = true, first_prompt_ = true;
  double background_ns_ = kUnbounded;  ///< Predicted time of a step with background work in it; 0 = that rests.
  std::vector<uint32_t> order_;        ///< Of the running requests: the last one gives way first.
  std::vector<uint32_t> place_;        ///< In the order, of each running request.
  size_t kept_ = 0;                    ///< Those that are not preempted: the first kept_ of the order.
  size_t admitted_ = 0;
  size_t places_ = 0;      ///< Of requests that run at once, whether or not this step has a part of them.
  int64_t committed_ = 0;  ///< Blocks that the known texts of those who run will still need after this step.
  std::vector<Candidate> candidates_;
  uint8_t urgent_ = 0;  ///< Priority of the most urgent decodes.
};

}  // namespace

bool IsDecode(const RequestView& view) {
  return ToCompute(view) == 1 || (view.output_tokens > 0 && ToCompute(view) <= kDecodeTokensMax);
}

double WithoutErrors(double ns, const StepCost& cost) {
  return ns / (1 + kMargin * std::min(cost.error_ratio, 0.5));
}

std::unique_ptr<SchedulerPolicy> NewComposedPolicy(const Rules& rules, const PolicyOptions& options) {
  return std::make_unique<ComposedPolicy>(rules, options);
}

double RemainingPromptNs(const RequestView& view, const StepFacts& facts) {
  return facts.budget.cost.PromptNs(ToCompute(view), view.context_tokens);
}

}  // namespace kvist::sched
