#include "lab/recall.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>

#include "absl/strings/ascii.h"
#include "base/check.h"
#include "base/status.h"
#include "engine/request_trace.h"
#include "lab/recall_drop.h"

namespace kvist::lab {
namespace {

absl::StatusOr<std::string> StringOf(const boost::json::object& object, std::string_view key) {
  const boost::json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_string()) return absl::InvalidArgumentError(Cat("\"", key, "\" is not a string"));
  const boost::json::string& text = value->get_string();
  return std::string(text.data(), text.size());
}

absl::StatusOr<RecallCase> ParseCase(std::string_view line) {
  boost::system::error_code error;
  boost::json::value value = boost::json::parse(line, error);
  if (error) return absl::InvalidArgumentError(Cat("not JSON: ", error.message()));
  boost::json::object* object = value.if_object();
  if (object == nullptr) return absl::InvalidArgumentError("not a JSON object");
  RecallCase parsed;
  KVIST_ASSIGN_OR_RETURN(parsed.id, StringOf(*object, "id"));
  KVIST_ASSIGN_OR_RETURN(parsed.family, StringOf(*object, "family"));
  KVIST_ASSIGN_OR_RETURN(parsed.answer, StringOf(*object, "answer"));
  const boost::json::value* length = object->if_contains("length");
  if (length == nullptr || !length->is_int64() || length->get_int64() < 0 || length->get_int64() > UINT32_MAX) {
    return absl::InvalidArgumentError("\"length\" is not a number of tokens");
  }
  parsed.length = static_cast<uint32_t>(length->get_int64());
  boost::json::value* messages = object->if_contains("messages");
  if (messages == nullptr || !messages->is_array() || messages->get_array().empty()) {
    return absl::InvalidArgumentError("\"messages\" is not a list of messages");
  }
  parsed.messages = std::move(messages->get_array());
  return parsed;
}

/// Cases under way, shared with the engine thread.
class Answers {
 public:
  explicit Answers(std::vector<RecallResult>& results) : results_(results) {}

  void Take(size_t index, engine::GenerationEvent&& event) {
    std::lock_guard lock(mutex_);
    RecallResult& result = results_[index];
    result.output += event.text;
    if (event.finish == engine::FinishReason::kNone) return;
    result.prompt_tokens = event.usage.prompt_tokens;
    result.output_tokens = event.usage.output_tokens;
    result.cached_tokens = event.usage.cached_tokens;
    if (event.trace != nullptr) result.restored_tokens = event.trace->restored_tokens;
    if (event.finish == engine::FinishReason::kError) result.status = event.status;
    if (event.finish == engine::FinishReason::kCancelled) result.status = absl::CancelledError("cancelled");
    finished_.push_back(index);
    changed_.notify_one();
  }

  /// Cases that have finished since the last call; waits a moment for the first.
  std::vector<size_t> WaitFinished() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(100), [&] { return !finished_.empty(); });
    return std::exchange(finished_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> finished_;
  std::vector<RecallResult>& results_;
};

/// A case's prompt with its operations.
struct RecallPrompt {
  std::vector<TokenId> tokens;
  std::vector<kv::CacheOp> ops;
  uint32_t missing = 0;
};

absl::StatusOr<RecallPrompt> PromptOf(const Tokenizer& tokenizer, const ChatEncoder& encoder, const RecallCase& one,
                                      const RecallOptions& options) {
  if (options.text == RecallText::kWhole) {
    KVIST_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, encoder.Encode({.messages = one.messages}));
    return RecallPrompt{std::move(tokens), {}};
  }
  KVIST_ASSIGN_OR_RETURN(DroppablePrompt plan, PlanDrop(tokenizer, encoder, one, options.drop_share_max));
  if (options.text == RecallText::kShortened) return RecallPrompt{plan.Shortened(), {}, plan.dropped};
  return RecallPrompt{std::move(plan.tokens), std::move(plan.ops), plan.dropped};
}

}  // namespace

std::string_view RecallTextName(RecallText text) {
  constexpr std::string_view kNames[] = {"whole", "dropped", "shortened"};
  return kNames[static_cast<size_t>(text)];
}

