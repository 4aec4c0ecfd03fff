#include "grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "grammar/json_nodes.h"
#include "grammar/schema_formats.h"
#include "grammar/schema_merge.h"
#include "grammar/schema_object.h"

namespace kvist::grammar {

namespace json = boost::json;

namespace {

constexpr uint32_t kNestingMax = 64;
constexpr uint32_t kSchemasMax = 20'000;
constexpr int64_t kBoundMax = 100'000'000'000'000'000;
constexpr int64_t kLengthMax = 100'000;
/// A range of numbers of so many digits or more takes more than 16 states for each square of a digit.
constexpr uint32_t kLongDigits = 8, kLongRangesMax = 1 << 14;

bool IsOneOf(std::string_view word, std::initializer_list<std::string_view> list) {
  return std::ranges::find(list, word) != list.end();
}

/// Keywords that mean something to one type of value only.
struct TypeKeywords {
  std::string_view type;
  std::vector<std::string_view> done, refused;
};

const std::vector<TypeKeywords>& Types() {
  static const std::vector<TypeKeywords> types = {
      {"object",
       {"properties", "required", "additionalProperties"},
       {"patternProperties", "propertyNames", "minProperties", "maxProperties", "dependentRequired", "dependentSchemas",
        "dependencies", "unevaluatedProperties"}},
      {"array",
       {"items", "prefixItems", "minItems", "maxItems"},
       {"contains", "minContains", "maxContains", "uniqueItems", "unevaluatedItems", "additionalItems"}},
      {"string", {"minLength", "maxLength", "pattern", "format"}, {}},
      {"integer", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}, {"multipleOf"}},
      {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}, {"multipleOf"}},
      {"boolean", {}, {}},
      {"null", {}, {}},
  };
  return types;
}

