#include "grammar/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "grammar/grammar_testutil.h"

namespace kvist::grammar {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::string schema;
  std::vector<std::string> in, out;
};

TEST(JsonSchemaTest, AcceptsValuesOfTheSchemaAndNothingElse) {
  const Case cases[] = {
      {"true", {"1", "null", "[]", "{\"a\": [1, {}]}", "\"x\"", "{\n  \"a\": 1\n}"}, {"", "{a: 1}", "[1,]", "01"}},
      {R"({"type": "boolean"})", {"true", "false"}, {"null", "1"}},
      {R"({"type": ["null", "boolean"]})", {"null", "true"}, {"0"}},
      {R"({"type": "string"})",
       {R"("")", R"("a\n\u00e9\"")", "\"\xC3\xA9\""},
       {"\"", "\"\n\"", R"("\x")", R"("\ud800")", "\"\xC3\""}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {R"("ab")", R"("abc")", "\"\xC3\xA9\xC3\xA9\"", R"("\n\n")"},
       {R"("a")", R"("abcd")"}},
      {R"({"type": "string", "pattern": "^[a-z]{2,3}$"})", {R"("ab")"}, {R"("a")", R"("abcd")", R"("AB")"}},
      {R"({"type": "string", "pattern": "b"})", {R"("b")", R"("abc")"}, {R"("ac")"}},
      {R"({"type": "string", "pattern": "^a|b$"})", {R"("ax")", R"("xb")"}, {R"("xa")"}},
      {R"({"type": "string", "pattern": "^(\\d{3}-)?\\w+\\s[^x]$"})", {R"("123-ab y")", R"("ab \"")"}, {R"("ab x")"}},
      {R"({"type": "string", "format": "date"})", {R"("2026-02-28")"}, {R"("2026-02-30")", R"("2026-13-01")"}},
      {R"({"type": "string", "format": "date-time"})", {R"("2026-01-31T23:59:59.5+02:00")"}, {R"("2026-01-31")"}},
      {R"({"type": "string", "format": "uuid"})", {R"("00000000-0000-0000-0000-00000000000a")"}, {R"("0")"}},
      {R"({"type": "integer"})", {"0", "-1", "42"}, {"1.5", "01", "-", "+1"}},
      {R"({"type": "integer", "minimum": 3, "maximum": 120})", {"3", "9", "10", "99", "120"}, {"2", "121", "-5", "03"}},
      {R"({"type": "integer", "exclusiveMinimum": -12, "maximum": 5})", {"-11", "-1", "0", "5"}, {"-12", "6", "-0"}},
      {R"({"type": "integer", "minimum": 1})", {"1", "123456789"}, {"0", "-1"}},
      {R"({"type": "number"})", {"0", "-1.5", "2e9", "1.25E-7"}, {"1.", ".5", "1e", "NaN"}},
      {R"({"type": "number", "minimum": 0})", {"0.5"}, {"-0.5"}},
      {R"({"enum": ["red", 2, null, {"a": [1]}]})", {R"("red")", "2", "null", R"({"a": [1]})"}, {R"("re")", "1"}},
      {R"({"const": "x"})", {R"("x")"}, {R"("y")"}},
      {R"({"type": "integer", "enum": ["a", 1]})", {"1"}, {R"("a")"}},
      {R"({"type": "object"})", {"{}", R"({"a": 1})", R"({"a":1,"b":{}})"}, {"[]", "{\"a\"}"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "required": ["a", "b"],
          "additionalProperties": false})",
       {R"({"a": 1, "b": null})"},
       {R"({"b": null, "a": 1})", R"({"a": 1})", "{}", R"({"a": 1, "b": null, "c": 1})"}},
      {R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}},
          "required": ["b"]})",
       {R"({"b": 2})", R"({"a": 1, "b": 2})", R"({"b": 2, "c": 3})", R"({"a": 1, "b": 2, "c": 3})"},
       {"{}", R"({"a": 1})", R"({, "b": 2})", R"({"a": 1, "c": 3})"}},
      {R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}})",
       {"{}", R"({"a": 1})", R"({"b": 2})", R"({"a": 1, "b": 2})"},
       {R"({"b": 2, "a": 1})"}},
      {R"({"type": "object", "additionalProperties": {"type": "integer"}})",
       {"{}", R"({"x": 1, "": 2})"},
       {R"({"x": "y"})"}},
      {R"({"type": "object", "properties": {"ab": {"const": 1}}, "additionalProperties": {"type": "string"}})",
       {"{}", R"({"ab": 1})", R"({"ab": 1, "a": "x", "abc": "y"})", R"({"b": "z"})"},
       {R"({"ab": "x"})", R"({"ab": 1, "ab": "x"})", R"({"\u0061b": "x"})"}},
      {R"({"type": "array", "items": {"type": "integer"}})", {"[]", "[1]", "[1, 2]"}, {"[1,]", "[\"a\"]"}},
      {R"({"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 3})",
       {"[1, 1]", "[1, 1, 1]"},
       {"[1]", "[]", "[1, 1, 1, 1]"}},
      {R"({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}, "minItems": 1})",
       {"[1]", "[1, 2]", "[1, 2, 3, 3]"},
       {"[]", "[2]", "[1, 3]"}},
      {R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "null"}}]})", {"1", "[null]"}, {"[1]"}},
      {R"({"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"],
          "oneOf": [{"properties": {"v": {"const": 1}}, "required": ["v"]}, {"properties": {"w": {"const": 2}}}]})",
       {R"({"k": "", "v": 1})", R"({"k": "x", "w": 2})", R"({"k": "x"})"},
       {R"({"v": 1})"}},
      {R"({"allOf": [{"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]},
                     {"properties": {"b": {"const": 2}}, "required": ["b"]}]})",
       {R"({"a": 1, "b": 2})"},
       {R"({"a": 1})"}},
      {R"({"allOf": [{"type": "integer", "minimum": 3}, {"type": "number", "maximum": 5}]})", {"3", "5"}, {"2", "6"}},
      {R"({"$defs": {"n": {"type": "object", "properties": {"v": {"type": "integer"}, "next":
          {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "required": ["v", "next"]}}, "$ref": "#/$defs/n"})",
       {R"({"v": 1, "next": null})", R"({"v": 1, "next": {"v": 2, "next": null}})"},
       {R"({"v": 1, "next": {}})"}},
      {R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[], [[]]]"}, {"[1]"}},
      {R"({"type": "object", "properties": {"a/b~c": {"const": 1}}, "required": ["a/b~c"]})", {R"({"a/b~c": 1})"}, {}},
      {R"({"properties": {"x": {"$ref": "#/definitions/a~1b", "description": "d"}}, "required": ["x"],
          "definitions": {"a/b": {"const": 7}}})",
       {R"({"x": 7})"},
       {R"({"x": 8})"}},
  };
  for (const Case& c : cases) {
    const absl::StatusOr<Grammar> grammar = SchemaGrammar(c.schema);
    ASSERT_TRUE(grammar.ok()) << c.schema << ": " << grammar.status();
    for (const std::string& text : c.in) EXPECT_TRUE(Matches(*grammar, text)) << c.schema << " <- " << text;
    for (const std::string& text : c.out) EXPECT_FALSE(Matches(*grammar, text)) << c.schema << " <- " << text;
  }
}

