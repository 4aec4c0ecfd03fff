#include "kv/page_layout.h"

#include "base/check.h"

namespace kvist::kv {

PageLayout PageLayout::Dense(uint32_t layers, uint32_t kv_heads, uint32_t key_width, uint32_t value_width) {
  KVIST_CHECK(layers > 0 && kv_heads > 0 && key_width % 2 == 0 && value_width % 2 == 0);
  PageLayout layout;
  layout.layers_ = layers;
  layout.kv_heads_ = kv_heads;
  auto add = [&layout](LaneKind kind, uint32_t head, uint32_t width) {
    uint32_t bytes = width * kBlockTokens * 2;
    layout.lanes_.push_back({kind, static_cast<uint16_t>(head), width, bytes, layout.layer_bytes_});
    layout.layer_bytes_ += bytes;
  };
  for (uint32_t head = 0; head < kv_heads; ++head) add(LaneKind::kKey, head, key_width);
  for (uint32_t head = 0; head < kv_heads; ++head) add(LaneKind::kValue, head, value_width);
  return layout;
}

}  // namespace kvist::kv
