#include "kv/page_layout.h"

#include "base/check.h"

namespace kvist::kv {

PageLayout PageLayout::Dense(KvType type, uint32_t layers, uint32_t kv_heads, uint32_t key_width,
                             uint32_t value_width) {
  KVIST_CHECK(layers > 0 && kv_heads > 0 && key_width > 0 && value_width > 0);
  PageLayout layout;
  layout.type_ = type;
  layout.layers_ = layers;
  layout.kv_heads_ = kv_heads;
  auto add = [&layout](LaneKind kind, uint32_t head, uint32_t width, size_t page_bytes) {
    const auto bytes = static_cast<uint32_t>(page_bytes);
    layout.lanes_.push_back({kind, static_cast<uint16_t>(head), width, bytes, layout.layer_bytes_});
    layout.layer_bytes_ += bytes;
  };
  for (uint32_t head = 0; head < kv_heads; ++head)
    add(LaneKind::kKey, head, key_width, KvKeyPageBytes(type, key_width));
  for (uint32_t head = 0; head < kv_heads; ++head)
    add(LaneKind::kValue, head, value_width, KvValuePageBytes(type, value_width));
  return layout;
}

}  // namespace kvist::kv
