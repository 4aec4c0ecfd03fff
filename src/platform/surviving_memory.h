#pragma once

/// @file
/// Memory that outlives the process: a file mapped shared and writable. What is stored in it is there for the next
/// process even if this one is killed in the middle (not if the machine is: nothing is forced to the disk). One process
/// at a time; the file is its owner's alone. Threads: as of the memory itself.

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace kvist {

class SurvivingMemory {
 public:
  /// Opens the file, or makes an empty one. Errors: FailedPrecondition when another process has it; those of the file
  /// system.
  static absl::StatusOr<std::unique_ptr<SurvivingMemory>> Open(const std::string& path);
  ~SurvivingMemory();
  SurvivingMemory(const SurvivingMemory&) = delete;
  SurvivingMemory& operator=(const SurvivingMemory&) = delete;

  /// What the last process left, or what Reset made.
  std::span<std::byte> bytes() const { return {data_, size_}; }

  /// So many zero bytes in place of what is there, which the disk has room for. Earlier spans end. Errors:
  /// ResourceExhausted, or others of the file system; then there are no bytes.
  absl::Status Reset(size_t bytes);

 private:
  SurvivingMemory(std::string path, int file) : path_(std::move(path)), file_(file) {}
  absl::Status Map(size_t bytes);
  void Unmap();

  const std::string path_;
  const int file_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace kvist
