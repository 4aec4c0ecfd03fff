#pragma once

/// @file
/// Pages of one KV head with any content, what queries may see of them, and the running sums of attention over them:
/// for tests that difference instruction sets.

#include <cstdint>
#include <vector>

#include "kernels/kernels_testutil.h"

namespace kvist::kernels::testing {

/// Blocks of one KV head, as f32 (as the pages have them) and as pages.
struct AttendProblem {
  KvType type;
  uint32_t key_dim, value_dim, blocks;
  std::vector<float> keys, values;  ///< [blocks * kPageTokens][dim]
  Bytes key_pages, value_pages;     ///< [blocks] pages

  AttendProblem(KvType kv_type, uint32_t key_width, uint32_t value_width, uint32_t blocks_count, Prng& prng,
                Numbers numbers = Numbers::kPlain);

  std::byte* KeyPage(uint32_t block) { return key_pages.data() + block * KvKeyPageBytes(type, key_dim); }
  std::byte* ValuePage(uint32_t block) { return value_pages.data() + block * KvValuePageBytes(type, value_dim); }

  /// Puts what a reused page may hold in place of a token.
  void Spoil(uint32_t token, Prng& prng);

 private:
  uint32_t KeyScales() const { return (key_dim + kKvKeyBlock - 1) / kKvKeyBlock; }
  float KeyAt(uint32_t block, uint32_t slot, uint32_t i);
  float ValueAt(uint32_t block, uint32_t slot, uint32_t i);
  float At(const std::byte* page, uint32_t scales, size_t index, size_t scale) const;
};

/// Running sums of a set of query rows.
struct AttendState {
  AttendShape shape;
  size_t stride;
  std::vector<float> max, sum, acc;

  AttendState(uint32_t rows, const AttendProblem& p, float softcap = 0, uint32_t group = 1);

  AttendSums Sums() { return {max.data(), sum.data(), acc.data(), stride}; }
  std::vector<float> All() const;
  /// @return [tokens][group][value_dim]
  std::vector<float> Finish(const KernelTable& kernels);
};

uint32_t Tiles(const AttendProblem& p);

/// Attends to tiles [begin, end).
/// @param queries  [tokens][group][key_dim]
/// @param visible  [tiles][tokens]
void AttendTiles(const KernelTable& kernels, AttendProblem& p, const std::vector<float>& queries, uint32_t begin,
                 uint32_t end, const std::vector<uint64_t>& visible, AttendState& state);

void AttendAll(const KernelTable& kernels, AttendProblem& p, const std::vector<float>& queries,
               const std::vector<uint64_t>& visible, AttendState& state);

/// The tokens of a tile that exist.
uint64_t Existing(const AttendProblem& p, uint32_t tile);

/// What each token sees of each tile: all, nothing, a range, or any tokens.
std::vector<uint64_t> RandomVisible(const AttendProblem& p, uint32_t tokens, Prng& prng);

/// Fills every slot that no row sees with what a reused page may hold.
void SpoilHiddenSlots(AttendProblem& p, const std::vector<uint64_t>& visible, uint32_t tokens, Prng& prng);

}  // namespace kvist::kernels::testing
