/// @file
/// `kvist run [MODEL]`: one answer, or a conversation on a terminal.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <ctime>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <random>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "base/counted.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/model_flags.h"
#include "cli/ranges.h"
#include "cli/read_line.h"
#include "modelfile/chat_prompt.h"
#include "platform/interrupt.h"
#include "platform/terminal.h"
#include "serve/answer_format.h"
#include "serve/json_output.h"

namespace kvist::cli {
namespace {

using engine::FinishReason;
using engine::GenerationEvent;

struct RunFlags {
  ModelFlags model;
  std::string prompt, system;
  bool has_prompt = false, raw = false, json = false;
  uint32_t max_tokens = 512;
  step::Sampling sampling{.temperature = 0};
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

/// A finished generation and how long it took.
struct Answer {
  std::string text;
  FinishReason finish = FinishReason::kNone;
  absl::Status status;
  engine::Usage usage;
  double prompt_s = 0;    ///< From the request to its first token.
  double generate_s = 0;  ///< From the first token to the last.

  double PromptTokensPerS() const { return prompt_s > 0 ? (usage.prompt_tokens - usage.cached_tokens) / prompt_s : 0; }
  double TokensPerS() const {
    return generate_s > 0 && usage.output_tokens > 1 ? (usage.output_tokens - 1) / generate_s : 0;
  }
};

/// Brings events from the engine's thread to the one that prints.
class EventQueue {
 public:
  void Push(GenerationEvent&& event) {
    std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    ready_.notify_one();
  }
  /// Waits a moment; nullopt when nothing came, so that the caller can look for an interrupt.
  std::optional<GenerationEvent> Pop() {
    std::unique_lock lock(mutex_);
    if (!ready_.wait_for(lock, std::chrono::milliseconds(50), [&] { return !events_.empty(); })) return std::nullopt;
    GenerationEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<GenerationEvent> events_;
};

/// One loaded model and what is asked of it.
class Session {
 public:
  Session(const RunFlags& flags, std::unique_ptr<runtime::Runtime> runtime)
      : flags_(flags), runtime_(std::move(runtime)), chat_(!flags.raw && runtime_->chat_template.has_value()) {
    if (chat_) encoder_.emplace(*runtime_->tokenizer, *runtime_->chat_template);
    if (!flags.raw && !chat_) {
      fmt::print(stderr, "note: {}; the text is continued as it stands\n",
                 std::string(runtime_->chat_template_status.message()));
    }
    runtime_->engine->Start();
    NewConversation();
  }

  bool chat() const { return chat_; }
  const runtime::Runtime& runtime() const { return *runtime_; }

  void NewConversation() {
    messages_.clear();
    if (!flags_.system.empty()) messages_.push_back({{"role", "system"}, {"content", flags_.system}});
  }

  /// Answers `text`: the next message of the conversation, or a text to continue. A failed turn leaves no trace in it.
  Answer Ask(const std::string& text, bool print) {
    Answer answer;
    absl::StatusOr<std::vector<TokenId>> prompt = PromptOf(text);
    if (!prompt.ok()) {
      answer.finish = FinishReason::kError;
      answer.status = prompt.status();
    } else {
      Generate(*std::move(prompt), print, answer);
    }
    if (!chat_) return answer;
    if (answer.finish == FinishReason::kError) {
      messages_.pop_back();
    } else {
      messages_.push_back({{"role", "assistant"}, {"content", answer.text}});
    }
    return answer;
  }

 private:
  absl::StatusOr<std::vector<TokenId>> PromptOf(const std::string& text) {
    if (chat_) {
      messages_.push_back({{"role", "user"}, {"content", text}});
      return encoder_->Encode({.messages = messages_, .now_unix_s = static_cast<int64_t>(std::time(nullptr))});
    }
    const Tokenizer& tokenizer = *runtime_->tokenizer;
    const bool has_bos = tokenizer.bos() && text.starts_with(tokenizer.Piece(*tokenizer.bos()));
    std::vector<TokenId> tokens = tokenizer.Encode(text, {.add_special = !has_bos, .parse_special = true});
    // An EOS would end the text that is to be continued.
    if (!has_bos && tokenizer.adds_eos() && !tokens.empty() && tokens.back() == tokenizer.eos()) tokens.pop_back();
    if (tokens.empty()) return absl::InvalidArgumentError("the prompt is empty");
    return tokens;
  }

