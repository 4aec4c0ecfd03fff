#include "train/length_training.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include <xgboost/c_api.h>
#include <boost/json.hpp>

#include "base/prng.h"
#include "base/status.h"
#include "sched/length_predictor.h"

namespace kvist::train {
namespace {

namespace json = boost::json;
using sched::kLengthFeatures;
using sched::LengthFeatures;

constexpr size_t kExamplesMin = 20;
constexpr double kClearlyLonger = 1.5;

absl::Status Checked(int code, std::string_view what) {
  if (code == 0) return absl::OkStatus();
  return absl::InternalError(Cat("XGBoost cannot ", what, ": ", XGBGetLastError()));
}

struct Closer {
  void operator()(void* handle) const { matrix ? XGDMatrixFree(handle) : XGBoosterFree(handle); }
  bool matrix = false;
};
using Handle = std::unique_ptr<void, Closer>;

/// [n] features, and natural logs of output tokens.
struct Table {
  std::vector<LengthFeatures> rows;
  std::vector<float> logs;
};

/// A node of XGBoost's dump and all below it, as rows of our list, the root first.
absl::Status Flatten(const json::value& dumped, json::array& nodes) {
  const json::object* node = dumped.if_object();
  if (node == nullptr) return absl::InternalError("XGBoost's dump has a node that is no object");
  const size_t place = nodes.size();
  nodes.emplace_back(json::array());
  if (const json::value* leaf = node->if_contains("leaf"); leaf != nullptr) {
    nodes[place] = json::array{*leaf};
    return absl::OkStatus();
  }
  const json::array& children = node->at("children").as_array();
  const int64_t below_id = node->at("yes").as_int64();
  const bool first_is_below = children.at(0).as_object().at("nodeid").as_int64() == below_id;
  const auto below = static_cast<uint32_t>(nodes.size());
  KVIST_RETURN_IF_ERROR(Flatten(children.at(first_is_below ? 0 : 1), nodes));
  const auto other = static_cast<uint32_t>(nodes.size());
  KVIST_RETURN_IF_ERROR(Flatten(children.at(first_is_below ? 1 : 0), nodes));
  const json::string& split = node->at("split").as_string();  // "f7"
  nodes[place] = json::array{std::stoul(std::string(split).substr(1)), node->at("split_condition"), below, other};
  return absl::OkStatus();
}

absl::StatusOr<json::array> DumpedTrees(BoosterHandle booster) {
  bst_ulong count = 0;
  const char** dumps = nullptr;
  KVIST_RETURN_IF_ERROR(Checked(XGBoosterDumpModelEx(booster, "", 0, "json", &count, &dumps), "write its trees"));
  json::array trees;
  for (bst_ulong i = 0; i < count; ++i) {
    boost::system::error_code error;
    const json::value dumped = json::parse(dumps[i], error);
    if (error.failed()) return absl::InternalError(Cat("XGBoost's dump is not JSON: ", error.message()));
    json::array nodes;
    KVIST_RETURN_IF_ERROR(Flatten(dumped, nodes));
    trees.push_back(std::move(nodes));
  }
  return trees;
}

/// The text of a model file.
absl::StatusOr<std::string> Fit(const Table& table, const LengthTrainingOptions& options) {
  const size_t rows = table.rows.size();
  const double mean = std::accumulate(table.logs.begin(), table.logs.end(), 0.0) / static_cast<double>(rows);
  DMatrixHandle raw_matrix = nullptr;
  KVIST_RETURN_IF_ERROR(Checked(
      XGDMatrixCreateFromMat(table.rows.front().data(), rows, kLengthFeatures, NAN, &raw_matrix), "take the examples"));
  const Handle matrix(raw_matrix, {.matrix = true});
  KVIST_RETURN_IF_ERROR(
      Checked(XGDMatrixSetFloatInfo(matrix.get(), "label", table.logs.data(), rows), "take the lengths"));
  BoosterHandle raw_booster = nullptr;
  KVIST_RETURN_IF_ERROR(Checked(XGBoosterCreate(&raw_matrix, 1, &raw_booster), "begin"));
  const Handle booster(raw_booster);
  const std::pair<const char*, std::string> parameters[] = {{"objective", "reg:squarederror"},
                                                            {"tree_method", "exact"},
                                                            {"nthread", "1"},
                                                            {"seed", Cat(options.seed)},
                                                            {"base_score", Cat(mean)},
                                                            {"max_depth", Cat(options.depth)},
                                                            {"eta", Cat(options.rate)},
                                                            {"min_child_weight", "4"},
                                                            {"lambda", "2"},
                                                            {"verbosity", "0"}};
  for (const auto& [name, value] : parameters) {
    KVIST_RETURN_IF_ERROR(Checked(XGBoosterSetParam(booster.get(), name, value.c_str()), Cat("set ", name)));
  }
  for (uint32_t round = 0; round < options.trees; ++round) {
    KVIST_RETURN_IF_ERROR(
        Checked(XGBoosterUpdateOneIter(booster.get(), static_cast<int>(round), matrix.get()), "grow a tree"));
  }
  KVIST_ASSIGN_OR_RETURN(json::array trees, DumpedTrees(booster.get()));
  json::array names;
  for (const std::string_view name : sched::kLengthFeatureNames) names.emplace_back(name);
  return json::serialize(json::object{
      {"format", "kvist-length-1"}, {"features", std::move(names)}, {"base", mean}, {"trees", std::move(trees)}});
}

/// Share of pairs of clearly different lengths that `scores` puts in order.
double PairsRight(const std::vector<float>& logs, const std::vector<double>& scores) {
  double right = 0, pairs = 0;
  const double clearly = std::log(kClearlyLonger);
  for (size_t i = 0; i < logs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const double longer = logs[i] - logs[j];
      if (std::abs(longer) < clearly) continue;
      const double predicted = scores[i] - scores[j];
      pairs += 1;
      right += predicted == 0 ? 0.5 : (predicted > 0) == (longer > 0) ? 1 : 0;
    }
  }
  return pairs == 0 ? 0.5 : right / pairs;
}

double ClassesRight(const std::vector<float>& logs, const std::vector<double>& scores) {
  std::vector<size_t> order(logs.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, {}, [&](size_t i) { return logs[i]; });
  std::vector<double> sorted = scores;
  std::ranges::nth_element(sorted, sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2));
  const double middle = sorted[sorted.size() / 2];
  const size_t third = order.size() / 3;
  size_t right = 0;
  for (size_t i = 0; i < third; ++i) {
    if (scores[order[i]] < middle) ++right;
    if (scores[order[order.size() - 1 - i]] >= middle) ++right;
  }
  return third == 0 ? 0.5 : static_cast<double>(right) / static_cast<double>(2 * third);
}

