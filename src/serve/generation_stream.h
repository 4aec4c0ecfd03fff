#pragma once

/// @file
/// One request on its way through the engine, as the network sees it: starts its choices (requests of the engine that
/// differ in their seed), turns their events into bytes to send, cancels them when the client is gone. Threads: the
/// network thread; the engine's events are posted there. Non-goals: sockets, HTTP.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "serve/api_error.h"
#include "serve/capsules.h"
#include "serve/output_parser.h"
#include "serve/prompt.h"
#include "serve/request_log.h"
#include "serve/serve_metrics.h"

namespace kvist::serve {

/// Runs a function on the network thread, soon; any thread may call it.
using PostToNetwork = std::function<void(std::function<void()>)>;

/// What a stream needs from around it; all of it outlives the stream.
struct StreamHost {
  engine::Engine& engine;
  const Tokenizer& tokenizer;
  const Clock& clock;
  ServeMetrics& metrics;
  Sessions& sessions;
  Capsules& capsules;
  RequestLog& request_log;
  std::function<int64_t()> unix_now_s;
  PostToNetwork post;
  size_t output_bytes_max;  ///< Written and not yet taken; a client that reads more slowly is dropped.
};

class GenerationStream : public std::enable_shared_from_this<GenerationStream> {
 public:
  /// @param received_at  when the request was read
  GenerationStream(StreamHost& host, PreparedRequest request, TimeNs received_at);

  /// Hands the choices to the engine. `wake` is called whenever there is news; not after Abort.
  void Start(std::function<void()> wake);

  /// The client is gone: cancels and says nothing more. Again is nothing.
  void Abort();

  /// Cancels and ends with `error`, unless it has ended already.
  void Fail(ApiError error);

  /// Of a stream: the head of the answer is written even if the engine has not begun.
  void Begin();

  bool begun() const { return begun_; }            ///< The engine has begun, or Begin was called.
  bool done() const { return done_; }              ///< No more news.
  bool overflowed() const { return overflowed_; }  ///< Given up because nobody took the output.
  const std::optional<ApiError>& error() const { return error_; }
  const AnswerFormat& format() const { return *format_; }

  /// Events of the stream not yet taken; the last ones once done().
  std::string TakeOutput();
  bool HasOutput() const { return !output_.empty(); }
  /// The stream says that it is still there. REQUIRES: begun() and not done().
  void KeepAlive() { format_->KeepAlive(output_); }

  /// The whole answer. REQUIRES: done(), no error, not a stream.
  std::string Whole();

 private:
  struct Choice {
    std::optional<RequestId> engine_id;
    ChoiceOutput output;  ///< Of a stream, only how it ended.
    engine::Usage usage;
    std::shared_ptr<const engine::RequestTrace> trace;
    std::unique_ptr<OutputParser> parser;  ///< Null = all of the output is content.
  };

  void OnProgress(const engine::GenerationEvent& event);
  void OnEvent(size_t index, engine::GenerationEvent&& event);
  void Append(size_t index, engine::GenerationEvent& event);
  std::vector<OutputPart> TakeParts(Choice& choice, engine::GenerationEvent& event);
  void EndChoice(size_t index, const engine::GenerationEvent& event);
  void SumUsage();
  AnswerTotals Totals() const;
  void End(engine::FinishReason reason);
  void EmitEnd();
  void Cancel();
  void Log();
  ReplyTimings Timings() const;

  StreamHost& host_;
  const std::unique_ptr<AnswerFormat> format_;
  const AnswerInfo& info_;                              ///< The format's.
  std::vector<engine::GenerationRequest> generations_;  ///< Moved from by Start.
  std::string session_;  ///< "" = none; else what follows is kept under it when the answer ends.
  uint64_t cache_namespace_ = 0;
  const TenantId tenant_;
  History history_;  ///< With the first choice.
  std::unique_ptr<FrameSessions::Frame> frame_;
  std::optional<Turn> turn_;  ///< Its attention is that of the first choice.
  std::function<void()> wake_;
  std::vector<Choice> choices_;  ///< Those of the first prompt first.
  size_t choices_running_ = 0;
  GenerationRecord record_;
  TimeNs submitted_at_{0};
  TimeNs progress_at_{0};  ///< When it was told last.
  bool begun_ = false, done_ = false, overflowed_ = false;
  std::optional<ApiError> error_;
  std::string output_;  ///< Of a stream: bytes to send.
};

}  // namespace kvist::serve
