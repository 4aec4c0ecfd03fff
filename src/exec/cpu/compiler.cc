#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/status.h"
#include "exec/cpu/program.h"
#include "kernels/packed.h"

namespace kvist::exec {

/// Turns graph operations into instructions, in order. Instructions up to the gathering of output rows are the body.
class Program::Compiler {
 public:
  Compiler(Program& program, const model::Model& model, const Weights& weights, const ProgramLimits& limits)
      : program_(program),
        graph_(model.graph),
        weights_(weights),
        slices_max_(limits.slices_max),
        tokens_max_(limits.tokens_max),
        some_see_all_(std::ranges::any_of(model.graph.ops, [](const model::Op& op) {
          const auto* attention = std::get_if<model::Attention>(&op);
          return attention != nullptr && attention->window == 0;
        })) {}

  absl::Status Run() {
    KVIST_RETURN_IF_ERROR(AllocateWorkspace());
    ReserveAttention();
    Emit(RopeTablesInstr{});
    ropes_.assign(graph_.buffers.size(), kNoRope);
    for (const model::Op& op : graph_.ops) std::visit([this](const auto& o) { Add(o); }, op);
    KVIST_RETURN_IF_ERROR(status_);
    program_.logits_ = At(graph_.logits);
    program_.hidden_ = At(graph_.hidden);
    FormJobs(program_.body_);
    FormJobs(program_.head_);
    return absl::OkStatus();
  }

 private:
  static constexpr int32_t kNoRope = -1;

  /// Widest row of quantised activations that any product reads.
  size_t QuantizedRowBytesMax() const {
    size_t most = 0;
    for (const model::Op& op : graph_.ops) {
      const auto* linear = std::get_if<model::Linear>(&op);
      if (linear == nullptr) continue;
      const kernels::PackedMatrix& matrix = weights_.Matrix(linear->weight);
      if (kernels::UsesQuantizedActivations(matrix.dtype))
        most = std::max(most, kernels::ActivationRowBytes(matrix.cols));
    }
    return most;
  }

  /// What the largest expert layer needs, per dimension; 0 without experts.
  struct ExpertNeeds {
    uint32_t count = 0, used = 0;
    size_t wide = 0, width = 0;  ///< Floats of a row, whole lines.
    size_t quantized = 0;        ///< Bytes of a row.
  };
  ExpertNeeds NeedsOfExperts() const {
    ExpertNeeds needs;
    for (const model::Op& op : graph_.ops) {
      const auto* experts = std::get_if<model::ExpertMlp>(&op);
      if (experts == nullptr) continue;
      needs.count = std::max(needs.count, experts->experts.count);
      needs.used = std::max(needs.used, experts->experts.used);
      needs.wide = std::max(needs.wide, WholeLines(weights_.Matrix(experts->down).rows));
      needs.width = std::max(needs.width, WholeLines(experts->experts.width));
      for (model::WeightId weight : {experts->gate, experts->up, experts->down}) {
        if (IsQuantized(weight)) {
          needs.quantized = std::max(needs.quantized, kernels::ActivationRowBytes(weights_.Matrix(weight).cols));
        }
      }
    }
    return needs;
  }

  static size_t WholeLines(size_t floats) { return (floats + 15) / 16 * 16; }

  bool IsQuantized(model::WeightId id) const { return kernels::UsesQuantizedActivations(weights_.Matrix(id).dtype); }