  void Generate(std::vector<TokenId> prompt, bool print, Answer& answer) {
    engine::GenerationRequest request{.max_tokens = flags_.max_tokens,
                                      .sampling = flags_.sampling,
                                      .stop = flags_.stop,
                                      .ignore_eos = flags_.ignore_eos,
                                      .strip_leading_space = runtime_->tokenizer->IsBreak(prompt.back())};
    request.sampling.seed = flags_.seed ? *flags_.seed : std::random_device()();
    request.prompt = std::move(prompt);
    EventQueue events;
    const TimeNs start = runtime_->clock.Now();
    TimeNs first = start;
    const RequestId id = runtime_->engine->Submit(
        std::move(request), [&events](GenerationEvent&& event) { events.Push(std::move(event)); });
    bool cancelled = false;
    while (answer.finish == FinishReason::kNone) {
      if (Interrupted() && !cancelled) {
        cancelled = true;
        runtime_->engine->Cancel(id);
      }
      std::optional<GenerationEvent> event = events.Pop();
      if (!event) continue;
      if (first == start) first = runtime_->clock.Now();
      if (print) {
        std::fwrite(event->text.data(), 1, event->text.size(), stdout);
        std::fflush(stdout);
      }
      answer.text += event->text;
      answer.usage = event->usage;
      answer.status = event->status;
      answer.finish = event->finish;
    }
    answer.prompt_s = Seconds(first - start);
    answer.generate_s = Seconds(runtime_->clock.Now() - first);
  }

