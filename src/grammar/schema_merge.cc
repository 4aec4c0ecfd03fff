#include "grammar/schema_merge.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "base/status.h"

namespace kvist::grammar {

namespace json = boost::json;

namespace {

constexpr uint32_t kMergeDepthMax = 16;
constexpr uint32_t kMergedMax = 50'000;  // Parts: references that name others several times make many of few.

bool IsOneOf(std::string_view word, std::initializer_list<std::string_view> list) {
  return std::ranges::find(list, word) != list.end();
}

absl::Status Fault(std::string_view path, std::string_view message) {
  return absl::InvalidArgumentError(Cat(path, ": ", message));
}

json::array AsArray(const json::value& value) {
  return value.is_array() ? value.get_array() : json::array{value};
}

/// Elements of both lists, in the order of the first.
json::array Intersection(const json::value& a, const json::value& b, const std::stop_token& stop) {
  const json::array first = AsArray(a), second = AsArray(b);
  json::array both;
  for (const json::value& value : first) {
    if (stop.stop_requested()) break;
    if (std::ranges::find(second, value) != second.end()) both.push_back(value);
  }
  return both;
}

json::array Union(const json::value& a, const json::value& b, const std::stop_token& stop) {
  json::array all = AsArray(a);
  for (const json::value& value : AsArray(b)) {
    if (stop.stop_requested()) break;
    if (std::ranges::find(all, value) == all.end()) all.push_back(value);
  }
  return all;
}

/// "integer" and "number" together are "integer".
json::value TypesTogether(const json::value& a, const json::value& b) {
  json::array both = Intersection(a, b, {});
  const auto has = [](const json::value& list, std::string_view type) {
    const json::array all = AsArray(list);
    return std::ranges::find(all, json::value(type)) != all.end();
  };
  if ((has(a, "integer") && has(b, "number") && !has(b, "integer")) ||
      (has(b, "integer") && has(a, "number") && !has(a, "integer"))) {
    both.push_back("integer");
  }
  return both;
}

/// Members that `closed`, which allows no others, does not name, but `other` does.
bool NamesMore(const json::object& closed, const json::object& other) {
  const json::value* others = closed.if_contains("additionalProperties");
  if (others == nullptr || *others != json::value(false)) return false;
  const json::value* own = closed.if_contains("properties");
  const json::value* more = other.if_contains("properties");
  if (more == nullptr || !more->is_object()) return false;
  return std::ranges::any_of(more->get_object(), [&](const auto& member) {
    return own == nullptr || !own->is_object() || !own->get_object().contains(member.key());
  });
}

/// One schema of many.
class Merger {
 public:
  Merger(const json::value& root, const std::stop_token& stop) : root_(root), stop_(stop) {}

  absl::Status Into(const json::value& part, std::string_view path, uint32_t depth, json::object& into);

 private:
  absl::Status Keyword(std::string_view key, const json::value& value, json::object& into, std::string_view path) const;