absl::StatusOr<std::vector<RecallCase>> ParseRecallCases(std::string_view text) {
  std::vector<RecallCase> cases;
  for (uint64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (absl::StripAsciiWhitespace(ToAbsl(line)).empty()) continue;
    absl::StatusOr<RecallCase> parsed = ParseCase(line);
    if (!parsed.ok()) return Annotate(parsed.status(), Cat("line ", number));
    cases.push_back(*std::move(parsed));
  }
  return cases;
}

std::vector<RecallCase> SelectRecallCases(std::vector<RecallCase> cases, std::string_view family,
                                          uint32_t per_group_max) {
  std::map<std::pair<std::string, uint32_t>, uint32_t> taken;
  std::erase_if(cases, [&](const RecallCase& one) {
    if (!family.empty() && one.family != family) return true;
    return per_group_max > 0 && ++taken[{one.family, one.length}] > per_group_max;
  });
  return cases;
}

absl::StatusOr<std::vector<RecallResult>> RunRecall(engine::Engine& engine, const Tokenizer& tokenizer,
                                                    const ChatEncoder& encoder, const std::vector<RecallCase>& cases,
                                                    const RecallOptions& options) {
  KVIST_CHECK(options.parallel > 0);
  std::vector<RecallResult> results(cases.size());
  Answers answers(results);
  std::map<size_t, RequestId> running;  // By case.
  size_t next = 0, done = 0, correct = 0;
  bool cancelled = false;
  while (done < cases.size() && !(cancelled && running.empty())) {
    for (; !cancelled && next < cases.size() && running.size() < options.parallel; ++next) {
      absl::StatusOr<RecallPrompt> prompt = PromptOf(tokenizer, encoder, cases[next], options);
      if (!prompt.ok()) {
        results[next].status = prompt.status();
        ++done;
        continue;
      }
      engine::GenerationRequest request{
          .max_tokens = options.max_tokens,
          .sampling = {.temperature = 0},
          .strip_leading_space = !prompt->tokens.empty() && tokenizer.IsBreak(prompt->tokens.back()),
          .cache_namespace = uint64_t{next} + 1};
      request.prompt = std::move(prompt->tokens);
      request.ops = std::move(prompt->ops);
      results[next].missing_tokens = prompt->missing;
      const size_t index = next;
      running[index] = engine.Submit(std::move(request), [&answers, index](engine::GenerationEvent&& event) {
        answers.Take(index, std::move(event));
      });
    }
    for (const size_t index : answers.WaitFinished()) {
      running.erase(index);
      RecallResult& result = results[index];
      result.output = std::string(absl::StripAsciiWhitespace(result.output));
      result.correct = result.status.ok() && result.output == absl::StripAsciiWhitespace(cases[index].answer);
      correct += result.correct ? 1 : 0;
      ++done;
    }
    if (!cancelled && options.progress && !options.progress(done, correct)) {
      cancelled = true;
      for (const auto& [index, id] : running) engine.Cancel(id);
    }
  }
  if (cancelled) return absl::CancelledError("interrupted");
  return results;
}

std::vector<RecallScore> ScoreRecall(const std::vector<RecallCase>& cases, const std::vector<RecallResult>& results) {
  KVIST_CHECK(cases.size() == results.size());
  std::vector<RecallScore> scores;
  std::map<std::string, size_t> family_order;
  for (size_t i = 0; i < cases.size(); ++i) {
    family_order.try_emplace(cases[i].family, family_order.size());
    auto score = std::ranges::find_if(
        scores, [&](const RecallScore& s) { return s.family == cases[i].family && s.length == cases[i].length; });
    if (score == scores.end()) {
      score = scores.insert(score, {.family = cases[i].family, .length = cases[i].length});
    }
    ++score->cases;
    if (results[i].correct) ++score->correct;
    if (!results[i].status.ok()) ++score->failed;
  }
  std::ranges::sort(scores, {}, [&](const RecallScore& s) { return std::pair(family_order[s.family], s.length); });
  return scores;
}

}  // namespace kvist::lab
