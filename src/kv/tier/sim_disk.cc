#include "kv/tier/sim_disk.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace kvist::kv {
namespace {

constexpr uint64_t kSector = 512;

absl::Status Gone() {
  return absl::AbortedError("the process is gone");
}

}  // namespace

/// A process's view of the drive.
class SimDisk final : public Disk {
 public:
  explicit SimDisk(SimDrive& drive) : drive_(drive) {}
  ~SimDisk() override {
    for (auto it = drive_.locks_.begin(); it != drive_.locks_.end();) {
      it = it->second == this ? drive_.locks_.erase(it) : std::next(it);
    }
  }

  DiskReport report() const override { return {.engine = "simulated", .direct = true}; }

  absl::StatusOr<DiskFile> Open(const std::string& name, DiskOpen mode) override {
    if (!drive_.Count()) return Gone();
    if (drive_.Chance(drive_.faults.name_error)) return absl::InternalError("open failed");
    auto it = drive_.files_.find(name);
    if (mode == DiskOpen::kCreate) {
      if (it != drive_.files_.end()) return absl::AlreadyExistsError(name);
      it = drive_.files_.emplace(name, std::make_shared<SimDrive::File>()).first;
    } else if (it == drive_.files_.end()) {
      return absl::NotFoundError(name);
    }
    open_.push_back({it->second, mode != DiskOpen::kRead});
    return DiskFile{static_cast<uint32_t>(open_.size() - 1)};
  }
  void Close(DiskFile file) override {
    for (const Pending& pending : pending_) KVIST_CHECK(pending.request.file != file);
    KVIST_CHECK(open_.at(file.value).file != nullptr);
    open_[file.value].file = nullptr;
  }
  absl::StatusOr<uint64_t> Size(DiskFile file) override {
    if (!drive_.Count()) return Gone();
    return FileOf(file).data.size();
  }
  absl::Status Truncate(DiskFile file, uint64_t bytes) override {
    if (!drive_.Count()) return Gone();
    FileOf(file).data.resize(bytes);
    return absl::OkStatus();
  }
  absl::Status Erase(DiskFile file, uint64_t offset, uint64_t bytes) override {
    if (!drive_.Count()) return Gone();
    KVIST_CHECK(offset % kDirectAlignment == 0 && bytes % kDirectAlignment == 0);
    KVIST_CHECK(offset + bytes <= FileOf(file).data.size());
    drive_.Put(FileOf(file), offset, std::vector<std::byte>(bytes));
    return absl::OkStatus();
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (!drive_.Count()) return Gone();
    const auto it = drive_.files_.find(from);
    if (it == drive_.files_.end()) return absl::NotFoundError(from);
    drive_.files_[to] = it->second;
    drive_.files_.erase(from);
    return absl::OkStatus();
  }
  absl::Status Unlink(const std::string& name) override {
    if (!drive_.Count()) return Gone();
    if (drive_.Chance(drive_.faults.name_error)) return absl::InternalError("unlink failed");
    return drive_.files_.erase(name) > 0 ? absl::OkStatus() : absl::NotFoundError(name);
  }
  absl::StatusOr<std::vector<std::string>> List() override {
    if (!drive_.Count()) return Gone();
    std::vector<std::string> names;
    for (const auto& [name, file] : drive_.files_) names.push_back(name);
    return names;
  }
  absl::Status SyncFolder() override { return drive_.Count() ? absl::OkStatus() : Gone(); }
  absl::Status Lock(const std::string& name) override {
    if (!drive_.locks_.emplace(name, this).second) return absl::UnavailableError(name);
    return absl::OkStatus();
  }
  bool IsLocked(const std::string& name) override { return drive_.locks_.contains(name); }
  absl::Status CheckFolder() override {
    return drive_.faults.folder_removed ? absl::NotFoundError("the folder was removed") : absl::OkStatus();
  }
  uint64_t FreeBytes() override {
    const uint64_t used = drive_.used_bytes();
    return drive_.faults.room_bytes == UINT64_MAX || drive_.faults.room_unknown
               ? UINT64_MAX
               : drive_.faults.room_bytes - std::min(used, drive_.faults.room_bytes);
  }

