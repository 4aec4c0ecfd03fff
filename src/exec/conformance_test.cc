// What step::Executor promises, asked of every executor: one suite, run on the CPU with a small model, on an emulated
// device with none, and on one whose tokens are the small model's.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "device/device_file.h"
#include "exec/cpu/executor_testutil.h"
#include "exec/emulated/emulated_executor.h"

namespace kvist::exec {
namespace {

constexpr uint32_t kTokensMax = 64, kSlicesMax = 8, kContextMax = 256;

/// An executor with the memory that plans for it name.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual step::Executor& executor() = 0;
  virtual kv::KvMemory& memory() = 0;
};

class SmallModel {
 public:
  explicit SmallModel(const Clock& clock)
      : model_(ValueOrDie(model::LoadModel(KVIST_SOURCE_DIR "/models/default-q8_0.gguf"))),
        memory_({.frames_count = 256, .layout = LayoutOf(model_->spec, KvType::kF16), .reuse = false}),
        clock_(clock) {}
  std::unique_ptr<step::Executor> MakeExecutor() {
    return ValueOrDie(CpuExecutor::Create(model_,
                                          {.threads = 2,
                                           .isa = kernels::BestIsa(),
                                           .tokens_per_step_max = kTokensMax,
                                           .slices_per_step_max = kSlicesMax,
                                           .context_tokens_max = kContextMax,
                                           .frames_count = 256},
                                          memory_.spans(), clock_));
  }
  kv::KvMemory& memory() { return memory_; }

 private:
  std::shared_ptr<const model::Model> model_;
  kv::KvMemory memory_;
  const Clock& clock_;
};

cost::StepModel SmallDevice() {
  const device::Catalog catalog(KVIST_SOURCE_DIR "/devices");
  return ValueOrDie(cost::StepModel::Create(
      {.device = ValueOrDie(catalog.FindDevice("l4")), .shape = ValueOrDie(cost::FindModelShape("llama-3.2-1b"))}));
}

class CpuSubject final : public Subject {
 public:
  step::Executor& executor() override { return *executor_; }
  kv::KvMemory& memory() override { return model_.memory(); }

 private:
  RealClock clock_;
  SmallModel model_{clock_};
  std::unique_ptr<step::Executor> executor_ = model_.MakeExecutor();
};

class EmulatedSubject final : public Subject {
 public:
  EmulatedSubject() : memory_({.frames_count = 256, .reuse = false}) {
    EmulatedOptions emulated{.limits = {.tokens_per_step_max = kTokensMax,
                                        .slices_per_step_max = kSlicesMax,
                                        .block_tokens = kv::kBlockTokens,
                                        .vocab_size = 1000,
                                        .hidden_size = 24,
                                        .context_tokens_max = kContextMax},
                             .real_time = true};
    for (uint32_t token = 10; token < 200; ++token) emulated.tokens.alphabet.push_back(TokenId{token});
    executor_ = std::make_unique<EmulatedExecutor>(SmallDevice(), std::move(emulated), clock_);
  }
  step::Executor& executor() override { return *executor_; }
  kv::KvMemory& memory() override { return memory_; }

 private:
  RealClock clock_;
  kv::KvMemory memory_;
  std::unique_ptr<EmulatedExecutor> executor_;
};

class EmulatedWithModelSubject final : public Subject {
 public:
  step::Executor& executor() override { return executor_; }
  kv::KvMemory& memory() override { return model_.memory(); }

