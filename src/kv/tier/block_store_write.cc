// Writing: records go behind each other into a segment that is being filled; a full one is sealed with an index.

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/status.h"
#include "kv/tier/block_store.h"

namespace kvist::kv {

StoreTicket BlockStore::Write(std::span<const BlockWrite> blocks) {
  KVIST_CHECK(!closed_);
  const uint64_t ticket = next_ticket_++;
  writes_[ticket];
  WriteIo io;
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    const BlockWrite& block = blocks[i];
    KVIST_CHECK(!block.tokens.empty() && block.tokens.size() <= kBlockTokens && !block.payload.empty());
    if (Contains(block.id) || writing_.contains(block.id.low)) {
      ++stats_.duplicate_blocks;
    } else {
      Append(block, 0, ticket, i, io);
    }
  }
  SubmitWrite(io);
  writes_.at(ticket).all_given = true;
  EndWrites(ticket);
  return {ticket};
}

void BlockStore::Append(const BlockWrite& block, uint8_t generation, uint64_t ticket, uint32_t index, WriteIo& io) {
  RecordHeader header;
  header.facts = {.id = block.id,
                  .parent = block.parent,
                  .origin = block.origin,
                  .ops_signature = block.ops_signature,
                  .payload_bytes = static_cast<uint32_t>(block.payload.size()),
                  .section_bytes = SectionBytesFor(block.payload.size(), options_.section_bytes),
                  .tokens = static_cast<uint16_t>(block.tokens.size()),
                  .generation = generation};
  const uint64_t bytes = header.facts.record_bytes();
  std::optional<SegmentId>& stream = io.carry ? old_ : young_;
  const auto refuse = [&] {
    if (!io.carry) ++stats_.refused_blocks;
    writes_.at(ticket).refused.push_back(index);
  };
  if (state_ != StoreState::kWriting || block.payload.size() > UINT32_MAX - kStorePage ||
      bytes + SegmentIndexBytes(1) > identity_.segment_bytes) {
    return refuse();
  }
  if (stream) {
    const Filling& filling = filling_.at(*stream);
    if (filling.next + bytes + SegmentIndexBytes(filling.records + 1) > identity_.segment_bytes) {
      SubmitWrite(io);
      CloseSegment(io.carry);
    }
  }
  if (!stream && (state_ != StoreState::kWriting || !BeginSegment(io.carry))) return refuse();
  if (!io.items.empty() && (io.bytes + bytes > options_.write_bytes || io.buffers.size() + 3 > kDiskBuffersMax)) {
    SubmitWrite(io);
    if (state_ != StoreState::kWriting) return refuse();  // That failed.
  }
  Filling& filling = filling_.at(*stream);
  if (io.items.empty()) {
    io.segment = *stream;
    io.offset = filling.next;
  }
  std::ranges::copy(block.tokens, header.tokens.begin());
  for (uint32_t i = 0; i < header.facts.sections(); ++i) {
    const size_t begin = size_t{i} * header.facts.section_bytes;
    header.sections[i] = HashOf(
        block.payload.subspan(begin, std::min<size_t>(header.facts.section_bytes, block.payload.size() - begin)));
  }
  // Written as it lies where that is possible; its end, and a payload that is not aligned, go through a copy.
  const bool aligned = reinterpret_cast<uintptr_t>(block.payload.data()) % kDiskAddressAlignment == 0;
  const size_t direct = aligned ? block.payload.size() / kStorePage * kStorePage : 0;
  const size_t rest = block.payload.size() - direct;
  DiskMemory& bounce = io.bounce.emplace_back(kStorePage + StorePages(rest));
  EncodeRecordHeader(header, PlaceIn(*stream, filling.next), bounce.span().first(kStorePage));
  std::memcpy(bounce.data() + kStorePage, block.payload.data() + direct, rest);
  io.buffers.push_back({bounce.data(), kStorePage});
  if (direct > 0) io.buffers.push_back({const_cast<std::byte*>(block.payload.data()), direct});
  if (rest > 0) io.buffers.push_back({bounce.data() + kStorePage, StorePages(rest)});
  io.items.push_back({.ticket = ticket, .index = index, .block = {.offset = filling.next, .facts = header.facts}});
  io.bytes += bytes;
  filling.next += bytes;
  ++filling.records;
  ++filling.pending;
  ++writes_.at(ticket).pending;
  if (!io.carry) writing_.insert(block.id.low);
}

bool BlockStore::BeginSegment(bool carry) {
  if (!MakeRoom()) return false;
  const absl::StatusOr<SegmentId> id = segments_.Create();
  if (!id.ok()) {
    StopWriting(id.status());
    return false;
  }
  filling_[*id];
  (carry ? old_ : young_) = *id;
  return true;
}

void BlockStore::CloseSegment(bool carry) {
  std::optional<SegmentId>& stream = carry ? old_ : young_;
  if (!stream) return;
  const SegmentId id = *stream;
  stream.reset();
  filling_.at(id).closing = true;
  StepSeal(id);
}

void BlockStore::SubmitWrite(WriteIo& io) {
  if (io.items.empty()) return;
  const bool carry = io.carry;
  const absl::StatusOr<DiskFile> file = segments_.Use(io.segment);
  const uint64_t tag = next_tag_++;
  if (file.ok()) {
    const DiskRequest request{
        .kind = DiskRequest::Kind::kWrite, .file = *file, .offset = io.offset, .buffers = io.buffers, .tag = tag};
    disk_->Submit({&request, 1});
    stats_.drive_written_bytes += io.bytes;
    if (carry) stats_.carried_bytes += io.bytes;
    write_ios_[tag] = std::move(io);
  } else {
    FinishWrite(io, {.tag = tag, .bytes = 0, .status = file.status()});
  }
  io = WriteIo{.carry = carry};
}

