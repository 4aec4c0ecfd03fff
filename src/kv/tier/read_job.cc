#include "kv/tier/read_job.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/check.h"

namespace kvist::kv {

ReadJob::ReadJob(const StoreIndex& index, const Hash128& store, std::span<const BlockRead> blocks, uint64_t group_bytes)
    : store_(store), blocks_(blocks.size()), group_bytes_(group_bytes) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    Block& block = blocks_[i];
    block.facts.id = blocks[i].id;
    const BlockSlot slot = index.Find(blocks[i].id);
    if (slot == kNoBlock) {
      block.fault = ReadFault::kAbsent;
      continue;
    }
    block.facts = index.FactsOf(slot);
    block.at = index.PlaceOf(slot);
    block.into = blocks[i].into;
    block.tokens.assign(blocks[i].tokens.begin(), blocks[i].tokens.end());
    if (block.into.size() != block.facts.payload_bytes) {
      // Blocks of one name have one size, unless somebody changed the layout without changing the fingerprint.
      block.fault = ReadFault::kHeader;
      continue;
    }
    const uint64_t section = block.facts.section_bytes;
    const uint64_t group =
        group_bytes_ == 0 ? block.facts.payload_bytes : (group_bytes_ + section - 1) / section * section;
    block.first_group_bytes = static_cast<uint32_t>(std::min<uint64_t>(group, block.facts.payload_bytes));
    block.groups = static_cast<uint32_t>((block.facts.payload_bytes + group - 1) / group);
    block.arrived.resize(block.groups);
    groups_ = std::max(groups_, block.groups);
  }
  left_.resize(groups_);
  for (const Block& block : blocks_) {
    for (uint32_t group = 0; group < block.groups; ++group) ++left_[group];
    pending_ += block.groups;
  }
}

ReadJob::Range ReadJob::GroupOf(const Block& block, uint32_t group) const {
  const uint64_t begin = uint64_t{group} * block.first_group_bytes;
  return {begin, std::min<uint64_t>(begin + block.first_group_bytes, block.facts.payload_bytes)};
}

ReadJob::Range ReadJob::RecordRange(const Block& block, uint32_t group) const {
  const Range payload = GroupOf(block, group);
  const uint64_t begin = group == 0 ? 0 : kStorePage + payload.begin;
  return {block.at.offset + begin, block.at.offset + kStorePage + StorePages(payload.end)};
}

void ReadJob::AddPart(ReadIo& io, uint32_t index, uint32_t group) const {
  const Block& block = blocks_[index];
  const Range record = RecordRange(block, group), payload = GroupOf(block, group);
  if (io.parts.empty()) {
    io.segment = block.at.segment;
    io.offset = record.begin;
  }
  const uint64_t bytes = record.end - record.begin;
  io.parts.push_back({.block = index, .group = group, .begin = io.bytes, .end = io.bytes + bytes});
  io.bytes += bytes;
  // Buffers without an address lie in the bounce memory, which is made when all are known.
  if (group == 0) io.buffers.push_back({nullptr, kStorePage});
  std::byte* const to = block.into.data() + payload.begin;
  const uint64_t length = payload.end - payload.begin;
  const bool aligned = reinterpret_cast<uintptr_t>(to) % kDiskAddressAlignment == 0;
  const uint64_t direct = aligned ? length / kStorePage * kStorePage : 0;
  if (direct > 0) io.buffers.push_back({to, direct});
  if (length > direct) {
    io.buffers.push_back({nullptr, StorePages(length - direct)});
    io.copies.push_back({.from = io.buffers.size() - 1, .to = to + direct, .bytes = length - direct});
  }
}

void ReadJob::Finish(ReadIo& io) {
  uint64_t bounce = 0;
  for (const DiskBuffer& buffer : io.buffers) bounce += buffer.data == nullptr ? buffer.bytes : 0;
  io.bounce = DiskMemory(bounce);
  uint64_t at = 0;
  std::vector<uint64_t> offsets(io.buffers.size());
  for (size_t i = 0; i < io.buffers.size(); ++i) {
    if (io.buffers[i].data != nullptr) continue;
    io.buffers[i].data = io.bounce.data() + at;
    offsets[i] = at;
    at += io.buffers[i].bytes;
  }
  for (ReadIo::Copy& copy : io.copies) copy.from = offsets[copy.from];
}

