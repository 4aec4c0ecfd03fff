#include "exec/cpu/cpu_executor.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"

namespace kvist::exec {
namespace {

constexpr uint32_t kCopyPartsPerThread = 4;

}  // namespace

kv::PageLayout LayoutOf(const model::ModelSpec& spec, KvType kv_type) {
  return kv::PageLayout::Dense(kv_type, spec.layers, spec.kv_heads, spec.key_width, spec.value_width);
}

CpuExecutor::CpuExecutor(std::shared_ptr<const model::Model> model, const CpuExecutorOptions& options,
                         const kv::SpanTable& spans, const Clock& clock)
    : model_(std::move(model)),
      options_(options),
      spans_(spans),
      clock_(clock),
      name_(Cat("cpu-", kernels::IsaName(options.isa))),
      pool_(options.threads),
      scratch_(options.threads) {
  limits_ = {.tokens_per_step_max = options.tokens_per_step_max,
             .slices_per_step_max = options.slices_per_step_max,
             .block_tokens = kv::kBlockTokens,
             .hot_bytes = options.frames_count * LayoutOf(model_->spec, options.kv_type).frame_bytes(),
             .vocab_size = model_->spec.vocab_size,
             .hidden_size = model_->spec.width,
             .context_tokens_max = options.context_tokens_max,
             .steps_in_flight_max = 1};
  batch_.Reserve(limits_);
  for (WorkerScratch& scratch : scratch_) scratch.Reserve(limits_.vocab_size);
}

void CpuExecutor::WorkerScratch::Reserve(uint32_t vocab_size) {
  sampling.Reserve(vocab_size);
  uses.reserve(vocab_size);
  biases.reserve(vocab_size);
  top.reserve(vocab_size);
}

absl::StatusOr<std::unique_ptr<CpuExecutor>> CpuExecutor::Create(std::shared_ptr<const model::Model> model,
                                                                 const CpuExecutorOptions& options,
                                                                 const kv::SpanTable& spans, const Clock& clock) {
  KVIST_CHECK(options.threads >= 1 && options.tokens_per_step_max >= 1 && options.slices_per_step_max >= 1);
  auto executor = std::unique_ptr<CpuExecutor>(new CpuExecutor(std::move(model), options, spans, clock));
  kv::PageLayout layout = LayoutOf(executor->model_->spec, options.kv_type);
  KVIST_ASSIGN_OR_RETURN(executor->arena_, kv::FrameArena::Create(options.frames_count, layout.frame_bytes()));
  const TimeNs start = clock.Now();
  KVIST_ASSIGN_OR_RETURN(executor->weights_, Weights::Load(executor->model_, executor->pool_, options.load));
  executor->load_s_ = Seconds(clock.Now() - start);
  KVIST_ASSIGN_OR_RETURN(executor->program_, Program::Compile(*executor->model_, executor->weights_, layout,
                                                              kernels::KernelsFor(options.isa),
                                                              {.tokens_max = options.tokens_per_step_max,
                                                               .slices_max = options.slices_per_step_max,
                                                               .context_tokens = options.context_tokens_max,
                                                               .threads = options.threads}));
  executor->program_.set_share_segments(options.share_segments);
  executor->step_bytes_ = executor->weights_.packed_bytes() - executor->weights_.expert_bytes();
  executor->runner_ = std::thread([e = executor.get()] { e->RunnerLoop(); });
  return executor;
}

CpuExecutor::~CpuExecutor() {
  if (!runner_.joinable()) return;
  state_.store(State::kStop, std::memory_order_release);
  state_.notify_one();
  runner_.join();
}

absl::Status CpuExecutor::Submit(step::StepPlan&& plan) {
  if (state_.load(std::memory_order_acquire) != State::kIdle) return absl::UnavailableError("a step is under way");
  // Idle: the runner touches nothing until the state changes.
  KVIST_RETURN_IF_ERROR(batch_.Build(plan, limits_, {spans_, arena_, program_.layout()}));
  result_ = std::move(spare_);
  result_.id = plan.id;
  result_.plan = std::move(plan);
  result_.sampled.resize(batch_.sampled_count);
  result_.logprobs.resize(batch_.logprobs_count);
  result_.scores.resize(batch_.scores_count);
  result_.score_tops.resize(batch_.score_tops_count);
  result_.range_mass.resize(result_.plan.mass_ranges.size());
  result_.hidden.resize(size_t{batch_.hidden_rows} * limits_.hidden_size);
  result_.logits.resize(size_t{batch_.logits_rows} * limits_.vocab_size);
  state_.store(State::kSubmitted, std::memory_order_release);
  state_.notify_one();
  return absl::OkStatus();
}

absl::StatusOr<std::optional<step::StepResult>> CpuExecutor::Poll() {
  if (state_.load(std::memory_order_acquire) != State::kDone) return std::nullopt;
  state_.store(State::kIdle, std::memory_order_relaxed);  // Told to nobody: the runner waits for a plan.
  return std::optional<step::StepResult>(std::move(result_));
}

void CpuExecutor::SetWake(std::function<void()> wake) {
  std::lock_guard lock(wake_mutex_);
  wake_ = std::move(wake);
}

void CpuExecutor::RunnerLoop() {
  while (true) {
    State state = state_.load(std::memory_order_acquire);
    if (state == State::kStop) return;
    if (state != State::kSubmitted) {
      state_.wait(state, std::memory_order_acquire);
      continue;
    }
    RunStep();
    if (!state_.compare_exchange_strong(state, State::kDone, std::memory_order_acq_rel)) return;  // Stopped.
    std::lock_guard lock(wake_mutex_);
    if (wake_) wake_();
  }
}

void CpuExecutor::RunStep() {
  result_.started_at = clock_.Now();
  const uint32_t outputs = static_cast<uint32_t>(batch_.outputs.size());
  const JobSequence::Turn start = jobs_.Start();
  program_.BeginStep(batch_);
  const uint32_t copy_parts = batch_.copies.empty() ? 0 : kCopyPartsPerThread * options_.threads;
  pool_.Run([&](uint32_t worker) {
    JobSequence::Turn turn = start;
    jobs_.Share(turn, copy_parts, [&](uint32_t part) { CopyFrames(part, copy_parts); });
    program_.RunBody(batch_, worker, jobs_, turn);
    for (uint32_t first = 0; first < outputs; first += Program::kHeadRows) {
      const uint32_t count = std::min(Program::kHeadRows, outputs - first);
      program_.RunHead(batch_, first, count, worker, jobs_, turn);
      jobs_.Share(turn, count, [&](uint32_t i) {
        const OutputRow& output = batch_.outputs[first + i];
        FinishOutput(output, program_.Logits(i), worker);
        if (output.hidden < 0) return;
        std::copy_n(program_.Hidden(i), limits_.hidden_size,
                    result_.hidden.begin() + std::ptrdiff_t{output.hidden} * limits_.hidden_size);
      });
    }
  });
  program_.FinishMass(batch_, result_.range_mass);
  result_.kv_bytes_read = program_.KvBytesRead(batch_);
  result_.bytes_moved = step_bytes_ + program_.expert_bytes() + result_.kv_bytes_read;
  result_.finished_at = clock_.Now();
}

void CpuExecutor::CopyFrames(uint32_t part, uint32_t parts) const {
  // Each part takes its share of every frame or page, so that copies of copies are right.
  constexpr uint64_t kLine = 64;
  for (const FrameCopy& copy : batch_.copies) {
    const auto [begin, end] = ShareOf(static_cast<uint32_t>(copy.bytes / kLine), part, parts);
    std::copy_n(copy.source + begin * kLine, (end - begin) * kLine, copy.target + begin * kLine);
  }
}

void CpuExecutor::FinishOutput(const OutputRow& output, const float* logits, uint32_t worker) {
  const std::span<const float> row(logits, limits_.vocab_size);
  if (output.logits >= 0) std::ranges::copy(row, result_.logits.begin() + size_t(output.logits) * limits_.vocab_size);
  if (output.score >= 0) Score(output, row, worker);
  if (output.sampled >= 0) Sample(output, row, worker);
}

void CpuExecutor::Score(const OutputRow& output, std::span<const float> logits, uint32_t worker) {
  const double log_sum = kernels::LogSumExp(logits);
  const uint32_t target = result_.plan.score_targets[output.score].value;
  result_.scores[output.score] = kernels::LogprobOf(logits, log_sum, target);
  if (output.score_top < 0) return;
  WorkerScratch& scratch = scratch_[worker];
  const uint32_t count = result_.plan.slices[output.slice].scores_top;
  kernels::TopLogprobs(logits, log_sum, count, scratch.sampling, scratch.top);
  step::TokenLogprob* out = result_.score_tops.data() + output.score_top;
  for (const kernels::TokenLogprob& entry : scratch.top) *out++ = {TokenId{entry.token}, entry.logprob};
}

void CpuExecutor::Sample(const OutputRow& output, std::span<const float> logits, uint32_t worker) {
  const step::StepPlan& plan = result_.plan;
  const step::Slice& slice = plan.slices[output.slice];
  const step::Sampling& sampling = *slice.sampling;
  WorkerScratch& scratch = scratch_[worker];
  scratch.uses.clear();
  for (uint32_t i = 0; i < slice.counts_count; ++i) {
    const step::TokenCount& count = plan.counts[slice.counts_begin + i];
    scratch.uses.push_back({count.token.value, count.in_prompt, count.in_output});
  }
  scratch.biases.clear();
  for (uint32_t i = 0; i < slice.biases_count; ++i) {
    const step::TokenBias& bias = plan.biases[slice.biases_begin + i];
    scratch.biases.push_back({bias.token.value, bias.bias});
  }
  const kernels::SamplingParams params{.temperature = sampling.temperature,
                                       .top_k = sampling.top_k,
                                       .top_p = sampling.top_p,
                                       .min_p = sampling.min_p,
                                       .repetition_penalty = sampling.repetition_penalty,
                                       .presence_penalty = sampling.presence_penalty,
                                       .frequency_penalty = sampling.frequency_penalty,
                                       .seed = sampling.seed};
  const uint64_t position = uint64_t{slice.position} + slice.tokens_count;
  const std::span<const uint32_t> allowed = std::span(plan.allowed).subspan(slice.allowed_begin, slice.allowed_count);
  const uint32_t token =
      kernels::SampleToken(logits, params, scratch.uses, scratch.biases, position, scratch.sampling, allowed);
  result_.sampled[output.sampled] = TokenId{token};
  if (output.logprobs < 0) return;
  const double log_sum = kernels::LogSumExp(logits);
  step::TokenLogprob* out = result_.logprobs.data() + output.logprobs;
  *out++ = {TokenId{token}, kernels::LogprobOf(logits, log_sum, token)};
  kernels::TopLogprobs(logits, log_sum, sampling.logprobs_count, scratch.sampling, scratch.top);
  for (const kernels::TokenLogprob& entry : scratch.top) *out++ = {TokenId{entry.token}, entry.logprob};
}

}  // namespace kvist::exec
