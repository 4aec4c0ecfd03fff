#include "platform/disk.h"

#include <cstdlib>
#include <cstring>

#include "base/check.h"

namespace kvist {
namespace {

absl::StatusOr<uint64_t> DoNow(Disk& disk, const DiskRequest& request) {
  KVIST_CHECK(disk.in_flight() == 0);
  disk.Submit({&request, 1});
  std::vector<DiskCompletion> done;
  while (done.empty()) disk.Poll(done, true);
  KVIST_CHECK(done.size() == 1);
  if (!done[0].status.ok()) return done[0].status;
  return done[0].bytes;
}

}  // namespace

absl::StatusOr<uint64_t> ReadNow(Disk& disk, DiskFile file, uint64_t offset, DiskBuffer into) {
  return DoNow(disk, {.kind = DiskRequest::Kind::kRead, .file = file, .offset = offset, .buffers = {&into, 1}});
}

absl::Status WriteNow(Disk& disk, DiskFile file, uint64_t offset, DiskBuffer from) {
  return DoNow(disk, {.kind = DiskRequest::Kind::kWrite, .file = file, .offset = offset, .buffers = {&from, 1}})
      .status();
}

absl::Status SyncNow(Disk& disk, DiskFile file) {
  return DoNow(disk, {.kind = DiskRequest::Kind::kSync, .file = file}).status();
}

DiskMemory::DiskMemory(size_t bytes) : size_((bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment) {
  if (size_ == 0) return;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, size_)));
  KVIST_CHECK(data_ != nullptr);
  std::memset(data_.get(), 0, size_);
}

void DiskMemory::Free::operator()(std::byte* data) const {
  std::free(data);
}

}  // namespace kvist
