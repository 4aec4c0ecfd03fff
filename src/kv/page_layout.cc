#include "kv/page_layout.h"

#include <algorithm>

#include "base/check.h"

namespace kvist::kv {

HeadRange HeadsOfRank(uint32_t kv_heads, uint32_t rank, uint32_t ranks) {
  KVIST_CHECK(rank < ranks && kv_heads > 0);
  const uint32_t begin = static_cast<uint32_t>(uint64_t{kv_heads} * rank / ranks);
  return {begin, std::max(begin + 1, static_cast<uint32_t>(uint64_t{kv_heads} * (rank + 1) / ranks))};
}

PageLayout PageLayout::Dense(KvType type, uint32_t layers, uint32_t kv_heads, uint32_t key_width,
                             uint32_t value_width) {
  KVIST_CHECK(layers > 0 && kv_heads > 0 && key_width > 0 && value_width > 0);
  PageLayout layout;
  layout.type_ = type;
  layout.layers_ = layers;
  layout.kv_heads_ = kv_heads;
  for (uint32_t head = 0; head < kv_heads; ++head) layout.AddLane(LaneKind::kKey, head, key_width);
  for (uint32_t head = 0; head < kv_heads; ++head) layout.AddLane(LaneKind::kValue, head, value_width);
  return layout;
}

PageLayout PageLayout::Slice(HeadRange heads) const {
  KVIST_CHECK(heads.begin < heads.end && heads.end <= kv_heads_);
  PageLayout layout;
  layout.type_ = type_;
  layout.layers_ = layers_;
  layout.kv_heads_ = heads.count();
  for (const uint32_t first : {0u, kv_heads_}) {
    for (uint32_t head = heads.begin; head < heads.end; ++head) {
      const Lane& lane = lanes_[first + head];
      layout.AddLane(lane.kind, lane.head, lane.width);
    }
  }
  return layout;
}

void PageLayout::AddLane(LaneKind kind, uint32_t head, uint32_t width) {
  const size_t bytes = kind == LaneKind::kKey ? KvKeyPageBytes(type_, width) : KvValuePageBytes(type_, width);
  lanes_.push_back({kind, static_cast<uint16_t>(head), width, static_cast<uint32_t>(bytes), layer_bytes_});
  layer_bytes_ += bytes;
}

}  // namespace kvist::kv
