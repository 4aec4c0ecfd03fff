/// @file
/// `kvist pull NAME`: fetches a model into the store; `kvist pull --list` shows what is there.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "base/byte_size.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/progress.h"
#include "cli/ranges.h"
#include "modelstore/known_models.h"
#include "modelstore/pull.h"
#include "modelstore/store.h"
#include "platform/interrupt.h"
#include "platform/terminal.h"
#include "serve/json_output.h"

namespace kvist::cli {
namespace {

namespace fs = std::filesystem;

struct PullFlags {
  std::string name, output, sha256;
  uint32_t attempts = 4;
  uint32_t stall_s = 30;
  bool list = false, json = false;
};

/// A file of the store, or a known model that is not in it.
struct Listed {
  std::string name;  ///< What MODEL may be to mean it.
  std::string path;
  uint64_t bytes = 0;
  bool there = false;
  const modelstore::KnownModel* known = nullptr;
};

/// hf/OWNER/REPO/FILE is what hf:OWNER/REPO/FILE fetches; other files go by their path.
std::string NameOfStored(const std::string& relative, const std::string& path) {
  constexpr std::string_view kHubFolder = "hf/";
  return relative.starts_with(kHubFolder) ? "hf:" + relative.substr(kHubFolder.size()) : path;
}

std::vector<Listed> ListStore(const std::string& folder) {
  std::vector<Listed> list;
  std::vector<std::string> known_paths;
  for (const modelstore::KnownModel& model : modelstore::KnownModels()) {
    const std::string path = Cat(folder, "/", model.name, ".gguf");
    std::error_code error;
    const bool there = fs::is_regular_file(path, error);
    list.push_back(
        {.name = std::string(model.name), .path = path, .bytes = model.bytes, .there = there, .known = &model});
    known_paths.push_back(path);
  }
  const size_t known_count = list.size();
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string path = entry->path().string();
    std::error_code ignored;
    if (entry->path().extension() != ".gguf" || !entry->is_regular_file(ignored)) continue;
    if (std::ranges::find(known_paths, path) != known_paths.end()) continue;
    list.push_back({.name = NameOfStored(path.substr(folder.size() + 1), path),
                    .path = path,
                    .bytes = entry->file_size(ignored),
                    .there = true});
  }
  std::sort(list.begin() + known_count, list.end(), [](const Listed& a, const Listed& b) { return a.name < b.name; });
  return list;
}

absl::Status RunList(const PullFlags& flags) {
  KVIST_ASSIGN_OR_RETURN(const std::string folder, modelstore::StoreFolder());
  for (const Listed& model : ListStore(folder)) {
    if (!flags.json) {
      fmt::print("{:<16} {:>10}  {:<8} {}\n", model.name, FormatByteSize(model.bytes), model.there ? "here" : "-",
                 model.known != nullptr ? fmt::format("{} ({})", model.known->summary, model.known->license) : "");
      continue;
    }
    boost::json::object object{
        {"name", model.name}, {"path", model.path}, {"bytes", model.bytes}, {"present", model.there}};
    if (model.known != nullptr) {
      object["license"] = model.known->license;
      object["summary"] = model.known->summary;
      object["sha256"] = model.known->sha256;
    }
    fmt::print("{}\n", serve::JsonText(object));
  }
  fmt::print(stderr, "models are kept in {}\n", folder);
  return FlushOutput();
}

std::string HubToken() {
  const char* token = std::getenv("HF_TOKEN");
  return token == nullptr ? "" : token;
}

absl::StatusOr<modelstore::PullOptions> OptionsOf(const PullFlags& flags, StatusLine& line) {
  modelstore::PullOptions options{.output = flags.output,
                                  .sha256 = flags.sha256,
                                  .hub = modelstore::HubEndpoint(),
                                  .hub_token = HubToken(),
                                  .pip_talks = StderrIsTerminal()};
  options.http.attempts_max = flags.attempts;
  options.http.stall_timeout = std::chrono::seconds(flags.stall_s);
  options.progress = [&line](std::string_view stage, uint64_t done, uint64_t total) {
    if (done > 0 || total > 0) {
      line.ShowBytes(stage, done, total);
    } else if (stage != "fetching") {  // Nothing arrived yet, or pip fetches and draws its own bar.
      line.Show(stage);
    }
    return !Interrupted();
  };
  options.notice = [&line](std::string_view text) {
    line.Clear();
    fmt::print(stderr, "{}\n", text);
  };
  if (flags.output.empty()) {
    KVIST_ASSIGN_OR_RETURN(options.folder, modelstore::StoreFolder());
  }
  return options;
}

absl::Status RunPullOf(const PullFlags& flags) {
  StatusLine line;
  KVIST_ASSIGN_OR_RETURN(const modelstore::PullOptions options, OptionsOf(flags, line));
  const std::vector<std::string> parts = modelstore::PartNames(flags.name);
  if (parts.size() > 1 && !(flags.output.empty() && flags.sha256.empty())) {
    return absl::InvalidArgumentError(
        Cat(flags.name, " is a split model of ", parts.size(), " files: --output and --sha256 are for one file"));
  }
  for (const std::string& part : parts) {
    KVIST_ASSIGN_OR_RETURN(const modelstore::Pulled pulled, modelstore::Pull(part, options));
    line.Clear();
    if (flags.json) {
      boost::json::object object{
          {"name", part}, {"path", pulled.path}, {"bytes", pulled.bytes}, {"fetched", pulled.fetched}};
      if (!pulled.sha256.empty()) object["sha256"] = pulled.sha256;
      fmt::print("{}\n", serve::JsonText(object));
    } else {
      fmt::print("{}\n", pulled.path);
    }
    fmt::print(stderr, "{}: {}, {}\n", part, FormatByteSize(pulled.bytes),
               pulled.fetched ? "fetched" : "already there");
  }
  return FlushOutput();
}

int RunPull(const PullFlags& flags) {
  CatchInterrupts();
  const absl::Status status = flags.list ? RunList(flags) : RunPullOf(flags);
  return status.ok() ? 0 : Report("pull", status);
}

}  // namespace

void AddPull(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PullFlags>();
  CLI::App* command = app.add_subcommand("pull", "Fetch a model; an interrupted download goes on where it stopped");
  CLI::Option* name =
      command->add_option("NAME", flags->name, "A known model (see --list), hf:OWNER/REPO/FILE or an http(s) URL");
  CLI::Option* list = command->add_flag("--list", flags->list, "Show the known models and what is there");
  name->excludes(list);
  command->add_option("-o,--output", flags->output, "File to write instead of one in the folder of models");
  command->add_option("--sha256", flags->sha256, "SHA-256 that the file must have");
  command->add_option("--attempts", flags->attempts, "Tries in a row without progress")
      ->transform(WholeNumber(1, 1000))
      ->capture_default_str();
  command->add_option("--stall-timeout", flags->stall_s, "Seconds without data after which a try has failed")
      ->transform(WholeNumber(1, 3600))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "One JSON object per file on standard output");
  command->footer(
      "Models lie in $KVIST_MODELS, else $XDG_DATA_HOME/kvist/models, else ~/.local/share/kvist/models.\n"
      "HF_ENDPOINT names another model hub, HF_TOKEN is sent to it.");
  command->callback([flags, name, &exit_code] {
    if (!flags->list && name->count() == 0) throw CLI::RequiredError("NAME or --list");
    exit_code = RunPull(*flags);
  });
}

}  // namespace kvist::cli