  void Submit(std::span<const DiskRequest> requests) override {
    for (const DiskRequest& request : requests) {
      KVIST_CHECK(open_.at(request.file.value).file != nullptr && request.buffers.size() <= kDiskBuffersMax);
      KVIST_CHECK(request.offset % kDirectAlignment == 0);
      for (const DiskBuffer& buffer : request.buffers) {
        KVIST_CHECK(buffer.bytes % kDirectAlignment == 0);
        KVIST_CHECK(reinterpret_cast<uintptr_t>(buffer.data) % kDiskAddressAlignment == 0);
      }
      pending_.push_back({request, {request.buffers.begin(), request.buffers.end()}});
    }
  }

  void Poll(std::vector<DiskCompletion>& out, bool wait) override {
    if (pending_.empty()) return;
    uint64_t count = drive_.prng_.Below(pending_.size() + 1);
    if (wait) count = std::max<uint64_t>(count, 1);
    for (; count > 0; --count) {
      const uint64_t pick = drive_.prng_.Below(pending_.size());
      std::swap(pending_[pick], pending_.back());
      const Pending pending = std::move(pending_.back());
      pending_.pop_back();
      DiskCompletion& completion = out.emplace_back();
      completion.tag = pending.request.tag;
      const Opened& opened = open_[pending.request.file.value];
      if (!drive_.Count()) {
        if (pending.request.kind == DiskRequest::Kind::kWrite) Linger(pending);
        completion.status = Gone();
      } else if (pending.request.kind == DiskRequest::Kind::kWrite && !opened.writable) {
        completion.status = absl::FailedPreconditionError("open for reading alone");
      } else {
        completion.status = drive_.Apply(*opened.file, pending.request, pending.buffers, completion.bytes);
      }
    }
  }
  size_t in_flight() const override { return pending_.size(); }

 private:
  struct Opened {
    std::shared_ptr<SimDrive::File> file;
    bool writable;
  };
  struct Pending {
    DiskRequest request;
    std::vector<DiskBuffer> buffers;
  };
  SimDrive::File& FileOf(DiskFile file) { return *open_.at(file.value).file; }
  void Linger(const Pending& pending) {
    std::vector<std::byte> bytes;
    for (const DiskBuffer& buffer : pending.buffers) bytes.insert(bytes.end(), buffer.data, buffer.data + buffer.bytes);
    drive_.lingering_.push_back({open_[pending.request.file.value].file, {pending.request.offset, std::move(bytes)}});
  }

  SimDrive& drive_;
  std::vector<Opened> open_;
  std::vector<Pending> pending_;
};

std::unique_ptr<Disk> SimDrive::Open() {
  return std::make_unique<SimDisk>(*this);
}

bool SimDrive::Count() {
  ++operations_;
  if (faults.crash_after && operations_ > *faults.crash_after) crashed_ = true;
  return !crashed_;
}

uint64_t SimDrive::used_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [name, file] : files_) bytes += file->data.size();
  return bytes;
}

void SimDrive::Put(File& file, uint64_t offset, std::span<const std::byte> bytes) {
  if (file.data.size() < offset + bytes.size()) file.data.resize(offset + bytes.size());
  for (uint64_t page = offset / kDirectAlignment; page * kDirectAlignment < offset + bytes.size(); ++page) {
    const uint64_t begin = page * kDirectAlignment,
                   end = std::min<uint64_t>(begin + kDirectAlignment, file.data.size());
    file.unsynced.try_emplace(page, file.data.begin() + static_cast<std::ptrdiff_t>(begin),
                              file.data.begin() + static_cast<std::ptrdiff_t>(end));
  }
  std::ranges::copy(bytes, file.data.begin() + static_cast<std::ptrdiff_t>(offset));
}

