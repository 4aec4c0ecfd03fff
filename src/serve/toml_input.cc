#include "serve/toml_input.h"

#include <cmath>
#include <sstream>

#include <toml++/toml.h>

#include "base/status.h"
#include "platform/text_file.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

constexpr size_t kTomlBytesMax = size_t{1} << 20;

json::value ValueOf(const toml::node& node) {
  if (const toml::table* table = node.as_table()) {
    json::object out;
    for (const auto& [key, value] : *table) out[std::string_view(key.str())] = ValueOf(value);
    return out;
  }
  if (const toml::array* array = node.as_array()) {
    json::array out;
    for (const toml::node& value : *array) out.push_back(ValueOf(value));
    return out;
  }
  if (const auto* text = node.as_string()) return json::string(text->get());
  if (const auto* whole = node.as_integer()) return whole->get();
  if (const auto* number = node.as_floating_point()) return number->get();
  if (const auto* truth = node.as_boolean()) return truth->get();
  std::ostringstream text;
  if (const auto* date = node.as_date()) text << *date;
  if (const auto* time = node.as_time()) text << *time;
  if (const auto* moment = node.as_date_time()) text << *moment;
  return json::string(text.str());
}

}  // namespace

absl::StatusOr<json::object> ParseToml(std::string_view text, const std::string& path) {
  try {
    return ValueOf(toml::parse(text, path)).get_object();
  } catch (const toml::parse_error& error) {
    const toml::source_position& at = error.source().begin;
    const std::string_view what = error.description();
    return absl::InvalidArgumentError(Cat(path, ":", at.line, ":", at.column, ": ", what));
  }
}

absl::StatusOr<json::object> ReadTomlFile(const std::string& path) {
  KVIST_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kTomlBytesMax));
  return ParseToml(text, path);
}

}  // namespace kvist::serve
