#pragma once

/// @file
/// Trains sched::LengthPredictor on logged traffic, with XGBoost, and says how well it orders requests it has not seen.
/// Threads: none shared. Non-goals: a service that learns while it runs.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace kvist::train {

struct LengthExample {
  std::string prompt;
  uint32_t output_tokens = 0;  ///< At least 1.
};

/// Reads a log: JSON lines, or one JSON list, of {"prompt","output_tokens"} or {"input","output_length"}, or of
/// conversations as ShareGPT's ({"conversations":[{"from","value"}, ...]}: each answer after a human's message counts,
/// with a token for four bytes). Objects without an answer are left out. Errors: InvalidArgument naming the entry.
absl::StatusOr<std::vector<LengthExample>> ReadLengthLog(std::string_view text);

struct LengthTrainingOptions {
  uint32_t trees = 80, depth = 4, folds = 5;
  double rate = 0.08;
  uint64_t seed = 1;
};

/// How well unseen examples were ordered, over all folds. Ranking is what the scheduler needs; 0.5 is a coin.
struct LengthReport {
  size_t examples = 0;
  double pairs_right = 0;     ///< Of pairs whose longer answer has at least 1.5 times the tokens, those in order.
  double pairs_by_bytes = 0;  ///< As this, when ordered by the length of the prompt alone.
  double classes_right = 0;   ///< Of the shortest and the longest third, those on their side of the middle prediction.
};

struct LengthModel {
  std::string json;  ///< For sched::LengthPredictor::Parse.
  LengthReport report;
};

/// The same examples give the same model. Errors: InvalidArgument for fewer than 20 examples; those of XGBoost.
absl::StatusOr<LengthModel> TrainLengthModel(const std::vector<LengthExample>& examples,
                                             const LengthTrainingOptions& options = {});

}  // namespace kvist::train