absl::Status SimDrive::Apply(File& file, const DiskRequest& request, std::span<const DiskBuffer> buffers,
                             uint64_t& done) {
  if (request.kind == DiskRequest::Kind::kSync) {
    if (Chance(faults.sync_error)) return absl::InternalError("sync failed");
    file.unsynced.clear();
    file.synced_bytes = file.data.size();
    return absl::OkStatus();
  }
  if (request.kind == DiskRequest::Kind::kRead) {
    if (Chance(faults.read_error)) return absl::InternalError("read failed");
    uint64_t at = request.offset, end = file.data.size();
    if (Chance(faults.short_read)) end = std::min(end, at + prng_.Below(8) * kSector);
    for (const DiskBuffer& buffer : buffers) {
      const uint64_t bytes = at >= end ? 0 : std::min<uint64_t>(buffer.bytes, end - at);
      std::copy_n(file.data.begin() + static_cast<std::ptrdiff_t>(bytes == 0 ? 0 : at), bytes, buffer.data);
      if (bytes > 0 && Chance(faults.flipped_read)) buffer.data[prng_.Below(bytes)] ^= std::byte{16};
      at += bytes;
      done += bytes;
      if (bytes < buffer.bytes) break;
    }
    return absl::OkStatus();
  }
  if (Chance(faults.write_error)) return absl::InternalError("write failed");
  std::vector<std::byte> bytes;
  for (const DiskBuffer& buffer : buffers) bytes.insert(bytes.end(), buffer.data, buffer.data + buffer.bytes);
  uint64_t offset = request.offset;
  const uint64_t grows = offset + bytes.size() > file.data.size() ? offset + bytes.size() - file.data.size() : 0;
  if (const uint64_t used = used_bytes(); used + grows > faults.room_bytes) {
    const uint64_t missing = std::min(used + grows - faults.room_bytes, bytes.size());
    bytes.resize((bytes.size() - missing) / kSector * kSector);  // What there is room for is written.
    Put(file, offset, bytes);
    return absl::ResourceExhaustedError("no room");
  }
  done = bytes.size();
  if (Chance(faults.lost_write)) return absl::OkStatus();
  if (Chance(faults.misdirected_write))
    offset = prng_.Below(file.data.size() / kDirectAlignment + 2) * kDirectAlignment;
  if (Chance(faults.flipped_bit)) bytes[prng_.Below(bytes.size())] ^= std::byte{1};
  if (Chance(faults.torn_write)) bytes.resize(prng_.Below(bytes.size() / kSector) * kSector);
  Put(file, offset, bytes);
  return absl::OkStatus();
}

void SimDrive::Crash(bool power) {
  for (auto& [file, write] : lingering_) {
    std::vector<std::byte>& bytes = write.second;
    bytes.resize(prng_.Below(bytes.size() / kSector + 1) * kSector);
    if (Chance(0.5)) Put(*file, write.first, bytes);
  }
  lingering_.clear();
  locks_.clear();
  for (auto it = files_.begin(); it != files_.end();) {
    File& file = *it->second;
    if (power) {
      for (const auto& [page, old] : file.unsynced) {
        if (Chance(0.5))
          std::ranges::copy(old, file.data.begin() + static_cast<std::ptrdiff_t>(page * kDirectAlignment));
      }
      // A file that was never synced may have lost its name, or its end.
      if (file.synced_bytes == 0 && Chance(0.3)) {
        it = files_.erase(it);
        continue;
      }
      if (Chance(0.3) && file.data.size() > file.synced_bytes) {
        file.data.resize(file.synced_bytes + prng_.Below(file.data.size() - file.synced_bytes));
      }
    }
    file.unsynced.clear();
    file.synced_bytes = file.data.size();
    ++it;
  }
  crashed_ = false;
  faults.crash_after.reset();
}

bool SimDrive::Holds(std::span<const std::byte> bytes) const {
  return std::ranges::any_of(
      files_, [&](const auto& entry) { return !std::ranges::search(entry.second->data, bytes).empty(); });
}

void SimDrive::FlipSomewhere() {
  if (files_.empty()) return;
  File& file = *std::next(files_.begin(), static_cast<std::ptrdiff_t>(prng_.Below(files_.size())))->second;
  if (!file.data.empty()) file.data[prng_.Below(file.data.size())] ^= std::byte{4};
}

}  // namespace kvist::kv
