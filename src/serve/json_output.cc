#include "serve/json_output.h"

#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "base/check.h"

namespace kvist::serve {

namespace json = boost::json;

namespace {

void Append(const json::value& value, std::string& out);

void AppendObject(const json::object& object, std::string& out) {
  char before = '{';
  for (const auto& member : object) {
    out += before;
    before = ',';
    out += json::serialize(member.key());
    out += ':';
    Append(member.value(), out);
  }
  out += object.empty() ? "{}" : "}";
}

void AppendArray(const json::array& array, std::string& out) {
  out += '[';
  for (size_t i = 0; i < array.size(); ++i) {
    if (i > 0) out += ',';
    Append(array[i], out);
  }
  out += ']';
}

void Append(const json::value& value, std::string& out) {
  if (value.is_object()) return AppendObject(value.get_object(), out);
  if (value.is_array()) return AppendArray(value.get_array(), out);
  if (value.is_double()) {
    KVIST_CHECK(std::isfinite(value.get_double()));
    fmt::format_to(std::back_inserter(out), "{}", value.get_double());
    return;
  }
  out += json::serialize(value);
}

}  // namespace

std::string JsonText(const json::value& value) {
  std::string out;
  Append(value, out);
  return out;
}

}  // namespace kvist::serve
