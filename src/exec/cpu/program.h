#pragma once

/// @file
/// A model's graph made ready for this machine: every buffer allocated, every operation bound to its weights,
/// quantisation of activations made explicit and shared. Compiled once, run for every step by a team of workers without
/// allocation. Non-goals: addresses (StepBatch), sampling.

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/dense.h"
#include "exec/cpu/attend_schedule.h"
#include "exec/cpu/experts.h"
#include "exec/cpu/step_batch.h"
#include "exec/cpu/weights.h"
#include "kernels/kernel_table.h"
#include "kv/page_layout.h"
#include "model/model.h"
#include "platform/anonymous_memory.h"
#include "platform/thread_pool.h"

namespace kvist::exec {

/// f32 rows in the workspace.
struct Rows {
  float* data = nullptr;
  size_t stride = 0;  ///< Floats.
  float* At(uint32_t row) const { return data + row * stride; }
};

/// Fills the cos and sin tables of every rotary kind for the step's positions and position shifts.
struct RopeTablesInstr {};
/// Quantises rows of x for the products that follow.
struct QuantizeInstr {
  Rows x;
  uint32_t cols;
};
struct EmbedInstr {
  model::WeightId weight;
  Rows out;
  uint32_t width;
  float scale;
};
struct NormInstr {
  Rows x, out;
  const float* weight;
  uint32_t groups, width;
};
struct LinearInstr {
  Rows x, out;
  kernels::PackedMatrix matrix;
  const float* bias;  ///< Or null.
  bool quantized;     ///< Reads the rows of the last QuantizeInstr instead of x.
};
struct RopeInstr {
  Rows x;
  uint32_t heads;
  uint16_t rope;
};
struct StoreInstr {
  Rows k, v;
  uint32_t layer;
};
struct AttendInstr {
  Rows q, out;
  uint32_t layer, window;
  float scale;
  int32_t rope;  ///< Rotary kind of queries and keys, or -1.
};
/// Before the attention `of`: sums up the scores of the rows whose attention mass is wanted.
struct MassInstr {
  AttendInstr of;
  uint32_t index;  ///< Among the instructions of this kind.
};
/// Follows the attention `of`: puts together what it left in parts.
struct AttendMergeInstr {
  AttendInstr of;
};
struct AddInstr {
  Rows a, b, out;
  uint32_t width;
};
struct GatedInstr {
  Rows gate, up, out;
  uint32_t width;
  model::Activation activation;
};
/// Every token chooses its experts.
struct ChooseInstr {
  Rows scores;
  model::ExpertSpec experts;
};
/// Groups the tokens by expert.
struct GroupInstr {
  model::ExpertSpec experts;
  uint64_t expert_bytes;  ///< Of the matrices of one expert.
};
/// Brings each token's row of x to its slots, in the forms that the products read.
struct SpreadInstr {
  Rows x;
  uint32_t used, width;
  bool quantized, plain;
};
/// A matrix of each expert and the rows of all slots that it writes.
struct ExpertMatrix {
  kernels::PackedMatrix first;  ///< Of expert 0.
  size_t bytes;                 ///< From one expert to the next.
  Rows x, out;                  ///< x is not read by quantised weights.
  bool quantized;               ///< Reads the quantised rows of the slots.
};
/// Products of one or two matrices of equal shape of every active expert with its slots.
struct ExpertLinearInstr {
  std::vector<ExpertMatrix> matrices;
  model::ExpertSpec experts;
};
/// gate = activation(gate) * up for all slots, also quantised if the next product wants that.
struct ExpertGatedInstr {
  uint32_t used, width;
  model::Activation activation;
  bool quantized;
};
/// out = the weighted sum of a token's slots.
struct CombineInstr {
  Rows out;
  uint32_t used, width;
};
struct GatherInstr {
  Rows x, out;
  uint32_t width;
};
struct SoftcapInstr {
  Rows x;
  uint32_t width;
  float cap;
};
using Instr = std::variant<RopeTablesInstr, QuantizeInstr, EmbedInstr, NormInstr, LinearInstr, RopeInstr, StoreInstr,
                           MassInstr, AttendInstr, AttendMergeInstr, AddInstr, GatedInstr, ChooseInstr, GroupInstr,
                           SpreadInstr, ExpertLinearInstr, ExpertGatedInstr, CombineInstr, GatherInstr, SoftcapInstr>;

/// How an instruction is cut for the workers.
enum class CutBy : uint8_t { kRows, kRowGroups, kMassItems, kAttendItems, kMergeItems, kSlots, kExperts, kNot };

/// Consecutive instructions that every worker runs for its pieces without waiting for the others in between: all cut by
/// rows, each reading of other instructions only what its own row wrote; or products of the same input.
struct Job {
  CutBy cut;
  uint32_t begin = 0, end = 0;  ///< Instructions.
  uint32_t groups = 0;          ///< Of all products together; of one expert, if they are those of experts.
  size_t bytes = 0;             ///< Weights of the products.
  uint32_t experts = 0, used = 0;
};

/// Instructions in order, and the jobs that they form.
struct Code {
  std::vector<Instr> instrs;
  std::vector<Job> jobs;
};

/// The largest steps that a program takes.
struct ProgramLimits {
  uint32_t tokens_max = 0, slices_max = 0;
  uint32_t context_tokens = 0;  ///< Longest view; also chooses between a model's rotary frequencies.
  uint32_t threads = 1;
};

class Program {
 public:
  /// Output rows that one run of the head computes; more wanted rows take more runs.
  static constexpr uint32_t kHeadRows = 32;