 private:
  RealClock clock_;
  SmallModel model_{clock_};
  EmulatedExecutor executor_{SmallDevice(), {.real_time = true}, clock_, model_.MakeExecutor()};
};

class Conformance : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    if (GetParam() == "cpu") {
      subject_ = std::make_unique<CpuSubject>();
    } else if (GetParam() == "emulated_with_model") {
      subject_ = std::make_unique<EmulatedWithModelSubject>();
    } else {
      subject_ = std::make_unique<EmulatedSubject>();
    }
  }
  step::Executor& executor() { return subject_->executor(); }

  /// A sequence that is computed in the test's own steps.
  struct Sequence {
    RequestId id;
    std::vector<TokenId> tokens;
    uint32_t computed = 0;
  };
  Sequence Begin(uint32_t tokens, uint64_t seed) {
    Sequence sequence{.id = RequestId{next_request_++}, .tokens = {}};
    for (uint32_t i = 0; i < tokens; ++i) {
      sequence.tokens.push_back(TokenId{static_cast<uint32_t>(Mix64(seed ^ Mix64(i)) % 500)});
    }
    subject_->memory().Begin(sequence.id, 0, sequence.tokens);
    return sequence;
  }
  /// Adds a slice of the next `count` tokens.
  step::Slice& Add(step::StepPlan& plan, Sequence& sequence, uint32_t count, bool sample) {
    EXPECT_TRUE(subject_->memory().Reserve(sequence.id, sequence.computed + count));
    step::Slice slice{.request = sequence.id,
                      .position = sequence.computed,
                      .tokens_begin = static_cast<uint32_t>(plan.tokens.size()),
                      .tokens_count = count,
                      .segments_begin = static_cast<uint32_t>(plan.segments.size()),
                      .tail = subject_->memory().SpanOf(sequence.id),
                      .tail_begin = subject_->memory().TailTokens(sequence.id),
                      .commit_count = count};
    subject_->memory().AppendView(sequence.id, count, plan.segments);
    slice.segments_count = static_cast<uint32_t>(plan.segments.size()) - slice.segments_begin;
    for (uint32_t i = 0; i < count; ++i) plan.tokens.push_back({.known = sequence.tokens[sequence.computed + i]});
    if (sample) slice.sampling = step::Sampling{.temperature = 0};
    plan.slices.push_back(slice);
    return plan.slices.back();
  }
  void Commit(Sequence& sequence, uint32_t count) {
    subject_->memory().Commit(sequence.id, std::span(sequence.tokens).subspan(sequence.computed, count));
    sequence.computed += count;
  }
  step::StepResult Wait() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < end) {
      absl::StatusOr<std::optional<step::StepResult>> result = executor().Poll();
      EXPECT_TRUE(result.ok()) << result.status();
      if (result.ok() && result->has_value()) return *std::move(*result);
      std::this_thread::yield();
    }
    ADD_FAILURE() << "no result";
    return {};
  }
  step::StepResult Run(step::StepPlan plan) {
    plan.id = StepId{next_step_++};
    const absl::Status status = executor().Submit(std::move(plan));
    EXPECT_TRUE(status.ok()) << status;
    return Wait();
  }
  /// Greedy continuation of a text whose prompt is read in chunks.
  std::vector<TokenId> Continue(Sequence sequence, uint32_t chunk, uint32_t output) {
    std::vector<TokenId> sampled;
    while (sampled.size() < output) {
      const auto count = std::min<uint32_t>(chunk, static_cast<uint32_t>(sequence.tokens.size()) - sequence.computed);
      const bool last = sequence.computed + count == sequence.tokens.size();
      step::StepPlan plan;
      Add(plan, sequence, count, last);
      const step::StepResult result = Run(std::move(plan));
      Commit(sequence, count);
      if (!last) continue;
      EXPECT_EQ(result.sampled.size(), 1u);
      sampled.push_back(result.sampled.front());
      sequence.tokens.push_back(sampled.back());
    }
    subject_->memory().End(sequence.id);
    return sampled;
  }

  std::unique_ptr<Subject> subject_;
  uint64_t next_request_ = 1, next_step_ = 0;
};

TEST_P(Conformance, SaysWhatItIs) {
  const step::ExecutorLimits& limits = executor().Limits();
  EXPECT_FALSE(executor().Name().empty());
  EXPECT_EQ(limits.tokens_per_step_max, kTokensMax);
  EXPECT_EQ(limits.slices_per_step_max, kSlicesMax);
  EXPECT_EQ(limits.context_tokens_max, kContextMax);
  EXPECT_EQ(limits.block_tokens, kv::kBlockTokens);
  EXPECT_GT(limits.vocab_size, 500u);
  EXPECT_GE(limits.steps_in_flight_max, 1u);
}

