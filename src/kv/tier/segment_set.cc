#include "kv/tier/segment_set.h"

#include <algorithm>

#include "base/check.h"

namespace kvist::kv {
namespace {

/// Files that are open at a time; processes often may have 1024.
constexpr size_t kOpenMax = 128;

}  // namespace

void SegmentSet::Add(SegmentId id, uint64_t file_bytes) {
  segments_[id] = {.file_bytes = file_bytes, .sealed = true};
  used_bytes_ += file_bytes;
  last_number_ = std::max(last_number_, id.value);
}

absl::StatusOr<SegmentId> SegmentSet::Create() {
  CloseIdle(kOpenMax - 1);
  const SegmentId id{last_number_ + 1};
  absl::StatusOr<DiskFile> file = disk_.Open(SegmentName(id.value), DiskOpen::kCreate);
  if (!file.ok()) return file.status();
  last_number_ = id.value;
  segments_[id] = {.file_bytes = segment_bytes_, .open = true, .file = *file, .used_at = ++clock_};
  used_bytes_ += segment_bytes_;
  ++open_;
  return id;
}

void SegmentSet::Seal(SegmentId id, uint64_t file_bytes) {
  Segment& segment = segments_.at(id);
  used_bytes_ = used_bytes_ - segment.file_bytes + file_bytes;
  segment.file_bytes = file_bytes;
  segment.sealed = true;
}

absl::Status SegmentSet::Remove(SegmentId id) {
  Segment& segment = segments_.at(id);
  KVIST_CHECK(!segment.removed);
  // Where its name stays it stays, for somebody to try again: whoever purges must know of every file.
  if (absl::Status status = disk_.Unlink(SegmentName(id.value)); !status.ok() && !absl::IsNotFound(status)) {
    return status;
  }
  segment.removed = true;
  used_bytes_ -= segment.file_bytes;
  if (segment.uses == 0) {
    Close(segment);
    segments_.erase(id);
  }
  return absl::OkStatus();
}

absl::StatusOr<DiskFile> SegmentSet::Use(SegmentId id) {
  const auto it = segments_.find(id);
  if (it == segments_.end()) return absl::NotFoundError(SegmentName(id.value));
  Segment& segment = it->second;
  if (!segment.open) {
    CloseIdle(kOpenMax - 1);
    absl::StatusOr<DiskFile> file = disk_.Open(SegmentName(id.value), read_only_ ? DiskOpen::kRead : DiskOpen::kWrite);
    if (!file.ok()) return file.status();
    segment.file = *file;
    segment.open = true;
    ++open_;
  }
  ++segment.uses;
  segment.used_at = ++clock_;
  return segment.file;
}

void SegmentSet::Release(SegmentId id) {
  Segment& segment = segments_.at(id);
  KVIST_CHECK(segment.uses > 0);
  if (--segment.uses > 0 || !segment.removed) return;
  Close(segment);
  segments_.erase(id);
}

void SegmentSet::Close(Segment& segment) {
  if (!segment.open) return;
  disk_.Close(segment.file);
  segment.open = false;
  --open_;
}

void SegmentSet::CloseIdle(size_t open_max) {
  while (open_ > open_max) {
    Segment* oldest = nullptr;
    for (auto& [id, segment] : segments_) {
      if (segment.open && segment.uses == 0 && (oldest == nullptr || segment.used_at < oldest->used_at)) {
        oldest = &segment;
      }
    }
    if (oldest == nullptr) return;
    Close(*oldest);
  }
}

std::vector<SegmentId> SegmentSet::All() const {
  std::vector<SegmentId> ids;
  for (const auto& [id, segment] : segments_) {
    if (!segment.removed) ids.push_back(id);
  }
  return ids;
}

size_t SegmentSet::size() const {
  return static_cast<size_t>(std::ranges::count_if(segments_, [](const auto& s) { return !s.second.removed; }));
}

}  // namespace kvist::kv