TEST(JsonSchemaTest, RefusesWhatItCannotHonourAndNamesThePlace) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"type": "object", "properties": {"a": {"not": {}}}})", "#/properties/a: 'not' is not supported"},
      {R"({"type": "array", "items": {"type": "array", "uniqueItems": true}})", "#/items: 'uniqueItems'"},
      {R"({"type": "object", "patternProperties": {}})", "#: 'patternProperties'"},
      {R"({"type": "number", "maximum": 1.5})", "#: 'maximum' is only supported for integers"},
      {R"({"type": "integer", "multipleOf": 3})", "'multipleOf'"},
      {R"({"type": "string", "format": "hostname"})", "'format': 'hostname' is not supported"},
      {R"x({"type": "string", "pattern": "a(?=b)"})x", "'pattern': line 1"},
      {R"({"type": "string", "pattern": "(a)\\1"})", "'pattern': line 1"},
      {R"({"type": "string", "pattern": "a", "minLength": 3})", "only supported one at a time"},
      {R"({"type": "string", "frobnicate": 1})", "'frobnicate' is not supported"},
      {R"({"if": {}, "then": {}})", "'if' is not supported"},
  };
  for (const auto& [schema, message] : cases) {
    const absl::StatusOr<Grammar> strict = SchemaGrammar(schema);
    ASSERT_FALSE(strict.ok()) << schema;
    EXPECT_THAT(std::string(strict.status().message()), HasSubstr(message)) << schema;
    EXPECT_TRUE(SchemaGrammar(schema, /*strict=*/false).ok()) << schema;
  }
}

