/// @file
/// `kvist eval FILE.jsonl`: share of questions that a chat model answers exactly, by family and length.

#include <chrono>
#include <cstdio>
#include <memory>
#include <set>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "base/status.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/progress.h"
#include "cli/ranges.h"
#include "lab/recall.h"
#include "modelfile/chat_prompt.h"
#include "platform/interrupt.h"
#include "serve/json_output.h"

namespace kvist::cli {
namespace {

struct EvalFlags {
  ModelFlags model;
  std::string file, family;
  uint32_t per_group_max = 0;
  uint32_t parallel = 16;
  uint32_t max_tokens = 60;
  bool json = false, show_wrong = false;
};

struct EvalRun {
  std::vector<lab::RecallCase> cases;
  std::vector<lab::RecallResult> results;
  double seconds = 0;
  uint64_t prompt_tokens = 0;
};

absl::StatusOr<EvalRun> Evaluate(const EvalFlags& flags) {
  EvalRun run;
  KVIST_ASSIGN_OR_RETURN(const std::string text, ReadText(flags.file));
  absl::StatusOr<std::vector<lab::RecallCase>> cases = lab::ParseRecallCases(text);
  if (!cases.ok()) return Annotate(cases.status(), flags.file);
  run.cases = lab::SelectRecallCases(*std::move(cases), flags.family, flags.per_group_max);
  if (run.cases.empty()) {
    return absl::NotFoundError(Cat(flags.file, ": no cases", flags.family.empty() ? "" : " of family ", flags.family));
  }
  KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Runtime> runtime, StartRuntime(flags.model));
  if (!runtime->chat_template) return runtime->chat_template_status;
  const ChatEncoder encoder(*runtime->tokenizer, *runtime->chat_template);
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  StatusLine line;
  const auto progress = [&](size_t done, size_t correct) {
    line.Show(fmt::format("{} of {} cases, {} correct, {:.0f} s", done, run.cases.size(), correct, seconds()));
    return !Interrupted();
  };
  runtime->engine->Start();
  KVIST_ASSIGN_OR_RETURN(
      run.results, lab::RunRecall(*runtime->engine, *runtime->tokenizer, encoder, run.cases,
                                  {.parallel = flags.parallel, .max_tokens = flags.max_tokens, .progress = progress}));
  runtime->engine->Stop(/*drain=*/true);
  run.seconds = seconds();
  for (const lab::RecallResult& result : run.results) run.prompt_tokens += result.prompt_tokens;
  return run;
}

lab::RecallScore Total(const std::vector<lab::RecallScore>& scores) {
  lab::RecallScore total{.family = "all"};
  for (const lab::RecallScore& score : scores) {
    total.cases += score.cases;
    total.correct += score.correct;
    total.failed += score.failed;
  }
  return total;
}

void PrintJson(const std::vector<lab::RecallScore>& scores, const EvalRun& run) {
  for (const lab::RecallScore& score : scores) {
    boost::json::object object{
        {"family", score.family}, {"context_tokens", score.length}, {"cases", score.cases}, {"correct", score.correct}};
    if (score.failed > 0) object["failed"] = score.failed;
    fmt::print("{}\n", serve::JsonText(object));
  }
  const lab::RecallScore total = Total(scores);
  const boost::json::object object{{"family", "all"},
                                   {"cases", total.cases},
                                   {"correct", total.correct},
                                   {"failed", total.failed},
                                   {"prompt_tokens", run.prompt_tokens},
                                   {"seconds", run.seconds}};
  fmt::print("{}\n", serve::JsonText(object));
}

/// One row a family, one column a length.
void PrintTable(const std::vector<lab::RecallScore>& scores) {
  std::set<uint32_t> lengths;
  std::vector<std::string> families;
  for (const lab::RecallScore& score : scores) {
    lengths.insert(score.length);
    if (families.empty() || families.back() != score.family) families.push_back(score.family);
  }
  families.emplace_back("all");
  fmt::print("{:<18}", "correct of cases");
  for (const uint32_t length : lengths) fmt::print("{:>10}", length);
  fmt::print("{:>10}\n", "all");
  for (const std::string& family : families) {
    fmt::print("{:<18}", family);
    const auto print_cell = [&](auto&& belongs) {
      uint32_t cases = 0, correct = 0;
      for (const lab::RecallScore& score : scores) {
        if ((family != "all" && score.family != family) || !belongs(score)) continue;
        cases += score.cases;
        correct += score.correct;
      }
      fmt::print("{:>10}", cases == 0 ? "-" : fmt::format("{}/{}", correct, cases));
    };
    for (const uint32_t length : lengths) print_cell([&](const lab::RecallScore& s) { return s.length == length; });
    print_cell([](const lab::RecallScore&) { return true; });
    fmt::print("\n");
  }
}

void PrintWrong(const EvalRun& run, bool wrong_too) {
  for (size_t i = 0; i < run.cases.size(); ++i) {
    const lab::RecallResult& result = run.results[i];
    if (!result.status.ok()) {
      fmt::print(stderr, "{}: {}\n", run.cases[i].id, std::string(result.status.message()));
    } else if (wrong_too && !result.correct) {
      fmt::print(stderr, "{}: expected \"{}\", got \"{}\"\n", run.cases[i].id, run.cases[i].answer, result.output);
    }
  }
}

int RunEval(const EvalFlags& flags) {
  CatchInterrupts();
  const absl::StatusOr<EvalRun> run = Evaluate(flags);
  if (!run.ok()) return Report("eval", run.status());
  const std::vector<lab::RecallScore> scores = lab::ScoreRecall(run->cases, run->results);
  PrintWrong(*run, flags.show_wrong);
  if (flags.json) {
    PrintJson(scores, *run);
  } else {
    PrintTable(scores);
  }
  const lab::RecallScore total = Total(scores);
  fmt::print(stderr, "{} of {} correct ({:.1f} %), {} prompt tokens in {:.1f} s\n", total.correct, total.cases,
             100.0 * total.correct / total.cases, run->prompt_tokens, run->seconds);
  if (const absl::Status written = FlushOutput(); !written.ok()) return Report("eval", written);
  return total.failed == 0 ? 0 : 1;
}

}  // namespace

