#include "device/toml_reader.h"

#include <cmath>
#include <optional>

#include "base/status.h"

namespace kvist::device {

absl::StatusOr<toml::table> ParseTomlText(std::string_view text, const std::string& path) {
  try {
    return toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    const std::string_view what = error.description();
    return absl::InvalidArgumentError(Cat(path, ":", error.source().begin.line, ": ", what));
  }
}

TomlReader::TomlReader(const toml::table& table, std::string path, std::string name)
    : table_(table), path_(std::move(path)), name_(std::move(name)) {}

const toml::node* TomlReader::Find(std::string_view key) {
  asked_.emplace(key);
  return table_.get(key);
}

void TomlReader::Fault(std::string_view key, std::string_view what) {
  if (!fault_.ok()) return;
  const toml::node* node = table_.get(key);
  const uint32_t line = node != nullptr ? node->source().begin.line : table_.source().begin.line;
  fault_ = absl::InvalidArgumentError(Cat(path_, ":", line, ": ", name_, name_.empty() ? "" : ".", key, ": ", what));
}

void TomlReader::Keep(absl::Status status) {
  if (fault_.ok()) fault_ = std::move(status);
}

double TomlReader::Checked(std::string_view key, const toml::node& node, double min, double max) {
  const std::optional<double> value = node.value<double>();
  if (!value || !node.is_number()) {
    Fault(key, "is no number");
  } else if (!(*value >= min && *value <= max)) {  // Nor NaN.
    Fault(key, Cat(*value, " is not from ", min, " to ", max));
  } else {
    return *value;
  }
  return min;
}

double TomlReader::Number(std::string_view key, double min, double max) {
  const toml::node* node = Find(key);
  if (node != nullptr) return Checked(key, *node, min, max);
  Fault(key, "is missing");
  return min;
}

double TomlReader::NumberOr(std::string_view key, double min, double max, double otherwise) {
  const toml::node* node = Find(key);
  return node != nullptr ? Checked(key, *node, min, max) : otherwise;
}

std::string TomlReader::Text(std::string_view key) {
  const toml::node* node = Find(key);
  if (node != nullptr && node->is_string() && !node->as_string()->get().empty()) return node->as_string()->get();
  Fault(key, node == nullptr ? "is missing" : "is no text");
  return "";
}

std::string TomlReader::TextOr(std::string_view key, std::string otherwise) {
  return table_.contains(key) ? Text(key) : std::move(otherwise);
}

bool TomlReader::TruthOr(std::string_view key, bool otherwise) {
  const toml::node* node = Find(key);
  if (node == nullptr) return otherwise;
  if (!node->is_boolean()) Fault(key, "is neither true nor false");
  return node->value_or(otherwise);
}

std::vector<std::string> TomlReader::Texts(std::string_view key) {
  std::vector<std::string> texts;
  const toml::node* node = Find(key);
  if (node == nullptr) return texts;
  if (!node->is_array()) Fault(key, "is no list");
  if (!node->is_array()) return texts;
  for (const toml::node& entry : *node->as_array()) {
    if (entry.is_string()) {
      texts.push_back(entry.as_string()->get());
    } else {
      Fault(key, "has an entry that is no text");
    }
  }
  return texts;
}

bool TomlReader::ReadPoint(std::string_view key, const toml::node& node, double min, double max,
                           std::vector<Curve::Point>& out) {
  const toml::array* pair = node.as_array();
  if (pair == nullptr || pair->size() != 2) {
    Fault(key, "is not a list of pairs [size, value]");
    return false;
  }
  const double size = Checked(key, *pair->get(0), 1e-9, 1e30);
  const double value = Checked(key, *pair->get(1), min, max);
  if (!fault_.ok()) return false;
  if (!out.empty() && size <= out.back().size) {
    Fault(key, "has sizes that do not rise");
    return false;
  }
  out.push_back({size, value});
  return true;
}

Curve TomlReader::CurveOr(std::string_view key, double min, double max, const Curve& otherwise) {
  const toml::node* node = Find(key);
  if (node == nullptr) return otherwise;
  if (!node->is_array()) return Curve(Checked(key, *node, min, max));
  std::vector<Curve::Point> points;
  for (const toml::node& entry : *node->as_array()) {
    if (!ReadPoint(key, entry, min, max, points)) return otherwise;
  }
  if (!points.empty()) return Curve(points);
  Fault(key, "has no points");
  return otherwise;
}

const toml::table* TomlReader::Table(std::string_view key) {
  const toml::node* node = Find(key);
  if (node != nullptr && !node->is_table()) Fault(key, "is no table");
  return node != nullptr ? node->as_table() : nullptr;
}

std::vector<const toml::table*> TomlReader::Tables(std::string_view key) {
  std::vector<const toml::table*> tables;
  const toml::node* node = Find(key);
  if (node == nullptr) return tables;
  if (!node->is_array_of_tables()) Fault(key, Cat("is no list of tables, [[", key, "]]"));
  if (!node->is_array_of_tables()) return tables;
  for (const toml::node& entry : *node->as_array()) tables.push_back(entry.as_table());
  return tables;
}

absl::Status TomlReader::Finish() {
  for (const auto& [key, value] : table_) {
    if (!asked_.contains(std::string_view(key.str()))) Fault(key.str(), "is not known here");
  }
  return fault_;
}

}  // namespace kvist::device
