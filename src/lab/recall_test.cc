#include "lab/recall.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/fake_executor_testutil.h"
#include "runtime/runtime.h"

namespace kvist::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kModels[] = KVIST_SOURCE_DIR "/models/";

RecallCase Case(std::string id, std::string family, uint32_t length, std::string question, std::string answer) {
  return {.id = std::move(id),
          .family = std::move(family),
          .length = length,
          .messages = {{{"role", "user"}, {"content", question}}},
          .answer = std::move(answer)};
}

/// An engine whose model says, word for word, what the script has for each request; requests count from 1.
class ScriptedEngine {
 public:
  explicit ScriptedEngine(const std::vector<std::string>& script)
      : file_(*GgufFile::Open(std::string(kModels) + "default-q8_0.gguf")),
        tokenizer_(*Tokenizer::FromGguf(*file_)),
        template_(*ChatTemplate::Parse(*file_->GetString("tokenizer.chat_template"))),
        encoder_(*tokenizer_, template_),
        executor_({.tokens_per_step_max = 256,
                   .slices_per_step_max = 8,
                   .block_tokens = kv::kBlockTokens,
                   .vocab_size = tokenizer_->vocab_size(),
                   .context_tokens_max = 256},
                  [this](const step::StepPlan& plan, step::StepResult& result) { Compute(plan, result); }),
        memory_({.frames_count = 256}),
        policy_(sched::NewChunkedPolicy({})),
        engine_(executor_, memory_, *policy_, *tokenizer_, clock_) {
    for (const std::string& text : script) {
      script_.push_back(tokenizer_->Encode(text, {.add_special = false}));
      script_.back().push_back(*tokenizer_->eos());
    }
    engine_.Start();
  }
  ~ScriptedEngine() { engine_.Stop(/*drain=*/false); }

  absl::StatusOr<std::vector<RecallResult>> Run(const std::vector<RecallCase>& cases,
                                                const RecallOptions& options = {}) {
    return RunRecall(engine_, *tokenizer_, encoder_, cases, options);
  }

 private:
  void Compute(const step::StepPlan& plan, step::StepResult& result) {
    for (const step::Slice& slice : plan.slices) {
      if (!slice.sampling) continue;
      EXPECT_EQ(slice.sampling->temperature, 0) << "answers are greedy";
      const std::vector<TokenId>& words = script_.at(slice.request.value - 1);
      result.sampled.push_back(words.at(said_[slice.request.value]++ % words.size()));
    }
  }

  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  ChatTemplate template_;
  ChatEncoder encoder_;
  std::vector<std::vector<TokenId>> script_;
  std::map<uint64_t, size_t> said_;
  FakeExecutor executor_;
  kv::KvMemory memory_;
  std::unique_ptr<sched::SchedulerPolicy> policy_;
  RealClock clock_;
  engine::Engine engine_;
};

const std::vector<RecallCase> kCases = {
    Case("a", "colors", 200, "Which color?", "red"), Case("b", "names", 200, "Who?", "Ann Lee"),
    Case("c", "colors", 1000, "Which color?", "blue"), Case("d", "colors", 200, "And now?", "green")};

uint32_t CorrectOf(const std::vector<RecallResult>& results) {
  return static_cast<uint32_t>(std::ranges::count_if(results, &RecallResult::correct));
}

TEST(Recall, PerfectAnswersAreAllCorrect) {
  ScriptedEngine engine({"red", "Ann Lee", "blue", "green"});
  const auto results = engine.Run(kCases);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(CorrectOf(*results), 4u);
  EXPECT_EQ((*results)[1].output, "Ann Lee");
  EXPECT_GT((*results)[1].prompt_tokens, 0u);
  EXPECT_GT((*results)[1].output_tokens, 0u);
}

TEST(Recall, WrongAnswersAreAllWrong) {
  // Nearly right is wrong: case, a full stop, a word too many.
  ScriptedEngine engine({"Red", "Ann Lee.", "blue blue", ""});
  const auto results = engine.Run(kCases);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(CorrectOf(*results), 0u);
  for (const RecallResult& result : *results) EXPECT_TRUE(result.status.ok()) << "wrong, but not failed";
}

TEST(Recall, MixedAnswersKeepTheirPlaces) {
  for (const uint32_t parallel : {1u, 2u, 16u}) {
    ScriptedEngine engine({"red", "Bob", " \n blue \n", "yellow"});
    const auto results = engine.Run(kCases, {.parallel = parallel});
    ASSERT_TRUE(results.ok()) << results.status();
    std::vector<bool> correct;
    for (const RecallResult& result : *results) correct.push_back(result.correct);
    EXPECT_THAT(correct, ElementsAre(true, false, true, false)) << parallel;
    EXPECT_EQ((*results)[2].output, "blue");
    const std::vector<RecallScore> scores = ScoreRecall(kCases, *results);
    ASSERT_EQ(scores.size(), 3u);  // Families as they come, lengths ascending.
    EXPECT_EQ(scores[0].family, "colors");
    EXPECT_EQ(scores[0].length, 200u);
    EXPECT_EQ(scores[0].cases, 2u);
    EXPECT_EQ(scores[0].correct, 1u);
    EXPECT_EQ(scores[1].length, 1000u);
    EXPECT_EQ(scores[1].correct, 1u);
    EXPECT_EQ(scores[2].family, "names");
    EXPECT_EQ(scores[2].correct, 0u);
    EXPECT_EQ(scores[2].failed, 0u);
  }
}

