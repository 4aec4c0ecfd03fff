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
  Compiler(Program& program, const model::Model& model, const Weights& weights, uint32_t tokens_max)
      : program_(program), graph_(model.graph), weights_(weights), tokens_max_(tokens_max) {}

  absl::Status Run() {
    KVIST_RETURN_IF_ERROR(AllocateWorkspace());
    Emit(RopeTablesInstr{});
    for (const model::Op& op : graph_.ops) std::visit([this](const auto& o) { Add(o); }, op);
    program_.logits_ = At(graph_.logits);
    FormJobs(program_.body_);
    FormJobs(program_.head_);
    return absl::OkStatus();
  }

 private:
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
      strides_.push_back((buffer.stride + 15) / 16 * 16);
      buffers.push_back(reserve(rows * strides_.back() * sizeof(float)));
    }
    for (const model::RopeSpec& rope : graph_.ropes) {
      for (int table = 0; table < 2; ++table)
        tables.push_back(reserve(size_t{tokens_max_} * rope.dims / 2 * sizeof(float)));
    }
    const size_t quantized = reserve(std::max(tokens_max_, kHeadRows) * QuantizedRowBytesMax());
    KVIST_ASSIGN_OR_RETURN(program_.workspace_, AnonymousMemory::Map(bytes));
    std::byte* base = program_.workspace_.data();
    auto floats = [base](size_t offset) { return reinterpret_cast<float*>(base + offset); };
    for (size_t offset : buffers) data_.push_back(floats(offset));
    for (size_t i = 0; i < tables.size(); i += 2) {
      program_.cos_.push_back(floats(tables[i]));
      program_.sin_.push_back(floats(tables[i + 1]));
    }
    program_.quantized_ = base + quantized;
    return absl::OkStatus();
  }

  Rows At(model::BufferId id) const { return {data_[id.value], strides_[id.value]}; }

  void Emit(const Instr& instr) { (in_head_ ? program_.head_ : program_.body_).instrs.push_back(instr); }

  static CutBy CutOf(const Instr& instr) {
    if (std::holds_alternative<LinearInstr>(instr)) return CutBy::kRowGroups;
    if (std::holds_alternative<AttendInstr>(instr)) return CutBy::kAttendItems;
    if (std::holds_alternative<AttendMergeInstr>(instr)) return CutBy::kMergeItems;
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
    }
  }

  /// Call before an instruction that writes `id`.
  void Written(model::BufferId id) {
    if (quantized_ == id) quantized_.reset();
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
    const bool quantized = kernels::UsesQuantizedActivations(matrix.dtype);
    if (quantized && quantized_ != op.x) {
      Emit(QuantizeInstr{At(op.x), matrix.cols});
      quantized_ = op.x;
    }
    Written(op.out);
    const float* bias = op.bias.empty() ? nullptr : weights_.Vector(op.bias.front());
    Emit(LinearInstr{At(op.x), At(op.out), matrix, bias, quantized});
  }
  void Add(const model::Rope& op) {
    Written(op.x);
    Emit(RopeInstr{At(op.x), op.heads, op.rope});
  }
  void Add(const model::Attention& op) {
    Written(op.out);
    Emit(StoreInstr{At(op.k), At(op.v), op.layer});
    const AttendInstr attend{At(op.q), At(op.out), op.layer, op.window, op.scale};
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
  const uint32_t tokens_max_;
  std::vector<float*> data_;
  std::vector<size_t> strides_;
  std::optional<model::BufferId> quantized_;  ///< Whose rows the quantised buffer holds.
  bool in_head_ = false;
};

absl::StatusOr<Program> Program::Compile(const model::Model& model, const Weights& weights,
                                         const kv::PageLayout& layout, const kernels::KernelTable& kernels,
                                         uint32_t tokens_max, uint32_t context_tokens, uint32_t threads) {
  Program program;
  program.model_ = &model;
  program.weights_ = &weights;
  program.kernels_ = &kernels;
  program.layout_ = layout;
  program.threads_ = threads;
  program.context_tokens_ = context_tokens;
  program.scratch_.resize(threads);
  KVIST_RETURN_IF_ERROR(Compiler(program, model, weights, tokens_max).Run());
  return program;
}

}  // namespace kvist::exec
