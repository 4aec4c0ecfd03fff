#pragma once

/// @file
/// One request on its way through the engine, as the network sees it: starts it, turns its events into bytes to send,
/// cancels it when the client is gone. Threads: the network thread; the engine's events are posted there. Non-goals:
/// sockets, HTTP.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "serve/api_error.h"
#include "serve/prompt.h"
#include "serve/reply.h"
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
  PostToNetwork post;
  size_t output_bytes_max;  ///< Written and not yet taken; a client that reads more slowly is dropped.
};

class GenerationStream : public std::enable_shared_from_this<GenerationStream> {
 public:
  /// @param received_at  when the request was read
  GenerationStream(StreamHost& host, PreparedRequest request, TimeNs received_at);

  /// Hands the request to the engine. `wake` is called whenever there is news; not after Abort.
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
  const ReplyInfo& info() const { return writer_.info(); }
  const engine::Usage& usage() const { return record_.usage; }
  engine::FinishReason reason() const { return record_.reason; }

  /// Events of the stream not yet taken; the last ones once done().
  std::string TakeOutput();
  bool HasOutput() const { return !output_.empty(); }

  /// The whole answer. REQUIRES: done(), no error, not a stream.
  std::string Whole();

 private:
  void OnEvent(engine::GenerationEvent&& event);
  void Append(engine::GenerationEvent& event);
  void End(engine::FinishReason reason);
  void EmitEnd();
  void Cancel();
  ReplyTimings Timings() const;

  StreamHost& host_;
  ReplyWriter writer_;
  engine::GenerationRequest request_;  ///< Moved from by Start.
  std::string session_;                ///< "" = none; else `history_` is kept under it when the answer ends.
  uint64_t cache_namespace_ = 0;
  History history_;
  std::function<void()> wake_;
  std::optional<RequestId> engine_id_;
  GenerationRecord record_;
  TimeNs submitted_at_{0};
  bool begun_ = false, done_ = false, overflowed_ = false;
  std::optional<ApiError> error_;
  std::string output_;                      ///< Of a stream: bytes to send. Else: the text so far.
  std::vector<engine::TokenEvent> tokens_;  ///< Whole answers with logprobs only.
};

}  // namespace kvist::serve
