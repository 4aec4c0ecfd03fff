#include <gtest/gtest.h>

#include "sched/policy_testutil.h"

namespace kvist::sched {
namespace {

TEST(FcfsPolicy, PromptsTakeTheStepAndDecodesWait) {
  auto policy = NewFcfsPolicy({.chunk_tokens_max = 16});
  StepDecision decision;
  std::vector<RequestView> running{View(1, 33, 32), View(2, 500, 100)}, waiting{View(3, 40, 0)};
  policy->Decide(running, waiting, kBudget, TimeNs{0}, decision);
  EXPECT_EQ(IdsOf(decision), std::vector<uint64_t>{2});
  EXPECT_EQ(TokensOf(decision, 2), 64u);
  running[1].tokens_computed = 480;  // Its last tokens leave room for the next prompt and the decode.
  running[1].blocks_held = 30;
  policy->Decide(running, waiting, kBudget, TimeNs{0}, decision);
  EXPECT_EQ(IdsOf(decision), (std::vector<uint64_t>{2, 3, 1}));
}

/// The stall grows with the prompts; that of chunked does not.
TEST(FcfsPolicy, StallsDecodesWithoutBound) {
  const auto gap = [](SchedulerPolicy& policy, size_t prompts) {
    std::vector<PolicyWorld::Spec> specs{{.at_ns = 0, .prompt = 16, .output = 400}};
    specs.resize(1 + prompts, {.at_ns = 50'000'000, .prompt = 4000, .output = 1});
    return PolicyWorld(policy, 4096).Run(specs)[0].token_gap_max_ns;
  };
  auto fcfs = NewFcfsPolicy({}), chunked = NewChunkedPolicy({.chunk_tokens_max = 128});
  EXPECT_GT(gap(*fcfs, 8), 7 * gap(*fcfs, 1));
  EXPECT_LT(gap(*chunked, 8), gap(*fcfs, 8) / 20);
}

}  // namespace
}  // namespace kvist::sched
