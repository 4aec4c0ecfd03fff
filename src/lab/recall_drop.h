#pragma once

/// @file
/// What may be forgotten of a recall case: runs of sentences that share no word with the question or its answer. For
/// measuring what dropping costs (`kvist eval --drop`). Pure. Non-goals: finding out what a model attends to.

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "lab/recall.h"
#include "modelfile/chat_prompt.h"
#include "modelfile/tokenizer.h"

namespace kvist::lab {

/// Bytes [begin, end) of a text.
struct TextPart {
  size_t begin = 0, end = 0;
  friend bool operator==(const TextPart&, const TextPart&) = default;
};

/// Runs of sentences (or lines) of `text` without any word of `wanted`, in order, each at least kRunSentences long
/// after kMarginSentences at either side of what shares a word were taken off.
inline constexpr size_t kRunSentences = 3, kMarginSentences = 1;
std::vector<TextPart> UnrelatedParts(std::string_view text, std::string_view wanted);

/// Where the question begins, with the white space before it: the last sentence or line.
size_t QuestionBegin(std::string_view text);

/// A case's prompt whose parts may leave the view once all before the question is read.
struct DroppablePrompt {
  std::vector<TokenId> tokens;
  std::vector<kv::CacheOp> ops;  ///< Repositioning, all at the question's first token.
  uint32_t dropped = 0;          ///< Tokens.

  /// The tokens without those that leave.
  std::vector<TokenId> Shortened() const;
};

/// @param share_max  of the prompt's tokens that may leave; the longest parts go first.
/// Errors: those of ChatEncoder::EncodeMarked; InvalidArgument where tokens do not spell the contents.
absl::StatusOr<DroppablePrompt> PlanDrop(const Tokenizer& tokenizer, const ChatEncoder& encoder, const RecallCase& one,
                                         double share_max);

}  // namespace kvist::lab
