/// @file
/// `kvist eval FILE.jsonl`: share of questions that a chat model answers exactly, by family and length; and what
/// dropping parts of the text changes in that.

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
#include "cli/tier_flags.h"
#include "lab/recall.h"
#include "modelfile/chat_prompt.h"
#include "platform/interrupt.h"
#include "serve/json_output.h"

namespace kvist::cli {
namespace {

struct EvalFlags {
  ModelFlags model;
  std::string file, family;
  uint32_t per_group_max = 0, length = 0;
  double drop_share_max = 0;
  uint32_t parallel = 16;
  uint32_t max_tokens = 60;
  bool json = false, show_wrong = false;
  TierFlags tiers;
  bool again = false;
};

/// All cases with one kind of text.
struct EvalRun {
  lab::RecallText text;
  std::vector<lab::RecallResult> results;
  double seconds = 0;
  uint64_t prompt_tokens = 0, missing_tokens = 0, cached_tokens = 0, restored_tokens = 0;
};

struct Evaluation {
  std::vector<lab::RecallCase> cases;
  std::vector<EvalRun> runs;
};

absl::StatusOr<EvalRun> Run(const EvalFlags& flags, runtime::Runtime& runtime,
                            const std::vector<lab::RecallCase>& cases, lab::RecallText text) {
  EvalRun run{.text = text, .results = {}};
  const ChatEncoder encoder(*runtime.tokenizer, *runtime.chat_template);
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  StatusLine line;
  const std::string which = flags.drop_share_max > 0 ? Cat(lab::RecallTextName(text), ": ") : "";
  const auto progress = [&](size_t done, size_t correct) {
    line.Show(fmt::format("{}{} of {} cases, {} correct, {:.0f} s", which, done, cases.size(), correct, seconds()));
    return !Interrupted();
  };
  KVIST_ASSIGN_OR_RETURN(run.results, lab::RunRecall(*runtime.engine, *runtime.tokenizer, encoder, cases,
                                                     {.parallel = flags.parallel,
                                                      .max_tokens = flags.max_tokens,
                                                      .text = text,
                                                      .drop_share_max = flags.drop_share_max,
                                                      .progress = progress}));
  run.seconds = seconds();
  for (const lab::RecallResult& result : run.results) {
    run.prompt_tokens += result.prompt_tokens;
    run.missing_tokens += result.missing_tokens;
    run.cached_tokens += result.cached_tokens;
    run.restored_tokens += result.restored_tokens;
  }
  return run;
}

absl::StatusOr<Evaluation> Evaluate(const EvalFlags& flags) {
  Evaluation evaluation;
  KVIST_ASSIGN_OR_RETURN(const std::string text, ReadText(flags.file));
  absl::StatusOr<std::vector<lab::RecallCase>> cases = lab::ParseRecallCases(text);
  if (!cases.ok()) return Annotate(cases.status(), flags.file);
  if (flags.length > 0) std::erase_if(*cases, [&](const auto& one) { return one.length != flags.length; });
  evaluation.cases = lab::SelectRecallCases(*std::move(cases), flags.family, flags.per_group_max);
  if (evaluation.cases.empty()) {
    return absl::NotFoundError(Cat(flags.file, ": no cases", flags.family.empty() ? "" : " of family ", flags.family,
                                   flags.length == 0 ? "" : " of that length"));
  }
  ModelFlags model = flags.model;
  KVIST_RETURN_IF_ERROR(ResolveTiers(flags.tiers, model.runtime));
  KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Runtime> runtime, StartRuntime(model));
  if (!runtime->chat_template) return runtime->chat_template_status;
  runtime->engine->Start();
  std::vector<lab::RecallText> texts = {lab::RecallText::kWhole};
  if (flags.drop_share_max > 0) {
    texts.push_back(lab::RecallText::kDropped);
    texts.push_back(lab::RecallText::kShortened);
  }
  for (const lab::RecallText one : texts) {
    // The same cases have the same namespaces: what the first round computed is found by the second.
    if (flags.again) KVIST_RETURN_IF_ERROR(Run(flags, *runtime, evaluation.cases, one).status());
    KVIST_ASSIGN_OR_RETURN(EvalRun run, Run(flags, *runtime, evaluation.cases, one));
    evaluation.runs.push_back(std::move(run));
  }
  runtime->engine->Stop(/*drain=*/true);
  return evaluation;
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

/// @param several  kinds of text are printed: each object says which.
void PrintJson(const std::vector<lab::RecallScore>& scores, const EvalRun& run, bool several) {
  const auto print = [&](boost::json::object object) {
    if (several) object["text"] = lab::RecallTextName(run.text);
    fmt::print("{}\n", serve::JsonText(object));
  };
  for (const lab::RecallScore& score : scores) {
    boost::json::object object{
        {"family", score.family}, {"context_tokens", score.length}, {"cases", score.cases}, {"correct", score.correct}};
    if (score.failed > 0) object["failed"] = score.failed;
    print(std::move(object));
  }
  const lab::RecallScore total = Total(scores);
  boost::json::object object{{"family", "all"},
                             {"cases", total.cases},
                             {"correct", total.correct},
                             {"failed", total.failed},
                             {"prompt_tokens", run.prompt_tokens},
                             {"cached_tokens", run.cached_tokens},
                             {"restored_tokens", run.restored_tokens},
                             {"seconds", run.seconds}};
  if (several) object["missing_tokens"] = run.missing_tokens;
  print(std::move(object));
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

void PrintWrong(const std::vector<lab::RecallCase>& cases, const EvalRun& run, bool wrong_too) {
  for (size_t i = 0; i < cases.size(); ++i) {
    const lab::RecallResult& result = run.results[i];
    if (!result.status.ok()) {
      fmt::print(stderr, "{}: {}\n", cases[i].id, std::string(result.status.message()));
    } else if (wrong_too && !result.correct) {
      fmt::print(stderr, "{}: expected \"{}\", got \"{}\"\n", cases[i].id, cases[i].answer, result.output);
    }
  }
}

/// @return  cases that could not run.
uint32_t Print(const Evaluation& evaluation, const EvalRun& run, const EvalFlags& flags) {
  const std::vector<lab::RecallScore> scores = lab::ScoreRecall(evaluation.cases, run.results);
  PrintWrong(evaluation.cases, run, flags.show_wrong);
  const bool several = evaluation.runs.size() > 1;
  if (flags.json) {
    PrintJson(scores, run, several);
  } else {
    if (several) fmt::print("\nText {}\n", lab::RecallTextName(run.text));
    PrintTable(scores);
  }
  const lab::RecallScore total = Total(scores);
  fmt::print(stderr, "{} of {} correct ({:.1f} %), {} prompt tokens{} in {:.1f} s\n", total.correct, total.cases,
             100.0 * total.correct / total.cases, run.prompt_tokens,
             run.missing_tokens > 0 ? fmt::format(", {} not in view", run.missing_tokens) : "", run.seconds);
  return total.failed;
}

int RunEval(const EvalFlags& flags) {
  CatchInterrupts();
  const absl::StatusOr<Evaluation> evaluation = Evaluate(flags);
  if (!evaluation.ok()) return Report("eval", evaluation.status());
  uint32_t failed = 0;
  for (const EvalRun& run : evaluation->runs) failed += Print(*evaluation, run, flags);
  if (const absl::Status written = FlushOutput(); !written.ok()) return Report("eval", written);
  return failed == 0 ? 0 : 1;
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
  command->add_option("--length", flags->length, "Only cases of this length; 0 = all")
      ->transform(WholeNumber(0, kCountMax));
  command
      ->add_option("--drop", flags->drop_share_max,
                   "Ask three times: with the whole text, after up to this share of it that nobody asks about was read "
                   "and dropped, and with the text that is left")
      ->check(Number(0, 1));
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
  command->add_flag("--again", flags->again,
                    "Ask everything twice and look at the second answers, whose prompts come from what is cached by "
                    "then, or from tiers below it");
  AddTierFlags(*command, flags->tiers);
  AddModelFlags(*command, flags->model);
  command->add_flag("--show-wrong", flags->show_wrong, "List wrong answers on standard error");
  command->add_flag("--json", flags->json, "One JSON object per group and one for all on standard output");
  command->callback([flags, &exit_code] {
    flags->model.runtime.requests_max = flags->parallel;
    exit_code = RunEval(*flags);
  });
}

}  // namespace kvist::cli
