#include "lab/schedule_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "modelfile/gguf.h"

namespace kvist::lab {
namespace {

class ScheduleReplay : public testing::Test {
 protected:
  ScheduleReplay()
      : file_(*GgufFile::Open(KVIST_SOURCE_DIR "/models/default-q8_0.gguf")),
        tokenizer_(*Tokenizer::FromGguf(*file_)) {}

  ScheduleResult Run(const std::vector<ScheduleSource>& sources, const ScheduleOptions& options = {}) {
    return *ReplaySchedule(*tokenizer_, sources, {{.prompt_tokens = 5, .output_tokens = 9}}, options);
  }

  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<const Tokenizer> tokenizer_;
};

TEST_F(ScheduleReplay, OneRequestTakesWhatItsWorkCosts) {
  const sched::StepCost cost;
  const ScheduleResult result =
      Run({{.count = 1, .prompt_min = 100, .prompt_max = 100, .output_min = 3, .output_max = 3}});
  ASSERT_EQ(result.requests.size(), 1u);
  sched::StepWork prompt, token;
  prompt.Add(100, 0, true);
  token.Add(1, 100, true);
  EXPECT_NEAR(static_cast<double>(result.requests[0].first_token_ns), cost.Ns(prompt), 2);
  ASSERT_EQ(result.token_gaps[0].size(), 2u);
  EXPECT_NEAR(result.token_gaps[0][0], cost.Ns(token), 2);
  EXPECT_EQ(result.requests[0].finished_ns, result.duration_ns);
}

TEST_F(ScheduleReplay, SourcesComeAsTheySay) {
  const ScheduleResult result = Run({{.name = "a", .count = 5, .rate = 2, .regular = true, .start_s = 1},
                                     {.name = "b", .count = 200, .rate = 10, .prompt_min = 10, .prompt_max = 1000},
                                     {.name = "c", .count = 2, .from_log = true}});
  int64_t last_b = 0;
  for (const RequestTimes& times : result.requests) {
    EXPECT_GT(times.finished_ns, times.first_token_ns);
    if (times.source == 1) last_b = times.arrived_ns;
    EXPECT_TRUE(times.source != 0 || (times.arrived_ns - 1'000'000'000) % 500'000'000 == 0) << times.arrived_ns;
    EXPECT_TRUE(times.source != 2 || times.prompt_tokens == 5);
  }
  EXPECT_NEAR(static_cast<double>(last_b) * 1e-9, 20, 5);
}

TEST_F(ScheduleReplay, TheSameInputsGiveTheSameTimes) {
  const std::vector<ScheduleSource> sources{{.count = 40, .rate = 4, .prompt_max = 600, .output_max = 200}};
  const ScheduleOptions options{.world = {.machine = {.jitter = 0.2}, .blocks = 200}};
  const ScheduleResult one = Run(sources, options), two = Run(sources, options);
  EXPECT_EQ(one.token_gaps, two.token_gaps);
  EXPECT_EQ(one.duration_ns, two.duration_ns);
}

TEST_F(ScheduleReplay, SharedBeginningsAreComputedOnce) {
  const ScheduleResult result =
      Run({{.count = 10, .rate = 1, .prompt_min = 200, .prompt_max = 200, .prefix_tokens = 160}});
  EXPECT_EQ(result.stats.cached_tokens, 9u * 160);
}

TEST_F(ScheduleReplay, RefusesWhatItCannotDo) {
  EXPECT_FALSE(ReplaySchedule(*tokenizer_, {}, {}, {.world = {.policy = "nobody"}}).ok());
  EXPECT_FALSE(ReplaySchedule(*tokenizer_, {{.count = 1, .from_log = true}}, {}, {}).ok());
}

}  // namespace
}  // namespace kvist::lab
