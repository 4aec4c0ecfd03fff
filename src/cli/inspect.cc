/// @file
/// `kvist inspect FILE`: what is in a model file.

#include <cstdio>
#include <memory>
#include <string>

#include <boost/json.hpp>

#include "cli/commands.h"
#include "cli/model_flags.h"
#include "modelfile/gguf.h"
#include "modelfile/inspect.h"
#include "serve/json_output.h"

namespace kvist::cli {
namespace {

struct InspectFlags {
  std::string path;
  bool json = false;
  InspectOptions options;
};

int RunInspect(const InspectFlags& flags) {
  absl::StatusOr<std::unique_ptr<GgufFile>> file = GgufFile::Open(flags.path);
  if (!file.ok()) return Report("inspect", file.status());
  std::string text;
  if (flags.json) {
    text = serve::JsonText(InspectJson(**file, flags.options)) + "\n";
  } else {
    text = InspectText(**file, flags.options);
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
  const absl::Status written = FlushOutput();
  return written.ok() ? 0 : Report("inspect", written);
}

}  // namespace

void AddInspect(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* command =
      app.add_subcommand("inspect", "Show metadata, tensors, sizes and KV bytes per token of a GGUF file");
  command->add_option("FILE", flags->path, "Model file; any part of a split model stands for all")->required();
  command->add_flag("--json", flags->json, "One JSON object on standard output");
  command->add_flag("--tensors", flags->options.tensors, "List every tensor");
  command->callback([flags, &exit_code] { exit_code = RunInspect(*flags); });
}

}  // namespace kvist::cli