  static absl::StatusOr<Program> Compile(const model::Model& model, const Weights& weights,
                                         const kv::PageLayout& layout, const kernels::KernelTable& kernels,
                                         const ProgramLimits& limits);

  const kv::PageLayout& layout() const { return layout_; }

  /// Whether sequences read what they share of their views together; they do by default. Changes no bit.
  void set_share_segments(bool share) { share_segments_ = share; }

  /// Decides how the step's attention is shared. Call before the workers start on `batch`.
  void BeginStep(const StepBatch& batch);

  /// All layers, for every token of the batch. Called by every worker of the team at once; all pass the same arguments.
  void RunBody(const StepBatch& batch, uint32_t worker, JobSequence& jobs, JobSequence::Turn& turn);

  /// Logits of outputs [first, first + count), count <= kHeadRows. As RunBody.
  void RunHead(const StepBatch& batch, uint32_t first, uint32_t count, uint32_t worker, JobSequence& jobs,
               JobSequence::Turn& turn);

  /// After RunHead. @param index < count. @return [vocab_size]
  const float* Logits(uint32_t index) const { return logits_.At(index); }
  /// What they were computed from. @return [width of the model]
  const float* Hidden(uint32_t index) const { return hidden_.At(index); }

  /// After RunBody: StepResult::range_mass of all probes.
  /// @param mass  [StepPlan::mass_ranges]
  void FinishMass(const StepBatch& batch, std::span<float> mass);

  /// After RunBody: bytes of the weights of all experts that the step needed, in all layers.
  uint64_t expert_bytes() const { return expert_bytes_; }

  /// After BeginStep: bytes of keys and values that the step's attention reads, in all layers. Tokens that a piece of
  /// work needs count once for it, however many sequences it serves.
  uint64_t KvBytesRead(const StepBatch& batch) const;

 private:
  class Compiler;

  /// One part of one instruction.
  struct Share {
    const StepBatch* batch;
    uint32_t worker;  ///< Whose scratch memory is used.
    uint32_t rows;    ///< Rows that the instruction works on.
    uint32_t first_output;
    uint32_t begin = 0, end = 0;  ///< Rows, row groups of the matrix, slots, or (item, head) pairs: CutBy.
    uint32_t part = 0, parts = 1;
  };

  /// Rows of the slots of one expert layer at a time.
  struct Slots {
    ExpertGroups groups;
    Rows wide;                       ///< [slots][width]: x where weights are not quantised, then what down makes.
    Rows gate, up;                   ///< [slots][features of an expert]
    std::byte* quantized = nullptr;  ///< [slots][ActivationRowBytes] of x, then of gate.
  };

