#include "serve/fake_world_testutil.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

#include "base/check.h"

namespace kvist::serve {

FakeExecutor::FakeExecutor(std::vector<TokenId> text, const step::ExecutorLimits& limits,
                           std::chrono::milliseconds step_time, std::chrono::nanoseconds view_token_time,
                           const Clock& clock)
    : text_(std::move(text)),
      limits_(limits),
      step_time_(step_time),
      view_token_time_(view_token_time),
      clock_(clock) {}

absl::Status FakeExecutor::Submit(step::StepPlan&& plan) {
  step::StepResult result{.id = plan.id, .started_at = clock_.Now()};
  for (const step::Slice& slice : plan.slices) {
    if (slice.want_hidden) {  // Something that tells texts of different lengths apart.
      const float at = static_cast<float>(slice.position + slice.tokens_count);
      result.hidden.insert(result.hidden.end(), {at, 1, 2, 2});
    }
    for (uint32_t i = 0; i < slice.scores_count; ++i) {
      result.scores.push_back(-1);
      for (uint32_t k = 0; k < slice.scores_top; ++k) result.score_tops.push_back({text_[k % text_.size()], -1});
    }
    if (!slice.sampling) continue;
    const TokenId token = text_[(slice.position + slice.tokens_count) % text_.size()];
    result.sampled.push_back(token);
    if (!slice.sampling->want_logprobs) continue;
    for (uint32_t i = 0; i <= slice.sampling->logprobs_count; ++i)
      result.logprobs.push_back({token, -0.5f * static_cast<float>(i)});
  }
  result.range_mass.assign(plan.mass_ranges.size(), 0.0f);
  int64_t in_view = 0;
  for (const step::Segment& segment : plan.segments) in_view += segment.tokens_count;
  result.plan = std::move(plan);
  ++steps_begun_;
  std::this_thread::sleep_for(step_time_ + in_view * view_token_time_);
  result.finished_at = clock_.Now();
  std::lock_guard lock(mutex_);
  KVIST_CHECK(!result_.has_value());
  result_ = std::move(result);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<step::StepResult>> FakeExecutor::Poll() {
  std::lock_guard lock(mutex_);
  if (result_.has_value() && !failure_.ok()) {
    result_.reset();
    return std::exchange(failure_, absl::OkStatus());
  }
  if (!open_ || !result_.has_value()) return std::optional<step::StepResult>();
  return std::exchange(result_, std::nullopt);
}

void FakeExecutor::SetGate(bool open) {
  {
    std::lock_guard lock(mutex_);
    open_ = open;
  }
  if (open && wake_) wake_();
}

void FakeExecutor::Fail(absl::Status status) {
  {
    std::lock_guard lock(mutex_);
    failure_ = std::move(status);
  }
  if (wake_) wake_();
}

RunningServer::RunningServer(ServerOptions options, ServedModel model, engine::Engine& engine, const Clock& clock) {
  options.port = 0;
  if (!options.unix_now_s) options.unix_now_s = [] { return static_cast<int64_t>(std::time(nullptr)); };
  auto server = Server::Create(std::move(options), std::move(model), engine, clock);
  KVIST_CHECK(server.ok());
  server_ = *std::move(server);
  thread_ = std::thread([this] { server_->Run(); });
}

RunningServer::~RunningServer() {
  server_->RequestStop();
  server_->RequestStop();
  Join();
}

void RunningServer::Join() {
  if (thread_.joinable()) thread_.join();
}

FakeWorld::FakeWorld(const FakeWorldOptions& options) {
  const auto file = GgufFile::Open(options.model_path);
  KVIST_CHECK(file.ok());
  auto made = Tokenizer::FromGguf(**file);
  KVIST_CHECK(made.ok());
  tokenizer = *std::move(made);
  const uint32_t context = options.context_tokens_max;
  const Clock& clock = options.clock != nullptr ? *options.clock : real_clock;
  std::vector<TokenId> text = tokenizer->Encode(options.text, {.add_special = false});
  executor = std::make_unique<FakeExecutor>(std::move(text),
                                            step::ExecutorLimits{.tokens_per_step_max = 512,
                                                                 .slices_per_step_max = options.requests_max,
                                                                 .block_tokens = kv::kBlockTokens,
                                                                 .vocab_size = tokenizer->vocab_size(),
                                                                 .hidden_size = 4,
                                                                 .context_tokens_max = context},
                                            options.step_time, options.view_token_time, clock);
  memory = std::make_unique<kv::KvMemory>(kv::KvMemoryOptions{.frames_count = 4 * context / kv::kBlockTokens});
  policy = sched::NewChunkedPolicy({});
  engine = std::make_unique<engine::Engine>(*executor, *memory, *policy, *tokenizer, clock,
                                            engine::EngineOptions{.waiting_max = options.waiting_max});
  ServedModel model{.id = "fake",
                    .tokenizer = tokenizer.get(),
                    .context_tokens_max = engine->context_tokens_max(),
                    .embedding_length = executor->Limits().hidden_size,
                    .is_emulated = options.emulated,
                    .fingerprint = "fp"};
  model.chat_bytes = [](const ChatTemplateInputs& inputs) -> absl::StatusOr<size_t> {
    size_t bytes = 0;
    for (const auto& message : inputs.messages) bytes += message.at("content").as_string().size() + 1;
    return bytes;
  };
  model.encode_chat = [this](const ChatTemplateInputs& inputs,
                             std::span<const uint32_t> marked) -> absl::StatusOr<MarkedPrompt> {
    MarkedPrompt prompt;
    for (uint32_t i = 0; i < inputs.messages.size(); ++i) {
      const auto begin = static_cast<uint32_t>(prompt.tokens.size());
      const std::string line = std::string(inputs.messages[i].at("content").as_string()) + "\n";
      for (const TokenId token : tokenizer->Encode(line)) prompt.tokens.push_back(token);
      const auto end = static_cast<uint32_t>(prompt.tokens.size()) - 1;
      if (std::ranges::find(marked, i) != marked.end()) prompt.ranges.push_back({begin, end});
    }
    return prompt;
  };
  server = std::make_unique<RunningServer>(options.server, std::move(model), *engine, clock);
}

FakeWorld::~FakeWorld() {
  executor->Release();  // The engine waits for its step.
  server.reset();
}

}  // namespace kvist::serve
