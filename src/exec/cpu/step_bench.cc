// What a step costs beside its kernels, in the default model (8 layers). Goal: far below the 15 us that a step may take
// on the host.
//
//   build        addresses of a plan translated (StepBatch)
//   dispatch     every job of a step handed out and every instruction run, with kernels that do nothing: embedding,
//                rotary tables and the gathering of rows are left. One plan for all batch sizes, captured once.
//   recaptured   the same, captured anew for each step
//
//   step_bench --benchmark_filter=dispatch

#include <benchmark/benchmark.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/check.h"
#include "exec/cpu/golden_testutil.h"
#include "kernels/dispatch.h"

namespace kvist::exec {
namespace {

using benchmark::State;

constexpr uint32_t kFrames = 1024, kContext = 1024,
                   kDepth = 100;  // Tokens that each sequence has when the step begins.

/// Kernels that touch nothing; what is asked for in bytes is that of the reference.
const kernels::KernelTable& EmptyKernels() {
  static const kernels::KernelTable kTable = [] {
    kernels::KernelTable t = kernels::KernelsFor(kernels::Isa::kReference);
    t.quantize_rows = [](const float*, size_t, uint32_t, uint32_t, std::byte*) {};
    t.matmul = [](const kernels::PackedMatrix&, const void*, size_t, uint32_t, uint32_t, uint32_t, float*, size_t) {};
    t.rms_norm = [](const float*, const float*, uint32_t, float, float*) {};
    t.rope = [](float*, uint32_t, uint32_t, uint32_t, const float*, const float*, kernels::RopePairs) {};
    t.silu_mul = [](const float*, const float*, uint32_t, float*) {};
    t.add = [](const float*, const float*, uint32_t, float*) {};
    t.store_key = [](KvType, const float*, uint32_t, uint32_t, std::byte*) {};
    t.store_value = t.store_key;
    t.attend_prepare = [](const kernels::AttendShape&, const float*, size_t, float, std::byte*) {};
    t.attend = [](const kernels::AttendShape&, const std::byte*, const kernels::AttendTile&,
                  const kernels::AttendSums&) {};
    t.attend_merge = [](const kernels::AttendShape&, const kernels::AttendSums&, const kernels::AttendSums&) {};
    t.attend_finish = [](const kernels::AttendShape&, const kernels::AttendSums&, float*, size_t) {};
    return t;
  }();
  return kTable;
}

/// All that a step needs, and the plan of one that decodes a token of each of `sequences` sequences.
class World {
 public:
  World(uint32_t threads, uint32_t sequences)
      : model_(ValueOrDie(model::LoadModel(GoldenFolder() / "../../models/default-q8_0.gguf"))),
        pool_(threads),
        layout_(LayoutOf(model_->spec, KvType::kF16)),
        arena_(ValueOrDie(kv::FrameArena::Create(kFrames, layout_.frame_bytes()))),
        memory_({.frames_count = kFrames, .reuse = false}),
        weights_(ValueOrDie(Weights::Load(model_, pool_, {}))),
        limits_{.tokens_per_step_max = 512,
                .slices_per_step_max = 64,
                .hot_bytes = kFrames * layout_.frame_bytes(),
                .vocab_size = model_->spec.vocab_size,
                .context_tokens_max = kContext} {
    batch_.Reserve(limits_);
    for (uint32_t i = 0; i < sequences; ++i) {
      const RequestId id{i + 1};
      memory_.Begin(id, 0, {});
      memory_.Reserve(id, kDepth + 1);
      const SpanId span = memory_.SpanOf(id);
      plan_.slices.push_back({.request = id,
                              .position = kDepth,
                              .tokens_begin = i,
                              .tokens_count = 1,
                              .segments_begin = i,
                              .segments_count = 1,
                              .tail = span,
                              .tail_begin = kDepth,
                              .commit_count = 1,
                              .sampling = step::Sampling{.temperature = 0}});
      plan_.segments.push_back({span, 0, kDepth + 1});
      plan_.tokens.push_back({TokenId{i}});
    }
    Capture();
    Build();
  }

  void Capture() {
    program_ = ValueOrDie(Program::Compile(*model_, weights_, layout_, EmptyKernels(),
                                           {.tokens_max = limits_.tokens_per_step_max,
                                            .slices_max = limits_.slices_per_step_max,
                                            .context_tokens = kContext,
                                            .threads = pool_.threads()}));
  }

  void Build() {
    const absl::Status built = batch_.Build(plan_, limits_, {memory_.spans(), arena_, layout_});
    KVIST_CHECK(built.ok());
  }

  void Run() {
    const auto outputs = static_cast<uint32_t>(batch_.outputs.size());
    const JobSequence::Turn start = jobs_.Start();
    program_->BeginStep(batch_);
    pool_.Run([&](uint32_t worker) {
      JobSequence::Turn turn = start;
      program_->RunBody(batch_, worker, jobs_, turn);
      for (uint32_t first = 0; first < outputs; first += Program::kHeadRows) {
        program_->RunHead(batch_, first, std::min(Program::kHeadRows, outputs - first), worker, jobs_, turn);
      }
    });
  }

 private:
  std::shared_ptr<const model::Model> model_;
  ThreadPool pool_;
  kv::PageLayout layout_;
  kv::FrameArena arena_;
  kv::KvMemory memory_;
  Weights weights_;
  step::ExecutorLimits limits_;
  step::StepPlan plan_;
  StepBatch batch_;
  JobSequence jobs_;
  std::optional<Program> program_;
};

void Build(State& state) {
  World world(1, static_cast<uint32_t>(state.range(0)));
  for (auto _ : state) world.Build();
}

void Dispatch(State& state, uint32_t threads) {
  World world(threads, static_cast<uint32_t>(state.range(0)));
  for (auto _ : state) {
    world.Build();
    world.Run();
  }
}

void Recaptured(State& state, uint32_t threads) {
  World world(threads, static_cast<uint32_t>(state.range(0)));
  for (auto _ : state) {
    world.Capture();
    world.Build();
    world.Run();
  }
}

bool RegisterAll() {
  const auto sizes = [](benchmark::internal::Benchmark* bench) {
    bench->Unit(benchmark::kMicrosecond)->UseRealTime()->Arg(1)->Arg(4)->Arg(16)->Arg(64);
  };
  sizes(benchmark::RegisterBenchmark("build", Build));
  for (uint32_t threads : {1u, 2u}) {
    sizes(benchmark::RegisterBenchmark(("dispatch/threads:" + std::to_string(threads)).c_str(), Dispatch, threads));
    sizes(benchmark::RegisterBenchmark(("recaptured/threads:" + std::to_string(threads)).c_str(), Recaptured, threads));
  }
  return true;
}

[[maybe_unused]] const bool kRegistered = RegisterAll();

}  // namespace
}  // namespace kvist::exec
