#pragma once

/// @file
/// Strict reading of TOML tables, with errors that name file, line and key. One thread.

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <toml++/toml.h>

#include "absl/status/statusor.h"
#include "device/curve.h"

namespace kvist::device {

/// "PATH:LINE: what" for broken TOML.
absl::StatusOr<toml::table> ParseTomlText(std::string_view text, const std::string& path);

/// One table: keys are asked for, and the first fault is kept; Finish tells it, or which key nobody asked for.
class TomlReader {
 public:
  /// @param name  of the table, for errors; "" = the file itself
  TomlReader(const toml::table& table, std::string path, std::string name);

  /// The bounds are allowed.
  double Number(std::string_view key, double min, double max);
  double NumberOr(std::string_view key, double min, double max, double otherwise);
  std::string Text(std::string_view key);
  std::string TextOr(std::string_view key, std::string otherwise);
  bool TruthOr(std::string_view key, bool otherwise);
  std::vector<std::string> Texts(std::string_view key);
  /// [[size, value], ...] with rising sizes, or one number. Absent: `otherwise`.
  Curve CurveOr(std::string_view key, double min, double max, const Curve& otherwise);
  /// nullptr when there is none.
  const toml::table* Table(std::string_view key);
  std::vector<const toml::table*> Tables(std::string_view key);

  /// "PATH:LINE: TABLE.KEY: what" as the fault, unless there is one.
  void Fault(std::string_view key, std::string_view what);
  void Keep(absl::Status status);
  absl::Status Finish();

  const std::string& path() const { return path_; }

 private:
  const toml::node* Find(std::string_view key);
  double Checked(std::string_view key, const toml::node& node, double min, double max);
  bool ReadPoint(std::string_view key, const toml::node& node, double min, double max, std::vector<Curve::Point>& out);

  const toml::table& table_;
  const std::string path_, name_;
  std::set<std::string, std::less<>> asked_;
  absl::Status fault_;
};

}  // namespace kvist::device