TEST(Recall, AnswersEndAtTheLimit) {
  ScriptedEngine engine({"red red red red red red red red"});
  const auto results = engine.Run({kCases[0]}, {.max_tokens = 1});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(results->front().output_tokens, 1u);
  EXPECT_TRUE(results->front().correct) << results->front().output;
}

TEST(Recall, CasesThatCannotRunHaveFailed) {
  std::string long_text;
  for (int i = 0; i < 400; ++i) long_text += "word ";  // More than the context of 256 tokens.
  ScriptedEngine engine({"red", "red"});
  const std::vector<RecallCase> cases = {Case("long", "f", 1, long_text, "red"), Case("short", "f", 1, "?", "red")};
  const auto results = engine.Run(cases);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_TRUE(absl::IsInvalidArgument(results->at(0).status)) << results->at(0).status;
  EXPECT_FALSE(results->at(0).correct);
  EXPECT_TRUE(results->at(1).correct);
  const std::vector<RecallScore> scores = ScoreRecall(cases, *results);
  EXPECT_EQ(scores.at(0).failed, 1u);
  EXPECT_EQ(scores.at(0).correct, 1u);
  EXPECT_EQ(scores.at(0).cases, 2u);
}

TEST(Recall, ProgressCanEndIt) {
  ScriptedEngine engine({"red", "red", "red", "red"});
  const auto results = engine.Run(kCases, {.progress = [](size_t, size_t) { return false; }});
  EXPECT_TRUE(absl::IsCancelled(results.status())) << results.status();
}

TEST(Recall, ReadsAndChoosesCases) {
  const std::string line =
      R"({"id":"a","family":"f","length":7,"messages":[{"role":"user","content":"x"}],"answer":"y"})";
  const auto cases = ParseRecallCases(line + "\n\n" + line + "\r\n");
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_EQ(cases->size(), 2u);
  EXPECT_EQ(cases->front().length, 7u);
  EXPECT_EQ(cases->front().answer, "y");
  const struct {
    const char* line;
    const char* fault;
  } faults[] = {{"{", "not JSON"},
                {"[]", "not a JSON object"},
                {R"({"id":"a","family":"f","length":7,"messages":[{}]})", "\"answer\""},
                {R"({"id":"a","family":"f","length":-1,"messages":[{}],"answer":"y"})", "\"length\""},
                {R"({"id":"a","family":"f","length":1,"messages":[],"answer":"y"})", "\"messages\""}};
  for (const auto& fault : faults) {
    const absl::Status status = ParseRecallCases(line + "\n" + fault.line).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("line 2")) << fault.line;
    EXPECT_THAT(std::string(status.message()), HasSubstr(fault.fault));
  }
  EXPECT_EQ(SelectRecallCases(kCases, "colors", 0).size(), 3u);
  EXPECT_EQ(SelectRecallCases(kCases, "", 1).size(), 3u) << "of each family and length";
  EXPECT_EQ(SelectRecallCases(kCases, "none", 0).size(), 0u);
}

/// Three of the cases that come with the small model: it knows them, and knows nothing of other answers.
TEST(Recall, SmallModelKnowsItsCases) {
  std::ifstream in(std::string(kModels) + "eval.jsonl");
  std::stringstream text;
  text << in.rdbuf();
  auto cases = ParseRecallCases(text.str());
  ASSERT_TRUE(cases.ok()) << cases.status();
  std::vector<RecallCase> chosen = SelectRecallCases(*cases, "single_fact", 3);
  std::erase_if(chosen, [](const RecallCase& one) { return one.length > 200; });
  ASSERT_EQ(chosen.size(), 3u);
  auto runtime = runtime::Start(
      {.model_path = std::string(kModels) + "default-f16.gguf", .threads = 2, .kv_memory_bytes = 64u << 20});
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  const ChatEncoder encoder(*(*runtime)->tokenizer, *(*runtime)->chat_template);
  (*runtime)->engine->Start();
  const auto right = RunRecall(*(*runtime)->engine, *(*runtime)->tokenizer, encoder, chosen, {});
  ASSERT_TRUE(right.ok()) << right.status();
  EXPECT_EQ(CorrectOf(*right), 3u);
  for (RecallCase& one : chosen) one.answer += "x";
  const auto wrong = RunRecall(*(*runtime)->engine, *(*runtime)->tokenizer, encoder, chosen, {.parallel = 1});
  (*runtime)->engine->Stop(/*drain=*/true);
  ASSERT_TRUE(wrong.ok()) << wrong.status();
  EXPECT_EQ(CorrectOf(*wrong), 0u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ((*wrong)[i].output, (*right)[i].output) << "alone as in company";
}

}  // namespace
}  // namespace kvist::lab
