#pragma once

/// @file
/// Reading some blocks of a store: which requests the drive gets, and what became of each block. Records that lie
/// behind each other are read at once, straight into their destinations; or section group by section group, so that the
/// first part of every block is there early. Nothing counts as read before its checksum was right. Threads: engine
/// thread only. Non-goals: files, the index.

#include <memory>
#include <vector>

#include "kv/tier/store_index.h"
#include "platform/disk.h"

namespace kvist::kv {

/// Why a block is not there.
enum class ReadFault : uint8_t {
  kNone,
  kAbsent,   ///< It is not stored (any more).
  kHeader,   ///< What lies there is not its record.
  kTokens,   ///< It holds other tokens than expected.
  kPayload,  ///< A checksum is wrong.
  kShort,    ///< The file ends too early.
  kError,    ///< The drive said so.
};
inline constexpr size_t kReadFaults = 7;

/// A block to be read.
struct BlockRead {
  ContentId id;
  std::span<std::byte> into;  ///< Of the payload's size; at a multiple of kDiskAddressAlignment it is read directly.
  std::span<const TokenId> tokens;  ///< What it must hold; empty = not compared.
};

/// A request to one segment, and whose bytes it brings.
struct ReadIo {
  struct Part {
    uint32_t block = 0, group = 0;
    uint64_t begin = 0, end = 0;  ///< In the request.
  };
  struct Copy {
    uint64_t from = 0;  ///< In `bounce`.
    std::byte* to = nullptr;
    size_t bytes = 0;
  };
  SegmentId segment;
  uint64_t offset = 0, bytes = 0;
  std::vector<DiskBuffer> buffers;
  std::vector<Part> parts;
  std::vector<Copy> copies;
  DiskMemory bounce;  ///< Headers, ends of payloads, and payloads whose destination is not aligned.
};

class ReadJob {
 public:
  /// @param group_bytes  of each payload that are asked for before what follows, in whole sections; 0 = all at once.
  ReadJob(const StoreIndex& index, const Hash128& store, std::span<const BlockRead> blocks, uint64_t group_bytes);

  /// Sorted by group, then by place. @param bytes_max  of a request, where one block is not more than that.
  std::vector<ReadIo> Plan(uint64_t bytes_max) const;
  /// Each part for itself, after a request of several failed.
  std::vector<ReadIo> PlanAgain(const ReadIo& failed) const;

  /// Its bytes are there. @param bytes  that came. @param ok  false = the drive failed.
  void Arrive(const ReadIo& io, uint64_t bytes, bool ok);

  /// Of every payload whose block has no fault so many bytes are there and right.
  uint64_t bytes_ready() const;
  bool done() const { return pending_ == 0; }
  size_t size() const { return blocks_.size(); }
  ReadFault FaultOf(size_t block) const { return blocks_[block].fault; }
  RecordAt PlaceOf(size_t block) const { return blocks_[block].at; }
  const ContentId& IdOf(size_t block) const { return blocks_[block].facts.id; }
  /// REQUIRES: done, without fault.
  const RecordHeader& HeaderOf(size_t block) const { return *blocks_[block].header; }
  std::span<std::byte> PayloadOf(size_t block) const { return blocks_[block].into; }
  /// XXH3 of these bytes was computed.
  uint64_t bytes_checked() const { return bytes_checked_; }

 private:
  struct Block {
    BlockFacts facts;
    RecordAt at;
    std::span<std::byte> into;
    std::vector<TokenId> tokens;
    ReadFault fault = ReadFault::kNone;
    std::unique_ptr<RecordHeader> header;
    std::vector<bool> arrived;  ///< [group] and not checked yet.
    uint32_t groups = 0, first_group_bytes = 0;
  };
  struct Range {
    uint64_t begin, end;
  };
  /// Bytes of the payload.
  Range GroupOf(const Block& block, uint32_t group) const;
  /// Bytes of the record, in whole pages; the first group brings the header.
  Range RecordRange(const Block& block, uint32_t group) const;
  void AddPart(ReadIo& io, uint32_t block, uint32_t group) const;
  static void Finish(ReadIo& io);
  void TakeHeader(Block& block, std::span<const std::byte> page);
  void Check(Block& block, uint32_t group);
  void Fail(Block& block, ReadFault fault);

  const Hash128 store_;
  std::vector<Block> blocks_;
  uint64_t group_bytes_;
  uint32_t groups_ = 0;
  std::vector<uint32_t> left_;  ///< [group] parts that are not there yet.
  uint64_t pending_ = 0;        ///< Their sum.
  uint64_t bytes_checked_ = 0;
};

}  // namespace kvist::kv