  absl::Status AllocateWorkspace() {
    size_t bytes = 0;
    auto reserve = [&bytes](size_t wanted) {
      size_t offset = bytes;
      bytes += (wanted + 63) / 64 * 64;
      return offset;
    };
    std::vector<size_t> buffers, tables;
    for (const model::Buffer& buffer : graph_.buffers) {
      const size_t rows = buffer.output_rows ? kHeadRows : tokens_max_;
      strides_.push_back(WholeLines(buffer.stride));
      buffers.push_back(reserve(rows * strides_.back() * sizeof(float)));
    }
    for (const model::RopeSpec& rope : graph_.ropes) {
      for (int table = 0; table < 2; ++table)
        tables.push_back(reserve(size_t{tokens_max_} * rope.dims / 2 * sizeof(float)));
    }
    const size_t quantized = reserve(std::max(tokens_max_, kHeadRows) * QuantizedRowBytesMax());
    const ExpertNeeds needs = NeedsOfExperts();
    const size_t slots = size_t{tokens_max_} * needs.used;
    const size_t wide = reserve(slots * needs.wide * sizeof(float)), slots_quantized = reserve(slots * needs.quantized);
    const size_t gate = reserve(slots * needs.width * sizeof(float)), up = reserve(slots * needs.width * sizeof(float));
    KVIST_ASSIGN_OR_RETURN(program_.workspace_, AnonymousMemory::Map(bytes));
    std::byte* base = program_.workspace_.data();
    auto floats = [base](size_t offset) { return reinterpret_cast<float*>(base + offset); };
    for (size_t offset : buffers) data_.push_back(floats(offset));
    for (size_t i = 0; i < tables.size(); i += 2) {
      program_.cos_.push_back(floats(tables[i]));
      program_.sin_.push_back(floats(tables[i + 1]));
    }
    program_.turn_cos_.resize(graph_.ropes.size());
    program_.turn_sin_.resize(graph_.ropes.size());
    program_.quantized_ = base + quantized;
    program_.slots_.groups.Reserve(tokens_max_, needs.count, needs.used);
    program_.slots_.wide = {floats(wide), needs.wide};
    program_.slots_.gate = {floats(gate), needs.width};
    program_.slots_.up = {floats(up), needs.width};
    program_.slots_.quantized = base + slots_quantized;
    return absl::OkStatus();
  }

  /// Whichever worker gets the longest task, and however long views become: a step takes no memory.
  void ReserveAttention() {
    const kv::PageLayout& layout = program_.layout_;
    const kernels::AttendShape shape{.tokens = std::min(std::max(tokens_max_, 1u), StepBatch::kQueryRunTokens),
                                     .group = program_.model_->spec.heads / layout.kv_heads(),
                                     .key_dim = program_.model_->spec.key_width,
                                     .value_dim = program_.model_->spec.value_width,
                                     .softcap = 0,
                                     .kv_type = layout.type()};
    const kernels::AttendShape all_heads{.tokens = 1,
                                         .group = program_.model_->spec.heads,
                                         .key_dim = 1,
                                         .value_dim = 1,
                                         .softcap = 0,
                                         .kv_type = layout.type()};
    const uint32_t sections = attention::SectionsOf(program_.context_tokens_ / kv::kBlockTokens + 1);
    const size_t queries = size_t{shape.tokens} * shape.group * shape.key_dim;
    for (AttendScratch& scratch : program_.scratch_) {
      scratch.readers.reserve(AttendSchedule::kReadersMax);
      scratch.sections.reserve(sections);
      attention::DenseScratch& dense = scratch.dense;
      dense.prepared.reserve(program_.kernels_->attend_query_bytes(shape) / sizeof(attention::DenseScratch::Line));
      for (auto* sums : {&dense.sums, &dense.section, &dense.gathered}) {
        sums->reserve(std::max(attention::SumsFloats(shape), attention::SumsFloats(all_heads)));
      }
      for (auto* rows : {&dense.gathered, &dense.turned}) rows->reserve(queries);
      for (auto* masks : {&dense.visible, &dense.visible_of_turn}) masks->reserve(shape.tokens);
      dense.indices.reserve(shape.tokens);
    }
    program_.schedule_.Reserve(tokens_max_, slices_max_, sections);
    program_.mass_sums_.reserve(size_t{slices_max_} * sections * graph_.ops.size() * program_.model_->spec.heads);
    program_.section_sums_.reserve(size_t{slices_max_} * sections * layout.kv_heads() * program_.SectionFloats());
  }

  Rows At(model::BufferId id) const { return {data_[id.value], strides_[id.value]}; }

