/// @file
/// `kvist synth SHAPE`: writes a random model of a well-known shape.

#include <chrono>
#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <boost/json.hpp>

#include "base/byte_size.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/progress.h"
#include "lab/synth.h"
#include "platform/interrupt.h"
#include "platform/thread_pool.h"
#include "serve/json_output.h"

namespace kvist::cli {
namespace {

struct SynthFlags {
  lab::SynthOptions synth;
  std::string output;
  bool list = false, json = false;
};

int ListShapes(bool json) {
  for (const lab::SynthShape& shape : lab::SynthShapes()) {
    if (json) {
      const boost::json::object object{{"name", shape.name},
                                       {"architecture", shape.architecture},
                                       {"layers", shape.layers},
                                       {"width", shape.width},
                                       {"ffn_width", shape.ffn_width},
                                       {"heads", shape.heads},
                                       {"kv_heads", shape.kv_heads},
                                       {"head_width", shape.head_width},
                                       {"vocab_size", shape.vocab_size},
                                       {"context_length", shape.context_length},
                                       {"experts", shape.experts},
                                       {"experts_used", shape.experts_used},
                                       {"expert_width", shape.expert_width}};
      fmt::print("{}\n", serve::JsonText(object));
      continue;
    }
    const std::string experts = shape.experts == 0 ? ""
                                                   : fmt::format(", {} of {} experts of {}", shape.experts_used,
                                                                 shape.experts, shape.expert_width);
    fmt::print("{:<14} {:<8} {:3} layers of {:5} and {:5}, {:2} heads on {:2} of {:3}, {:6} tokens{}\n", shape.name,
               shape.architecture, shape.layers, shape.width, shape.ffn_width, shape.heads, shape.kv_heads,
               shape.head_width, shape.vocab_size, experts);
  }
  if (!json) fmt::print("types: {}\n", fmt::join(lab::SynthTypes(), ", "));
  const absl::Status written = FlushOutput();
  return written.ok() ? 0 : Report("synth", written);
}

int RunSynth(SynthFlags& flags) {
  if (flags.list) return ListShapes(flags.json);
  if (flags.synth.shape.empty()) return Report("synth", absl::InvalidArgumentError("name a shape; --list shows them"));
  CatchInterrupts();
  if (flags.synth.threads == 0) flags.synth.threads = UsableCores();
  if (flags.output.empty()) flags.output = Cat(flags.synth.shape, "-", flags.synth.type, ".gguf");
  StatusLine line;
  flags.synth.progress = [&](uint64_t done, uint64_t total) {
    line.ShowBytes("writing", done, total);
    return !Interrupted();
  };
  const auto start = std::chrono::steady_clock::now();
  const absl::StatusOr<lab::SynthResult> result = lab::WriteSynthModel(flags.synth, flags.output);
  line.Clear();
  if (!result.ok()) return Report("synth", result.status());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (flags.json) {
    const boost::json::object object{{"path", flags.output},        {"shape", flags.synth.shape},
                                     {"type", flags.synth.type},    {"seed", flags.synth.seed},
                                     {"bytes", result->file_bytes}, {"parameters", result->parameters},
                                     {"tensors", result->tensors},  {"seconds", seconds}};
    fmt::print("{}\n", serve::JsonText(object));
  } else {
    fmt::print("{}: {} parameters, {}, {}/s\n", flags.output, FormatCount(result->parameters),
               FormatByteSize(result->file_bytes),
               FormatByteSize(static_cast<uint64_t>(static_cast<double>(result->file_bytes) / seconds)));
  }
  const absl::Status written = FlushOutput();
  return written.ok() ? 0 : Report("synth", written);
}

}  // namespace

void AddSynth(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<SynthFlags>();
  CLI::App* command = app.add_subcommand(
      "synth", "Write a random model of a well-known shape, to measure speed where the real one is not at hand");
  command->add_option("SHAPE", flags->synth.shape, "Shape of a public model, e.g. qwen3-0.6b; --list shows all");
  command->add_option("--type", flags->synth.type, "Type of the weights, e.g. q8_0, q4_k, q4_k_m, bf16")
      ->capture_default_str();
  command->add_option("-o,--out", flags->output, "File to write; else SHAPE-TYPE.gguf");
  command->add_option("--layers", flags->synth.layers, "Layers; 0 = as the shape has");
  command->add_option("--vocab", flags->synth.vocab, "Tokens of the vocabulary; 0 = as the shape has");
  command->add_option("--experts", flags->synth.experts, "Experts of a layer; 0 = as the shape has");
  command->add_option("--seed", flags->synth.seed, "Same seed, same bytes")->capture_default_str();
  command->add_option("-t,--threads", flags->synth.threads, "Threads; 0 = every core; the bytes do not change")
      ->check(CLI::Range(0, 1024));
  command->add_flag("--list", flags->list, "Show shapes and types");
  command->add_flag("--json", flags->json, "One JSON object per result on standard output");
  flags->synth.threads = 0;
  command->callback([flags, &exit_code] { exit_code = RunSynth(*flags); });
}

}  // namespace kvist::cli