void AddEval(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* command =
      app.add_subcommand("eval", "Exact match of a chat model's answers, by family and length of context");
  command
      ->add_option("FILE", flags->file,
                   "Cases, one JSON object a line: id, family, length, messages, answer; - = standard input")
      ->required();
  command->add_option("--model", flags->model.model, "GGUF file or the name of a fetched model");
  command->add_option("--family", flags->family, "Only cases of this family");
  command->add_option("--limit", flags->per_group_max, "At most so many cases of each family and length; 0 = all")
      ->transform(WholeNumber(0, kCountMax));
  command->add_option("--parallel", flags->parallel, "Cases that run at once")
      ->transform(WholeNumber(1, 1024))
      ->capture_default_str();
  command->add_option("-n,--max-tokens", flags->max_tokens, "Longest answer in tokens")
      ->transform(WholeNumber(1, kCountMax))
      ->capture_default_str();
  command
      ->add_option("-c,--context", flags->model.runtime.context_tokens_max,
                   "Longest prompt and answer together; 0 = the model's")
      ->transform(WholeNumber(0, kCountMax));
  AddModelFlags(*command, flags->model);
  command->add_flag("--show-wrong", flags->show_wrong, "List wrong answers on standard error");
  command->add_flag("--json", flags->json, "One JSON object per group and one for all on standard output");
  command->callback([flags, &exit_code] {
    flags->model.runtime.requests_max = flags->parallel;
    exit_code = RunEval(*flags);
  });
}

}  // namespace kvist::cli