  const RunFlags& flags_;
  std::unique_ptr<runtime::Runtime> runtime_;
  const bool chat_;
  std::optional<ChatEncoder> encoder_;
  boost::json::array messages_;
};

void PrintSpeed(const Answer& answer) {
  fmt::print(stderr, "prompt {} ({} cached), {:.1f} tokens/s; answer {}, {:.1f} tokens/s\n",
             Counted(answer.usage.prompt_tokens, "token"), answer.usage.cached_tokens, answer.PromptTokensPerS(),
             Counted(answer.usage.output_tokens, "token"), answer.TokensPerS());
}

void PrintJson(const Answer& answer, const runtime::Runtime& runtime) {
  const boost::json::object object{{"text", answer.text},
                                   {"finish_reason", serve::FinishReasonName(answer.finish)},
                                   {"usage",
                                    {{"prompt_tokens", answer.usage.prompt_tokens},
                                     {"completion_tokens", answer.usage.output_tokens},
                                     {"total_tokens", answer.usage.prompt_tokens + answer.usage.output_tokens},
                                     {"prompt_tokens_details", {{"cached_tokens", answer.usage.cached_tokens}}}}},
                                   {"timings",
                                    {{"prompt_s", answer.prompt_s},
                                     {"prompt_tokens_per_s", answer.PromptTokensPerS()},
                                     {"generate_s", answer.generate_s},
                                     {"tokens_per_s", answer.TokensPerS()}}},
                                   {"model", runtime.model_id}};
  fmt::print("{}\n", serve::JsonText(object));
}

/// One prompt, one answer.
absl::Status RunOnce(const RunFlags& flags, Session& session, const std::string& prompt) {
  const Answer answer = session.Ask(prompt, /*print=*/!flags.json);
  if (!answer.status.ok()) return answer.status;
  if (flags.json) {
    PrintJson(answer, session.runtime());
  } else {
    std::fputs("\n", stdout);
  }
  KVIST_RETURN_IF_ERROR(FlushOutput());
  PrintSpeed(answer);
  return answer.finish == FinishReason::kCancelled ? absl::CancelledError("interrupted") : absl::OkStatus();
}

/// A conversation: Ctrl-C stops an answer, Ctrl-D ends.
void Converse(Session& session) {
  fmt::print(stderr, "{}. Ctrl-C stops an answer, Ctrl-D ends{}.\n", session.runtime().model_id,
             session.chat() ? ", /new forgets the conversation" : "");
  while (true) {
    ClearInterrupt();
    const std::optional<std::string> line = ReadLine("> ");
    if (!line) return;
    if (*line == "/new") {
      session.NewConversation();
      continue;
    }
    if (line->find_first_not_of(" \t") == std::string::npos) continue;
    const Answer answer = session.Ask(*line, /*print=*/true);
    std::fputs("\n", stdout);
    std::fflush(stdout);
    if (answer.status.ok()) {
      PrintSpeed(answer);
    } else {
      fmt::print(stderr, "{}{}\n", std::string(answer.status.message()), session.chat() ? " (/new starts anew)" : "");
    }
  }
}

/// White space alone can be continued, but is no message.
bool IsEmpty(std::string_view prompt, bool raw) {
  return raw ? prompt.empty() : prompt.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

absl::Status Run(RunFlags& flags) {
  const bool converse = !flags.has_prompt && StdinIsTerminal();
  if (converse && flags.json)
    return absl::InvalidArgumentError("--json needs a prompt: -p TEXT, or text on standard input");
  if (!flags.has_prompt && !converse) {
    KVIST_ASSIGN_OR_RETURN(flags.prompt, ReadText("-"));
  }
  if (!converse && IsEmpty(flags.prompt, flags.raw)) {
    return absl::InvalidArgumentError("the prompt is empty: give a text with -p, or on standard input");
  }
  KVIST_ASSIGN_OR_RETURN(std::unique_ptr<runtime::Runtime> runtime, StartRuntime(flags.model));
  Session session(flags, std::move(runtime));
  if (!converse) return RunOnce(flags, session, flags.prompt);
  Converse(session);
  return absl::OkStatus();
}

int RunRun(RunFlags& flags) {
  CatchInterrupts();
  const absl::Status status = Run(flags);
  return status.ok() ? 0 : Report("run", status);
}

}  // namespace

void AddRun(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command = app.add_subcommand("run", "Answer a prompt; without one, talk to the model");
  command->add_option("MODEL", flags->model.model, "GGUF file or the name of a fetched model");
  CLI::Option* prompt = command->add_option("-p,--prompt", flags->prompt, "Prompt; else standard input");
  command->add_option("-n,--max-tokens", flags->max_tokens, "Longest answer in tokens")
      ->transform(WholeNumber(1, kCountMax))
      ->capture_default_str();
  command->add_option("--system", flags->system, "System message");
  command->add_flag("--raw", flags->raw, "Continue the text as it stands, without the chat template");
  step::Sampling& sampling = flags->sampling;
  command->add_option("--temp", sampling.temperature, "Temperature; 0 = always the likeliest token")
      ->check(Number(0, 100))
      ->capture_default_str();
  command->add_option("--top-k", sampling.top_k, "Draw from the K likeliest tokens; 0 = all")
      ->transform(WholeNumber(0, kCountMax))
      ->capture_default_str();
  command->add_option("--top-p", sampling.top_p, "Draw from the likeliest tokens of this total probability")
      ->check(Number(0, 1))
      ->capture_default_str();
  command->add_option("--min-p", sampling.min_p, "Leave out tokens less likely than this share of the likeliest")
      ->check(Number(0, 1))
      ->capture_default_str();
  command->add_option("--repeat-penalty", sampling.repetition_penalty, "Divides the logits of tokens seen before")
      ->check(Number(0.01, 100))
      ->capture_default_str();
  command->add_option("--seed", flags->seed, "Makes draws repeatable")->transform(WholeNumber(0, UINT64_MAX));
  command->add_option("--stop", flags->stop, "Text that ends the answer; may be repeated");
  command->add_flag("--ignore-eos", flags->ignore_eos, "Do not end at the model's end token");
  command
      ->add_option("-c,--context", flags->model.runtime.context_tokens_max,
                   "Longest prompt and answer together; 0 = the model's")
      ->transform(WholeNumber(0, kCountMax));
  AddModelFlags(*command, flags->model);
  command->add_flag("--json", flags->json, "One JSON object on standard output");
  command->callback([flags, prompt, &exit_code] {
    flags->has_prompt = prompt->count() > 0;
    exit_code = RunRun(*flags);
  });
}

}  // namespace kvist::cli
