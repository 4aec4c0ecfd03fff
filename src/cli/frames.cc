/// @file
/// `kvist frames`: sessions of periodic frames in virtual time, with and without a bounded window.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "base/status.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/model_path.h"
#include "cli/ranges.h"
#include "lab/frame_replay.h"
#include "modelfile/gguf.h"
#include "serve/json_output.h"

namespace kvist::cli {
namespace {

struct FramesFlags {
  lab::FrameOptions options;
  std::vector<double> prices;
  double period_ms = 1000;
  bool json = false;
};

void PrintJson(const lab::FrameResult& result) {
  boost::json::array spans;
  for (const lab::FrameSpan& span : result.spans) {
    spans.push_back({{"sessions", span.sessions},
                     {"answered", span.answered},
                     {"missed", span.missed},
                     {"answer_ms", {{"mean", span.answer_ms_mean}, {"max", span.answer_ms_max}}}});
  }
  const boost::json::object out = {{"sessions", result.sessions},
                                   {"answered", result.answered},
                                   {"missed", result.missed},
                                   {"computed_tokens", result.computed_tokens},
                                   {"spans", std::move(spans)}};
  fmt::print("{}\n", serve::JsonText(out));
}

absl::Status RunFrames(FramesFlags& flags) {
  KVIST_ASSIGN_OR_RETURN(const std::string model, ResolveModel(""));
  KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(model));
  KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<const Tokenizer> tokenizer, Tokenizer::FromGguf(*file));
  std::ranges::copy(flags.prices, flags.options.world.machine.cost.ns.begin());
  flags.options.period_ns = static_cast<int64_t>(flags.period_ms * 1e6);
  const lab::FrameResult result = lab::ReplayFrames(*tokenizer, flags.options);
  if (flags.json) {
    PrintJson(result);
    return FlushOutput();
  }
  fmt::print("{:>8}{:>10}{:>10}{:>8}{:>14}{:>12}\n", "after s", "sessions", "answered", "missed", "mean ms", "max ms");
  for (size_t i = 0; i < result.spans.size(); ++i) {
    const lab::FrameSpan& span = result.spans[i];
    if (span.answered + span.missed == 0) continue;
    fmt::print("{:>8}{:>10}{:>10}{:>8}{:>14.0f}{:>12.0f}\n", 10 * (i + 1), span.sessions, span.answered, span.missed,
               span.answer_ms_mean, span.answer_ms_max);
  }
  fmt::print("{} sessions, {} frames answered, {} missed\n", result.sessions, result.answered, result.missed);
  return FlushOutput();
}

}  // namespace

void AddFrames(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<FramesFlags>();
  lab::FrameOptions& options = flags->options;
  options.world.requests_max = 256;
  CLI::App* command =
      app.add_subcommand("frames", "Sessions of periodic frames in virtual time: how many a machine holds");
  command->add_option("--sessions", options.sessions, "Opened one by one; 0 = as many as admission lets in")
      ->transform(WholeNumber(0, 4096))
      ->capture_default_str();
  command->add_option("--window", options.window_tokens, "Tokens of a session that stay in view; 0 = all")
      ->transform(WholeNumber(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--sinks", options.sink_tokens, "Tokens at its beginning that stay besides")
      ->transform(WholeNumber(0, 1024))
      ->capture_default_str();
  command->add_option("--period-ms", flags->period_ms, "Between frames")
      ->check(Number(1, 600'000))
      ->capture_default_str();
  command->add_option("--frame", options.frame_tokens, "Tokens of a frame")
      ->transform(WholeNumber(1, 4096))
      ->capture_default_str();
  command->add_option("--answer", options.answer_tokens, "Tokens of its answer")
      ->transform(WholeNumber(1, 4096))
      ->capture_default_str();
  command->add_option("--seconds", options.duration_s, "Of virtual time")
      ->check(Number(10, 86'400))
      ->capture_default_str();
  command->add_option("--blocks", options.world.blocks, "KV blocks of 16 tokens")
      ->transform(WholeNumber(2, 1 << 22))
      ->capture_default_str();
  command->add_option("--step-cost", flags->prices, "As for schedule")
      ->expected(sched::StepCost::kKinds)
      ->delimiter(',');
  command->add_flag("--json", flags->json, "One JSON object on standard output");
  command->callback([flags, &exit_code] {
    const absl::Status status = RunFrames(*flags);
    exit_code = status.ok() ? 0 : Report("frames", status);
  });
}

}  // namespace kvist::cli
