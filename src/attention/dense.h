#pragma once

/// @file
/// Attention of a run of new tokens over a paged view: every key that causality and the window allow, with online
/// softmax. The view is cut by its block numbers into tiles (kernels::kTileBlocks blocks, one kernel call) and these
/// into sections of kSectionTiles tiles. Each section is summed up by itself, and the sections are merged in order: so
/// a token's result depends neither on how its prompt was cut into chunks, nor on what else is in the step, nor on how
/// many threads shared the sections of a long view, nor on whether other sequences read a section with it.
///
/// A view may have keys elsewhere than where they were stored (its blocks' turns). Scores depend on distances alone, so
/// the queries turn and the keys stay as they are; a tile whose blocks have several turns takes one kernel call for
/// each, in the order in which they first appear.
///
/// Threads: any, with a scratch each. Non-goals: selection of pages.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernel_table.h"
#include "kv/page_layout.h"

namespace kvist::attention {

/// Tiles of a section: 512 tokens of full blocks. Short enough to share a view of some thousand tokens among threads,
/// long enough that merging costs little.
inline constexpr uint32_t kSectionTiles = 8;
inline constexpr uint32_t kSectionBlocks = kSectionTiles * kernels::kTileBlocks;

/// A part of one resident block that belongs to a view. A block may have several parts in a view.
struct ViewBlock {
  const std::byte* frame = nullptr;  ///< Null where the block is split.
  uint8_t begin = 0, count = 0;      ///< Tokens [begin, begin + count) of the block.
  uint16_t pages = 0;                ///< Of a split block: its number in SplitPages, from 1 on.
  uint32_t turn = 0;                 ///< Row of Turns; 0 = the keys are where they were stored.

  friend bool operator==(const ViewBlock&, const ViewBlock&) = default;
};

static_assert(sizeof(ViewBlock) == 16);
inline constexpr uint32_t kSplitBlocksMax = UINT16_MAX;  ///< Of a step: a million tokens.

/// Where the pages of the split blocks of a step lie.
struct SplitPages {
  const std::byte* const* pages = nullptr;  ///< [split blocks][per_block]
  uint32_t per_block = 0;
  uint32_t key = 0, value = 0;  ///< Which of a block's pages are those of the head.
};

/// Rotations of queries: for keys stored at position p that the view has at p + shift, by the angles of -shift. A
/// query's element pair is rotated as kernels::KernelTable::rope does, in f32, before it is scaled.
struct Turns {
  const float* cos = nullptr;  ///< [turns][dims / 2]; row 0 is not used.
  const float* sin = nullptr;
  uint32_t dims = 0;  ///< Rotated dimensions of a head; 0 = positions do not matter to this layer.
  kernels::RopePairs pairs = kernels::RopePairs::kHalves;
};

/// One KV head of one layer over a view: what all queries have in common.
struct HeadView {
  std::span<const ViewBlock> view;            ///< In view order, from the first token of the sequence.
  uint64_t key_offset = 0, value_offset = 0;  ///< Of this head's pages in a frame (PageLayout).
  SplitPages split;                           ///< For blocks that have no frame.
  uint32_t group = 1;                         ///< Query heads that share the KV head.
  uint32_t key_dim = 0, value_dim = 0;
  uint32_t window = 0;  ///< View tokens seen, itself included; 0 = all.
  float scale = 1.0f;   ///< Of the scores.
  KvType kv_type = KvType::kF16;
  Turns turns;

  const std::byte* KeysOf(const ViewBlock& block) const { return PageOf(block, key_offset, split.key); }
  const std::byte* ValuesOf(const ViewBlock& block) const { return PageOf(block, value_offset, split.value); }
  const std::byte* PageOf(const ViewBlock& block, uint64_t offset, uint32_t page) const {
    if (block.pages == 0) [[likely]] {
      return block.frame + offset;
    }
    return split.pages[(size_t{block.pages} - 1) * split.per_block + page];
  }

  kernels::AttendShape Shape(uint32_t tokens) const {
    return {tokens, group, key_dim, value_dim, /*softcap=*/0, kv_type};
  }
};

/// Consecutive query tokens of one sequence.
struct DenseTask {
  HeadView head;
  uint32_t query_index = 0;        ///< Index in the view of the first query token.
  uint32_t tokens = 0;             ///< Query tokens.
  const float* queries = nullptr;  ///< [tokens][query_stride]; this KV head's group of heads lies side by side.
  size_t query_stride = 0;         ///< Floats from token to token.
  float* out = nullptr;            ///< [tokens][out_stride], laid out as the queries.
  size_t out_stride = 0;
};

/// One query token that reads a section, perhaps with those of other sequences.
struct Reader {
  const float* queries = nullptr;  ///< [group * key_dim]
  uint32_t query_index = 0;        ///< Of its own view.
};

/// Grows to the largest task seen, then allocates no more.
struct DenseScratch {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> prepared;
  std::vector<float> sums, section, gathered, turned;
  std::vector<uint64_t> visible, visible_of_turn;
  std::vector<uint32_t> indices;
};

/// Sections of a view of so many blocks.
constexpr uint32_t SectionsOf(size_t blocks) {
  return static_cast<uint32_t>((blocks + kSectionBlocks - 1) / kSectionBlocks);
}

/// Floats that the sums of a section take; proportional to shape.tokens.
size_t SumsFloats(const kernels::AttendShape& shape);

void AttendDense(const kernels::KernelTable& kernels, const DenseTask& task, DenseScratch& scratch);

/// One section alone, for every reader. A reader's sums have the same bits whoever reads with it.
/// @param head     the section's blocks are those of every reader's view; later ones may be of any.
/// @param readers  at least one.
/// @param start    view index of the section's first token.
/// @param sums     SumsFloats(head.Shape(readers.size())) floats, for MergeSections.
void AttendSection(const kernels::KernelTable& kernels, const HeadView& head, std::span<const Reader> readers,
                   uint32_t section, uint32_t start, DenseScratch& scratch, float* sums);

/// What AttendSection left for one of its readers.
struct SectionSums {
  float* sums = nullptr;
  uint32_t readers = 1, reader = 0;
};

/// What AttendDense does for one token, from the sums of every section.
/// @param sections  [SectionsOf(view)] in order; the reader's own rows of the first are changed.
/// @param out       [group * value_dim]
void MergeSections(const kernels::KernelTable& kernels, const HeadView& head, std::span<const SectionSums> sections,
                   float* out);

/// Of some scores of one query head: the largest, in units of the kernels' own, and the sum of what a softmax makes of
/// them before it divides, relative to that of the largest. -infinity and 0 where nothing is seen.
struct ScoreSum {
  float max = 0, sum = 0;
};

/// Sums up the scores of one query token over at most kSectionBlocks blocks, without their values.
/// @param head    `view` is these blocks alone.
/// @param reader  its index counts from the first of these blocks' tokens; it may be past their end.
/// @param out     [group]
void SumScores(const kernels::KernelTable& kernels, HeadView head, const Reader& reader, DenseScratch& scratch,
               ScoreSum* out);

/// Turns sums of parts of views into their shares of the whole: of each head they add up to 1.
/// @param sums  [parts][heads]; `sum` becomes the share.
void ShareScores(const kernels::KernelTable& kernels, uint32_t heads, std::span<ScoreSum> sums, DenseScratch& scratch);

}  // namespace kvist::attention