/// Trains on all but one fold, and predicts that one, for each fold in turn.
absl::StatusOr<LengthReport> CrossValidate(const Table& table, const LengthTrainingOptions& options) {
  const size_t rows = table.rows.size();
  std::vector<double> scores(rows), bytes(rows);
  for (uint32_t fold = 0; fold < options.folds; ++fold) {
    Table rest;
    std::vector<size_t> held_out;
    for (size_t i = 0; i < rows; ++i) {
      if (Mix64(options.seed ^ i) % options.folds == fold) {
        held_out.push_back(i);
      } else {
        rest.rows.push_back(table.rows[i]);
        rest.logs.push_back(table.logs[i]);
      }
    }
    if (rest.rows.empty()) continue;
    KVIST_ASSIGN_OR_RETURN(const std::string model, Fit(rest, options));
    KVIST_ASSIGN_OR_RETURN(const sched::LengthPredictor predictor, sched::LengthPredictor::Parse(model));
    for (const size_t i : held_out) scores[i] = predictor.PredictFrom(table.rows[i]);
  }
  for (size_t i = 0; i < rows; ++i) bytes[i] = table.rows[i][0];
  return LengthReport{.examples = rows,
                      .pairs_right = PairsRight(table.logs, scores),
                      .pairs_by_bytes = PairsRight(table.logs, bytes),
                      .classes_right = ClassesRight(table.logs, scores)};
}

}  // namespace

absl::StatusOr<LengthModel> TrainLengthModel(const std::vector<LengthExample>& examples,
                                             const LengthTrainingOptions& options) {
  if (examples.size() < kExamplesMin) {
    return absl::InvalidArgumentError(
        Cat("the log has ", examples.size(), " answers; at least ", kExamplesMin, " are needed"));
  }
  Table table;
  for (const LengthExample& example : examples) {
    table.rows.push_back(sched::LengthFeaturesOf(example.prompt));
    table.logs.push_back(std::log(static_cast<float>(std::max(example.output_tokens, 1u))));
  }
  LengthModel model;
  KVIST_ASSIGN_OR_RETURN(model.report, CrossValidate(table, options));
  KVIST_ASSIGN_OR_RETURN(model.json, Fit(table, options));
  return model;
}

}  // namespace kvist::train