void BlockStore::FinishWrite(const WriteIo& io, const DiskCompletion& completion) {
  const bool ok = completion.status.ok() && completion.bytes == io.bytes;
  if (!ok) {
    ++stats_.write_errors;
    files_show_more_ = true;
  }
  Filling& filling = filling_.at(io.segment);
  filling.pending -= io.items.size();
  for (const WriteItem& item : io.items) {
    const RecordAt at{.segment = io.segment, .offset = item.block.offset};
    WriteState& state = writes_.at(item.ticket);
    --state.pending;
    if (!io.carry) writing_.erase(item.block.facts.id.low);
    if (!ok) {
      if (!io.carry) ++stats_.refused_blocks;
      state.refused.push_back(item.index);
      continue;
    }
    filling.blocks.push_back(item.block);
    if (!io.carry) {
      index_.Insert(item.block.facts, at);
      ++stats_.stored_blocks;
      stats_.stored_bytes += item.block.facts.payload_bytes;
    } else if (const BlockSlot block = index_.Find(item.block.facts.id);
               block != kNoBlock && index_.PlaceOf(block).segment == carry_->victim) {
      index_.Move(block, at, item.block.facts.generation);
      ++stats_.carried_blocks;
    }
  }
  if (ok) tries_in_vain_ = 0;
  if (!ok) StopWriting(completion.status.ok() ? absl::DataLossError("a write ended early") : completion.status);
  StepSeal(io.segment);
  EndWrites(io.items.front().ticket);  // All of them are of one.
}

void BlockStore::EndWrites(uint64_t ticket) {
  const auto it = writes_.find(ticket);
  if (it == writes_.end() || !it->second.all_given || it->second.pending > 0) return;
  const WriteState state = std::move(it->second);
  writes_.erase(it);
  if (state.carry) return FinishCarry();
  news_.writes.push_back({.ticket = {ticket}, .refused = state.refused});
  std::ranges::sort(news_.writes.back().refused);
}

void BlockStore::StepSeal(SegmentId id) {
  Filling& filling = filling_.at(id);
  if (!filling.closing || filling.pending > 0 || filling.file_bytes > 0 || !MayWrite()) return;
  if (filling.blocks.empty()) {
    filling_.erase(id);
    if (const absl::Status status = segments_.Remove(id); !status.ok()) StopWriting(status);
    return;
  }
  std::ranges::sort(filling.blocks, {}, &PlacedBlock::offset);
  const std::string index = EncodeSegmentIndex(filling.blocks, PlaceIn(id, filling.next));
  SealIo io{.segment = id, .index = DiskMemory(index.size())};
  std::memcpy(io.index.data(), index.data(), index.size());
  const absl::StatusOr<DiskFile> file = segments_.Use(id);
  if (!file.ok()) return StopWriting(file.status());
  const DiskBuffer buffer{io.index.data(), index.size()};
  const uint64_t tag = next_tag_++;
  const DiskRequest request{
      .kind = DiskRequest::Kind::kWrite, .file = *file, .offset = filling.next, .buffers = {&buffer, 1}, .tag = tag};
  disk_->Submit({&request, 1});
  stats_.drive_written_bytes += index.size();
  filling.file_bytes = filling.next + index.size();
  seal_ios_[tag] = std::move(io);
}

void BlockStore::FinishSeal(SealIo& io, const DiskCompletion& completion) {
  if (!completion.status.ok()) {
    ++(io.sync ? stats_.sync_errors : stats_.write_errors);
    segments_.Release(io.segment);
    filling_.at(io.segment).file_bytes = 0;  // To be tried again, should there be room one day.
    return StopWriting(completion.status);
  }
  if (!io.sync) {
    io.sync = true;
    const uint64_t tag = next_tag_++;
    const DiskRequest request{.kind = DiskRequest::Kind::kSync, .file = *segments_.Use(io.segment), .tag = tag};
    segments_.Release(io.segment);  // It is in use already.
    disk_->Submit({&request, 1});
    seal_ios_[tag] = std::move(io);
    return;
  }
  segments_.Release(io.segment);
  segments_.Seal(io.segment, filling_.at(io.segment).file_bytes);
  filling_.erase(io.segment);
}

void BlockStore::StepSeals() {
  std::vector<SegmentId> ids;  // A step may remove its own.
  for (const auto& [id, filling] : filling_) ids.push_back(id);
  std::ranges::sort(ids);
  for (const SegmentId id : ids) StepSeal(id);
}

void BlockStore::StopWriting(const absl::Status& cause) {
  const bool full = absl::IsResourceExhausted(cause);
  if (!MayWrite() || (full && state_ == StoreState::kFull)) return;
  state_ = full ? StoreState::kFull : StoreState::kReadOnly;
  reason_ = std::string(cause.message());
  if (!full) return;
  constexpr uint32_t kDoublingsMax = 6;
  tries_in_vain_ = std::min(tries_in_vain_ + 1, kDoublingsMax);
  checks_to_wait_ = 1u << tries_in_vain_;
  // What is being filled ends here: where a write failed is a gap, and a new segment begins by making room.
  for (std::optional<SegmentId>* stream : {&young_, &old_}) {
    if (*stream) filling_.at(**stream).closing = true;
    stream->reset();
  }
}

}  // namespace kvist::kv
