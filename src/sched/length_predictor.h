#pragma once

/// @file
/// How long an answer will be, guessed from the words of what is asked: a few counts go through a small forest of
/// decision trees. What matters is the order of requests, not the number. Immutable once made. Threads: any. Non-goals:
/// training (train/length_training.h).
/// Source: Clairvoyant (P11): 19 lexical features and gradient-boosted trees suffice to tell short from long answers.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace kvist::sched {

inline constexpr size_t kLengthFeatures = 19;
using LengthFeatures = std::array<float, kLengthFeatures>;

/// What is counted, in order; also the names in a model file.
inline constexpr std::array<std::string_view, kLengthFeatures> kLengthFeatureNames = {
    "log_bytes",        "log_words",     "word_length", "sentences",     "question_marks",
    "ends_as_question", "lines",         "code_fences", "code_signs",    "digits",
    "capitals",         "list_items",    "wants_list",  "wants_reasons", "wants_text",
    "wants_brevity",    "wants_rewrite", "asks_a_fact", "log_last_line"};

/// Bytes at the end of a text that are looked at: what is wanted stands last, and the time has a bound.
inline constexpr size_t kLengthTextBytes = 4096;

/// Counts of a prompt: of a chat, its last message by the user. Any bytes.
LengthFeatures LengthFeaturesOf(std::string_view text);

/// Node of a decision tree. A leaf has no feature.
struct LengthNode {
  static constexpr uint32_t kLeaf = UINT32_MAX;
  uint32_t feature = kLeaf;
  float value = 0;                ///< Below it: `below`, else `other`. Of a leaf: what it adds.
  uint32_t below = 0, other = 0;  ///< Nodes of the same tree, later than this one.
};

class LengthPredictor {
 public:
  /// Reads the text of a model file: JSON with "format", "features" (names), "base" and "trees", each a list of nodes
  /// [leaf] or [feature, value, below, other]. Errors: InvalidArgument naming the place.
  static absl::StatusOr<LengthPredictor> Parse(std::string_view json);

  /// Output tokens, at least 1.
  uint32_t Predict(std::string_view text) const { return PredictFrom(LengthFeaturesOf(text)); }
  uint32_t PredictFrom(const LengthFeatures& features) const;

 private:
  std::vector<LengthNode> nodes_;  ///< Of all trees; below and other count from the start of the list.
  std::vector<uint32_t> roots_;
  double base_ = 0;  ///< Natural log of tokens, as are the leaves.
};

}  // namespace kvist::sched
