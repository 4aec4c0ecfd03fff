#include "lab/claim_run.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "base/status.h"
#include "lab/claim_expression.h"
#include "platform/subprocess.h"
#include "platform/temp_folder.h"
#include "platform/text_file.h"

namespace kvist::lab {

namespace json = boost::json;

namespace {

constexpr size_t kOutputBytesMax = size_t{256} << 20;

/// `text` with each ${name} replaced. Errors: NotFound naming one that is not known.
absl::StatusOr<std::string> Expand(std::string_view text, const std::map<std::string, std::string>& inputs) {
  std::string out;
  while (true) {
    const size_t begin = text.find("${");
    out += text.substr(0, begin);
    if (begin == std::string_view::npos) return out;
    const size_t end = text.find('}', begin);
    const std::string name(text.substr(begin + 2, end == std::string_view::npos ? end : end - begin - 2));
    const auto it = inputs.find(name);
    if (end == std::string_view::npos || it == inputs.end()) return absl::NotFoundError(Cat("${", name, "}"));
    out += it->second;
    text.remove_prefix(end + 1);
  }
}

/// Rows of one file's runs, and why a run gave none.
class Runs {
 public:
  Runs(const ClaimFile& file, const ClaimRunOptions& options, std::string folder)
      : file_(file), options_(options), folder_(std::move(folder)), inputs_(options.inputs) {
    inputs_["claim"] = file.folder;
    inputs_["tmp"] = folder_;
    inputs_["seed"] = Cat(file.seed);
    inputs_["kvist"] = options.kvist;
  }

  /// Errors: Cancelled.
  absl::Status Run(const ClaimRun& run) {
    std::vector<std::string> words = run.program;
    const std::string report = (std::filesystem::path(folder_) / "tests.json").string();
    if (!run.kvist.empty()) {
      words = run.kvist;
      words.insert(words.begin(), options_.kvist);
    } else if (!run.test.empty()) {
      words = {(std::filesystem::path(options_.build_folder) / run.test).string(), "--gtest_filter=" + run.filter,
               "--gtest_output=json:" + report};
    }
    for (std::string& word : words) {
      absl::StatusOr<std::string> expanded = Expand(word, inputs_);
      if (!expanded.ok()) return Fail(run, Cat("needs ", expanded.status().message()));
      word = *std::move(expanded);
    }
    if (run.seconds > options_.seconds_max) return Fail(run, Cat("takes about ", run.seconds, " s"));
    options_.on_run(file_, run);
    const std::string output = (std::filesystem::path(folder_) / "output").string();
    const absl::StatusOr<int> code = RunProgram(words, options_.keep_going, output);
    if (absl::IsCancelled(code.status())) return code.status();
    if (!code.ok()) return Fail(run, std::string(code.status().message()));
    if (run.test.empty()) {
      if (*code != 0) return Fail(run, Cat("ended with exit code ", *code));
      return ReadRows(run, output);
    }
    return ReadTests(run, report);
  }

  std::vector<json::object> RowsOf(const std::vector<std::string>& names) const {
    std::vector<json::object> rows;
    for (const json::object& row : rows_) {
      if (std::ranges::find(names, std::string_view(row.at("run").as_string())) != names.end()) rows.push_back(row);
    }
    return rows;
  }
  /// "" when all of these runs gave their rows.
  std::string WhyNot(const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
      if (const auto it = failed_.find(name); it != failed_.end()) return Cat("run '", name, "' ", it->second);
    }
    return "";
  }

 private:
  absl::Status Fail(const ClaimRun& run, std::string why) {
    failed_[run.name] = std::move(why);
    return absl::OkStatus();
  }

