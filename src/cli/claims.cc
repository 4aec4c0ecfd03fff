/// @file
/// `kvist claims`: what published systems claim, measured here and put beside it.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/status.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/ranges.h"
#include "lab/claim_html.h"
#include "lab/claim_record.h"
#include "lab/claim_run.h"
#include "platform/executable.h"
#include "platform/interrupt.h"
#include "platform/subprocess.h"
#include "platform/temp_folder.h"
#include "platform/text_file.h"

namespace kvist::cli {
namespace {

constexpr double kQuickSeconds = 20;
constexpr size_t kCommitBytesMax = 256;

struct ClaimsFlags {
  std::vector<std::string> ids;
  std::string folder = "claims", html;
  bool list = false, quick = false, record = false, recorded = false, json = false;
};

/// Inputs that runs may name: of the environment, and what comes with the sources.
std::map<std::string, std::string> Inputs(const std::string& folder) {
  std::map<std::string, std::string> inputs;
  const std::filesystem::path root = std::filesystem::absolute(folder).parent_path();
  inputs["root"] = root.string();
  const std::filesystem::path model = root / "models" / "default-f16.gguf";
  if (std::filesystem::exists(model)) inputs["model"] = model.string();
  for (const auto& [name, variable] : {std::pair("data", "KVIST_DATA"), std::pair("models", "KVIST_GOLDEN_MODELS")}) {
    if (const char* value = std::getenv(variable); value != nullptr && *value != 0) inputs[name] = value;
  }
  return inputs;
}

/// The commit of the sources, with '+' when they differ from it; "" where git does not tell.
std::string Commit(const std::string& folder) {
  const auto temp = TempFolder::Create(std::filesystem::temp_directory_path().string());
  if (!temp.ok()) return "";
  const std::string path = temp->path() + "/commit";
  const auto code = RunProgram(
      {"git", "-C", folder, "describe", "--always", "--dirty=+", "--exclude=*"}, [] { return !Interrupted(); }, path);
  if (!code.ok() || *code != 0) return "";
  std::string text = ReadTextFile(path, kCommitBytesMax).value_or("");
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

void PrintResult(const lab::ClaimResult& result) {
  const std::string figure = result.IsMeasured()
                                 ? fmt::format("{:.4g} {} (wanted {})", result.measured, result.unit, result.accept)
                                 : result.why;
  fmt::print("{:<6}{:<16}{}\n{:<22}{}\n", result.id, lab::ClaimStateName(result.state), result.text, "", figure);
}

/// "3 met, 1 short, 2 not comparable, 4 not run"
std::string Counts(const std::vector<lab::ClaimResult>& results) {
  std::string text;
  for (const lab::ClaimState state :
       {lab::ClaimState::kMet, lab::ClaimState::kShort, lab::ClaimState::kNotComparable, lab::ClaimState::kNotRun}) {
    text += Cat(text.empty() ? "" : ", ", std::ranges::count(results, state, &lab::ClaimResult::state), " ",
                lab::ClaimStateName(state));
  }
  return text;
}

absl::StatusOr<lab::ClaimFiles> AllClaims(const ClaimsFlags& flags) {
  absl::StatusOr<lab::ClaimFiles> claims = lab::ReadClaims(flags.folder);
  if (absl::IsNotFound(claims.status())) {
    return absl::NotFoundError(Cat(claims.status().message(), "; --dir names the folder of the claims"));
  }
  return claims;
}

/// Those that were named, or all.
absl::StatusOr<lab::ClaimFiles> Chosen(const ClaimsFlags& flags) {
  KVIST_ASSIGN_OR_RETURN(lab::ClaimFiles claims, AllClaims(flags));
  const auto bad_id = [](const auto& bad) { return bad.first; };
  for (const std::string& id : flags.ids) {
    if (std::ranges::find(claims.files, id, &lab::ClaimFile::id) == claims.files.end() &&
        std::ranges::find(claims.bad, id, bad_id) == claims.bad.end()) {
      return absl::NotFoundError(Cat("no claim is called '", id, "'; `kvist claims --list` names them"));
    }
  }
  if (flags.record && !claims.bad.empty()) {  // What was recorded of it would be lost.
    return absl::FailedPreconditionError(
        Cat("nothing is recorded while a claim cannot be read: ", claims.bad.front().second.message()));
  }
  if (flags.ids.empty()) return claims;
  const auto is_left_out = [&](const std::string& id) { return std::ranges::find(flags.ids, id) == flags.ids.end(); };
  std::erase_if(claims.files, [&](const auto& file) { return is_left_out(file.id); });
  std::erase_if(claims.bad, [&](const auto& bad) { return is_left_out(bad.first); });
  return claims;
}

/// The others run all the same.
absl::Status ReportBad(const lab::ClaimFiles& claims) {
  for (const auto& [id, status] : claims.bad) fmt::print(stderr, "{}\n", std::string(status.message()));
  if (claims.bad.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(Cat("claims that cannot be read: ", claims.bad.size()));
}

absl::StatusOr<std::vector<lab::ClaimRecord>> Measure(const ClaimsFlags& flags,
                                                      const std::vector<lab::ClaimFile>& files) {
  lab::ClaimRunOptions options{
      .kvist = ExecutablePath(), .build_folder = ExecutableFolder(), .inputs = Inputs(flags.folder)};
  if (flags.quick) options.seconds_max = kQuickSeconds;
  options.keep_going = [] { return !Interrupted(); };
  options.on_run = [](const lab::ClaimFile& file, const lab::ClaimRun& run) {
    fmt::print(stderr, "{}: {} (about {:g} s)\n", file.id, run.name, run.seconds);
  };
  const std::string commit = Commit(flags.folder);
  std::vector<lab::ClaimRecord> records;
  for (const lab::ClaimFile& file : files) {
    KVIST_ASSIGN_OR_RETURN(const std::vector<lab::ClaimResult> results, lab::RunClaims(file, options));
    for (const lab::ClaimResult& result : results) {
      records.push_back({.result = result, .commit = commit, .seed = file.seed});
      if (!flags.json) PrintResult(result);
      if (flags.json) fmt::print("{}\n", lab::ClaimJson(records.back()));
    }
  }
  return records;
}

absl::Status RunClaimsCommand(const ClaimsFlags& flags) {
  KVIST_ASSIGN_OR_RETURN(const lab::ClaimFiles claims, Chosen(flags));
  const std::vector<lab::ClaimFile>& files = claims.files;
  const absl::Status bad = ReportBad(claims);
  if (flags.list) {
    for (const lab::ClaimFile& file : files)
      fmt::print("{:<6}{} ({} claims)\n", file.id, file.title, file.claims.size());
    KVIST_RETURN_IF_ERROR(FlushOutput());
    return bad;
  }
  CatchInterrupts();
  const std::string path = (std::filesystem::path(flags.folder) / "results.jsonl").string();
  KVIST_ASSIGN_OR_RETURN(const std::vector<lab::ClaimRecord> before, lab::ReadClaimRecords(path));
  std::vector<lab::ClaimRecord> now;
  if (flags.recorded) {
    now = lab::MergeClaimRecords(files, before, {});
    for (const lab::ClaimRecord& record : now) {
      if (flags.json) fmt::print("{}\n", lab::ClaimJson(record));
      if (!flags.json) PrintResult(record.result);
    }
  } else {
    KVIST_ASSIGN_OR_RETURN(now, Measure(flags, files));
  }
  if (!flags.html.empty()) KVIST_RETURN_IF_ERROR(WriteTextFile(flags.html, lab::ClaimsHtml(files, now)));
  std::vector<lab::ClaimResult> results;
  for (const lab::ClaimRecord& record : now) results.push_back(record.result);
  const std::vector<lab::ClaimResult> broken = lab::BrokenClaims(before, results);
  if (flags.record) {
    KVIST_ASSIGN_OR_RETURN(const lab::ClaimFiles all, AllClaims(flags));
    KVIST_RETURN_IF_ERROR(lab::WriteClaimRecords(path, lab::MergeClaimRecords(all.files, before, now)));
  }
  KVIST_RETURN_IF_ERROR(FlushOutput());
  fmt::print(stderr, "{}\n", Counts(results));
  if (broken.empty()) {
    const bool skipped =
        std::ranges::find(results, lab::ClaimState::kNotRun, &lab::ClaimResult::state) != results.end();
    if (skipped && !flags.ids.empty() && !flags.quick) {
      return absl::FailedPreconditionError("of the claims that were named, some were not run");
    }
    return bad;
  }
  std::string names;
  for (const lab::ClaimResult& result : broken) names += Cat(names.empty() ? "" : ", ", result.id, " ", result.name);
  return absl::FailedPreconditionError(Cat("met when recorded, and short now: ", names));
}

}  // namespace

void AddClaims(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ClaimsFlags>();
  CLI::App* command =
      app.add_subcommand("claims", "What published systems claim, measured here: met, short or not comparable");
  command->add_option("ID", flags->ids, "Which; all when none is named");
  command->add_option("--dir", flags->folder, "Folder of the claims")->capture_default_str();
  command->add_flag("--list", flags->list, "Name them and do nothing");
  command->add_flag("--quick", flags->quick, "Leave out runs of more than 20 s");
  command->add_flag("--recorded", flags->recorded, "Show what was recorded last and measure nothing");
  command->add_flag("--record", flags->record, "Write what was measured into results.jsonl");
  command->add_option("--html", flags->html, "Write a page with bars to this file");
  command->add_flag("--json", flags->json, "One JSON object per claim on standard output");
  command->footer(
      "Runs that need them find traces in $KVIST_DATA and models in $KVIST_GOLDEN_MODELS. The exit code is 1 where a "
      "claim that was met when recorded is short now, or where one that was named was not run.");
  command->callback([flags, &exit_code] {
    const absl::Status status = RunClaimsCommand(*flags);
    exit_code = status.ok() ? 0 : Report("claims", status);
  });
}

}  // namespace kvist::cli
