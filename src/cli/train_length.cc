/// @file
/// `kvist train-length LOG -o MODEL`: learns from logged traffic how long answers will be, for `kvist serve
/// --length-model`.

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "base/status.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/ranges.h"
#include "sched/length_predictor.h"
#include "serve/json_output.h"
#include "train/length_training.h"

namespace kvist::cli {
namespace {

struct TrainLengthFlags {
  std::vector<std::string> logs;
  std::string output;
  train::LengthTrainingOptions options;
  bool json = false;
};

/// Milliseconds for one of the prompts, mean.
double TimePredictions(const sched::LengthPredictor& predictor, const std::vector<train::LengthExample>& examples) {
  constexpr int kRounds = 20;
  uint64_t tokens = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < kRounds; ++round) {
    for (const train::LengthExample& example : examples) tokens += predictor.Predict(example.prompt);
  }
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  return tokens == 0 ? 0 : time.count() / (kRounds * static_cast<double>(examples.size()));
}

absl::Status TrainLength(const TrainLengthFlags& flags) {
  std::vector<train::LengthExample> examples;
  for (const std::string& path : flags.logs) {
    KVIST_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
    absl::StatusOr<std::vector<train::LengthExample>> read = train::ReadLengthLog(text);
    if (!read.ok()) return Annotate(read.status(), path);
    examples.insert(examples.end(), std::make_move_iterator(read->begin()), std::make_move_iterator(read->end()));
  }
  KVIST_ASSIGN_OR_RETURN(const train::LengthModel model, train::TrainLengthModel(examples, flags.options));
  KVIST_ASSIGN_OR_RETURN(const sched::LengthPredictor predictor, sched::LengthPredictor::Parse(model.json));
  std::ofstream file(flags.output, std::ios::binary);
  file << model.json;
  if (!file.flush()) return absl::DataLossError(Cat("cannot write ", flags.output));
  const double ms = TimePredictions(predictor, examples);
  const train::LengthReport& report = model.report;
  if (flags.json) {
    const boost::json::object out = {{"examples", report.examples},
                                     {"pairs_right", report.pairs_right},
                                     {"pairs_by_prompt_bytes", report.pairs_by_bytes},
                                     {"classes_right", report.classes_right},
                                     {"ms_per_prediction", ms},
                                     {"model", flags.output}};
    fmt::print("{}\n", serve::JsonText(out));
    return FlushOutput();
  }
  fmt::print("{} answers; on those that were held out ({} folds):\n", report.examples, flags.options.folds);
  fmt::print("  {:5.1f} % of pairs of clearly different lengths in order (by prompt length alone {:.1f} %)\n",
             100 * report.pairs_right, 100 * report.pairs_by_bytes);
  fmt::print("  {:5.1f} % of the shortest and the longest third on their side\n", 100 * report.classes_right);
  fmt::print("{:.4f} ms a prediction; {}\n", ms, flags.output);
  return FlushOutput();
}

}  // namespace

void AddTrainLength(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<TrainLengthFlags>();
  CLI::App* command = app.add_subcommand(
      "train-length", "Learn from logged traffic how long answers will be, for serve --length-model");
  command
      ->add_option(
          "LOG", flags->logs,
          "JSON lines with \"prompt\" and \"output_tokens\", or conversations as ShareGPT's; - for standard input")
      ->required();
  command->add_option("-o,--output", flags->output, "Model file to write")->required();
  command->add_option("--trees", flags->options.trees, "Trees to grow")
      ->transform(WholeNumber(1, 10'000))
      ->capture_default_str();
  command->add_option("--depth", flags->options.depth, "Of a tree")
      ->transform(WholeNumber(1, 10))
      ->capture_default_str();
  command->add_option("--folds", flags->options.folds, "Parts that are held out in turn, to see how well it does")
      ->transform(WholeNumber(2, 100))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "One JSON object on standard output");
  command->callback([flags, &exit_code] {
    const absl::Status status = TrainLength(*flags);
    exit_code = status.ok() ? 0 : Report("train-length", status);
  });
}

}  // namespace kvist::cli
