#include <algorithm>
#include <cstring>

#include "exec/cpu/program.h"
#include "kernels/packed.h"

namespace kvist::exec {

void Program::Do(const ChooseInstr& instr, const Share& share) {
  for (uint32_t row = share.begin; row < share.end; ++row)
    slots_.groups.Choose(row, instr.scores.At(row), instr.experts);
}

void Program::Do(const GroupInstr& instr, const Share& share) {
  slots_.groups.Group(share.rows, instr.experts);
  expert_bytes_ += slots_.groups.active().size() * instr.expert_bytes;
}

void Program::Do(const SpreadInstr& instr, const Share& share) {
  const size_t quantized_bytes = instr.quantized ? kernels::ActivationRowBytes(instr.width) : 0;
  for (uint32_t row = share.begin; row < share.end; ++row) {
    const uint32_t* slots = slots_.groups.SlotsOf(row, instr.used);
    std::byte* quantized = slots_.quantized + slots[0] * quantized_bytes;
    if (instr.quantized) kernels_->quantize_rows(instr.x.At(row), instr.x.stride, 1, instr.width, quantized);
    for (uint32_t i = 0; i < instr.used; ++i) {
      if (instr.quantized && i > 0) {
        std::memcpy(slots_.quantized + slots[i] * quantized_bytes, quantized, quantized_bytes);
      }
      if (instr.plain) std::copy_n(instr.x.At(row), instr.width, slots_.wide.At(slots[i]));
    }
  }
}

void Program::Do(const ExpertLinearInstr& instr, const Share& share) {
  const uint32_t row_groups = kernels::RowGroups(instr.matrices.front().first.rows);
  const auto multiply = [&](const ExpertGroups::Piece& piece) {
    const ExpertMatrix& of = instr.matrices[piece.matrix];
    const uint32_t slot = piece.active->first_slot;
    kernels::PackedMatrix matrix = of.first;
    matrix.data += piece.active->expert * of.bytes;
    const size_t stride = of.quantized ? kernels::ActivationRowBytes(matrix.cols) : of.x.stride * sizeof(float);
    const void* x = of.quantized ? static_cast<const void*>(slots_.quantized + slot * stride) : of.x.At(slot);
    kernels_->matmul(matrix, x, stride, piece.active->slots, piece.group_begin, piece.group_end, of.out.At(slot),
                     of.out.stride);
  };
  slots_.groups.ForPart(share.part, share.parts, static_cast<uint32_t>(instr.matrices.size()), row_groups, multiply);
}

void Program::Do(const ExpertGatedInstr& instr, const Share& share) {
  auto* kernel = instr.activation == model::Activation::kSilu ? kernels_->silu_mul : kernels_->gelu_tanh_mul;
  for (uint32_t slot = share.begin; slot < share.end; ++slot) {
    kernel(slots_.gate.At(slot), slots_.up.At(slot), instr.width, slots_.gate.At(slot));
  }
  if (!instr.quantized || share.begin == share.end) return;
  kernels_->quantize_rows(slots_.gate.At(share.begin), slots_.gate.stride, share.end - share.begin, instr.width,
                          slots_.quantized + share.begin * kernels::ActivationRowBytes(instr.width));
}

// A token's experts are added up in its own order, so the sum does not depend on which other tokens there are.
void Program::Do(const CombineInstr& instr, const Share& share) {
  for (uint32_t row = share.begin; row < share.end; ++row) {
    const uint32_t* slots = slots_.groups.SlotsOf(row, instr.used);
    const float* weights = slots_.groups.WeightsOf(row, instr.used);
    float* out = instr.out.At(row);
    kernels_->scale(slots_.wide.At(slots[0]), weights[0], instr.width, out);
    for (uint32_t i = 1; i < instr.used; ++i) {
      float* more = slots_.wide.At(slots[i]);
      kernels_->scale(more, weights[i], instr.width, more);
      kernels_->add(out, more, instr.width, out);
    }
  }
}

}  // namespace kvist::exec
