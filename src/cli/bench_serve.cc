/// @file
/// `kvist bench-serve`: load for a server that speaks OpenAI's API, and what it did with it.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "base/status.h"
#include "cli/commands.h"
#include "cli/http_get.h"
#include "cli/model_flags.h"
#include "cli/progress.h"
#include "cli/ranges.h"
#include "lab/load_html.h"
#include "lab/load_plan.h"
#include "lab/load_report.h"
#include "lab/load_run.h"
#include "platform/interrupt.h"
#include "platform/open_files.h"
#include "platform/text_file.h"
#include "serve/json_output.h"

namespace kvist::cli {
namespace {

struct BenchServeFlags {
  std::string url = "http://127.0.0.1:8080", api_key, endpoint = "chat", dataset, rate_file, more, html, ca_file;
  std::vector<std::string> traces, tenants;
  double slo_ttft_ms = 0, slo_tpot_ms = 0, timeout_s = 600;
  bool ignore_eos = false, json = false;
  lab::LoadPlanOptions plan;
  lab::LoadRunOptions run;
};

/// "NAME=KEY" or "NAME=KEY:RATE".
absl::StatusOr<lab::LoadTenant> ParseTenant(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == text.npos) {
    return absl::InvalidArgumentError(Cat("--tenant ", text, ": NAME=KEY or NAME=KEY:RATE is wanted"));
  }
  const size_t colon = std::max(text.rfind(':'), equals);
  lab::LoadTenant tenant{.name = text.substr(0, equals)};
  if (colon == equals || text[colon] != ':') {
    tenant.api_key = text.substr(equals + 1);
    return tenant;
  }
  tenant.api_key = text.substr(equals + 1, colon - equals - 1);
  char* end = nullptr;
  const std::string rate = text.substr(colon + 1);
  tenant.rate = std::strtod(rate.c_str(), &end);
  if (rate.empty() || *end != '\0' || !(tenant.rate > 0) || !(tenant.rate <= 1e6)) {
    return absl::InvalidArgumentError(Cat("--tenant ", tenant.name, ": '", rate, "' is no rate above 0"));
  }
  return tenant;
}

absl::Status ReadTenants(BenchServeFlags& flags) {
  std::string key = flags.api_key;
  if (const char* env = std::getenv("KVIST_API_KEY"); env != nullptr && key.empty()) key = env;
  flags.plan.tenants = {{.name = "", .api_key = key}};
  if (flags.tenants.empty()) return absl::OkStatus();
  flags.plan.tenants.clear();
  for (const std::string& text : flags.tenants) {
    KVIST_ASSIGN_OR_RETURN(lab::LoadTenant tenant, ParseTenant(text));
    flags.plan.tenants.push_back(std::move(tenant));
  }
  return absl::OkStatus();
}

absl::StatusOr<boost::json::object> MoreFields(const BenchServeFlags& flags) {
  boost::json::object more;
  if (flags.ignore_eos) more["ignore_eos"] = true;
  if (flags.more.empty()) return more;
  boost::system::error_code error;
  const boost::json::value value = boost::json::parse(flags.more, error);
  if (error || !value.is_object()) return absl::InvalidArgumentError(Cat("--body ", flags.more, ": is no JSON object"));
  for (const auto& member : value.get_object()) more[member.key()] = member.value();
  return more;
}

absl::StatusOr<lab::LoadPlan> MakePlan(BenchServeFlags& flags) {
  KVIST_RETURN_IF_ERROR(ReadTenants(flags));
  if (!flags.traces.empty()) {
    KVIST_ASSIGN_OR_RETURN(flags.plan.trace, workload::LoadTraces(flags.traces));
    if (flags.plan.trace.requests.empty()) return absl::InvalidArgumentError("--trace: there is no request in it");
  }
  if (!flags.dataset.empty()) {
    KVIST_ASSIGN_OR_RETURN(const std::string text, ReadText(flags.dataset));
    absl::StatusOr<std::vector<lab::SampleConversation>> samples = lab::ParseDataset(text);
    if (!samples.ok()) return Annotate(samples.status(), flags.dataset);
    flags.plan.dataset = *std::move(samples);
  }
  if (!flags.rate_file.empty()) {
    KVIST_ASSIGN_OR_RETURN(const std::string text, ReadText(flags.rate_file));
    absl::StatusOr<std::vector<lab::RateStep>> rates = lab::ParseRates(text);
    if (!rates.ok()) return Annotate(rates.status(), flags.rate_file);
    flags.plan.rates = *std::move(rates);
  }
  if (flags.plan.token_vocab > 0 && flags.endpoint == "chat") {
    return absl::InvalidArgumentError("--token-ids: only --endpoint completions takes them");
  }
  flags.plan.seconds = flags.run.seconds;
  return lab::LoadPlan::Make(flags.plan);
}

boost::json::object Settings(const BenchServeFlags& flags, const lab::LoadPlan& plan) {
  boost::json::object out{{"endpoint", flags.endpoint},
                          {"loop", plan.open_loop() ? "open" : "closed"},
                          {"seed", flags.plan.seed},
                          {"turns", flags.plan.turns}};
  if (flags.run.concurrency > 0) out["concurrency"] = flags.run.concurrency;
  if (flags.plan.rate > 0) out["rate"] = flags.plan.rate;
  if (!flags.rate_file.empty()) out["rate_file"] = flags.rate_file;
  if (plan.open_loop() && flags.traces.empty()) out["burstiness"] = flags.plan.burstiness;
  if (!flags.traces.empty()) {
    out["trace"] = boost::json::value_from(flags.traces);
    out["speed"] = flags.plan.speed;
    out["length_scale"] = flags.plan.length_scale;
  }
  if (!flags.dataset.empty()) {
    out["dataset"] = flags.dataset;
  } else if (flags.traces.empty()) {
    out["input_tokens"] = flags.plan.input_tokens;
    out["output_tokens"] = flags.plan.output_tokens;
  }
  if (flags.plan.max_tokens > 0) out["max_tokens"] = flags.plan.max_tokens;
  if (flags.plan.shared_prefix_tokens > 0) out["shared_prefix_tokens"] = flags.plan.shared_prefix_tokens;
  if (!flags.run.more.empty()) out["body"] = flags.run.more;
  return out;
}

absl::Status BenchServe(BenchServeFlags& flags) {
  KVIST_ASSIGN_OR_RETURN(flags.run.url, serve::ParseServerUrl(flags.url));
  KVIST_ASSIGN_OR_RETURN(flags.run.trust, serve::TrustFor(flags.run.url, flags.ca_file));
  KVIST_ASSIGN_OR_RETURN(flags.run.more, MoreFields(flags));
  KVIST_ASSIGN_OR_RETURN(lab::LoadPlan plan, MakePlan(flags));
  RaiseOpenFilesLimit();
  if (!plan.open_loop() && flags.run.concurrency == 0) flags.run.concurrency = 1;
  flags.run.chat = flags.endpoint == "chat";
  flags.run.timeout = std::chrono::milliseconds(static_cast<int64_t>(flags.timeout_s * 1000));
  StatusLine line;
  flags.run.progress = [&line](const lab::LoadProgress& progress) {
    line.Show(fmt::format("{:.0f} s  {} sent, {} running, {} answered, {} failed, {:.0f} pieces of text/s",
                          progress.elapsed_s, progress.sent, progress.running, progress.answered, progress.failed,
                          static_cast<double>(progress.pieces) / std::max(progress.elapsed_s, 1e-3)));
    return !Interrupted();
  };
  KVIST_ASSIGN_OR_RETURN(lab::LoadResult result, lab::RunLoad(plan, flags.run));
  line.Clear();
  lab::LoadReport report{.url = flags.url,
                         .model = flags.run.model,
                         .goal = {.ttft_s = flags.slo_ttft_ms * 1e-3, .tpot_s = flags.slo_tpot_ms * 1e-3},
                         .result = std::move(result),
                         .settings = Settings(flags, plan)};
  for (const lab::LoadTenant& tenant : plan.tenants()) report.tenants.push_back(tenant.name);
  report.summary = lab::SummariseLoad(report.result.records, static_cast<uint32_t>(report.tenants.size()), report.goal,
                                      report.result.duration_s);
  fmt::print("{}", flags.json ? serve::JsonText(lab::LoadJson(report)) + "\n" : lab::LoadTable(report));
  KVIST_RETURN_IF_ERROR(FlushOutput());
  if (!flags.html.empty()) {
    KVIST_RETURN_IF_ERROR(WriteTextFile(flags.html, lab::LoadHtml(report)));
  }
  if (report.result.interrupted) return absl::CancelledError("interrupted");
  if (report.summary.all.answered() == 0) {
    const std::vector<lab::LoadFault> faults = lab::FaultsOf(report.result);
    return absl::UnavailableError(faults.empty() ? std::string("no request was sent")
                                                 : Cat("no request was answered: ", faults.front().why));
  }
  return absl::OkStatus();
}

int RunBenchServe(BenchServeFlags& flags) {
  CatchInterrupts();
  const absl::Status status = BenchServe(flags);
  return status.ok() ? 0 : Report("bench-serve", status);
}

void AddArrivalFlags(CLI::App& command, BenchServeFlags& flags) {
  lab::LoadPlanOptions& plan = flags.plan;
  command.add_option("--rate", plan.rate, "Open loop: conversations per second, whether the server keeps up or not")
      ->check(Number(0.0001, 1e6));
  command
      .add_option(
          "--rate-file", flags.rate_file,
          "Open loop with a rate that changes: lines of SECONDS,RATE, each from then on; 0 at last ends the run")
      ->check(CLI::ExistingFile);
  command.add_option("--burstiness", plan.burstiness, "Of the gaps: 1 = Poisson, below it bursts, above it regular")
      ->check(Number(0.01, 1000))
      ->capture_default_str();
  command
      .add_option("--concurrency", flags.run.concurrency,
                  "Closed loop: so many conversations at once; with --rate or --trace, at most so many")
      ->transform(WholeNumber(1, 100'000));
  command
      .add_option("--trace", flags.traces,
                  "Arrivals, lengths and shared beginnings of recorded requests: Mooncake's JSON lines, Azure's CSV, "
                  "agent sessions")
      ->check(CLI::ExistingFile);
  command.add_option("--speed", plan.speed, "Of the trace's clock; 2 = twice as fast")
      ->check(Number(0.001, 1e6))
      ->capture_default_str();
  command.add_option("--length-scale", plan.length_scale, "Of the trace's prompts and answers")
      ->check(Number(0.0001, 100))
      ->capture_default_str();
  command.add_option("--requests", plan.conversations, "Conversations at most")
      ->transform(WholeNumber(1, kCountMax))
      ->capture_default_str();
  command.add_option("--seconds", flags.run.seconds, "Nothing begins later; 0 = no bound")
      ->check(Number(0, 1e6))
      ->capture_default_str();
  command.add_option("--seed", plan.seed, "Of arrivals and texts")->transform(WholeNumber(0, UINT64_MAX));
}

void AddTextFlags(CLI::App& command, BenchServeFlags& flags) {
  lab::LoadPlanOptions& plan = flags.plan;
  const CLI::Validator tokens = WholeNumber(1, 1u << 24);
  command
      .add_option("--dataset", flags.dataset,
                  "Texts: a JSON array of {\"input\", \"output_length\"} or of ShareGPT's conversations")
      ->check(CLI::ExistingFile);
  command.add_option("--input-tokens", plan.input_tokens, "Of a prompt of words, when there is no data set or trace")
      ->transform(tokens)
      ->capture_default_str();
  command.add_option("--output-tokens", plan.output_tokens, "Longest answer to it")
      ->transform(tokens)
      ->capture_default_str();
  command.add_option("--max-tokens", plan.max_tokens, "Longest answer, whatever the data set or the trace says")
      ->transform(tokens);
  command.add_option("--turns", plan.turns, "Of a conversation; each goes on from the server's answers")
      ->transform(WholeNumber(1, 1000))
      ->capture_default_str();
  command
      .add_option("--shared-prefix", plan.shared_prefix_tokens,
                  "A system prompt of about so many tokens, the same for all")
      ->transform(WholeNumber(0, 1u << 24));
  command.add_option("--token-ids", plan.token_vocab, "Prompts are token ids below this, not words (completions)")
      ->transform(WholeNumber(1, 1u << 24));
  command.add_flag("--ignore-eos", flags.ignore_eos, "Ask for answers of full length");
  command.add_option("--body", flags.more, "JSON object whose fields go into every request");
}

}  // namespace

void AddBenchServe(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<BenchServeFlags>();
  CLI::App* command = app.add_subcommand(
      "bench-serve", "Load for an OpenAI-compatible server: first token, time per token, goodput, fairness");
  command->add_option("--url", flags->url, "Server, http[s]://HOST:PORT")->capture_default_str();
  command->add_option("--ca-file", flags->ca_file, std::string(kCaFileHelp));
  command->add_option("--model", flags->run.model, "Name of the model, where the server wants one");
  command->add_option("--api-key", flags->api_key, "Key to send; also KVIST_API_KEY");
  command
      ->add_option("--tenant", flags->tenants,
                   "NAME=KEY or NAME=KEY:RATE; repeated, for requests of several tenants side by side")
      ->allow_extra_args(false);
  command->add_option("--endpoint", flags->endpoint, "chat or completions")
      ->check(CLI::IsMember({"chat", "completions"}))
      ->capture_default_str();
  AddArrivalFlags(*command, *flags);
  AddTextFlags(*command, *flags);
  command->add_option("--slo-ttft-ms", flags->slo_ttft_ms, "A good answer begins within this")->check(Number(0, 1e9));
  command->add_option("--slo-tpot-ms", flags->slo_tpot_ms, "and takes at most this per token")->check(Number(0, 1e9));
  command->add_option("--timeout", flags->timeout_s, "Of one request, seconds")
      ->check(Number(0.1, 1e6))
      ->capture_default_str();
  command->add_option("--html", flags->html, "Write a report with plots to this file");
  command->add_flag("--json", flags->json, "One JSON object on standard output");
  command->footer(
      "Times count from when a request was due. \"Sent too late\" is the part of it that this program or\n"
      "--concurrency took; when it is not small beside the rest, the figures are not the server's alone.");
  command->callback([flags, &exit_code] { exit_code = RunBenchServe(*flags); });
}

}  // namespace kvist::cli