TEST(JsonSchemaTest, RefusesWhatIsNoSchema) {
  const std::pair<std::string, std::string> cases[] = {
      {"1", "#: a schema must be an object"},
      {"false", "no value can satisfy"},
      {R"({"type": "strin"})", "'type' must be"},
      {R"({"type": []})", "'type' is empty"},
      {R"({"type": "object", "properties": []})", "'properties' must be an object"},
      {R"({"type": "object", "required": "a"})", "'required' must be an array"},
      {R"({"type": "object", "properties": {}, "required": ["a"], "additionalProperties": false})", "'required' names"},
      {R"({"type": "object", "properties": {"x": {"type": "array", "minItems": -1}}})", "#/properties/x: 'minItems'"},
      {R"({"type": "array", "minItems": 3, "maxItems": 2})", "'minItems' is more than 'maxItems'"},
      {R"({"type": "integer", "minimum": 5, "maximum": 4})", "no integer lies between"},
      {R"({"type": "integer", "minimum": 1e300})", "is beyond"},
      {R"({"enum": []})", "'enum' must be an array"},
      {R"({"anyOf": []})", "'anyOf' must be an array"},
      {R"({"$ref": "#/nowhere"})", "'$ref' leads nowhere"},
      {R"({"$ref": "https://example.com/s"})", "must lead into this schema"},
      {R"({"$ref": "#"})", "left recursion"},
      {R"({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"})", "left recursion"},
      {R"({"allOf": [{"$ref": "#"}, {"type": "object"}]})", "too often"},
      {R"({"allOf": [{"type": "string"}, {"type": "integer"}]})", "'type' is empty"},
      {R"({"type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"]})", "no text matches"},
      {R"({"type": "string", "minLength": 100000, "maxLength": 100001, "title": 1})", ""},
  };
  for (const auto& [schema, message] : cases) {
    const absl::StatusOr<Grammar> grammar = SchemaGrammar(schema, /*strict=*/false);
    if (message.empty()) continue;  // Large, and fine.
    ASSERT_FALSE(grammar.ok()) << schema;
    EXPECT_THAT(std::string(grammar.status().message()), HasSubstr(message)) << schema;
  }
}

TEST(JsonSchemaTest, DeepSchemasEnd) {
  std::string deep = "true";
  for (int i = 0; i < 500; ++i) deep = R"({"type": "array", "items": )" + deep + "}";
  boost::json::parse_options options;
  options.max_depth = 2000;
  RuleSet rules;
  const absl::StatusOr<Node> node = SchemaNode(boost::json::parse(deep, {}, options), {}, rules);
  ASSERT_FALSE(node.ok());
  EXPECT_THAT(std::string(node.status().message()), HasSubstr("nested more than"));
}

/// References that each name others several times: ten to the seventh parts of nine schemas.
TEST(JsonSchemaTest, PartsThatMultiplyAreRefused) {
  boost::json::object defs;
  for (int i = 0; i < 7; ++i) {
    boost::json::array all;
    for (int k = 0; k < 10; ++k) all.push_back(boost::json::object{{"$ref", "#/$defs/d" + std::to_string(i + 1)}});
    defs["d" + std::to_string(i)] = {{"allOf", std::move(all)}};
  }
  defs["d7"] = {{"type", "object"}};
  RuleSet rules;
  const auto node = SchemaNode(
      boost::json::object{{"$defs", std::move(defs)}, {"allOf", {{{"$ref", "#/$defs/d0"}}, true}}}, {}, rules);
  ASSERT_FALSE(node.ok());
  EXPECT_THAT(std::string(node.status().message()), HasSubstr("more than 50000 parts"));
}

TEST(JsonSchemaTest, AStopIsSeenInsideLongLists) {
  boost::json::array even, odd;
  for (int i = 0; i < 400'000; ++i) (i % 2 == 0 ? even : odd).push_back(i);
  const boost::json::value schema = {
      {"allOf", {{{"enum", std::move(even)}}, {{"enum", std::move(odd)}}}}};  // A minute of comparing.
  std::stop_source source;
  std::jthread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    source.request_stop();
  });
  const auto begin = std::chrono::steady_clock::now();
  RuleSet rules;
  const auto node = SchemaNode(schema, {.stop = source.get_token()}, rules);
  EXPECT_TRUE(absl::IsCancelled(node.status())) << node.status();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

/// What is too large is known before it is built: memory and time stay those of a small schema.
TEST(JsonSchemaTest, TooManyWideRangesAreRefusedEarly) {
  const auto schema = [](int count) {
    boost::json::object properties;
    for (int i = 0; i < count; ++i) {
      properties["p" + std::to_string(i)] = {{"type", "integer"}, {"minimum", -1e15}, {"maximum", 1e15}};
    }
    return boost::json::object{{"type", "object"}, {"properties", std::move(properties)}};
  };
  RuleSet rules;
  EXPECT_TRUE(SchemaNode(schema(20), {}, rules).ok());
  const auto many = SchemaNode(schema(15'000), {}, rules);
  ASSERT_FALSE(many.ok());
  EXPECT_THAT(std::string(many.status().message()), HasSubstr("too many integers with wide bounds"));
}

}  // namespace
}  // namespace kvist::grammar
