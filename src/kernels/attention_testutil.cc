#include "kernels/attention_testutil.h"

#include <algorithm>
#include <limits>

#include "tensor/half.h"

namespace kvist::kernels::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

}  // namespace

AttendProblem::AttendProblem(KvType kv_type, uint32_t key_width, uint32_t value_width, uint32_t blocks_count,
                             Prng& prng, Numbers numbers)
    : type(kv_type),
      key_dim(key_width),
      value_dim(value_width),
      blocks(blocks_count),
      keys(RandomRow(numbers, size_t{blocks} * kPageTokens * key_dim, prng)),
      values(RandomRow(numbers, size_t{blocks} * kPageTokens * value_dim, prng)),
      key_pages(blocks * KvKeyPageBytes(type, key_dim)),
      value_pages(blocks * KvValuePageBytes(type, value_dim)) {
  const KernelTable& k = KernelsFor(Isa::kReference);
  for (uint32_t t = 0; t < blocks * kPageTokens; ++t) {
    const uint32_t b = t / kPageTokens, slot = t % kPageTokens;
    float* key = &keys[size_t{t} * key_dim];
    float* value = &values[size_t{t} * value_dim];
    k.store_key(type, key, key_dim, slot, KeyPage(b));
    k.store_value(type, value, value_dim, slot, ValuePage(b));
    for (uint32_t i = 0; i < key_dim; ++i) key[i] = KeyAt(b, slot, i);
    for (uint32_t i = 0; i < value_dim; ++i) value[i] = ValueAt(b, slot, i);
  }
}

float AttendProblem::KeyAt(uint32_t block, uint32_t slot, uint32_t i) {
  return At(KeyPage(block), KeyScales(), i * kPageTokens + slot, i / kKvKeyBlock * kPageTokens + slot);
}

float AttendProblem::ValueAt(uint32_t block, uint32_t slot, uint32_t i) {
  return At(ValuePage(block), 1, slot * value_dim + i, slot);
}

float AttendProblem::At(const std::byte* page, uint32_t scales, size_t index, size_t scale) const {
  if (type == KvType::kF16) return F16ToF32(reinterpret_cast<const uint16_t*>(page)[index]);
  return static_cast<float>(reinterpret_cast<const int8_t*>(page + scales * kKvScaleBytes)[index]) *
         reinterpret_cast<const float*>(page)[scale];
}

void AttendProblem::Spoil(uint32_t token, Prng& prng) {
  constexpr uint16_t kHalves[] = {0x7e00, 0xfc00, 0x7c00, 0xffff, 0x7bff};
  constexpr float kScales[] = {std::numeric_limits<float>::quiet_NaN(), -kInf, kInf, 3e38f, -1.0f};
  const uint32_t b = token / kPageTokens, slot = token % kPageTokens;
  const auto spoil = [&](std::byte* page, uint32_t scales, size_t index, size_t scale) {
    if (type == KvType::kF16) {
      reinterpret_cast<uint16_t*>(page)[index] = kHalves[prng.Below(5)];
    } else {
      reinterpret_cast<int8_t*>(page + scales * kKvScaleBytes)[index] = static_cast<int8_t>(prng.Next());
      reinterpret_cast<float*>(page)[scale] = kScales[prng.Below(5)];
    }
  };
  for (uint32_t i = 0; i < key_dim; ++i) {
    spoil(KeyPage(b), KeyScales(), i * kPageTokens + slot, i / kKvKeyBlock * kPageTokens + slot);
  }
  for (uint32_t i = 0; i < value_dim; ++i) spoil(ValuePage(b), 1, slot * value_dim + i, slot);
}

AttendState::AttendState(uint32_t rows, const AttendProblem& p, float softcap, uint32_t group)
    : shape{rows / group, group, p.key_dim, p.value_dim, softcap, p.type},
      stride((p.value_dim + 15) / 16 * 16),
      max(rows, -kInf),
      sum(size_t{rows} * kPageTokens, 0),
      acc(rows * stride, 0) {}

std::vector<float> AttendState::All() const {
  std::vector<float> all = max;
  all.insert(all.end(), sum.begin(), sum.end());
  all.insert(all.end(), acc.begin(), acc.end());
  return all;
}

std::vector<float> AttendState::Finish(const KernelTable& kernels) {
  const size_t width = size_t{shape.group} * shape.value_dim;
  std::vector<float> y(shape.tokens * width);
  kernels.attend_finish(shape, Sums(), y.data(), width);
  return y;
}

uint32_t Tiles(const AttendProblem& p) {
  return (p.blocks + kTileBlocks - 1) / kTileBlocks;
}

void AttendTiles(const KernelTable& kernels, AttendProblem& p, const std::vector<float>& queries, uint32_t begin,
                 uint32_t end, const std::vector<uint64_t>& visible, AttendState& state) {
  Bytes prepared(kernels.attend_query_bytes(state.shape));
  kernels.attend_prepare(state.shape, queries.data(), size_t{state.shape.group} * p.key_dim, 1.0f, prepared.data());
  for (uint32_t tile = begin; tile < end; ++tile) {
    AttendTile blocks{.keys = {}, .values = {}, .visible = visible.data() + tile * state.shape.tokens};
    for (uint32_t b = 0; b < kTileBlocks && tile * kTileBlocks + b < p.blocks; ++b) {
      blocks.keys[b] = p.KeyPage(tile * kTileBlocks + b);
      blocks.values[b] = p.ValuePage(tile * kTileBlocks + b);
    }
    kernels.attend(state.shape, prepared.data(), blocks, state.Sums());
  }
}

void AttendAll(const KernelTable& kernels, AttendProblem& p, const std::vector<float>& queries,
               const std::vector<uint64_t>& visible, AttendState& state) {
  AttendTiles(kernels, p, queries, 0, Tiles(p), visible, state);
}

uint64_t Existing(const AttendProblem& p, uint32_t tile) {
  const uint32_t tokens = std::min(kTileTokens, (p.blocks - tile * kTileBlocks) * kPageTokens);
  return tokens == kTileTokens ? ~uint64_t{0} : (uint64_t{1} << tokens) - 1;
}

std::vector<uint64_t> RandomVisible(const AttendProblem& p, uint32_t tokens, Prng& prng) {
  std::vector<uint64_t> out(Tiles(p) * tokens);
  for (uint32_t i = 0; i < out.size(); ++i) {
    uint64_t bits = ~uint64_t{0};
    const uint64_t kind = prng.Below(5);
    if (kind == 1) bits = 0;
    if (kind == 2) bits = ~uint64_t{0} << prng.Below(kTileTokens);
    if (kind == 3) bits = ~uint64_t{0} >> prng.Below(kTileTokens);
    if (kind == 4) bits = prng.Next() & prng.Next();
    out[i] = bits & Existing(p, i / tokens);
  }
  return out;
}

void SpoilHiddenSlots(AttendProblem& p, const std::vector<uint64_t>& visible, uint32_t tokens, Prng& prng) {
  for (uint32_t slot = 0; slot < p.blocks * kPageTokens; ++slot) {
    bool seen = false;
    for (uint32_t r = 0; r < tokens; ++r) {
      seen |= (visible[slot / kTileTokens * tokens + r] >> slot % kTileTokens & 1) != 0;
    }
    if (!seen) p.Spoil(slot, prng);
  }
}

}  // namespace kvist::kernels::testing