TEST_P(Conformance, APlanComesBackWithItsResultAndItsTimes) {
  Sequence sequence = Begin(20, 1);
  step::StepPlan plan;
  Add(plan, sequence, 20, true);
  const step::StepResult result = Run(std::move(plan));
  EXPECT_EQ(result.id, StepId{0});
  ASSERT_EQ(result.plan.slices.size(), 1u);
  EXPECT_EQ(result.plan.tokens.size(), 20u);
  EXPECT_EQ(result.sampled.size(), 1u);
  EXPECT_LT(result.sampled[0].value, executor().Limits().vocab_size);
  EXPECT_LT(result.started_at, result.finished_at);
  EXPECT_GT(result.bytes_moved, 0u);
  EXPECT_GT(result.kv_bytes_read, 0u);
  EXPECT_TRUE(result.missing.empty());
}

TEST_P(Conformance, NothingIsThereBeforeSomethingWasAskedFor) {
  absl::StatusOr<std::optional<step::StepResult>> result = executor().Poll();
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->has_value());
  EXPECT_FALSE(executor().NextCompletion().has_value());
}

TEST_P(Conformance, AFullWindowIsUnavailableAndKeepsThePlan) {
  Sequence a = Begin(30, 1), b = Begin(30, 2);
  step::StepPlan first, second;
  Add(first, a, 30, true);
  Add(second, b, 30, true);
  ASSERT_EQ(executor().Limits().steps_in_flight_max, 1u);
  ASSERT_TRUE(executor().Submit(std::move(first)).ok());
  EXPECT_TRUE(absl::IsUnavailable(executor().Submit(std::move(second))));
  EXPECT_EQ(second.tokens.size(), 30u);
  Wait();
  EXPECT_EQ(Run(std::move(second)).plan.tokens.size(), 30u);
}

TEST_P(Conformance, PlansOutsideOfTheLimitsAreRefusedAndNothingRuns) {
  Sequence large = Begin(kTokensMax + 1, 1);
  step::StepPlan plan;
  Add(plan, large, kTokensMax + 1, true);
  EXPECT_TRUE(absl::IsInvalidArgument(executor().Submit(std::move(plan))));
  step::StepPlan many;
  std::vector<Sequence> sequences;
  for (uint32_t i = 0; i <= kSlicesMax; ++i) sequences.push_back(Begin(2, i));
  for (Sequence& sequence : sequences) Add(many, sequence, 1, true);
  EXPECT_TRUE(absl::IsInvalidArgument(executor().Submit(std::move(many))));
  Sequence small = Begin(4, 5);
  step::StepPlan copying;
  Add(copying, small, 4, true);
  copying.copies.push_back({.page = PageId{1}, .source_tier = 2, .target_tier = 0, .needed_by_layer = 0});
  EXPECT_TRUE(absl::IsInvalidArgument(executor().Submit(std::move(copying))));
  Sequence strange = Begin(4, 6);
  step::StepPlan unknown;
  Add(unknown, strange, 4, true);
  unknown.tokens[2].known = TokenId{executor().Limits().vocab_size};
  EXPECT_TRUE(absl::IsInvalidArgument(executor().Submit(std::move(unknown))));
  EXPECT_FALSE(executor().Poll()->has_value());
}

TEST_P(Conformance, AViewLongerThanTheContextIsRefused) {
  Sequence sequence = Begin(kContextMax + 1, 3);
  for (uint32_t done = 0; done < kContextMax; done += kTokensMax) {
    step::StepPlan plan;
    Add(plan, sequence, kTokensMax, false);
    Run(std::move(plan));
    Commit(sequence, kTokensMax);
  }
  step::StepPlan plan;
  Add(plan, sequence, 1, true);
  EXPECT_TRUE(absl::IsInvalidArgument(executor().Submit(std::move(plan))));
}