  absl::Status ReadRows(const ClaimRun& run, const std::string& path) {
    const absl::StatusOr<std::string> text = ReadTextFile(path, kOutputBytesMax);
    if (!text.ok()) return Fail(run, std::string(text.status().message()));
    std::string_view rest = *text;
    while (!rest.empty()) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (!line.starts_with('{')) continue;  // What people read.
      boost::system::error_code error;
      json::value row = json::parse(line, error);
      if (error) return Fail(run, Cat("printed a line that is no JSON: ", error.message()));
      row.as_object()["run"] = run.name;
      rows_.push_back(std::move(row.as_object()));
    }
    return absl::OkStatus();
  }

  absl::Status ReadTests(const ClaimRun& run, const std::string& path) {
    const absl::StatusOr<std::string> text = ReadTextFile(path, kOutputBytesMax);
    if (!text.ok()) return Fail(run, "gave no report of its tests");
    boost::system::error_code error;
    const json::value report = json::parse(*text, error);
    if (error || !report.is_object()) return Fail(run, "gave a report that is no JSON");
    int64_t tests = 0, failures = 0, skipped = 0;
    for (const auto& [key, out] : {std::pair("tests", &tests), std::pair("failures", &failures)}) {
      if (const json::value* value = report.get_object().if_contains(key); value != nullptr && value->is_int64()) {
        *out = value->get_int64();
      }
    }
    if (const json::value* suites = report.get_object().if_contains("testsuites"); suites && suites->is_array()) {
      for (const json::value& suite : suites->get_array()) {
        const json::array* cases = suite.is_object() && suite.get_object().contains("testsuite")
                                       ? suite.get_object().at("testsuite").if_array()
                                       : nullptr;
        if (cases == nullptr) continue;
        for (const json::value& test : *cases) {
          const json::value* result = test.is_object() ? test.get_object().if_contains("result") : nullptr;
          if (result != nullptr && result->is_string() && result->get_string() == "SKIPPED") ++skipped;
        }
      }
    }
    rows_.push_back({{"run", run.name}, {"tests", tests - skipped}, {"failures", failures}});
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    return absl::OkStatus();
  }

  const ClaimFile& file_;
  const ClaimRunOptions& options_;
  const std::string folder_;
  std::map<std::string, std::string> inputs_, failed_;
  std::vector<json::object> rows_;
};

void Judge(const Claim& claim, const Runs& runs, ClaimResult& result) {
  result.why = runs.WhyNot(claim.runs);
  if (!result.why.empty()) return;
  const absl::StatusOr<double> figure = EvaluateClaim(claim.measured, runs.RowsOf(claim.runs));
  if (!figure.ok()) {
    result.why = std::string(figure.status().message());
    return;
  }
  result.measured = *figure;
  result.state = ParseClaimBound(claim.accept)->Holds(*figure) ? ClaimState::kMet : ClaimState::kShort;
}

}  // namespace

std::string_view ClaimStateName(ClaimState state) {
  switch (state) {
    case ClaimState::kMet:
      return "met";
    case ClaimState::kShort:
      return "short";
    case ClaimState::kNotComparable:
      return "not_comparable";
    case ClaimState::kNotRun:
      return "not_run";
  }
  return "";
}

absl::StatusOr<std::vector<ClaimResult>> RunClaims(const ClaimFile& file, const ClaimRunOptions& options) {
  KVIST_ASSIGN_OR_RETURN(const TempFolder folder, TempFolder::Create(std::filesystem::temp_directory_path().string()));
  Runs runs(file, options, folder.path());
  for (const ClaimRun& run : file.runs) KVIST_RETURN_IF_ERROR(runs.Run(run));
  std::vector<ClaimResult> results;
  for (const Claim& claim : file.claims) {
    ClaimResult result{.id = file.id,
                       .name = claim.name,
                       .text = claim.text,
                       .conditions = claim.conditions,
                       .unit = claim.unit,
                       .accept = claim.accept};
    if (claim.measured.empty()) {
      result.state = ClaimState::kNotComparable;
      result.why = Cat("missing: ", claim.missing, "; would be supplied by ", claim.supply);
    } else {
      Judge(claim, runs, result);
    }
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace kvist::lab
