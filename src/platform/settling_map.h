#pragma once

/// @file
/// A part of a file that can be read at once, from the page cache, and moves into huge pages of its own behind the
/// backs of its readers: pages of a map are small, and what is read again and again is read a third faster from huge
/// ones, but getting and filling those takes its time. Non-goals: writing, deciding when (the owner has a thread for
/// that).

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "platform/mapped_file.h"

namespace kvist {

/// What moves at once, bytes: a huge page.
inline constexpr uint64_t kSettlePieceBytes = uint64_t{2} << 20;

/// Owns the addresses. Movable. Threads: any may read at any time, also while pieces settle.
class SettlingMap {
 public:
  SettlingMap() = default;
  SettlingMap(SettlingMap&& other) noexcept;
  SettlingMap& operator=(SettlingMap&& other) noexcept;
  ~SettlingMap();

  /// @param offset  of the part in the file: a multiple of the page size. REQUIRES: the part lies in the file and is
  /// not empty. The file may be closed afterwards. Errors: ResourceExhausted, Unavailable.
  static absl::StatusOr<SettlingMap> Map(const MappedFile& file, uint64_t offset, uint64_t bytes);

  const std::byte* data() const { return data_; }  ///< [bytes] aligned to kSettlePieceBytes; never changes.
  uint64_t size() const { return size_; }

  /// Makes sure that a part can be read without page faults. Errors: DataLoss when the file has no such bytes any more.
  absl::Status Populate(uint64_t offset, uint64_t bytes) const;

  /// Pieces that can settle: all of the data.
  uint32_t pieces() const { return static_cast<uint32_t>((size_ + kSettlePieceBytes - 1) / kSettlePieceBytes); }

  /// Copies a piece into memory of its own. REQUIRES: it has not moved. Threads: different pieces at once.
  /// @return  the copy, which nobody else sees yet.
  const std::byte* CopyPiece(uint32_t piece);

  /// Puts the copy in the place of the mapped piece. REQUIRES: it was copied. Readers see the same bytes before, after
  /// and meanwhile. Errors: ResourceExhausted; the piece stays where it is.
  absl::Status MovePiece(uint32_t piece);

 private:
  uint64_t PieceBytes(uint32_t piece) const;  ///< In whole pages.

  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  std::byte* copies_ = nullptr;  ///< [size_] aligned as data_; a piece is gone from here when it has moved.
  std::byte* reserved_ = nullptr;
  uint64_t reserved_bytes_ = 0;  ///< Both.
};

}  // namespace kvist
