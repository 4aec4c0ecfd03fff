#pragma once

/// @file
/// Exact-match evaluation of a chat model: each case is a conversation and the one right answer. Cases run side by side
/// through the engine; since the engine's output does not depend on the batch, neither their order nor their number at
/// a time changes a result. Non-goals: where cases come from, printing.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "modelfile/chat_prompt.h"

namespace kvist::lab {

/// One line of a file of cases.
struct RecallCase {
  std::string id;
  std::string family;           ///< What is asked for, e.g. "two_hop".
  uint32_t length = 0;          ///< Nominal tokens of context; cases of one family and length are a group.
  boost::json::array messages;  ///< OpenAI message objects.
  std::string answer;
};

/// Reads JSON lines with the keys id, family, length, messages and answer; other keys and empty lines are skipped.
/// Errors: InvalidArgument naming the line and the key.
absl::StatusOr<std::vector<RecallCase>> ParseRecallCases(std::string_view text);

/// Keeps the cases of `family` (empty = all), of each group only the first `per_group_max` (0 = all).
std::vector<RecallCase> SelectRecallCases(std::vector<RecallCase> cases, std::string_view family,
                                          uint32_t per_group_max);

/// What of a case's text the model answers from.
enum class RecallText : uint8_t {
  kWhole,
  kDropped,    ///< All is read; before the question, what nobody asks about leaves the view (recall_drop.h).
  kShortened,  ///< The same is never read.
};
std::string_view RecallTextName(RecallText text);  ///< "whole", "dropped", "shortened".

struct RecallResult {
  std::string output;    ///< White space at both ends removed.
  bool correct = false;  ///< `output` equals the answer.
  absl::Status status;   ///< Not OK when the case could not run; then it is not correct.
  uint32_t prompt_tokens = 0, output_tokens = 0;
  uint32_t missing_tokens = 0;   ///< Of the whole prompt, not in view when the question was read.
  uint32_t cached_tokens = 0;    ///< Of the prompt, not computed for it,
  uint32_t restored_tokens = 0;  ///< and of these brought back from below hot memory.
};

struct RecallOptions {
  uint32_t parallel = 16;
  uint32_t max_tokens = 60;  ///< Of an answer.
  RecallText text = RecallText::kWhole;
  double drop_share_max = 0;  ///< Of a prompt's tokens; where not all of the text is in view.
  /// Called on the caller's thread several times a second; false ends the evaluation (Cancelled).
  std::function<bool(size_t done, size_t correct)> progress;
};

/// Greedy answers of all cases, in their order. No case reads keys and values that another one computed.
/// REQUIRES: the engine's loop runs (Engine::Start). Errors: Cancelled.
absl::StatusOr<std::vector<RecallResult>> RunRecall(engine::Engine& engine, const Tokenizer& tokenizer,
                                                    const ChatEncoder& encoder, const std::vector<RecallCase>& cases,
                                                    const RecallOptions& options);

struct RecallScore {
  std::string family;
  uint32_t length = 0;
  uint32_t cases = 0, correct = 0, failed = 0;  ///< `failed` could not run.
};

/// One score a group, families in order of first appearance, lengths ascending. REQUIRES: as many results as cases.
std::vector<RecallScore> ScoreRecall(const std::vector<RecallCase>& cases, const std::vector<RecallResult>& results);

}  // namespace kvist::lab
