#include "lab/frame_replay.h"

#include <algorithm>

#include "base/prng.h"

namespace kvist::lab {
namespace {

constexpr int64_t kSpanNs = 10'000'000'000;

struct Session {
  std::vector<TokenId> text;  ///< With the answers so far, and frames that nobody answered.
  std::vector<kv::CacheOp> ops;
  uint32_t dropped_to = 0;  ///< Tokens before it are out of view, but the sinks.
  int64_t next_frame_ns = 0;
  int64_t asked_ns = -1;  ///< The frame under way came then; -1 = none is.
  uint64_t seed = 0;
};

class Frames {
 public:
  Frames(const Tokenizer& tokenizer, const FrameOptions& options)
      : options_(options),
        vocab_(tokenizer.vocab_size()),
        admission_(options.admission),
        world_(tokenizer, options.world) {}

  FrameResult Run() {
    const auto end_ns = static_cast<int64_t>(options_.duration_s * 1e9);
    result_.spans.resize(static_cast<size_t>(end_ns / kSpanNs + 1));
    int64_t next_ns = 0;
    do {
      if (world_.now_ns() >= end_ns) break;
      if (world_.now_ns() >= next_open_ns_) TryOpen();
      next_ns = next_open_ns_;
      for (size_t i = 0; i < sessions_.size(); ++i) {
        if (world_.now_ns() >= sessions_[i].next_frame_ns) SendFrame(i);
        next_ns = std::min(next_ns, sessions_[i].next_frame_ns);
      }
    } while (world_.Advance(next_ns));
    while (world_.Advance(INT64_MAX)) {  // What was asked is answered.
    }
    result_.sessions = static_cast<uint32_t>(sessions_.size());
    const engine::EngineStats stats = world_.engine().Stats();
    result_.preemptions = stats.preemptions;
    result_.computed_tokens = stats.computed_tokens;
    for (FrameSpan& span : result_.spans) span.answer_ms_mean /= std::max(span.answered, 1u);
    return std::move(result_);
  }

 private:
  FrameSpan& SpanNow() {
    return result_.spans[std::min(static_cast<size_t>(world_.now_ns() / kSpanNs), result_.spans.size() - 1)];
  }

  void TryOpen() {
    next_open_ns_ += static_cast<int64_t>(options_.open_every_s * 1e9);
    const bool open = options_.sessions > 0 ? sessions_.size() < options_.sessions : admission_.MayOpen(FrameShare());
    SpanNow().sessions = static_cast<uint32_t>(sessions_.size() + (open ? 1 : 0));
    if (!open) return;
    admission_.Open();
    // Frames of sessions come at different times of the period.
    const auto phase = static_cast<int64_t>(UniformAt(7, sessions_.size()) * static_cast<double>(options_.period_ns));
    sessions_.push_back({.next_frame_ns = world_.now_ns() + phase, .seed = sessions_.size() + 1});
  }

  /// Predicted time of a frame alone, of its period.
  double FrameShare() {
    const sched::StepCost cost = world_.engine().Stats().step_cost;
    const uint32_t context = options_.sink_tokens + options_.window_tokens;
    sched::StepWork frame, token;
    frame.Add(options_.frame_tokens, context, true);
    token.Add(1, context, true);
    const double ns = cost.Ns(frame) + (options_.answer_tokens - 1) * cost.Ns(token);
    return ns / static_cast<double>(options_.period_ns);
  }

  void SendFrame(size_t index) {
    Session& session = sessions_[index];
    session.next_frame_ns += options_.period_ns;
    for (uint32_t i = 0; i < options_.frame_tokens; ++i) {
      session.text.push_back(TokenId{static_cast<uint32_t>(Mix64(session.seed << 32 ^ session.text.size()) % vocab_)});
    }
    if (session.asked_ns >= 0) return Miss(world_.now_ns() - session.asked_ns);  // Its frame goes with the next one.
    session.asked_ns = world_.now_ns();
    DropOld(session);
    engine::GenerationRequest request;
    request.prompt = session.text;
    request.ops = session.ops;
    request.max_tokens = options_.answer_tokens;
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    world_.engine().Submit(std::move(request), [this, index](engine::GenerationEvent&& event) {
      Session& of = sessions_[index];
      of.text.insert(of.text.end(), event.token_ids.begin(), event.token_ids.end());
      if (event.finish != engine::FinishReason::kNone) Answered(of);
    });
  }

  void DropOld(Session& session) {
    if (options_.window_tokens == 0) return;
    const auto before = static_cast<uint32_t>(session.text.size()) - options_.frame_tokens;
    const uint32_t begin = std::max(session.dropped_to, options_.sink_tokens);
    if (before < begin + options_.window_tokens + options_.window_tokens / 2) return;
    const uint32_t end = before - options_.window_tokens;
    session.ops.push_back({.at = before, .begin = begin, .end = end});
    session.dropped_to = end;
  }

  void Answered(Session& session) {
    const int64_t answer_ns = world_.now_ns() - std::exchange(session.asked_ns, -1);
    FrameSpan& span = SpanNow();
    ++span.answered;
    ++result_.answered;
    const double ms = static_cast<double>(answer_ns) * 1e-6;
    span.answer_ms_mean += ms;
    span.answer_ms_max = std::max(span.answer_ms_max, ms);
    if (answer_ns <= options_.period_ns) admission_.Observe(answer_ns, options_.period_ns);
  }

  void Miss(int64_t so_far_ns) {
    ++SpanNow().missed;
    ++result_.missed;
    admission_.Observe(so_far_ns + 1, options_.period_ns);
  }

  const FrameOptions options_;
  const uint32_t vocab_;
  std::vector<Session> sessions_;
  sched::FrameAdmission admission_;
  int64_t next_open_ns_ = 0;
  FrameResult result_;
  VirtualEngine world_;
};

}  // namespace

FrameResult ReplayFrames(const Tokenizer& tokenizer, const FrameOptions& options) {
  return Frames(tokenizer, options).Run();
}

}  // namespace kvist::lab
