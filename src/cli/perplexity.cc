/// @file
/// `kvist perplexity [MODEL] FILE.txt`: how well a model predicts a text.

#include <chrono>
#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "base/status.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/progress.h"
#include "cli/ranges.h"
#include "kv/tier/frame_codec.h"
#include "lab/perplexity.h"
#include "platform/interrupt.h"
#include "serve/json_output.h"

namespace kvist::cli {
namespace {

struct PerplexityFlags {
  ModelFlags model;
  std::vector<std::string> files;  ///< [MODEL] FILE
  uint32_t window_tokens = 0, stride_tokens = 0, chunk_tokens = 0;
  uint64_t tokens_max = 0;
  std::string codec{kv::kDefaultFrameCodec};
  bool json = false;
};

struct PerplexityRun {
  lab::PerplexityResult result;
  std::string model_id;
  double seconds = 0;
};

absl::StatusOr<PerplexityRun> Measure(PerplexityFlags& flags) {
  PerplexityRun run;
  KVIST_ASSIGN_OR_RETURN(const std::string text, ReadText(flags.files.back()));
  if (text.starts_with("GGUF")) {
    return absl::InvalidArgumentError(Cat(flags.files.back(), " is a model; name a text file after it"));
  }
  if (flags.files.size() == 2) flags.model.model = flags.files.front();
  flags.model.runtime.context_tokens_max = flags.window_tokens;
  flags.model.runtime.reuse = false;
  KVIST_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Runtime> runtime, StartRuntime(flags.model));
  const Tokenizer& tokenizer = *runtime->tokenizer;
  const std::optional<TokenId> leading = tokenizer.adds_bos() ? tokenizer.bos() : std::nullopt;
  std::vector<TokenId> tokens = tokenizer.Encode(text, {.add_special = false});
  if (flags.tokens_max > 0) tokens.resize(std::min<size_t>(tokens.size(), flags.tokens_max - (leading ? 1 : 0)));
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  KVIST_ASSIGN_OR_RETURN(const auto codec,
                         kv::MakeFrameCodec(flags.codec, exec::LayoutOf(runtime->model->spec, runtime->kv_type)));
  std::vector<std::byte> encoded(codec->encoded_bytes());
  const auto there_and_back = [&](FrameId frame) {
    std::byte* const bytes = runtime->cpu->arena().Frame(frame);
    codec->Encode(bytes, encoded.data());
    codec->Decode(encoded.data(), bytes);
  };
  StatusLine line;
  const lab::PerplexityOptions options{
      .window_tokens = flags.window_tokens,
      .stride_tokens = flags.stride_tokens,
      .chunk_tokens = flags.chunk_tokens,
      .rewrite = there_and_back,
      .progress = [&](uint64_t done, uint64_t total) {
        line.Show(fmt::format("{} of {} tokens, {:.0f} tokens/s", done, total, static_cast<double>(done) / seconds()));
        return !Interrupted();
      }};
  absl::StatusOr<lab::PerplexityResult> result =
      lab::MeasurePerplexity(*runtime->executor, *runtime->memory, leading, tokens, options);
  if (!result.ok()) return Annotate(result.status(), flags.files.back());
  run.result = *result;
  run.model_id = runtime->model_id;
  run.seconds = seconds();
  return run;
}

int RunPerplexity(PerplexityFlags& flags) {
  CatchInterrupts();
  const absl::StatusOr<PerplexityRun> run = Measure(flags);
  if (!run.ok()) return Report("perplexity", run.status());
  const lab::PerplexityResult& result = run->result;
  if (flags.json) {
    const boost::json::object object{{"perplexity", result.Perplexity()},
                                     {"tokens", result.tokens},
                                     {"mean_nll", result.MeanNll()},
                                     {"windows", result.windows},
                                     {"window_tokens", result.window_tokens},
                                     {"stride_tokens", result.stride_tokens},
                                     {"model", run->model_id},
                                     {"seconds", run->seconds}};
    fmt::print("{}\n", serve::JsonText(object));
  } else {
    fmt::print("perplexity {:.4f} over {} tokens in {} windows of {}\n", result.Perplexity(), result.tokens,
               result.windows, result.window_tokens);
  }
  fmt::print(stderr, "{:.1f} s\n", run->seconds);
  const absl::Status written = FlushOutput();
  return written.ok() ? 0 : Report("perplexity", written);
}

}  // namespace

void AddPerplexity(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PerplexityFlags>();
  CLI::App* command = app.add_subcommand(
      "perplexity",
      "Perplexity of a text: the text is cut into windows that the model sees one by one; every token counts once");
  command
      ->add_option("FILES", flags->files,
                   "[MODEL] TEXT: a GGUF file or the name of a fetched model, and a text file (- = standard input)")
      ->required()
      ->expected(1, 2);
  const CLI::Validator count = WholeNumber(0, kCountMax);
  command
      ->add_option("-c,--context", flags->window_tokens,
                   "Tokens of a window; 0 = the smaller of 2048 and the model's context")
      ->transform(count);
  command
      ->add_option("--stride", flags->stride_tokens, "Tokens between the starts of windows; 0 = windows do not overlap")
      ->transform(count);
  command
      ->add_option("--tokens", flags->tokens_max,
                   "Only the first so many tokens of the text, a leading BOS included; 0 = all")
      ->transform(count);
  command
      ->add_option("--chunk", flags->chunk_tokens,
                   "Tokens of one step; changes speed and memory, not the result; 0 = as many as fit")
      ->transform(count);
  command
      ->add_option(
          "--kv-cold-codec", flags->codec,
          "Steps read what earlier ones computed as it would come back from cold memory: none, int8. With int8 "
          "the size of a step changes the result")
      ->check(CLI::IsMember({"none", "int8"}))
      ->capture_default_str();
  AddModelFlags(*command, flags->model);
  command->add_flag("--json", flags->json, "One JSON object on standard output");
  command->callback([flags, &exit_code] { exit_code = RunPerplexity(*flags); });
}

}  // namespace kvist::cli
