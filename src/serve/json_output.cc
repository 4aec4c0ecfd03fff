#include "serve/json_output.h"

#include <cmath>
#include <iterator>

#include <fmt/format.h>

namespace kvist::serve {

namespace json = boost::json;

namespace {

void Append(const json::value& value, std::string& out);

void AppendObject(const json::object& object, std::string& out) {
  char before = '{';
  for (const auto& member : object) {
    out += before;
    before = ',';
    AppendJsonString(member.key(), out);
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
  if (value.is_string()) return AppendJsonString(value.get_string(), out);
  if (value.is_double()) {
    const double number = value.get_double();
    if (std::isfinite(number)) {
      fmt::format_to(std::back_inserter(out), "{}", number);
    } else {
      out += "null";
    }
    return;
  }
  out += json::serialize(value);
}

}  // namespace

void AppendJsonString(std::string_view text, std::string& out) {
  constexpr std::string_view kNamed = "\b\f\n\r\t\"\\", kNames = "bfnrt\"\\";
  out += '"';
  size_t begin = 0;  // Of what is copied as it is.
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, begin, i - begin);
    begin = i + 1;
    if (const size_t named = kNamed.find(c); named != std::string_view::npos) {
      out.append({'\\', kNames[named]});
    } else {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned char>(c));
    }
  }
  out.append(text, begin).append("\"");
}

std::string JsonText(const json::value& value) {
  std::string out;
  Append(value, out);
  return out;
}

}  // namespace kvist::serve