std::vector<ReadIo> ReadJob::Plan(uint64_t bytes_max) const {
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].groups > 0) order.push_back(i);
  }
  std::ranges::sort(order, {}, [this](uint32_t i) { return blocks_[i].at; });
  std::vector<ReadIo> ios;
  for (uint32_t group = 0; group < groups_; ++group) {
    ReadIo io;
    for (const uint32_t index : order) {
      const Block& block = blocks_[index];
      if (group >= block.groups) continue;
      const Range range = RecordRange(block, group);
      const bool follows = !io.parts.empty() && io.segment == block.at.segment && io.offset + io.bytes == range.begin &&
                           io.bytes + range.end - range.begin <= bytes_max && io.buffers.size() + 3 <= kDiskBuffersMax;
      if (!io.parts.empty() && !follows) {
        Finish(io);
        ios.push_back(std::exchange(io, {}));
      }
      AddPart(io, index, group);
    }
    if (io.parts.empty()) continue;
    Finish(io);
    ios.push_back(std::move(io));
  }
  return ios;
}

std::vector<ReadIo> ReadJob::PlanAgain(const ReadIo& failed) const {
  std::vector<ReadIo> ios(failed.parts.size());
  for (size_t i = 0; i < ios.size(); ++i) {
    AddPart(ios[i], failed.parts[i].block, failed.parts[i].group);
    Finish(ios[i]);
  }
  return ios;
}

void ReadJob::Fail(Block& block, ReadFault fault) {
  if (block.fault == ReadFault::kNone) block.fault = fault;
}

void ReadJob::TakeHeader(Block& block, std::span<const std::byte> page) {
  const StorePlace place{.store = store_, .segment = block.at.segment.value, .offset = block.at.offset};
  absl::StatusOr<RecordHeader> header = ParseRecordHeader(page, place, block.facts.record_bytes());
  if (!header.ok() || header->facts.id != block.facts.id || header->facts.payload_bytes != block.facts.payload_bytes ||
      header->facts.section_bytes != block.facts.section_bytes) {
    return Fail(block, ReadFault::kHeader);
  }
  const std::span<const TokenId> stored = std::span(header->tokens).first(header->facts.tokens);
  if (!block.tokens.empty() && !std::ranges::equal(stored, block.tokens)) return Fail(block, ReadFault::kTokens);
  block.header = std::make_unique<RecordHeader>(*header);
}

void ReadJob::Check(Block& block, uint32_t group) {
  block.arrived[group] = false;
  const Range range = GroupOf(block, group);
  const uint64_t section = block.facts.section_bytes;
  for (uint64_t at = range.begin; at < range.end; at += section) {
    const uint64_t bytes = std::min(section, range.end - at);
    bytes_checked_ += bytes;
    if (HashOf(block.into.subspan(at, bytes)) != block.header->sections[at / section]) {
      return Fail(block, ReadFault::kPayload);
    }
  }
}

void ReadJob::Arrive(const ReadIo& io, uint64_t bytes, bool ok) {
  if (ok) {
    // What did not come is copied too; its part fails all the same.
    for (const ReadIo::Copy& copy : io.copies) std::memcpy(copy.to, io.bounce.data() + copy.from, copy.bytes);
  }
  size_t buffer = 0;
  uint64_t passed = 0;
  for (const ReadIo::Part& part : io.parts) {
    Block& block = blocks_[part.block];
    while (passed < part.begin) passed += io.buffers[buffer++].bytes;
    --left_[part.group];
    --pending_;
    if (!ok || bytes < part.end) {
      Fail(block, ok ? ReadFault::kShort : ReadFault::kError);
      continue;
    }
    block.arrived[part.group] = true;
    if (part.group == 0) TakeHeader(block, {io.buffers[buffer].data, kStorePage});
    if (block.header == nullptr || block.fault != ReadFault::kNone) continue;
    for (uint32_t group = 0; group < block.groups; ++group) {
      if (block.arrived[group]) Check(block, group);
    }
  }
}

uint64_t ReadJob::bytes_ready() const {
  // A group is ready when all of its parts and of those before have come. Headers come with the first group.
  uint32_t groups = 0;
  while (groups < groups_ && left_[groups] == 0) ++groups;
  if (groups == groups_) return done() ? UINT64_MAX : 0;
  uint64_t bytes = groups == 0 ? 0 : UINT64_MAX;
  for (const Block& block : blocks_) {
    if (groups == 0 || block.fault != ReadFault::kNone || groups >= block.groups) continue;
    bytes = std::min<uint64_t>(bytes, uint64_t{groups} * block.first_group_bytes);
  }
  return bytes;
}

}  // namespace kvist::kv
