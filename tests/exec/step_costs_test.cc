// What a step may not do once the executor is warm: take memory, or sleep inside. Counts calls of malloc in the whole
// process, and how often each thread went to sleep.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <semaphore>
#include <string>
#include <vector>

#include "base/check.h"
#include "exec/cpu/executor_testutil.h"

namespace {

std::atomic<bool> g_counts{false};
std::atomic<uint64_t> g_allocations{0};

void Count() {
  if (g_counts.load(std::memory_order_relaxed)) g_allocations.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

// The C library's own, under the names that it exports for replacements; its free takes what they return.
extern "C" {
void* __libc_malloc(size_t size);                      // NOLINT(bugprone-reserved-identifier)
void* __libc_calloc(size_t count, size_t size);        // NOLINT(bugprone-reserved-identifier)
void* __libc_realloc(void* old, size_t size);          // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(size_t alignment, size_t size);  // NOLINT(bugprone-reserved-identifier)

void* malloc(size_t size) noexcept {
  Count();
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) noexcept {
  Count();
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) noexcept {
  Count();
  return __libc_realloc(old, size);
}
void* memalign(size_t alignment, size_t size) noexcept {
  Count();
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) noexcept {
  return memalign(alignment, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) noexcept {
  *out = memalign(alignment, size);
  return *out == nullptr ? ENOMEM : 0;
}
}  // extern "C"

namespace kvist::exec {
namespace {

/// What the steps of a test are like.
struct Load {
  const char* name;
  uint32_t sequences;
  uint32_t tokens;  ///< Of each sequence in a step.
  step::Sampling sampling;
  bool counts = false;  ///< Penalties look at a history.
  uint32_t depth = 0;   ///< Tokens of each sequence before the first step that is looked at.
  bool mass = false;    ///< Attention mass of two parts of each view is wanted.
};

constexpr uint32_t kHistory = 64;     ///< Different tokens of it.
constexpr uint32_t kTokensMax = 128;  ///< Of a step.
constexpr uint32_t kContext = 1024;

/// Sequences of one executor, which step after step go on by some tokens. Steps reuse all buffers, as an engine does.
class Stepper {
 public:
  Stepper(const std::string& path, const TestExecutor::Options& options, const Load& load)
      : executor_(path, options), load_(load) {
    executor_.executor().SetWake([this] { finished_.release(); });
    for (uint32_t i = 0; i < load.sequences; ++i) executor_.memory().Begin(RequestId{i + 1}, 0, {});
    while (done_ < load.depth) Step(std::min(load.depth - done_, kTokensMax / load.sequences));
  }

  uint64_t Step() { return Step(load_.tokens); }

  /// @return calls of malloc between the plan's submission and the return of its buffers.
  uint64_t Step(uint32_t tokens) {
    BuildPlan(tokens);
    g_allocations = 0;
    g_counts = true;
    absl::Status submitted = executor_.executor().Submit(std::move(plan_));
    KVIST_CHECK(submitted.ok());
    finished_.acquire();
    absl::StatusOr<std::optional<step::StepResult>> result = executor_.executor().Poll();
    KVIST_CHECK(result.ok() && result->has_value());
    plan_ = std::move((*result)->plan);
    executor_.executor().Recycle(**std::move(result));
    g_counts = false;
    const std::vector<TokenId> committed(tokens);
    for (uint32_t i = 0; i < load_.sequences; ++i) executor_.memory().Commit(RequestId{i + 1}, committed);
    done_ += tokens;
    return g_allocations;
  }

 private:
  void BuildPlan(uint32_t tokens) {
    plan_.Clear();
    for (uint32_t i = 0; i < load_.sequences; ++i) {
      const RequestId id{i + 1};
      KVIST_CHECK(executor_.memory().Reserve(id, done_ + tokens));
      const SpanId span = executor_.memory().SpanOf(id);
      step::Slice slice{.request = id,
                        .position = done_,
                        .tokens_begin = i * tokens,
                        .tokens_count = tokens,
                        .segments_begin = i,
                        .segments_count = 1,
                        .tail = span,
                        .tail_begin = done_,
                        .commit_count = tokens,
                        .sampling = load_.sampling};
      plan_.segments.push_back({span, 0, done_ + tokens});
      for (uint32_t t = 0; t < tokens; ++t) {
        plan_.tokens.push_back({TokenId{(7 * i + 13 * (done_ + t)) % executor_.vocab()}});
      }
      if (load_.counts) {
        slice.counts_begin = i * kHistory;
        slice.counts_count = kHistory;
        for (uint32_t t = 0; t < kHistory; ++t) plan_.counts.push_back({TokenId{t}, 1, t % 3});
      }
      if (load_.mass) {
        slice.mass_begin = 2 * i;
        slice.mass_count = 2;
        plan_.mass_ranges.push_back({0, (done_ + tokens) / 2});
        plan_.mass_ranges.push_back({(done_ + tokens) / 2, done_ + tokens});
      }
      plan_.slices.push_back(slice);
    }
  }

  std::counting_semaphore<> finished_{0};
  TestExecutor executor_;
  const Load load_;
  step::StepPlan plan_;
  uint32_t done_ = 0;
};

constexpr step::Sampling kGreedy{.temperature = 0};
constexpr step::Sampling kNucleus{.top_p = 0.95f, .repetition_penalty = 1.1f};
constexpr step::Sampling kTopK{.min_p = 0.05f, .top_k = 40, .logprobs_count = 5, .want_logprobs = true};

const Load kLoads[] = {{"decode_1", 1, 1, kGreedy},
                       {"decode_4", 4, 1, kNucleus, /*counts=*/true},
                       {"decode_16", 16, 1, kTopK},
                       // The view grows past a section of 512 tokens and is shared among threads from then on.
                       {"decode_1_at_500", 1, 1, kGreedy, /*counts=*/false, /*depth=*/500},
                       {"decode_4_with_mass", 4, 1, kGreedy, /*counts=*/false, /*depth=*/490, /*mass=*/true},
                       {"chunk_of_64", 1, 64, kGreedy},
                       {"two_chunks_of_40", 2, 40, kTopK}};

std::string Golden(const std::string& name) {
  return KVIST_SOURCE_DIR "/tests/golden/" + name + ".gguf";
}

/// Models of all kinds of instructions: dense, experts, sliding windows.
const std::string kModels[] = {KVIST_SOURCE_DIR "/models/default-q8_0.gguf", Golden("qwen3moe_q4_0"), Golden("gemma3"),
                               Golden("bf16")};

TEST(CountTest, SeesNewAndMalloc) {
  g_allocations = 0;
  g_counts = true;
  int* volatile number = new int(1);
  void* volatile bytes = std::malloc(100);
  g_counts = false;
  std::free(bytes);
  delete number;
  EXPECT_EQ(g_allocations, 2u);
}

class StepCosts : public testing::TestWithParam<Load> {};

// Two steps warm what is kept by the caller and by the plan; everything else has been taken when the executor was made.
TEST_P(StepCosts, AWarmStepTakesNoMemory) {
  for (const std::string& model : kModels) {
    for (const uint32_t threads : {1u, 2u, 3u}) {
      for (const KvType kv_type : {KvType::kF16, KvType::kQ8}) {
        SCOPED_TRACE(testing::Message() << std::filesystem::path(model).stem() << ", " << threads << " threads");
        Stepper stepper(model,
                        {.threads = threads,
                         .tokens_per_step_max = kTokensMax,
                         .frames_count = 512,
                         .context_tokens = kContext,
                         .kv_type = kv_type},
                        GetParam());
        stepper.Step();
        stepper.Step();
        const uint32_t steps = std::min(40u, 896 / GetParam().tokens);
        for (uint32_t step = 0; step < steps; ++step) ASSERT_EQ(stepper.Step(), 0u) << "step " << step;
      }
    }
  }
}

/// How often each thread of this process has gone to sleep.
uint64_t SleepsOfThisProcess() {
  uint64_t sum = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string key; status >> key;) {
      uint64_t value = 0;
      if (key == "voluntary_ctxt_switches:" && status >> value) sum += value;
    }
  }
  return sum;
}

// Between steps threads sleep: the runner, the team and the caller once each, and now and then at a lock between two of
// them. Inside a step there are some 80 jobs, at none of which a thread may sleep.
TEST_P(StepCosts, ThreadsSleepBetweenStepsOnly) {
  constexpr uint32_t kSteps = 30, kThreads = 2;
  Stepper stepper(kModels[0], {.threads = kThreads, .tokens_per_step_max = kTokensMax, .frames_count = 512},
                  GetParam());
  stepper.Step();
  const uint64_t before = SleepsOfThisProcess();
  const uint32_t steps = std::min(kSteps, 896 / GetParam().tokens);
  for (uint32_t step = 0; step < steps; ++step) stepper.Step();
  const uint64_t sleeps = SleepsOfThisProcess() - before;
  RecordProperty("sleeps_per_step", std::to_string(static_cast<double>(sleeps) / steps));
  EXPECT_LE(sleeps, uint64_t{steps} * 4 * (kThreads + 1));
}

INSTANTIATE_TEST_SUITE_P(All, StepCosts, testing::ValuesIn(kLoads), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace kvist::exec