TEST_P(Conformance, OutputsHaveTheShapesThatWereAskedFor) {
  Sequence a = Begin(20, 1), b = Begin(9, 2), c = Begin(12, 3);
  step::StepPlan plan;
  step::Slice& scored = Add(plan, a, 20, true);
  scored.sampling->want_logprobs = true;
  scored.sampling->logprobs_count = 3;
  scored.scores_count = 5;
  scored.scores_row = 9;
  scored.scores_top = 2;
  for (uint32_t i = 0; i < 5; ++i) plan.score_targets.push_back(TokenId{i});
  scored.mass_count = 2;
  plan.mass_ranges = {{0, 7}, {7, 20}};
  Add(plan, b, 9, false).logits_rows = 2;
  Add(plan, c, 12, false).want_hidden = true;
  const step::StepResult result = Run(std::move(plan));
  const step::ExecutorLimits& limits = executor().Limits();
  EXPECT_EQ(result.sampled.size(), 1u);
  ASSERT_EQ(result.logprobs.size(), 4u);
  EXPECT_EQ(result.logprobs[0].token, result.sampled[0]);
  EXPECT_EQ(result.logprobs[1].token, result.sampled[0]) << "greedy: the best alternative is what was chosen";
  for (const step::TokenLogprob& entry : result.logprobs) EXPECT_LE(entry.logprob, 0);
  ASSERT_EQ(result.scores.size(), 5u);
  for (const float score : result.scores) EXPECT_LT(score, 0);
  ASSERT_EQ(result.score_tops.size(), 10u);
  for (size_t i = 0; i < 10; i += 2) {
    EXPECT_GE(result.score_tops[i].logprob, result.score_tops[i + 1].logprob);
    EXPECT_GE(result.score_tops[i].logprob, result.scores[i / 2]);
  }
  EXPECT_EQ(result.hidden.size(), limits.hidden_size);
  ASSERT_EQ(result.logits.size(), 2u * limits.vocab_size);
  ASSERT_EQ(result.range_mass.size(), 2u);
  EXPECT_NEAR(result.range_mass[0] + result.range_mass[1], 1, 1e-3);
}

TEST_P(Conformance, OnlyAllowedTokensAreSampled) {
  Sequence sequence = Begin(10, 4);
  const uint32_t words = (executor().Limits().vocab_size + 31) / 32;
  for (const uint32_t only : {0u, 37u, executor().Limits().vocab_size - 1}) {
    Sequence fresh = Begin(10, 4);
    step::StepPlan plan;
    Add(plan, fresh, 10, true).allowed_count = words;
    plan.allowed.assign(words, 0);
    plan.allowed[only / 32] = 1u << only % 32;
    EXPECT_EQ(Run(std::move(plan)).sampled.front(), TokenId{only});
  }
}

TEST_P(Conformance, ATextGoesOnInTheSameWayHoweverItIsComputed) {
  const std::vector<TokenId> whole = Continue(Begin(40, 7), 40, 12);
  EXPECT_EQ(Continue(Begin(40, 7), 7, 12), whole) << "chunks";
  // Beside others.
  Sequence sequence = Begin(40, 7), other = Begin(60, 8);
  std::vector<TokenId> sampled;
  while (sampled.size() < whole.size()) {
    const auto count = std::min<uint32_t>(20, static_cast<uint32_t>(sequence.tokens.size()) - sequence.computed);
    const bool last = sequence.computed + count == sequence.tokens.size();
    step::StepPlan plan;
    const bool beside = other.computed < 60;
    if (beside) Add(plan, other, 5, other.computed + 5 == 60);
    Add(plan, sequence, count, last);
    const step::StepResult result = Run(std::move(plan));
    if (beside) Commit(other, 5);
    Commit(sequence, count);
    if (!last) continue;
    sampled.push_back(result.sampled.back());
    sequence.tokens.push_back(sampled.back());
  }
  EXPECT_EQ(sampled, whole);
  EXPECT_NE(Continue(Begin(40, 9), 40, 12), whole) << "another text";
}