bool IsGeneral(std::string_view key) {
  return IsOneOf(key, {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"});
}

class SchemaCompiler {
 public:
  SchemaCompiler(const json::value& root, const SchemaOptions& options, RuleSet& rules)
      : root_(root), options_(options), rules_(rules), json_(rules) {}

  absl::StatusOr<Node> Value(const json::value& schema, const std::string& path, uint32_t depth) {
    if (depth > kNestingMax) return Fault(path, Cat("schemas are nested more than ", kNestingMax, " deep"));
    KVIST_RETURN_IF_ERROR(Unless(options_.stop));
    if (++count_ > kSchemasMax) return Fault(path, Cat("more than ", kSchemasMax, " schemas"));
    if (const bool* any = schema.if_bool()) {
      if (!*any) return Fault(path, "no value can satisfy the schema 'false'");
      return json_.AnyValue();
    }
    if (!schema.is_object()) return Fault(path, "a schema must be an object, true or false");
    const json::object& object = schema.get_object();
    if (object.contains("$ref")) return Reference(object, path, depth);
    if (object.contains("allOf")) {
      // One part and nothing else is that part: so generators write references with a description.
      const json::array* all = object.at("allOf").if_array();
      const bool alone = std::ranges::all_of(
          object, [](const auto& member) { return member.key() == "allOf" || IsAnnotation(member.key()); });
      if (all != nullptr && all->size() == 1 && alone) return Value((*all)[0], Cat(path, "/allOf/0"), depth + 1);
      KVIST_ASSIGN_OR_RETURN(const json::object merged, MergeAllOf(object, root_, path, options_.stop));
      return Value(merged, path, depth + 1);
    }
    for (const std::string_view key : {"anyOf", "oneOf"}) {
      if (object.contains(key)) return Alternatives(object, key, path, depth);
    }
    if (object.contains("const") || object.contains("enum")) return Constants(object, path);
    return Typed(object, path, depth);
  }

 private:
  static absl::Status Fault(std::string_view path, std::string_view message) {
    return absl::InvalidArgumentError(Cat(path, ": ", message));
  }
  /// Of what cannot be honoured.
  absl::Status Refuse(std::string_view path, std::string_view message) const {
    return options_.strict ? Fault(path, message) : absl::OkStatus();
  }

  absl::StatusOr<Node> Reference(const json::object& schema, const std::string& path, uint32_t depth) {
    if (!schema.at("$ref").is_string()) return Fault(path, "'$ref' must be a string");
    for (const auto& member : schema) {
      if (member.key() == "$ref" || IsAnnotation(member.key())) continue;
      // Beside others it is one more schema that must hold.
      json::object both = schema;
      both.erase("$ref");
      json::array all =
          both.contains("allOf") && both.at("allOf").is_array() ? both.at("allOf").get_array() : json::array();
      all.push_back(json::object{{"$ref", schema.at("$ref")}});
      both["allOf"] = std::move(all);
      return Value(both, path, depth + 1);
    }
    const std::string target(schema.at("$ref").get_string());
    if (const auto known = references_.find(target); known != references_.end()) return Rule(known->second);
    KVIST_ASSIGN_OR_RETURN(const json::value* found, Resolve(root_, target, path));
    const RuleId rule = rules_.Declare(target);
    references_[target] = rule;
    KVIST_ASSIGN_OR_RETURN(Node body, Value(*found, target, depth + 1));
    rules_.Define(rule, std::move(body));
    return Rule(rule);
  }

  absl::StatusOr<Node> Alternatives(const json::object& schema, std::string_view key, const std::string& path,
                                    uint32_t depth) {
    const json::array* list = schema.at(key).if_array();
    if (list == nullptr || list->empty()) return Fault(path, Cat("'", key, "' must be an array with schemas"));
    json::object base = schema;
    base.erase(key);
    const bool alone = std::ranges::all_of(base, [](const auto& member) { return IsAnnotation(member.key()); });
    std::vector<Node> parts;
    for (size_t i = 0; i < list->size(); ++i) {
      const std::string place = Cat(path, "/", key, "/", i);
      json::value part = (*list)[i];
      if (!alone) part = json::object{{"allOf", json::array{base, part}}};
      KVIST_ASSIGN_OR_RETURN(Node node, Value(part, place, depth + 1));
      parts.push_back(std::move(node));
    }
    return Choice(std::move(parts));
  }

  absl::StatusOr<Node> Constants(const json::object& schema, const std::string& path) {
    json::array values;
    if (schema.contains("const")) {
      values.push_back(schema.at("const"));
    } else if (const json::array* list = schema.at("enum").if_array(); list != nullptr && !list->empty()) {
      values = *list;
    } else {
      return Fault(path, "'enum' must be an array with values");
    }
    KVIST_ASSIGN_OR_RETURN(const std::vector<std::string_view> types, TypesOf(schema, path));
    for (const auto& member : schema) {
      const std::string_view key = member.key();
      if (IsAnnotation(key) || IsOneOf(key, {"type", "const", "enum"})) continue;
      KVIST_RETURN_IF_ERROR(Refuse(path, Cat("'", key, "' beside 'enum' or 'const' is not supported")));
    }
    if (schema.contains("const") && schema.contains("enum")) {
      const json::array* list = schema.at("enum").if_array();
      if (list == nullptr || std::ranges::find(*list, values[0]) == list->end())
        return Fault(path, "'const' is not among 'enum'");
    }
    std::vector<Node> parts;
    for (const json::value& value : values) {
      if (types.empty() || std::ranges::any_of(types, [&](std::string_view t) { return HasType(value, t); })) {
        parts.push_back(Literal(JsonLiteral(value)));
      }
    }
    if (parts.empty()) return Fault(path, "no value of 'enum' or 'const' has the 'type'");
    return Choice(std::move(parts));
  }

  /// Absent = empty.
  static absl::StatusOr<std::vector<std::string_view>> TypesOf(const json::object& schema, std::string_view path) {
    std::vector<std::string_view> types;
    const json::value* given = schema.if_contains("type");
    if (given == nullptr) return types;
    const auto add = [&](const json::value& value) -> absl::Status {
      if (!value.is_string()) return Fault(path, "'type' must be a string or an array of strings");
      const std::string_view name(value.get_string().data(), value.get_string().size());
      if (std::ranges::find(Types(), name, &TypeKeywords::type) == Types().end())
        return Fault(path, "'type' must be object, array, string, integer, number, boolean or null");
      types.push_back(name);
      return absl::OkStatus();
    };
    if (!given->is_array()) {
      KVIST_RETURN_IF_ERROR(add(*given));
      return types;
    }
    for (const json::value& value : given->get_array()) KVIST_RETURN_IF_ERROR(add(value));
    if (types.empty()) return Fault(path, "'type' is empty: no value can satisfy it");
    return types;
  }

  absl::StatusOr<Node> Typed(const json::object& schema, const std::string& path, uint32_t depth) {
    KVIST_ASSIGN_OR_RETURN(std::vector<std::string_view> types, TypesOf(schema, path));
    if (types.empty()) {  // Its keywords tell what it is about.
      for (const TypeKeywords& type : Types()) {
        const bool meant = std::ranges::any_of(schema, [&](const auto& member) {
          return std::ranges::find(type.done, std::string_view(member.key())) != type.done.end();
        });
        if (meant && type.type != "integer") types.push_back(type.type);
      }
    }
    KVIST_RETURN_IF_ERROR(CheckKeywords(schema, types, path));
    if (types.empty()) return json_.AnyValue();
    std::vector<Node> parts;
    for (const std::string_view type : types) {
      KVIST_ASSIGN_OR_RETURN(Node part, OfType(type, schema, path, depth));
      parts.push_back(std::move(part));
    }
    return Choice(std::move(parts));
  }

  absl::Status CheckKeywords(const json::object& schema, const std::vector<std::string_view>& types,
                             const std::string& path) const {
    for (const auto& member : schema) {
      const std::string_view key = member.key();
      if (IsAnnotation(key) || IsGeneral(key)) continue;
      bool known = false, refused = false;
      for (const TypeKeywords& type : Types()) {
        const bool meant = types.empty() || std::ranges::find(types, type.type) != types.end();
        known |= std::ranges::find(type.done, key) != type.done.end();
        if (std::ranges::find(type.refused, key) == type.refused.end()) continue;
        known = true;
        refused |= meant && !SaysNothing(key, member.value());
      }
      if (!known || refused) KVIST_RETURN_IF_ERROR(Refuse(path, Cat("'", key, "' is not supported")));
    }
    return absl::OkStatus();
  }

  /// Refused keywords with a value that every value satisfies.
  static bool SaysNothing(std::string_view key, const json::value& value) {
    return (key == "uniqueItems" && value == json::value(false)) ||
           (key == "minProperties" && value == json::value(0)) ||
           (key.starts_with("unevaluated") && value == json::value(false));  // Nothing unnamed is ever written.
  }

  absl::StatusOr<Node> OfType(std::string_view type, const json::object& schema, const std::string& path,
                              uint32_t depth) {
    if (type == "object") return Object(schema, path, depth);
    if (type == "array") return Array(schema, path, depth);
    if (type == "string") return String(schema, path);
    if (type == "integer") return Integer(schema, path);
    if (type == "number") return Number(schema, path);
    if (type == "boolean") return Choice({Literal("true"), Literal("false")});
    return Literal("null");
  }

  absl::StatusOr<Node> Object(const json::object& schema, const std::string& path, uint32_t depth) {
    ObjectShape shape;
    std::vector<std::string> required;
    if (const json::value* given = schema.if_contains("required")) {
      if (!given->is_array()) return Fault(path, "'required' must be an array");
      for (const json::value& name : given->get_array()) {
        if (!name.is_string()) return Fault(path, "'required' must be an array of strings");
        required.emplace_back(name.get_string());
      }
    }
    if (const json::value* given = schema.if_contains("properties")) {
      if (!given->is_object()) return Fault(path, "'properties' must be an object");
      for (const auto& member : given->get_object()) {
        const std::string name(member.key());
        KVIST_ASSIGN_OR_RETURN(Node value, Value(member.value(), Cat(path, "/properties/", name), depth + 1));
        const bool needed = std::ranges::find(required, name) != required.end();
        shape.members.push_back({.name = name, .value = std::move(value), .required = needed});
      }
    }
    const json::value* others = schema.if_contains("additionalProperties");
    const bool open = others != nullptr ? *others != json::value(false) : shape.members.empty();
    for (const std::string& name : required) {
      if (std::ranges::find(shape.members, name, &ObjectShape::Member::name) != shape.members.end()) continue;
      if (others != nullptr && !open)
        return Fault(path, Cat("'required' names '", name, "', which 'properties' does not allow"));
      KVIST_ASSIGN_OR_RETURN(Node value, Value(others != nullptr ? *others : json::value(true),
                                               Cat(path, "/additionalProperties"), depth + 1));
      shape.members.push_back({.name = name, .value = std::move(value), .required = true});
    }
    if (open && shape.members.empty() && (others == nullptr || *others == json::value(true))) {
      return json_.AnyObject();
    }
    if (open && others != nullptr) {
      KVIST_ASSIGN_OR_RETURN(shape.others, Value(*others, Cat(path, "/additionalProperties"), depth + 1));
    }
    return ObjectNode(rules_, shape, path);
  }

  absl::StatusOr<Node> Array(const json::object& schema, const std::string& path, uint32_t depth) {
    KVIST_ASSIGN_OR_RETURN(const auto counts, Counts(schema, "minItems", "maxItems", path));
    ArrayShape shape{.first = {}, .others = nullptr, .min = counts.first, .max = counts.second};
    if (const json::value* given = schema.if_contains("prefixItems")) {
      if (!given->is_array()) return Fault(path, "'prefixItems' must be an array");
      for (const json::value& item : given->get_array()) {
        KVIST_ASSIGN_OR_RETURN(Node node, Value(item, Cat(path, "/prefixItems/", shape.first.size()), depth + 1));
        shape.first.push_back(std::move(node));
      }
    }
    const json::value* items = schema.if_contains("items");
    if (items != nullptr && items->is_array()) return Fault(path, "'items' must be a schema; use 'prefixItems'");
    const bool closed = items != nullptr && *items == json::value(false);
    // Without "items" more elements than "prefixItems" names are allowed, but only needed for "minItems".
    if (!closed && (items != nullptr || shape.first.size() < shape.min || shape.first.empty())) {
      KVIST_ASSIGN_OR_RETURN(shape.others,
                             Value(items != nullptr ? *items : json::value(true), Cat(path, "/items"), depth + 1));
    }
    if (shape.others == nullptr) shape.max = std::min<uint32_t>(shape.max, static_cast<uint32_t>(shape.first.size()));
    if (shape.min > shape.max) return Fault(path, "no array can have so many items");
    return ArrayNode(rules_, shape, path);
  }

  static absl::StatusOr<std::pair<uint32_t, uint32_t>> Counts(const json::object& schema, std::string_view min_key,
                                                              std::string_view max_key, std::string_view path) {
    std::pair<uint32_t, uint32_t> counts = {0, kUnbounded};
    for (const std::string_view key : {min_key, max_key}) {
      const json::value* given = schema.if_contains(key);
      if (given == nullptr) continue;
      const std::optional<double> number = NumberOf(*given);
      if (!number || *number < 0 || *number != static_cast<double>(static_cast<int64_t>(*number)) ||
          *number > static_cast<double>(kLengthMax)) {
        return Fault(path, Cat("'", key, "' must be a whole number from 0 to ", kLengthMax));
      }
      (key == min_key ? counts.first : counts.second) = static_cast<uint32_t>(*number);
    }
    if (counts.first > counts.second) return Fault(path, Cat("'", min_key, "' is more than '", max_key, "'"));
    return counts;
  }

  absl::StatusOr<Node> String(const json::object& schema, const std::string& path) {
    KVIST_ASSIGN_OR_RETURN(const auto counts, Counts(schema, "minLength", "maxLength", path));
    const bool counted = counts != std::pair<uint32_t, uint32_t>(0, kUnbounded);
    const json::value* pattern = schema.if_contains("pattern");
    const json::value* format = schema.if_contains("format");
    if (int{counted} + int{pattern != nullptr} + int{format != nullptr} > 1) {
      KVIST_RETURN_IF_ERROR(Refuse(path, "lengths, 'pattern' and 'format' are only supported one at a time"));
    }
    for (const json::value* given : {format, pattern}) {
      if (given == nullptr) continue;
      if (!given->is_string()) return Fault(path, "'pattern' and 'format' must be strings");
      const std::string text(given->get_string());
      absl::StatusOr<Node> node = given == format ? FormatNode(text) : PatternNode(text);
      if (node.ok()) return node;
      KVIST_RETURN_IF_ERROR(Refuse(path, Cat(given == format ? "'format': " : "'pattern': ", node.status().message())));
    }
    return json_.String(counts.first, counts.second);
  }

  /// Whole numbers from the first to the second.
  static absl::StatusOr<std::pair<std::optional<int64_t>, std::optional<int64_t>>> IntegerBounds(
      const json::object& schema, std::string_view path) {
    std::pair<std::optional<int64_t>, std::optional<int64_t>> bounds;
    for (const std::string_view key : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
      const json::value* given = schema.if_contains(key);
      if (given == nullptr) continue;
      const std::optional<double> number = NumberOf(*given);
      if (!number) return Fault(path, Cat("'", key, "' must be a number"));
      if (std::abs(*number) > static_cast<double>(kBoundMax))
        return Fault(path, Cat("'", key, "' is beyond +-", kBoundMax));
      const bool lower = key == "minimum" || key == "exclusiveMinimum";
      const double whole = lower ? std::ceil(*number) : std::floor(*number);
      auto bound = static_cast<int64_t>(whole);
      if (key.starts_with("exclusive") && whole == *number) bound += lower ? 1 : -1;
      if (lower) {
        bounds.first = std::max(bounds.first.value_or(bound), bound);
      } else {
        bounds.second = std::min(bounds.second.value_or(bound), bound);
      }
    }
    if (bounds.first && bounds.second && *bounds.first > *bounds.second)
      return Fault(path, "no integer lies between the bounds");
    return bounds;
  }

  absl::StatusOr<Node> Integer(const json::object& schema, const std::string& path) {
    KVIST_ASSIGN_OR_RETURN(const auto bounds, IntegerBounds(schema, path));
    // A range is written out by digits: what is certainly too large for a grammar is not built first.
    const auto digits = [](const std::optional<int64_t>& bound) {
      return bound ? static_cast<uint32_t>(std::to_string(std::abs(*bound)).size()) : 0;
    };
    const uint32_t longest = std::max(digits(bounds.first), digits(bounds.second));
    if (longest >= kLongDigits) long_ranges_ += longest * longest;
    if (long_ranges_ > kLongRangesMax) return Fault(path, "the schema has too many integers with wide bounds");
    return JsonInteger(bounds.first, bounds.second);
  }

  absl::StatusOr<Node> Number(const json::object& schema, const std::string& path) {
    bool negative = true;
    for (const std::string_view key : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
      const json::value* given = schema.if_contains(key);
      if (given == nullptr) continue;
      if (!NumberOf(*given)) return Fault(path, Cat("'", key, "' must be a number"));
      if (key == "minimum" && NumberOf(*given) == 0.0) {
        negative = false;
      } else {
        KVIST_RETURN_IF_ERROR(
            Refuse(path, Cat("'", key, "' is only supported for integers; a number can have the minimum 0")));
      }
    }
    return JsonNumber(negative);
  }

  const json::value& root_;
  const SchemaOptions options_;
  RuleSet& rules_;
  JsonRules json_;
  absl::flat_hash_map<std::string, RuleId> references_;
  uint32_t count_ = 0;
  uint32_t long_ranges_ = 0;  ///< Squares of their digits, summed.
};

}  // namespace

absl::StatusOr<Node> SchemaNode(const json::value& schema, const SchemaOptions& options, RuleSet& rules) {
  return SchemaCompiler(schema, options, rules).Value(schema, "#", 0);
}

}  // namespace kvist::grammar
