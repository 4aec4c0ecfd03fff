#include "kv/page_entry.h"

namespace kvist::kv {

PageEntry PageEntry::Elsewhere(SpanId span, uint32_t block) {
  PageEntry entry{.frame = FrameId{span.value}, .state = PageState::kElsewhere};
  entry.backing.offset = block;
  return entry;
}

std::string FindFault(const PageEntry& entry) {
  const bool has_frame = entry.frame != kNoFrame && !IsPageTable(entry.frame);
  const bool has_backing = entry.backing.tier != 0;
  switch (entry.state) {
    case PageState::kNone:
      return entry.frame == kNoFrame ? "" : "a frame that holds nothing";
    case PageState::kOpen:
      if (has_backing) return "a copy of what is not written yet";
      return has_frame ? "" : "open without a frame";
    case PageState::kSealed:
      return has_frame ? "" : "sealed without a frame";
    case PageState::kStoring:
    case PageState::kLoading:
      if (!has_backing) return "moves to or from no place";
      return has_frame ? "" : "moves to or from no frame";
    case PageState::kSplit:
      if (has_backing) return "a copy of a block whose pages have their own";
      return IsPageTable(entry.frame) ? "" : "split without a table";
    case PageState::kElsewhere:
      return has_backing ? "a copy of a block that lies elsewhere" : "";
  }
  return "unknown state";
}

}  // namespace kvist::kv
