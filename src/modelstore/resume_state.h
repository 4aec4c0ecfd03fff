#pragma once

/// @file
/// What is remembered of an unfinished download, as a small JSON file beside it. Plain data; a damaged or missing file
/// is an empty state, which only costs a fresh start.

#include <cstdint>
#include <string>

namespace kvist::modelstore {

struct ResumeState {
  std::string url_sha256;    ///< The URL itself may hold a signature that nobody else should read.
  std::string validator;     ///< For If-Range: a strong ETag, else Last-Modified, else empty.
  std::string sha256;        ///< As the server stated it.
  uint64_t total_bytes = 0;  ///< 0 = unknown.

  /// The rest of the file can be asked for without mixing two files.
  bool Resumable() const { return !validator.empty() || total_bytes > 0; }

  static ResumeState Load(const std::string& path);
  void Save(const std::string& path) const;
};

}  // namespace kvist::modelstore
