// What holds for every policy.

#include "sched/policy.h"

#include <gtest/gtest.h>

#include <array>

#include "base/prng.h"
#include "sched/composed_policy.h"
#include "sched/policy_testutil.h"

namespace kvist::sched {
namespace {

class EveryPolicy : public testing::TestWithParam<PolicyEntry> {};

INSTANTIATE_TEST_SUITE_P(, EveryPolicy, testing::ValuesIn(Policies().begin(), Policies().end()), [](const auto& test) {
  std::string name(test.param.name);
  std::ranges::replace(name, '-', '_');
  return name;
});

RequestView RandomView(Prng& prng, uint64_t id, bool running) {
  const uint32_t known = 1 + static_cast<uint32_t>(prng.Below(200));
  const auto computed = static_cast<uint32_t>(!running ? 0 : prng.Below(4) == 0 ? prng.Below(known) : known - 1);
  RequestView view = View(id, known, computed);
  view.blocks_own = static_cast<uint32_t>(prng.Below(view.blocks_held + 1));
  view.granted = !running && prng.Below(4) == 0;
  if (!running) view.tokens_cached = view.context_tokens = static_cast<uint32_t>(prng.Below(known));
  view.tenant = TenantId{static_cast<uint32_t>(prng.Below(3))};
  view.tenant_received = 1000 * view.tenant.value;
  view.arrived_at = TimeNs{static_cast<int64_t>(prng.Below(1u << 30))};
  if (prng.Below(2) == 0) view.first_token_due = view.arrived_at + static_cast<int64_t>(prng.Below(1u << 30));
  if (prng.Below(2) == 0) view.next_token_due = TimeNs{static_cast<int64_t>(prng.Below(1u << 31))};
  view.output_tokens_predicted = static_cast<uint32_t>(prng.Below(300));
  view.output_tokens = static_cast<uint32_t>(prng.Below(300));
  view.prefix_group = prng.Below(4);
  view.priority = std::array<uint8_t, 3>{0, 100, kBackgroundPriority}[prng.Below(3)];
  return view;
}

/// Whatever the queues look like, the decision stays inside its budget, and somebody gets work when somebody can.
TEST_P(EveryPolicy, StaysInItsBudgetAndConservesWork) {
  auto policy = GetParam().make({.chunk_tokens_max = 32, .prefills_max = 2});
  Prng prng(7);
  StepDecision decision;
  for (int round = 0; round < 20000; ++round) {
    std::vector<RequestView> running, waiting;
    uint64_t id = 1;
    for (uint64_t n = prng.Below(10); n > 0; --n) running.push_back(RandomView(prng, id++, true));
    for (uint64_t n = prng.Below(10); n > 0; --n) waiting.push_back(RandomView(prng, id++, false));
    const StepBudget budget{.tokens_max = 1 + static_cast<uint32_t>(prng.Below(80)),
                            .requests_max = 1 + static_cast<uint32_t>(prng.Below(8)),
                            .blocks_free = static_cast<uint32_t>(prng.Below(30)),
                            .block_tokens = 16};
    policy->Decide(running, waiting, budget, TimeNs{1 << 30}, decision);
    ASSERT_EQ(FindFault(running, waiting, budget, decision), "") << "round " << round;
    for (const RequestId preempted : decision.preempt) {
      const auto view = std::ranges::find(running, preempted, &RequestView::id);
      for (const RequestView& other : running) {
        const bool kept = std::ranges::find(decision.preempt, other.id) == decision.preempt.end();
        ASSERT_FALSE(kept && other.priority > view->priority) << "a less urgent one was kept in round " << round;
      }
    }
    if (budget.blocks_free >= 13 && !(running.empty() && waiting.empty())) {
      ASSERT_FALSE(decision.advance.empty()) << "round " << round;
    }
  }
}

/// Mixed requests in a pool that holds few of them: all end, though some are preempted on the way.
TEST_P(EveryPolicy, EverybodyEndsWhenMemoryIsShort) {
  Prng prng(11);
  std::vector<PolicyWorld::Spec> specs;
  for (int64_t i = 0; i < 300; ++i) {
    specs.push_back({.at_ns = i * 30'000'000,
                     .prompt = 1 + static_cast<uint32_t>(prng.Below(600)),
                     .output = 1 + static_cast<uint32_t>(prng.Below(200)),
                     .tenant = static_cast<uint32_t>(prng.Below(3)),
                     .priority = static_cast<uint8_t>(prng.Below(2) * 100)});
  }
  auto policy = GetParam().make({.chunk_tokens_max = 128});
  const auto outcomes = PolicyWorld(*policy, /*blocks=*/64).Run(specs);
  uint32_t preemptions = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    ASSERT_GT(outcomes[i].end_ns, 0) << "request " << i;
    preemptions += outcomes[i].preemptions;
  }
  EXPECT_GT(preemptions, 0u) << "the pool is too large for this test";
}

/// A long prompt in a stream of short requests that would keep the machine busy for ever gets its turn.
TEST_P(EveryPolicy, NobodyStarves) {
  // prefix-batch looks at what came in the same ten minutes as a whole; for the others it is a matter of seconds.
  const int64_t bound_ns = (GetParam().name == "prefix-batch" ? 620ll : 60ll) * 1'000'000'000;
  constexpr size_t kLong = 100;
  std::vector<PolicyWorld::Spec> specs;
  for (int64_t at = 0; at < 2 * bound_ns; at += 90'000'000) specs.push_back({.at_ns = at, .prompt = 64, .output = 24});
  specs.insert(specs.begin() + kLong, {.at_ns = specs[kLong].at_ns, .prompt = 4000, .output = 4});
  auto policy = GetParam().make({.chunk_tokens_max = 256});
  const auto outcomes = PolicyWorld(*policy, /*blocks=*/4096, 512, /*requests_max=*/8).Run(specs);
  const int64_t wait = outcomes[kLong].first_token_ns - specs[kLong].at_ns;
  EXPECT_GT(wait, 0);
  EXPECT_LT(wait, bound_ns);
}

/// What is cached of a waiting prompt takes memory, but no time.
TEST_P(EveryPolicy, ACachedPromptTakesNoMoreOfAStepThanItHasLeft) {
  auto policy = GetParam().make({.chunk_tokens_max = 64});
  std::vector<RequestView> waiting{View(1, 1000, 0), View(2, 60, 0)};
  waiting[0].tokens_cached = waiting[0].context_tokens = 990;
  StepDecision decision;
  policy->Decide({}, waiting, kBudget, TimeNs{0}, decision);
  EXPECT_GE(TokensOf(decision, 1), 1u);
  EXPECT_LE(TokensOf(decision, 1), 10u);
  StepBudget small = kBudget;
  small.blocks_free = 40;  // Its text has 63.
  std::vector<RequestView> running{View(3, 33, 32)};
  policy->Decide(running, waiting, small, TimeNs{0}, decision);
  EXPECT_EQ(TokensOf(decision, 1), 0u);
  waiting[0].blocks_held = 61;  // Others hold those.
  policy->Decide(running, waiting, small, TimeNs{0}, decision);
  EXPECT_GE(TokensOf(decision, 1), 1u);
  EXPECT_LE(TokensOf(decision, 1), 10u);
}

TEST_P(EveryPolicy, WhoWasLetInBeforeGoesFirst) {
  auto policy = GetParam().make({.chunk_tokens_max = 64});
  std::vector<RequestView> waiting{View(1, 60, 0), View(2, 600, 0)};
  waiting[1].granted = true;
  waiting[1].tenant_received = 1000;
  waiting[1].arrived_at = TimeNs{1'000'000'000};
  StepDecision decision;
  policy->Decide({}, waiting, kBudget, TimeNs{0}, decision);
  ASSERT_FALSE(decision.advance.empty());
  EXPECT_EQ(decision.advance.front().request, RequestId{2});
}

TEST_P(EveryPolicy, AnUrgentRequestTakesThePlaceOfALessUrgentOne) {
  auto policy = GetParam().make({});
  std::vector<RequestView> running, waiting{View(9, 40, 0)};
  for (uint64_t id = 1; id <= 8; ++id) {
    running.push_back(View(id, 33, 32));
    running.back().priority = id == 3 ? 200 : 128;
  }
  waiting[0].priority = 128;
  StepDecision decision;
  policy->Decide(running, waiting, kBudget, TimeNs{0}, decision);
  EXPECT_EQ(decision.preempt, std::vector<RequestId>{RequestId{3}});
  EXPECT_GE(TokensOf(decision, 9), 1u);
  waiting[0].priority = 200;  // As urgent as the least urgent: it waits.
  policy->Decide(running, waiting, kBudget, TimeNs{0}, decision);
  EXPECT_TRUE(decision.preempt.empty());
  EXPECT_EQ(TokensOf(decision, 9), 0u);
}

/// A batch costs those who are urgent its turns and the step that runs when they come, no more; and it goes on.
TEST_P(EveryPolicy, BackgroundWorkRestsWhileOthersAreServedAndEndsAllTheSame) {
  using Spec = PolicyWorld::Spec;
  const auto outcomes = [&](bool with_batch) {
    auto policy = GetParam().make({.chunk_tokens_max = 32, .prefills_max = 2});
    std::vector<Spec> specs;
    for (int i = 0; i < 8 && with_batch; ++i)
      specs.push_back({.prompt = 64, .output = 100, .priority = kBackgroundPriority});
    for (int i = 0; i < 200; ++i)
      specs.push_back({.at_ns = 100'000'000 + i * 60'000'000LL, .prompt = 20, .output = 40});
    return PolicyWorld(*policy, /*blocks=*/1000).Run(specs);
  };
  const std::vector<PolicyWorld::Outcome> alone = outcomes(false), both = outcomes(true);
  const size_t batch = both.size() - alone.size();
  double alone_ns = 0, both_ns = 0;
  for (size_t i = 0; i < alone.size(); ++i) {
    const auto came = 100'000'000 + static_cast<int64_t>(i) * 60'000'000;
    alone_ns += static_cast<double>(alone[i].end_ns - came);
    both_ns += static_cast<double>(both[batch + i].end_ns - came);
  }
  EXPECT_LT(both_ns, 1.25 * alone_ns);
  for (size_t i = 0; i < batch; ++i) EXPECT_GE(both[i].end_ns, 0) << "it ends";
}

/// Outside its turns background work is in a step only where every other request decodes under a deadline, and the step
/// is expected to end before the first of these.
TEST_P(EveryPolicy, BackgroundWorkHasWhatDeadlinesLeave) {
  auto policy = GetParam().make({.chunk_tokens_max = 32, .prefills_max = 2});
  Prng prng(13);
  const TimeNs now{1'500'000'000};
  StepDecision decision;
  int beside = 0, resting = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<RequestView> running, waiting;
    uint64_t id = 1;
    for (uint64_t n = 1 + prng.Below(6); n > 0; --n) {  // Mostly such that some may be beside others.
      running.push_back(RandomView(prng, id++, true));
      RequestView& view = running.back();
      if (view.priority == kBackgroundPriority) continue;
      if (prng.Below(8) > 0) view.tokens_computed = view.context_tokens = view.tokens_known - 1;
      if (prng.Below(8) > 0) view.next_token_due = now + static_cast<int64_t>(prng.Below(60'000'000));
    }
    for (uint64_t n = prng.Below(3); n > 0; --n) {
      waiting.push_back(RandomView(prng, id++, false));
      if (prng.Below(8) > 0) waiting.back().priority = kBackgroundPriority;
    }
    const StepBudget budget{.tokens_max = 64, .requests_max = 8, .blocks_free = 200, .block_tokens = 16};
    policy->Decide(running, waiting, budget, now, decision);
    ASSERT_EQ(FindFault(running, waiting, budget, decision), "") << "round " << round;
    StepWork work;
    bool background = false, others = false, reads = false;
    TimeNs due = kTimeNever;
    const auto look = [&](const RequestView& view) {
      const uint32_t tokens = TokensOf(decision, view.id.value);
      if (tokens > 0) work.Add(tokens, view.context_tokens, tokens == view.tokens_known - view.tokens_computed);
      if (view.priority == kBackgroundPriority) {
        background |= tokens > 0;
        return;
      }
      others = true;
      reads |= !IsDecode(view) || view.next_token_due == kTimeNever;
      due = std::min(due, view.next_token_due);
    };
    for (const RequestView& view : running) look(view);
    for (const RequestView& view : waiting) {
      look(view);
      reads |= view.priority != kBackgroundPriority;
    }
    if (!others) continue;
    ++(background ? beside : resting);
    if (!background) continue;
    ASSERT_FALSE(reads) << "round " << round;
    ASSERT_LE(budget.cost.Ns(work), static_cast<double>(due - now)) << "round " << round;
  }
  EXPECT_GT(beside, 1000);
  EXPECT_GT(resting, 1000);
}

/// Some people at a time, and always somebody, on a machine that has room for more: each token of theirs comes within
/// 50 ms, and the batch goes on by many times what its turns alone would give it.
TEST(BackgroundWork, GoesOnBesideTokensThatComeInTime) {
  constexpr int64_t kWishedNs = 50'000'000, kSecond = 1'000'000'000;
  const auto batch_tokens_per_s = [&](int64_t wished_ns, int64_t* gap_max) {
    auto policy = NewFairDeadlinePolicy({});
    std::vector<PolicyWorld::Spec> specs;
    for (int i = 0; i < 300; ++i) {
      specs.push_back({.prompt = 64, .output = 50, .priority = kBackgroundPriority});
    }
    const size_t batch = specs.size();
    for (int64_t i = 0; i < 200; ++i) {
      specs.push_back(
          {.at_ns = 100'000'000 + i * kSecond / 2, .prompt = 24, .output = 300, .next_token_ns = wished_ns});
    }
    const auto outcomes = PolicyWorld(*policy, /*blocks=*/1000).Run(specs);
    int64_t last = 0;
    for (size_t i = batch; i < outcomes.size(); ++i) {
      last = std::max(last, outcomes[i].end_ns);
      *gap_max = std::max(*gap_max, outcomes[i].token_gap_max_ns);
    }
    const auto meanwhile = std::count_if(outcomes.begin(), outcomes.begin() + static_cast<std::ptrdiff_t>(batch),
                                         [&](const PolicyWorld::Outcome& one) { return one.end_ns <= last; });
    return static_cast<double>(meanwhile * 50) / (static_cast<double>(last) * 1e-9);
  };
  int64_t gap_bound = 0, gap_free = 0;
  const double with_deadlines = batch_tokens_per_s(kWishedNs, &gap_bound), without = batch_tokens_per_s(0, &gap_free);
  EXPECT_LE(gap_bound, kWishedNs);
  EXPECT_GT(with_deadlines, 5 * without);
  RecordProperty("batch_tokens_per_s", std::to_string(with_deadlines));
  RecordProperty("batch_tokens_per_s_without_deadlines", std::to_string(without));
}

TEST(Policies, AreFoundByName) {
  EXPECT_EQ(FindPolicy("nobody"), nullptr);
  ASSERT_NE(FindPolicy(kDefaultPolicy), nullptr);
  for (const PolicyEntry& entry : Policies()) {
    EXPECT_EQ(FindPolicy(entry.name)->make({})->Name(), entry.name);
  }
}

TEST(FindFault, NamesEachKindOfFault) {
  std::vector<RequestView> running{View(1, 10, 5)}, waiting{View(2, 10, 0)};
  auto fault = [&](const StepDecision& decision, StepBudget budget = kBudget) {
    return FindFault(running, waiting, budget, decision);
  };
  EXPECT_EQ(fault({.advance = {{RequestId{1}, 5}}}), "");
  EXPECT_NE(fault({.advance = {{RequestId{1}, 6}}}), "");
  EXPECT_NE(fault({.advance = {{RequestId{1}, 0}}}), "");
  EXPECT_NE(fault({.advance = {{RequestId{9}, 1}}}), "");
  EXPECT_NE(fault({.advance = {{RequestId{1}, 1}, {RequestId{1}, 1}}}), "");
  EXPECT_NE(fault({.advance = {{RequestId{1}, 1}}, .preempt = {RequestId{1}}}), "");
  EXPECT_NE(fault({.preempt = {RequestId{2}}}), "");
  EXPECT_NE(fault({.advance = {{RequestId{2}, 10}}},
                  {.tokens_max = 9, .requests_max = 8, .blocks_free = 9, .block_tokens = 16}),
            "");
  EXPECT_NE(fault({.advance = {{RequestId{2}, 1}}},
                  {.tokens_max = 9, .requests_max = 0, .blocks_free = 9, .block_tokens = 16}),
            "");
  EXPECT_NE(fault({.advance = {{RequestId{2}, 1}}},
                  {.tokens_max = 9, .requests_max = 8, .blocks_free = 0, .block_tokens = 16}),
            "");
}

}  // namespace
}  // namespace kvist::sched
