/// @file
/// `kvist batch IN OUT`: the requests of a file, below all others at a running server, or with a model by itself.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "base/status.h"
#include "cli/commands.h"
#include "cli/http_get.h"
#include "cli/model_flags.h"
#include "cli/progress.h"
#include "cli/ranges.h"
#include "cli/served_model.h"
#include "platform/interrupt.h"
#include "sched/policy.h"
#include "serve/batch.h"
#include "serve/json_output.h"
#include "serve/server.h"
#include "telemetry/log.h"

namespace kvist::cli {
namespace {

constexpr uint32_t kConcurrencyAtServer = 16, kConcurrencyAlone = 64;

struct BatchFlags {
  std::string in, out, url, api_key, ca_file;
  ModelFlags model;
  uint32_t concurrency = 0;  ///< 0 = by where it runs.
  uint32_t priority = 255;
  bool plain = false, json = false;
};

/// The server that `kvist serve` would be, for this process alone: it listens on a loopback port that wants a key drawn
/// here. A batch so goes the way of every other request, and its answers are theirs.
class OwnServer {
 public:
  static absl::StatusOr<std::unique_ptr<OwnServer>> Start(const ModelFlags& flags) {
    auto own = std::make_unique<OwnServer>();
    KVIST_ASSIGN_OR_RETURN(own->runtime_, StartRuntime(flags));
    const runtime::Runtime& runtime = *own->runtime_;
    if (runtime.chat_template.has_value()) {
      own->encoder_ = std::make_unique<const ChatEncoder>(*runtime.tokenizer, *runtime.chat_template);
    }
    std::random_device random;
    for (int i = 0; i < 4; ++i) own->key_ += fmt::format("{:08x}", random());
    serve::ServerOptions options{.port = 0, .api_keys = {own->key_}};
    options.unix_now_s = [] { return static_cast<int64_t>(std::time(nullptr)); };
    options.drain = std::chrono::milliseconds(0);
    options.limits.body_bytes_max = 1u << 30;
    KVIST_ASSIGN_OR_RETURN(own->server_,
                           serve::Server::Create(std::move(options), ServedModelOf(runtime, own->encoder_.get(), ""),
                                                 *runtime.engine, runtime.clock));
    own->thread_ = std::thread([server = own->server_.get()] { server->Run(); });
    return own;
  }
  ~OwnServer() {
    if (!thread_.joinable()) return;
    server_->RequestStop();
    thread_.join();
  }

  std::string url() const { return server_->url(); }
  const std::string& key() const { return key_; }