  const json::value& root_;
  const std::stop_token& stop_;
  uint32_t merged_ = 0;  ///< Parts so far.
};

absl::Status Merger::Keyword(std::string_view key, const json::value& value, json::object& into,
                             std::string_view path) const {
  json::value* mine = into.if_contains(key);
  if (mine == nullptr) {
    into.emplace(key, value);
    return absl::OkStatus();
  }
  if (*mine == value || IsAnnotation(key)) return absl::OkStatus();
  if (key == "properties" && mine->is_object() && value.is_object()) {
    for (const auto& member : value.get_object()) {
      json::value* known = mine->get_object().if_contains(member.key());
      if (known == nullptr) {
        mine->get_object().emplace(member.key(), member.value());
      } else if (*known != member.value()) {
        *known = json::object{{"allOf", json::array{*known, member.value()}}};
      }
    }
    return absl::OkStatus();
  }
  if (key == "required" && mine->is_array() && value.is_array()) {
    *mine = Union(*mine, value, stop_);
    return absl::OkStatus();
  }
  if (key == "type") {
    *mine = TypesTogether(*mine, value);
    return absl::OkStatus();
  }
  if (key == "enum" && mine->is_array() && value.is_array()) {
    *mine = Intersection(*mine, value, stop_);
    return absl::OkStatus();
  }
  const std::optional<double> a = NumberOf(*mine), b = NumberOf(value);
  const bool lower = IsOneOf(key, {"minimum", "exclusiveMinimum", "minLength", "minItems"});
  const bool upper = IsOneOf(key, {"maximum", "exclusiveMaximum", "maxLength", "maxItems"});
  if (a && b && (lower || upper)) {
    if (lower ? *b > *a : *b < *a) *mine = value;
    return absl::OkStatus();
  }
  if (key == "items" || (key == "additionalProperties" && mine->is_object() && value.is_object())) {
    *mine = json::object{{"allOf", json::array{*mine, value}}};
    return absl::OkStatus();
  }
  if (key == "additionalProperties" && (mine->is_bool() || value.is_bool())) {
    const bool mine_says_all = *mine == json::value(true);
    if (mine_says_all || value == json::value(false)) *mine = value;  // What says more.
    return absl::OkStatus();
  }
  return Fault(path, Cat("two different '", key, "' at once are not supported"));
}

absl::Status Merger::Into(const json::value& part, std::string_view path, uint32_t depth, json::object& into) {
  KVIST_RETURN_IF_ERROR(Unless(stop_));
  if (++merged_ > kMergedMax) return Fault(path, Cat("'allOf' and '$ref' have more than ", kMergedMax, " parts"));
  if (depth > kMergeDepthMax) return Fault(path, "'allOf' and '$ref' lead to each other too often");
  if (part == json::value(true)) return absl::OkStatus();
  if (!part.is_object()) return Fault(path, "a part of 'allOf' must be a schema that can be satisfied");
  const json::object& schema = part.get_object();
  if (NamesMore(schema, into) || NamesMore(into, schema)) {
    return Fault(path, "'additionalProperties: false' forbids what another part of 'allOf' names");
  }
  for (const auto& member : schema) {
    const std::string_view key = member.key();
    if (key == "$ref") {
      if (!member.value().is_string()) return Fault(path, "'$ref' must be a string");
      KVIST_ASSIGN_OR_RETURN(const json::value* target, Resolve(root_, member.value().get_string(), path));
      KVIST_RETURN_IF_ERROR(Into(*target, path, depth + 1, into));
    } else if (key == "allOf") {
      if (!member.value().is_array()) return Fault(path, "'allOf' must be an array");
      for (const json::value& inner : member.value().get_array()) {
        KVIST_RETURN_IF_ERROR(Into(inner, path, depth + 1, into));
      }
    } else {
      KVIST_RETURN_IF_ERROR(Keyword(key, member.value(), into, path));
    }
  }
  return absl::OkStatus();
}

/// "~1" is '/', "~0" is '~', %HH a byte.
std::string Unescaped(std::string_view part) {
  std::string text;
  const auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
  const auto is_hex = [](char c) {
    return std::string_view("0123456789abcdefABCDEF").find(c) != std::string_view::npos;
  };
  for (size_t i = 0; i < part.size(); ++i) {
    if (part[i] == '%' && i + 2 < part.size() && is_hex(part[i + 1]) && is_hex(part[i + 2])) {
      text += static_cast<char>(digit(part[i + 1]) * 16 + digit(part[i + 2]));
      i += 2;
    } else if (part[i] == '~' && i + 1 < part.size() && (part[i + 1] == '0' || part[i + 1] == '1')) {
      text += part[++i] == '0' ? '~' : '/';
    } else {
      text += part[i];
    }
  }
  return text;
}

}  // namespace

bool IsAnnotation(std::string_view key) {
  return key.starts_with("x-") ||
         IsOneOf(key, {"title", "description", "default", "examples", "example", "$schema", "$id", "id", "$comment",
                       "$defs", "definitions", "deprecated", "readOnly", "writeOnly", "strict"});
}

std::optional<double> NumberOf(const json::value& value) {
  if (!value.is_number()) return std::nullopt;
  const double number = value.to_number<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

bool HasType(const json::value& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_bool();
  if (type == "null") return value.is_null();
  const std::optional<double> number = NumberOf(value);
  return number && (type == "number" || *number == std::floor(*number));
}

absl::StatusOr<const json::value*> Resolve(const json::value& root, std::string_view reference, std::string_view path) {
  const auto lost = [&] { return Fault(path, Cat("'$ref' leads nowhere: '", reference, "'")); };
  if (!reference.starts_with('#'))
    return Fault(path, Cat("'$ref' must lead into this schema ('#...'), not to '", reference, "'"));
  const json::value* at = &root;
  std::string_view rest = reference.substr(1);
  while (!rest.empty()) {
    if (!rest.starts_with('/')) return lost();
    rest.remove_prefix(1);
    const size_t end = std::min(rest.find('/'), rest.size());
    const std::string part = Unescaped(rest.substr(0, end));
    rest.remove_prefix(end);
    if (const json::object* object = at->if_object()) {
      at = object->if_contains(part);
    } else if (const json::array* array = at->if_array()) {
      const bool digits =
          !part.empty() && part.size() < 7 && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
      at = digits ? array->if_contains(std::stoul(part)) : nullptr;
    } else {
      at = nullptr;
    }
    if (at == nullptr) return lost();
  }
  return at;
}

absl::StatusOr<json::object> MergeAllOf(const json::object& schema, const json::value& root, std::string_view path,
                                        const std::stop_token& stop) {
  json::object merged;
  KVIST_RETURN_IF_ERROR(Merger(root, stop).Into(schema, path, 0, merged));
  KVIST_RETURN_IF_ERROR(Unless(stop));  // Lists may have been left half way.
  return merged;
}

absl::Status Unless(const std::stop_token& stop) {
  return stop.stop_requested() ? absl::CancelledError("the request is not wanted any more") : absl::OkStatus();
}

}  // namespace kvist::grammar
