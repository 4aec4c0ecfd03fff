#include "exec/cpu/program.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/check.h"
#include "base/status.h"

namespace kvist::exec {

namespace {

/// Parts of a job per thread: more than one, so that a thread that loses its core for a while does not hold up the
/// others.
constexpr uint32_t kPartsPerThread = 4;

/// But parts are not worth their hand-over below so many bytes of weights.
constexpr size_t kPartBytes = 64 << 10;

/// From so many rows on, a product's parts are larger: each of them brings the rows into the form of its tiles.
constexpr uint32_t kManyRows = 64;
constexpr uint32_t kPartsPerThreadOfMany = 2;

kernels::RopePairs PairsOf(const model::RopeSpec& rope) {
  return rope.half_split ? kernels::RopePairs::kHalves : kernels::RopePairs::kAdjacent;
}

}  // namespace

void Program::RunBody(const StepBatch& batch, uint32_t worker, JobSequence& jobs, JobSequence::Turn& turn) {
  Execute(body_,
          {.batch = &batch, .worker = worker, .rows = static_cast<uint32_t>(batch.rows.size()), .first_output = 0},
          jobs, turn);
}

void Program::RunHead(const StepBatch& batch, uint32_t first, uint32_t count, uint32_t worker, JobSequence& jobs,
                      JobSequence::Turn& turn) {
  KVIST_CHECK(count <= kHeadRows);
  Execute(head_, {.batch = &batch, .worker = worker, .rows = count, .first_output = first}, jobs, turn);
}

uint32_t Program::PiecesOf(const Job& job, uint32_t rows) const {
  switch (job.cut) {
    case CutBy::kRows:
      return rows;
    case CutBy::kRowGroups:
      return job.groups;
    case CutBy::kMassItems:
      return mass_items_ * layout_.kv_heads();
    case CutBy::kAttendItems:
      return static_cast<uint32_t>(schedule_.items().size()) * layout_.kv_heads();
    case CutBy::kMergeItems:
      return static_cast<uint32_t>(schedule_.merges().size()) * layout_.kv_heads();
    case CutBy::kSlots:
      return rows * job.used;
    case CutBy::kExperts: {
      // Not how many experts are active: all workers must see the same number, and that one changes within the step.
      const uint64_t all = job.groups * std::min<uint64_t>(uint64_t{rows} * job.used, job.experts);
      return static_cast<uint32_t>(std::min<uint64_t>(all, UINT32_MAX));
    }
    case CutBy::kNot:
      return 1;
  }
  CheckFailed(__FILE__, __LINE__, "known cut");
}

uint32_t Program::PartsOf(const Job& job, uint32_t rows) const {
  const uint32_t pieces = PiecesOf(job, rows);
  const bool uneven = job.cut == CutBy::kMassItems || job.cut == CutBy::kAttendItems || job.cut == CutBy::kMergeItems;
  if (uneven) return pieces;  // One by one.
  if (threads_ == 1) return 1;
  uint32_t per_thread = kPartsPerThread;
  if (job.cut == CutBy::kRowGroups) {
    if (rows >= kManyRows) {
      per_thread = kPartsPerThreadOfMany;
    } else {
      per_thread = static_cast<uint32_t>(std::clamp<size_t>(job.bytes / (threads_ * kPartBytes), 1, kPartsPerThread));
    }
  }
  return std::min(pieces, per_thread * threads_);
}

void Program::Execute(const Code& code, Share share, JobSequence& jobs, JobSequence::Turn& turn) {
  for (const Job& job : code.jobs) {
    const uint32_t pieces = PiecesOf(job, share.rows), parts = PartsOf(job, share.rows);
    jobs.Share(turn, parts, [&](uint32_t part) {
      std::tie(share.begin, share.end) = ShareOf(pieces, part, parts);
      share.part = part;
      share.parts = parts;
      RunPart(code, job, share);
    });
  }
}

void Program::RunPart(const Code& code, const Job& job, Share share) {
  const Share whole = share;
  uint32_t first_group = 0;
  for (uint32_t i = job.begin; i < job.end; ++i) {
    const Instr& instr = code.instrs[i];
    if (const auto* linear = std::get_if<LinearInstr>(&instr)) {
      // The row groups of the job's products are numbered on.
      const uint32_t groups = kernels::RowGroups(linear->matrix.rows);
      share.begin = std::clamp(whole.begin, first_group, first_group + groups) - first_group;
      share.end = std::clamp(whole.end, first_group, first_group + groups) - first_group;
      first_group += groups;
      if (share.begin == share.end) continue;
    }
    std::visit([&](const auto& op) { Do(op, share); }, instr);
  }
}

void Program::Do(const RopeTablesInstr&, const Share& share) {
  const auto [turns_begin, turns_end] =
      ShareOf(static_cast<uint32_t>(share.batch->shifts.size()), share.part, share.parts);
  for (size_t kind = 0; kind < model_->graph.ropes.size(); ++kind) {
    const model::RopeSpec& rope = model_->graph.ropes[kind];
    const size_t pairs = rope.dims / 2;
    const std::vector<double>& inv_freq = rope.FrequenciesFor(context_tokens_);
    const auto fill = [&](double position, double magnitude, float* cos, float* sin) {
      for (size_t i = 0; i < pairs; ++i) {
        const double angle = position * inv_freq[i];
        cos[i] = static_cast<float>(std::cos(angle) * magnitude);
        sin[i] = static_cast<float>(std::sin(angle) * magnitude);
      }
    };
    for (uint32_t row = share.begin; row < share.end; ++row) {
      fill(share.batch->rows[row].position, rope.magnitude, cos_[kind] + row * pairs, sin_[kind] + row * pairs);
    }
    // Queries and keys have the magnitude already.
    for (uint32_t turn = turns_begin; turn < turns_end; ++turn) {
      fill(-double{1} * share.batch->shifts[turn], 1.0, turn_cos_[kind].data() + turn * pairs,
           turn_sin_[kind].data() + turn * pairs);
    }
  }
}

void Program::Do(const QuantizeInstr& instr, const Share& share) {
  kernels_->quantize_rows(instr.x.At(share.begin), instr.x.stride, share.end - share.begin, instr.cols,
                          quantized_ + share.begin * kernels::ActivationRowBytes(instr.cols));
}

void Program::Do(const EmbedInstr& instr, const Share& share) {
  for (uint32_t row = share.begin; row < share.end; ++row) {
    weights_->EmbeddingRow(instr.weight, share.batch->rows[row].token, instr.out.At(row));
    if (instr.scale != 1.0f) kernels_->scale(instr.out.At(row), instr.scale, instr.width, instr.out.At(row));
  }
}

void Program::Do(const NormInstr& instr, const Share& share) {
  for (uint32_t row = share.begin; row < share.end; ++row) {
    for (uint32_t group = 0; group < instr.groups; ++group) {
      const size_t offset = size_t{group} * instr.width;
      kernels_->rms_norm(instr.x.At(row) + offset, instr.weight, instr.width, model_->spec.norm_epsilon,
                         instr.out.At(row) + offset);
    }
  }
}

void Program::Do(const LinearInstr& instr, const Share& share) {
  const void* x = instr.quantized ? static_cast<const void*>(quantized_) : instr.x.data;
  const size_t x_stride =
      instr.quantized ? kernels::ActivationRowBytes(instr.matrix.cols) : instr.x.stride * sizeof(float);
  kernels_->matmul(instr.matrix, x, x_stride, share.rows, share.begin, share.end, instr.out.data, instr.out.stride);
  if (instr.bias == nullptr) return;
  const uint32_t first = share.begin * kernels::kRowGroup;
  const uint32_t count = std::min(share.end * kernels::kRowGroup, instr.matrix.rows) - first;
  for (uint32_t row = 0; row < share.rows; ++row) {
    float* y = instr.out.At(row) + first;
    kernels_->add(y, instr.bias + first, count, y);
  }
}

void Program::Do(const RopeInstr& instr, const Share& share) {
  const model::RopeSpec& rope = model_->graph.ropes[instr.rope];
  const size_t pairs = rope.dims / 2;
  for (uint32_t row = share.begin; row < share.end; ++row) {
    kernels_->rope(instr.x.At(row), instr.heads, model_->spec.key_width, rope.dims, cos_[instr.rope] + row * pairs,
                   sin_[instr.rope] + row * pairs, PairsOf(rope));
  }
}

void Program::Do(const StoreInstr& instr, const Share& share) {
  const uint32_t key_width = model_->spec.key_width, value_width = model_->spec.value_width;
  for (uint32_t row = share.begin; row < share.end; ++row) {
    const TokenRow& token = share.batch->rows[row];
    for (uint32_t head = 0; head < layout_.kv_heads(); ++head) {
      kernels_->store_key(layout_.type(), instr.k.At(row) + head * key_width, key_width, token.slot,
                          token.frame + layout_.KeyOffset(instr.layer, head));
      kernels_->store_value(layout_.type(), instr.v.At(row) + head * value_width, value_width, token.slot,
                            token.frame + layout_.ValueOffset(instr.layer, head));
    }
  }
}

void Program::BeginStep(const StepBatch& batch) {
  expert_bytes_ = 0;
  schedule_.Build(batch, {.kv_heads = layout_.kv_heads(),
                          .pieces_wanted = threads_ > 1 ? kPartsPerThread * threads_ : 0,
                          .share = share_segments_});
  const size_t sums = schedule_.sums_tokens() * layout_.kv_heads() * SectionFloats();
  section_sums_.resize(std::max(section_sums_.size(), sums));
  mass_items_ = static_cast<uint32_t>(batch.mass_items.size());
  mass_sums_.resize(std::max(mass_sums_.size(), size_t{mass_items_} * mass_layers_ * model_->spec.heads));
  for (size_t kind = 0; kind < model_->graph.ropes.size(); ++kind) {
    const size_t floats = batch.shifts.size() * (model_->graph.ropes[kind].dims / 2);
    turn_cos_[kind].resize(std::max(turn_cos_[kind].size(), floats));
    turn_sin_[kind].resize(std::max(turn_sin_[kind].size(), floats));
  }
}

uint64_t Program::KvBytesRead(const StepBatch& batch) const {
  uint64_t bytes = 0;
  for (const AttendLayers& layers : attend_layers_) {
    bytes += layers.count * schedule_.TokensRead(batch, layers.window) * (layout_.layer_bytes() / kv::kBlockTokens);
  }
  const uint64_t key_bytes = KvKeyPageBytes(layout_.type(), model_->spec.key_width) * layout_.kv_heads();
  for (const MassItem& item : batch.mass_items) bytes += mass_layers_ * item.tokens * (key_bytes / kv::kBlockTokens);
  return bytes;
}

size_t Program::SectionFloats() const {
  return attention::SumsFloats({.tokens = 1,
                                .group = model_->spec.heads / layout_.kv_heads(),
                                .key_dim = model_->spec.key_width,
                                .value_dim = model_->spec.value_width,
                                .softcap = 0,
                                .kv_type = layout_.type()});
}

float* Program::SumsOf(const AttendItem& item, uint32_t head) {
  return section_sums_.data() + (item.sums * layout_.kv_heads() + head * item.readers_count) * SectionFloats();
}

attention::HeadView Program::HeadOf(const AttendInstr& instr, const StepBatch& batch, uint32_t run_index,
                                    uint32_t head) const {
  const QueryRun& run = batch.runs[run_index];
  return HeadOf(instr, batch, std::span(batch.view_blocks).subspan(run.view_begin, run.view_count), head);
}

attention::HeadView Program::HeadOf(const AttendInstr& instr, const StepBatch& batch,
                                    std::span<const attention::ViewBlock> blocks, uint32_t head) const {
  attention::HeadView view{.view = blocks,
                           .key_offset = layout_.KeyOffset(instr.layer, head),
                           .value_offset = layout_.ValueOffset(instr.layer, head),
                           .split = {.pages = batch.split_pages.data(),
                                     .per_block = layout_.pages(),
                                     .key = layout_.KeyPage(instr.layer, head),
                                     .value = layout_.ValuePage(instr.layer, head)},
                           .group = model_->spec.heads / layout_.kv_heads(),
                           .key_dim = model_->spec.key_width,
                           .value_dim = model_->spec.value_width,
                           .window = instr.window,
                           .scale = instr.scale,
                           .kv_type = layout_.type(),
                           .turns = {}};
  if (instr.rope >= 0) {
    const model::RopeSpec& rope = model_->graph.ropes[instr.rope];
    view.turns = {.cos = turn_cos_[instr.rope].data(),
                  .sin = turn_sin_[instr.rope].data(),
                  .dims = rope.dims,
                  .pairs = PairsOf(rope)};
  }
  return view;
}

const float* Program::QueriesOf(const AttendInstr& instr, uint32_t row, uint32_t head) const {
  return instr.q.At(row) + size_t{head} * (model_->spec.heads / layout_.kv_heads()) * model_->spec.key_width;
}

float* Program::OutOf(const AttendInstr& instr, uint32_t row, uint32_t head) const {
  return instr.out.At(row) + size_t{head} * (model_->spec.heads / layout_.kv_heads()) * model_->spec.value_width;
}

void Program::Do(const AttendInstr& instr, const Share& share) {
  AttendScratch& scratch = scratch_[share.worker];
  for (uint32_t i = share.begin; i < share.end; ++i) {
    const AttendItem& item = schedule_.items()[i / layout_.kv_heads()];
    const uint32_t head = i % layout_.kv_heads();
    const std::span<const uint32_t> readers = schedule_.ReadersOf(item);
    const attention::HeadView view = HeadOf(instr, *share.batch, readers.front(), head);
    if (item.section == AttendItem::kWhole) {
      const QueryRun& run = share.batch->runs[readers.front()];
      attention::AttendDense(*kernels_,
                             {.head = view,
                              .query_index = run.query_index,
                              .tokens = run.rows,
                              .queries = QueriesOf(instr, run.row, head),
                              .query_stride = instr.q.stride,
                              .out = OutOf(instr, run.row, head),
                              .out_stride = instr.out.stride},
                             scratch.dense);
      continue;
    }
    scratch.readers.clear();
    for (uint32_t reader : readers) {
      const QueryRun& run = share.batch->runs[reader];
      scratch.readers.push_back({.queries = QueriesOf(instr, run.row, head), .query_index = run.query_index});
    }
    attention::AttendSection(*kernels_, view, scratch.readers, item.section, item.start, scratch.dense,
                             SumsOf(item, head));
  }
}

void Program::Do(const AttendMergeInstr& instr, const Share& share) {
  AttendScratch& scratch = scratch_[share.worker];
  for (uint32_t i = share.begin; i < share.end; ++i) {
    const AttendMerge& merge = schedule_.merges()[i / layout_.kv_heads()];
    const uint32_t head = i % layout_.kv_heads();
    scratch.sections.clear();
    for (const AttendPart& part : merge.parts) {
      const AttendItem& item = schedule_.items()[part.item];
      scratch.sections.push_back({.sums = SumsOf(item, head), .readers = item.readers_count, .reader = part.reader});
    }
    attention::MergeSections(*kernels_, HeadOf(instr.of, *share.batch, merge.run, head), scratch.sections,
                             OutOf(instr.of, share.batch->runs[merge.run].row, head));
  }
}

void Program::Do(const AddInstr& instr, const Share& share) {
  for (uint32_t row = share.begin; row < share.end; ++row) {
    kernels_->add(instr.a.At(row), instr.b.At(row), instr.width, instr.out.At(row));
  }
}

void Program::Do(const GatedInstr& instr, const Share& share) {
  auto* kernel = instr.activation == model::Activation::kSilu ? kernels_->silu_mul : kernels_->gelu_tanh_mul;
  for (uint32_t row = share.begin; row < share.end; ++row) {
    kernel(instr.gate.At(row), instr.up.At(row), instr.width, instr.out.At(row));
  }
}

void Program::Do(const GatherInstr& instr, const Share& share) {
  for (uint32_t i = share.begin; i < share.end; ++i) {
    const float* source = instr.x.At(share.batch->outputs[share.first_output + i].row);
    std::copy_n(source, instr.width, instr.out.At(i));
  }
}

void Program::Do(const SoftcapInstr& instr, const Share& share) {
  for (uint32_t row = share.begin; row < share.end; ++row) {
    kernels_->softcap(instr.x.At(row), instr.cap, instr.width, instr.x.At(row));
  }
}

}  // namespace kvist::exec