  void Emit(const Instr& instr) { (in_head_ ? program_.head_ : program_.body_).instrs.push_back(instr); }

  static CutBy CutOf(const Instr& instr) {
    if (std::holds_alternative<LinearInstr>(instr)) return CutBy::kRowGroups;
    if (std::holds_alternative<MassInstr>(instr)) return CutBy::kMassItems;
    if (std::holds_alternative<AttendInstr>(instr)) return CutBy::kAttendItems;
    if (std::holds_alternative<AttendMergeInstr>(instr)) return CutBy::kMergeItems;
    if (std::holds_alternative<GroupInstr>(instr)) return CutBy::kNot;
    if (std::holds_alternative<ExpertLinearInstr>(instr)) return CutBy::kExperts;
    if (std::holds_alternative<ExpertGatedInstr>(instr)) return CutBy::kSlots;
    return CutBy::kRows;
  }

  /// Whether `next` may run in the job of `last`, the instruction before it.
  static bool Joins(const Instr& last, const Instr& next) {
    const auto *a = std::get_if<LinearInstr>(&last), *b = std::get_if<LinearInstr>(&next);
    if (a != nullptr && b != nullptr) return a->x.data == b->x.data && a->out.data != b->x.data;
    return CutOf(last) == CutBy::kRows && CutOf(next) == CutBy::kRows;
  }

  static void FormJobs(Code& code) {
    for (uint32_t i = 0; i < code.instrs.size(); ++i) {
      const Instr& instr = code.instrs[i];
      if (i == 0 || !Joins(code.instrs[i - 1], instr)) code.jobs.push_back({.cut = CutOf(instr), .begin = i});
      Job& job = code.jobs.back();
      job.end = i + 1;
      if (const auto* linear = std::get_if<LinearInstr>(&instr)) {
        const kernels::PackedMatrix& m = linear->matrix;
        job.groups += kernels::RowGroups(m.rows);
        job.bytes += kernels::PackedBytes(m.dtype, m.rows, m.cols);
      }
      if (const auto* linear = std::get_if<ExpertLinearInstr>(&instr)) {
        const auto matrices = static_cast<uint32_t>(linear->matrices.size());
        job.groups = matrices * kernels::RowGroups(linear->matrices.front().first.rows);
        job.experts = linear->experts.count;
        job.used = linear->experts.used;
      }
      if (const auto* gated = std::get_if<ExpertGatedInstr>(&instr)) job.used = gated->used;
    }
  }

  /// Call before an instruction that writes `id`.
  void Written(model::BufferId id) {
    if (quantized_ == id) quantized_.reset();
    ropes_[id.value] = kNoRope;
  }

  void CountLayer(uint32_t window) {
    std::vector<AttendLayers>& layers = program_.attend_layers_;
    const auto same = std::ranges::find(layers, window, &AttendLayers::window);
    if (same == layers.end()) {
      layers.push_back({.window = window, .count = 1});
    } else {
      ++same->count;
    }
  }