 private:
  std::unique_ptr<runtime::Runtime> runtime_;
  std::unique_ptr<const ChatEncoder> encoder_;
  std::unique_ptr<serve::Server> server_;
  std::string key_;
  std::thread thread_;
};

/// What is to do, and what was found about it.
struct Todo {
  std::vector<serve::BatchRequest> requests;
  size_t invalid = 0;   ///< Lines of the input that are no requests.
  size_t finished = 0;  ///< By an earlier run.
};

/// Writes an error for each line that is none, once.
absl::StatusOr<Todo> FindTodo(const BatchFlags& flags, serve::BatchOutput& output) {
  KVIST_ASSIGN_OR_RETURN(const std::string text, ReadText(flags.in));
  serve::BatchInput input = serve::ParseBatch(text, flags.plain ? -1 : static_cast<int>(flags.priority));
  Todo todo{.invalid = input.faults.size()};
  for (const serve::BatchFault& fault : input.faults) {
    if (output.Has(fault)) continue;
    fmt::print(stderr, "{}: {}\n", flags.in, fault.message);
    KVIST_RETURN_IF_ERROR(
        output.Append(serve::BatchErrorLine(fault.custom_id, serve::kBatchInvalidLine, fault.message, fault.line)));
  }
  for (serve::BatchRequest& request : input.requests) {
    if (output.Has(request)) {
      ++todo.finished;
    } else {
      todo.requests.push_back(std::move(request));
    }
  }
  return todo;
}

std::string ProgressText(const serve::BatchProgress& progress) {
  const uint64_t done = progress.answered + progress.failed;
  std::string text = fmt::format("{} of {} requests", done, progress.total);
  if (progress.failed > 0) text += fmt::format(", {} failed", progress.failed);
  text += fmt::format("  {:.0f} tokens/s",
                      static_cast<double>(progress.output_tokens) / std::max(progress.elapsed_s, 1e-3));
  if (done > 0) {
    const double left_s = progress.elapsed_s / static_cast<double>(done) * static_cast<double>(progress.total - done);
    text += left_s < 120 ? fmt::format("  {:.0f} s left", left_s) : fmt::format("  {:.0f} min left", left_s / 60);
  }
  return text;
}

void PrintSummary(const BatchFlags& flags, const Todo& todo, const serve::BatchProgress& progress, bool finished) {
  const double per_s = static_cast<double>(progress.output_tokens) / std::max(progress.elapsed_s, 1e-3);
  if (flags.json) {
    const boost::json::object out{{"requests", progress.total + todo.finished},
                                  {"answered", progress.answered},
                                  {"failed", progress.failed},
                                  {"finished_before", todo.finished},
                                  {"invalid_lines", todo.invalid},
                                  {"retries", progress.retries},
                                  {"prompt_tokens", progress.prompt_tokens},
                                  {"cached_tokens", progress.cached_tokens},
                                  {"output_tokens", progress.output_tokens},
                                  {"seconds", progress.elapsed_s},
                                  {"output_tokens_per_s", per_s},
                                  {"finished", finished}};
    fmt::print("{}\n", serve::JsonText(out));
    return;
  }
  fmt::print("{} answered, {} failed, {} finished before, {} invalid lines in {:.1f} s\n", progress.answered,
             progress.failed, todo.finished, todo.invalid, progress.elapsed_s);
  fmt::print("{} prompt tokens, {} of them cached; {} output tokens, {:.1f}/s\n", progress.prompt_tokens,
             progress.cached_tokens, progress.output_tokens, per_s);
}

absl::Status Send(BatchFlags& flags, Todo& todo, serve::BatchOutput& output, serve::BatchProgress& last) {
  std::unique_ptr<OwnServer> own;
  std::string url = flags.url, key = flags.api_key;
  if (url.empty()) {
    if (sched::FindPolicy("prefix-batch") != nullptr) flags.model.runtime.policy = "prefix-batch";
    const uint32_t wanted = flags.concurrency > 0 ? flags.concurrency : kConcurrencyAlone;
    flags.model.runtime.requests_max = flags.model.runtime.waiting_max = wanted;
    KVIST_ASSIGN_OR_RETURN(own, OwnServer::Start(flags.model));
    url = own->url();
    key = own->key();
  } else if (const char* env = std::getenv("KVIST_API_KEY"); env != nullptr && key.empty()) {
    key = env;
  }
  serve::BatchOptions options{.api_key = key};
  KVIST_ASSIGN_OR_RETURN(options.url, serve::ParseServerUrl(url));
  KVIST_ASSIGN_OR_RETURN(options.trust, serve::TrustFor(options.url, flags.ca_file));
  options.concurrency = flags.concurrency > 0 ? flags.concurrency
                        : own == nullptr      ? kConcurrencyAtServer
                                              : kConcurrencyAlone;
  StatusLine line;
  options.progress = [&](const serve::BatchProgress& progress) {
    last = progress;
    line.Show(ProgressText(progress));
    return !Interrupted();
  };
  return serve::RunBatch(std::move(todo.requests), output, options);
}

absl::Status RunBatchCommand(BatchFlags& flags) {
  std::error_code error;
  if (std::filesystem::equivalent(flags.in, flags.out, error)) {
    return absl::InvalidArgumentError(Cat(flags.out, " is the input too; name another file"));
  }
  KVIST_ASSIGN_OR_RETURN(serve::BatchOutput output, serve::BatchOutput::Open(flags.out));
  if (output.torn_bytes() > 0) {
    fmt::print(stderr, "{}: its last line had not been written to its end and is done again\n", flags.out);
  }
  KVIST_ASSIGN_OR_RETURN(Todo todo, FindTodo(flags, output));
  serve::BatchProgress progress;
  const absl::Status status = todo.requests.empty() ? absl::OkStatus() : Send(flags, todo, output, progress);
  PrintSummary(flags, todo, progress, status.ok());
  KVIST_RETURN_IF_ERROR(FlushOutput());
  if (!status.ok()) return Annotate(status, "run the same command again to go on");
  return absl::OkStatus();
}

}  // namespace

void AddBatch(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<BatchFlags>();
  CLI::App* command = app.add_subcommand(
      "batch", "Answer the requests of a file: at a running server below all others, or with a model by itself");
  command->add_option("IN", flags->in, "JSON lines: custom_id, method, url, body; - = standard input")->required();
  command->add_option("OUT", flags->out, "JSON lines: an answer or an error each; a run that was ended goes on in it")
      ->required();
  command->add_option("--url", flags->url, "Running server, http[s]://HOST:PORT; without it the model runs here");
  command->add_option("--ca-file", flags->ca_file, std::string(kCaFileHelp));
  command->add_option("--api-key", flags->api_key, "Key to send; also KVIST_API_KEY");
  command->add_option("--model", flags->model.model,
                      "GGUF file or the name of a fetched model, when there is no --url; else the default model");
  command
      ->add_option(
          "--concurrency", flags->concurrency,
          Cat("Requests under way (default ", kConcurrencyAtServer, " at a server, ", kConcurrencyAlone, " alone)"))
      ->transform(WholeNumber(1, 4096));
  command->add_option("--priority", flags->priority, "kvist.priority of requests that do not say it; 255 = last")
      ->transform(WholeNumber(0, 255))
      ->capture_default_str();
  command->add_flag("--plain", flags->plain, "Send bodies as they are, for a server that refuses the kvist field");
  command
      ->add_option("-c,--context", flags->model.runtime.context_tokens_max,
                   "Longest prompt and output together; 0 = the model's")
      ->transform(WholeNumber(0, kCountMax));
  AddModelFlags(*command, flags->model);
  command->add_flag("--json", flags->json, "One JSON object on standard output");
  command->callback([flags, &exit_code] {
    CatchInterrupts();
    telemetry::SetUpLog(telemetry::LogFormat::kText, spdlog::level::warn);  // Of the server in this process.
    const absl::Status status = RunBatchCommand(*flags);
    exit_code = status.ok() ? 0 : Report("batch", status);
  });
}

}  // namespace kvist::cli
