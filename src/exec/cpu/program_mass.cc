#include "exec/cpu/program.h"

namespace kvist::exec {

// Each worker sums up the scores of its items; shares of the whole are known once all items of a view are there, so
// they are put together at the end of the step. Nothing depends on who did what.

void Program::Do(const MassInstr& instr, const Share& share) {
  const uint32_t heads = model_->spec.heads, group = heads / layout_.kv_heads();
  for (uint32_t i = share.begin; i < share.end; ++i) {
    const uint32_t index = i / layout_.kv_heads(), head = i % layout_.kv_heads();
    const MassItem& item = share.batch->mass_items[index];
    const MassProbe& probe = share.batch->mass_probes[item.probe];
    const auto blocks = std::span(share.batch->mass_blocks).subspan(item.blocks_begin, item.blocks_count);
    attention::SumScores(
        *kernels_, HeadOf(instr.of, *share.batch, blocks, head),
        {.queries = QueriesOf(instr.of, probe.row, head), .query_index = probe.query_index - item.start},
        scratch_[share.worker].dense,
        mass_sums_.data() + (size_t{instr.index} * mass_items_ + index) * heads + size_t{head} * group);
  }
}

void Program::FinishMass(const StepBatch& batch, std::span<float> mass) {
  const uint32_t heads = model_->spec.heads;
  for (const MassProbe& probe : batch.mass_probes) {
    masses_.assign(probe.ranges_count, 0.0);
    for (uint32_t layer = 0; layer < mass_layers_; ++layer) {
      const size_t first = (size_t{layer} * batch.mass_items.size() + probe.items_begin) * heads;
      const auto sums = std::span(mass_sums_).subspan(first, size_t{probe.items_count} * heads);
      attention::ShareScores(*kernels_, heads, sums, scratch_.front().dense);
      for (uint32_t i = 0; i < probe.items_count; ++i) {
        const uint32_t range = batch.mass_items[probe.items_begin + i].range;
        if (range == MassItem::kNoRange) continue;
        for (uint32_t h = 0; h < heads; ++h) masses_[range] += double{sums[size_t{i} * heads + h].sum};
      }
    }
    for (uint32_t r = 0; r < probe.ranges_count; ++r) {
      mass[probe.ranges_begin + r] = static_cast<float>(masses_[r] / (double{1} * mass_layers_ * heads));
    }
  }
}

}  // namespace kvist::exec
