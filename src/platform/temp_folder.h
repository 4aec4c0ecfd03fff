#pragma once

/// @file
/// A new private folder that is removed with all its content. One thread.

#include <string>

#include "absl/status/statusor.h"

namespace kvist {

class TempFolder {
 public:
  TempFolder(TempFolder&& other) noexcept;
  TempFolder& operator=(TempFolder&& other) noexcept;
  ~TempFolder();

  /// Inside `parent`, readable by this user only. Errors: those of the file system.
  static absl::StatusOr<TempFolder> Create(const std::string& parent);

  const std::string& path() const { return path_; }

 private:
  explicit TempFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace kvist