TEST_P(Conformance, WakesAndThenIsReady) {
  std::atomic<int> woken = 0;
  executor().SetWake([&] { ++woken; });
  Sequence sequence = Begin(30, 1);
  step::StepPlan plan;
  Add(plan, sequence, 30, true);
  ASSERT_TRUE(executor().Submit(std::move(plan)).ok());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (woken == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  ASSERT_EQ(woken, 1);
  absl::StatusOr<std::optional<step::StepResult>> result = executor().Poll();
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->has_value());
  executor().SetWake(nullptr);
}

TEST_P(Conformance, BuffersMayBeHandedBack) {
  Sequence sequence = Begin(30, 1);
  for (uint32_t i = 0; i < 5; ++i) {
    step::StepPlan plan;
    Add(plan, sequence, 6, i == 4).logits_rows = i % 2;
    step::StepResult result = Run(std::move(plan));
    Commit(sequence, 6);
    EXPECT_EQ(result.logits.size(), size_t{i % 2} * executor().Limits().vocab_size);
    EXPECT_EQ(result.sampled.size(), i == 4 ? 1u : 0u);
    step::StepPlan taken = std::move(result.plan);
    executor().Recycle(std::move(result));
  }
}

TEST(EmulatedWithModel, TakesTheTimeOfTheDeviceAndHasTheTokensOfTheModel) {
  const auto run = [](Subject& subject, int64_t& least_ns) {
    const std::vector<TokenId> prompt = {TokenId{7}, TokenId{300}, TokenId{42}};
    std::vector<TokenId> text = prompt;
    const RequestId id{1};
    subject.memory().Begin(id, 0, text);
    least_ns = INT64_MAX;
    for (uint32_t done = 0; text.size() < 20; done = static_cast<uint32_t>(text.size()) - 1) {
      const auto count = static_cast<uint32_t>(text.size()) - done;
      EXPECT_TRUE(subject.memory().Reserve(id, done + count));
      step::StepPlan plan{.id = StepId{done}};
      plan.slices.push_back({.request = id,
                             .position = done,
                             .tokens_count = count,
                             .tail = subject.memory().SpanOf(id),
                             .tail_begin = subject.memory().TailTokens(id),
                             .commit_count = count,
                             .sampling = step::Sampling{.temperature = 0.7f, .seed = 11}});
      subject.memory().AppendView(id, count, plan.segments);
      plan.slices.back().segments_count = static_cast<uint32_t>(plan.segments.size());
      for (uint32_t i = 0; i < count; ++i) plan.tokens.push_back({.known = text[done + i]});
      EXPECT_TRUE(subject.executor().Submit(std::move(plan)).ok());
      std::optional<step::StepResult> result;
      while (!result) result = ValueOrDie(subject.executor().Poll());
      subject.memory().Commit(id, std::span(text).subspan(done, count));
      text.push_back(result->sampled.front());
      least_ns = std::min(least_ns, result->finished_at - result->started_at);
    }
    subject.memory().End(id);
    return text;
  };
  int64_t alone_ns = 0, emulated_ns = 0;
  CpuSubject alone;
  EmulatedWithModelSubject emulated;
  EXPECT_EQ(run(emulated, emulated_ns), run(alone, alone_ns));
  cost::StepModel model = SmallDevice();
  const double host_ns = model.options().device.overheads.step_ns;
  EXPECT_GE(emulated_ns, static_cast<int64_t>(model.FloorNs(kTokensMax) - host_ns) - 1);
  EXPECT_GT(emulated_ns, alone_ns) << "a model of a billion weights, and one of eight million";
}

INSTANTIATE_TEST_SUITE_P(Executors, Conformance, testing::Values("cpu", "emulated", "emulated_with_model"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace kvist::exec
