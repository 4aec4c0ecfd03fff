#pragma once

/// @file
/// Reads device files (docs/formats/device.md): one accelerator, link or drive each, in TOML. Every table of figures
/// says where they are from (`source`). Pure but for reading files; any thread.

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "device/device.h"

namespace kvist::device {

/// Errors: InvalidArgument, "PATH:LINE: TABLE.KEY: what": broken TOML, keys that are not known, missing or out of
/// bounds, names that lead nowhere.
absl::StatusOr<Device> ParseDevice(std::string_view text, const std::string& path);
absl::StatusOr<Link> ParseLink(std::string_view text, const std::string& path);
absl::StatusOr<Drive> ParseDrive(std::string_view text, const std::string& path);

/// The text of a file that says the same of a device, and of all its figures that they are from `source`.
std::string FormatDevice(const Device& device, std::string_view source);

/// Device files of a folder and its folders links/ and drives/, found by name: that of the file without ".toml".
class Catalog {
 public:
  explicit Catalog(std::string folder) : folder_(std::move(folder)) {}

  /// @param name  or the path of a file, when it ends in ".toml"
  /// Errors: NotFound with the names that there are; those of parsing.
  absl::StatusOr<Device> FindDevice(std::string_view name) const;
  absl::StatusOr<Link> FindLink(std::string_view name) const;
  absl::StatusOr<Drive> FindDrive(std::string_view name) const;

  /// Sorted. @param kind  "", "links" or "drives"
  std::vector<std::string> Names(std::string_view kind = "") const;

 private:
  absl::StatusOr<std::string> Read(std::string_view kind, std::string_view name, std::string& path) const;

  std::string folder_;
};

}  // namespace kvist::device
