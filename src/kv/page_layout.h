#pragma once

/// @file
/// Where the pages of one block lie inside its frame. A block is `kBlockTokens` tokens of a span; a page is one
/// (block, layer, lane); a lane is a row of the table below. All pages of a block lie in one extent, frame =
/// [layer][lane], unless the block was split: then its pages lie in the slots of other frames, each in one of its size.
/// Plain data, immutable. Non-goals: which frame holds which block.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/kv_type.h"

namespace kvist::kv {

/// Tokens of a block. Equal to the lanes of the widest vector of floats, so that one key page row is one register.
inline constexpr uint32_t kBlockTokens = kKvPageTokens;

enum class LaneKind : uint8_t {
  kKey,    ///< Keys of one KV head, dimension-major: [head_dim][kBlockTokens], after scales if the type has them.
  kValue,  ///< Values of one KV head, token-major: [kBlockTokens][head_dim], after scales if the type has them.
};

/// One row of the page-layout table.
struct Lane {
  LaneKind kind;
  uint16_t head;        ///< KV head of the model.
  uint32_t width;       ///< Elements of one token.
  uint32_t page_bytes;  ///< Multiple of 64.
  uint64_t offset;      ///< Bytes from the start of the layer's part of a frame.
};

/// KV heads [begin, end) of a model.
struct HeadRange {
  uint32_t begin = 0, end = 0;
  uint32_t count() const { return end - begin; }
  friend bool operator==(const HeadRange&, const HeadRange&) = default;
};

/// The KV heads that rank `rank` of `ranks` holds under tensor parallelism: equal shares, as far as the number of heads
/// allows. With more ranks than heads, ranks share one.
HeadRange HeadsOfRank(uint32_t kv_heads, uint32_t rank, uint32_t ranks);

/// The layout of a model's blocks, the same for every layer. Heads are counted from its first one.
class PageLayout {
 public:
  /// Keys and values of `kv_heads` heads.
  static PageLayout Dense(KvType type, uint32_t layers, uint32_t kv_heads, uint32_t key_width, uint32_t value_width);

  /// What a rank keeps of the same blocks: frames for these heads alone. Ids and tables are the same on all ranks.
  PageLayout Slice(HeadRange heads) const;

  KvType type() const { return type_; }
  uint32_t layers() const { return layers_; }
  uint32_t kv_heads() const { return kv_heads_; }
  const std::vector<Lane>& lanes() const { return lanes_; }  ///< Keys of all heads, then values of all heads.
  uint64_t layer_bytes() const { return layer_bytes_; }
  uint64_t frame_bytes() const { return layer_bytes_ * layers_; }  ///< One block.
  uint64_t token_bytes() const { return frame_bytes() / kBlockTokens; }
  uint32_t first_head() const { return lanes_.front().head; }  ///< Of the model.

  /// Pages of a block are numbered [layer][lane].
  uint32_t pages() const { return layers_ * static_cast<uint32_t>(lanes_.size()); }
  const Lane& LaneOf(uint32_t page) const { return lanes_[page % lanes_.size()]; }
  uint64_t PageOffset(uint32_t page) const { return page / lanes_.size() * layer_bytes_ + LaneOf(page).offset; }
  uint32_t KeyPage(uint32_t layer, uint32_t head) const { return layer * static_cast<uint32_t>(lanes_.size()) + head; }
  uint32_t ValuePage(uint32_t layer, uint32_t head) const { return KeyPage(layer, kv_heads_ + head); }

  /// Byte offset of a page inside the frame of a block that is not split.
  uint64_t KeyOffset(uint32_t layer, uint32_t head) const { return layer * layer_bytes_ + lanes_[head].offset; }
  uint64_t ValueOffset(uint32_t layer, uint32_t head) const {
    return layer * layer_bytes_ + lanes_[kv_heads_ + head].offset;
  }

 private:
  void AddLane(LaneKind kind, uint32_t head, uint32_t width);

  KvType type_ = KvType::kF16;
  uint32_t layers_ = 0;
  uint32_t kv_heads_ = 0;
  uint64_t layer_bytes_ = 0;
  std::vector<Lane> lanes_;
};

}  // namespace kvist::kv
