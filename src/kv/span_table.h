#pragma once

/// @file
/// Logical to physical: one entry for each block of each span, and one for each page of the blocks that were split. The
/// engine side writes it, executors read it when a plan is submitted. A span lives as long as somebody holds it: the
/// sequence that writes it, tree nodes that name its blocks. A block has one entry that says where it lies, whoever
/// sees it, so that moving it changes one entry; views and plans stay as they are. Threads: engine thread only.
/// Non-goals: references to frames, contents.

#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/units.h"
#include "kv/page_entry.h"

namespace kvist::kv {

/// Where the first bytes of blocks came from.
enum class BlockSource : uint8_t { kComputed, kColdMemory, kDrive, kColdMemoryAndDrive };

/// Which entry says where a block lies.
struct BlockPlace {
  SpanId span;
  uint32_t block = 0;
  friend bool operator==(const BlockPlace&, const BlockPlace&) = default;
};

class SpanTable {
 public:
  /// @param codec  how the blocks that are appended are written.
  explicit SpanTable(KvType codec = KvType::kF16) : codec_(codec) {}

  /// A new, empty span, held once. Ids of closed spans are used again. @param writer  whose sequence fills it
  SpanId Open(RequestId writer = {}, BlockSource source = BlockSource::kComputed);
  void Hold(SpanId span);
  /// The last one closes the span; its frames have been released before.
  void Release(SpanId span);

  /// Adds the next block, to be written to `frame`.
  void Append(SpanId span, FrameId frame);
  /// Adds the next block as it is. REQUIRES: FindFault(entry) is "".
  void Append(SpanId span, const PageEntry& entry);

  /// What is said about a block. REQUIRES: the span is open and has it.
  const PageEntry& At(SpanId span, uint32_t block) const { return Resolve(Own(span, block)); }
  BlockPlace Locate(SpanId span, uint32_t block) const;
  /// Says something else. REQUIRES: FindFault(entry) is "".
  void Put(SpanId span, uint32_t block, const PageEntry& entry);
  /// An open block will not be written any more.
  void Seal(SpanId span, uint32_t block);
  /// Points a block at another frame with the same contents, or at none.
  void Replace(SpanId span, uint32_t block, FrameId frame);
  /// The block is the one at (`to`, `to_block`), which outlives it.
  void Redirect(SpanId span, uint32_t block, SpanId to, uint32_t to_block);

  /// Where a block lies: a frame, a table of pages, or kNoFrame.
  FrameId FrameOf(SpanId span, uint32_t block) const { return At(span, block).frame; }
  /// [blocks] of an open span; those of kElsewhere to be passed to Resolve.
  std::span<const PageEntry> Blocks(SpanId span) const {
    KVIST_CHECK(span.value < spans_.size() && spans_[span.value].holders > 0);
    return spans_[span.value].blocks;
  }
  uint32_t BlocksOf(SpanId span) const { return static_cast<uint32_t>(Blocks(span).size()); }
  const PageEntry& Resolve(const PageEntry& entry) const {
    if (entry.state != PageState::kElsewhere) [[likely]] {
      return entry;
    }
    return Own(entry.elsewhere_span(), entry.elsewhere_block());
  }

  /// A new table of pages; its name stands in PageEntry::frame of a split block.
  FrameId AddPages(std::vector<PageEntry> pages);
  void RemovePages(FrameId table);
  std::span<const PageEntry> PagesOf(FrameId table) const { return tables_[table.value & ~kPageTableBit]; }
  /// Moves one page. REQUIRES: FindFault(entry) is "".
  void PutPage(FrameId table, uint32_t page, const PageEntry& entry);

  /// Who fills it, and when the last of it was written: kTimeNever = it is still being written.
  struct Origin {
    RequestId writer{};
    TimeNs written_at = kTimeNever;
    BlockSource source = BlockSource::kComputed;
  };
  const Origin& OriginOf(SpanId span) const;
  void SetWritten(SpanId span, TimeNs at);
  uint32_t open_count() const { return open_count_; }

 private:
  struct Span {
    uint32_t holders = 0;
    Origin origin;
    std::vector<PageEntry> blocks;
  };
  const PageEntry& Own(SpanId span, uint32_t block) const {
    const std::span<const PageEntry> blocks = Blocks(span);
    KVIST_CHECK(block < blocks.size());
    return blocks[block];
  }
  /// The entry that says where a block lies.
  PageEntry& Target(SpanId span, uint32_t block) { return const_cast<PageEntry&>(At(span, block)); }

  KvType codec_;
  std::vector<Span> spans_;
  std::vector<uint32_t> reusable_;
  std::vector<std::vector<PageEntry>> tables_;  ///< [tables][PageLayout::pages()]; empty = free.
  std::vector<uint32_t> reusable_tables_;
  uint32_t open_count_ = 0;
};

}  // namespace kvist::kv