  void Add(const model::Embed& op) {
    Written(op.out);
    Emit(EmbedInstr{op.weight, At(op.out), op.width, op.scale});
  }
  void Add(const model::RmsNorm& op) {
    Written(op.out);
    Emit(NormInstr{At(op.x), At(op.out), weights_.Vector(op.weight), op.groups, op.width});
  }
  void Add(const model::Linear& op) {
    const kernels::PackedMatrix& matrix = weights_.Matrix(op.weight);
    const bool quantized = IsQuantized(op.weight);
    if (quantized && quantized_ != op.x) {
      Emit(QuantizeInstr{At(op.x), matrix.cols});
      quantized_ = op.x;
    }
    Written(op.out);
    const float* bias = op.bias.empty() ? nullptr : weights_.Vector(op.bias.front());
    Emit(LinearInstr{At(op.x), At(op.out), matrix, bias, quantized});
  }
  void Add(const model::Rope& op) {
    KVIST_CHECK(ropes_[op.x.value] == kNoRope);
    Written(op.x);
    ropes_[op.x.value] = op.rope;
    Emit(RopeInstr{At(op.x), op.heads, op.rope});
  }
  void Add(const model::Attention& op) {
    const int32_t rope = ropes_[op.q.value];
    if (ropes_[op.k.value] != rope) {
      status_.Update(absl::UnimplementedError(
          Cat("layer ", op.layer, ": keys with other rotary positions than the queries are not supported")));
    }
    Written(op.out);
    CountLayer(op.window);
    Emit(StoreInstr{At(op.k), At(op.v), op.layer});
    const AttendInstr attend{At(op.q), At(op.out), op.layer, op.window, op.scale, rope};
    if (op.window == 0 || !some_see_all_) Emit(MassInstr{attend, program_.mass_layers_++});
    Emit(attend);
    Emit(AttendMergeInstr{attend});
  }
  void Add(const model::Add& op) {
    Written(op.out);
    Emit(AddInstr{At(op.a), At(op.b), At(op.out), op.width});
  }
  void Add(const model::Gated& op) {
    Written(op.out);
    Emit(GatedInstr{At(op.gate), At(op.up), At(op.out), op.width, op.activation});
  }
  void Add(const model::ExpertMlp& op) {
    Written(op.out);
    const Slots& slots = program_.slots_;
    const auto matrix = [&](model::WeightId id, Rows x, Rows out) {
      return ExpertMatrix{weights_.Matrix(id), weights_.MatrixBytes(id), x, out, IsQuantized(id)};
    };
    const ExpertMatrix gate = matrix(op.gate, slots.wide, slots.gate), up = matrix(op.up, slots.wide, slots.up);
    const ExpertMatrix down = matrix(op.down, slots.gate, slots.wide);
    Emit(ChooseInstr{At(op.scores), op.experts});
    Emit(GroupInstr{op.experts, gate.bytes + up.bytes + down.bytes});
    Emit(SpreadInstr{At(op.x), op.experts.used, gate.first.cols, gate.quantized || up.quantized,
                     !gate.quantized || !up.quantized});
    Emit(ExpertLinearInstr{{gate, up}, op.experts});
    Emit(ExpertGatedInstr{op.experts.used, op.experts.width, op.activation, down.quantized});
    Emit(ExpertLinearInstr{{down}, op.experts});
    Emit(CombineInstr{At(op.out), op.experts.used, down.first.rows});
  }
  void Add(const model::Gather& op) {
    KVIST_CHECK(!in_head_);
    in_head_ = true;
    quantized_.reset();
    Emit(GatherInstr{At(op.x), At(op.out), op.width});
  }
  void Add(const model::Softcap& op) {
    Written(op.x);
    Emit(SoftcapInstr{At(op.x), op.width, op.cap});
  }

  Program& program_;
  const model::Graph& graph_;
  const Weights& weights_;
  const uint32_t slices_max_, tokens_max_;
  const bool some_see_all_;  ///< Layers that attend to the whole view.
  std::vector<float*> data_;
  std::vector<size_t> strides_;
  std::optional<model::BufferId> quantized_;  ///< Whose rows the quantised buffer holds.
  std::vector<int32_t> ropes_;                ///< [buffers] rotary kind that its rows have, or kNoRope.
  absl::Status status_;                       ///< Of the first operation that cannot be computed.
  bool in_head_ = false;
};

absl::StatusOr<Program> Program::Compile(const model::Model& model, const Weights& weights,
                                         const kv::PageLayout& layout, const kernels::KernelTable& kernels,
                                         const ProgramLimits& limits) {
  Program program;
  program.model_ = &model;
  program.weights_ = &weights;
  program.kernels_ = &kernels;
  program.layout_ = layout;
  program.threads_ = limits.threads;
  program.context_tokens_ = limits.context_tokens;
  program.scratch_.resize(limits.threads);
  KVIST_RETURN_IF_ERROR(Compiler(program, model, weights, limits).Run());
  return program;
}

}  // namespace kvist::exec