  /// What a worker's attention needs while it runs.
  struct AttendScratch {
    attention::DenseScratch dense;
    std::vector<attention::Reader> readers;
    std::vector<attention::SectionSums> sections;
  };

  /// Layers that attend alike.
  struct AttendLayers {
    uint32_t window, count;
  };

  attention::HeadView HeadOf(const AttendInstr& instr, const StepBatch& batch,
                             std::span<const attention::ViewBlock> blocks, uint32_t head) const;
  attention::HeadView HeadOf(const AttendInstr& instr, const StepBatch& batch, uint32_t run, uint32_t head) const;
  const float* QueriesOf(const AttendInstr& instr, uint32_t row, uint32_t head) const;
  float* OutOf(const AttendInstr& instr, uint32_t row, uint32_t head) const;
  /// Floats of the sums of one section for one KV head and one token.
  size_t SectionFloats() const;
  float* SumsOf(const AttendItem& item, uint32_t head);

  void Execute(const Code& code, Share share, JobSequence& jobs, JobSequence::Turn& turn);
  uint32_t PiecesOf(const Job& job, uint32_t rows) const;
  uint32_t PartsOf(const Job& job, uint32_t rows) const;
  void RunPart(const Code& code, const Job& job, Share share);
  void Do(const RopeTablesInstr& instr, const Share& share);
  void Do(const QuantizeInstr& instr, const Share& share);
  void Do(const EmbedInstr& instr, const Share& share);
  void Do(const NormInstr& instr, const Share& share);
  void Do(const LinearInstr& instr, const Share& share);
  void Do(const RopeInstr& instr, const Share& share);
  void Do(const StoreInstr& instr, const Share& share);
  void Do(const MassInstr& instr, const Share& share);
  void Do(const AttendInstr& instr, const Share& share);
  void Do(const AttendMergeInstr& instr, const Share& share);
  void Do(const AddInstr& instr, const Share& share);
  void Do(const GatedInstr& instr, const Share& share);
  void Do(const ChooseInstr& instr, const Share& share);
  void Do(const GroupInstr& instr, const Share& share);
  void Do(const SpreadInstr& instr, const Share& share);
  void Do(const ExpertLinearInstr& instr, const Share& share);
  void Do(const ExpertGatedInstr& instr, const Share& share);
  void Do(const CombineInstr& instr, const Share& share);
  void Do(const GatherInstr& instr, const Share& share);
  void Do(const SoftcapInstr& instr, const Share& share);

  const model::Model* model_ = nullptr;
  const Weights* weights_ = nullptr;
  const kernels::KernelTable* kernels_ = nullptr;
  kv::PageLayout layout_;
  uint32_t threads_ = 1;
  uint32_t context_tokens_ = 0;  ///< Longest that the executor takes: chooses rotary frequencies.
  Code body_, head_;
  Rows logits_, hidden_;
  AnonymousMemory workspace_;
  std::byte* quantized_ = nullptr;  ///< [rows][ActivationRowBytes(cols)] of the last QuantizeInstr.
  Slots slots_;
  uint64_t expert_bytes_ = 0;
  std::vector<float*> cos_, sin_;                        ///< Per rotary kind: [tokens_max][dims / 2].
  std::vector<std::vector<float>> turn_cos_, turn_sin_;  ///< Per rotary kind: [StepBatch::shifts][dims / 2].
  std::vector<AttendScratch> scratch_;                   ///< Per worker.
  std::vector<AttendLayers> attend_layers_;              ///< By window.
  bool share_segments_ = true;
  AttendSchedule schedule_;
  std::vector<float> section_sums_;             ///< Per item of the schedule: [kv head][sums of its readers].
  uint32_t mass_layers_ = 0;                    ///< That have a MassInstr.
  uint32_t mass_items_ = 0;                     ///< Of the step.
  std::vector<attention::ScoreSum> mass_sums_;  ///< [mass_layers_][StepBatch::mass_items][query heads]
  std::vector<double> masses_;                  ///< [ranges] of one probe.
};

}  // namespace kvist::exec
