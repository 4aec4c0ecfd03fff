#include "grammar/gbnf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/grammar_testutil.h"

namespace kvist::grammar {
namespace {

using ::testing::HasSubstr;

struct GbnfCase {
  std::string grammar;
  std::vector<std::string> in, out;
};

TEST(GbnfTest, AcceptsWhatTheGrammarSaysAndNothingElse) {
  const GbnfCase cases[] = {
      {R"(root ::= "yes" | "no")", {"yes", "no"}, {"", "y", "yesno", "maybe"}},
      {R"(root ::= "a"* "b"+ "c"?)", {"b", "aabb", "bc", "abc"}, {"", "a", "ac", "bcc"}},
      {R"(root ::= "a"{2} "b"{1,2} "c"{2,})", {"aabcc", "aabbccc"}, {"abcc", "aabbbcc", "aabc", "aaabcc"}},
      {R"(root ::= "a"{0})", {""}, {"a"}},
      {"root ::= [a-c0-9_-]+", {"a", "b-9_"}, {"", "d", "A"}},
      {"root ::= [^\"\\n]*", {"", "text", "\xC3\xA9", "\xF0\x9F\x98\x80"}, {"a\"", "\n", "\xC3", "\x80"}},
      {"root ::= [\\u00e0-\\u00ef]", {"\xC3\xA0", "\xC3\xAF"}, {"\xC3\xB0", "\xC3\x9F", "a"}},
      {"root ::= [\\U0001F600-\\U0001F64F]", {"\xF0\x9F\x98\x80"}, {"\xF0\x9F\x99\x90"}},
      {"root ::= .", {"a", "\n", "\xE2\x82\xAC"}, {"", "ab", "\xED\xA0\x80", "\xFF"}},
      {R"(root ::= "\"\\\n\x41\u00e9")", {"\"\\\nA\xC3\xA9"}, {"\"\\nA"}},
      {"root ::= pair (\",\" pair)*\npair ::= [a-z]+ # a name\n  \"=\" [0-9]", {"a=1", "a=1,b=2"}, {"a=", "a=1,"}},
      {"root ::= \"(\" root \")\" | \"x\"", {"x", "((x))"}, {"((x)", "()", "x)"}},
      {"root ::= a b\na ::= \"1\" |\n \"2\"\nb ::= (\n \"3\"\n)", {"13", "23"}, {"3"}},
      {"root ::= list\nlist ::= \"x\" | \"x\" list", {"x", "xxxx"}, {""}},
      {"root ::= (\"a\"*)*", {"", "aaa"}, {"b"}},
      {"root ::= nothing \"a\"\nnothing ::= \"\"", {"a"}, {""}},
      {"root ::= \"a\" [] | \"b\"", {"b"}, {"a"}},
      {"root ::= [\\]\\-^]+", {"]-^"}, {"\\"}},
  };
  for (const GbnfCase& c : cases) {
    const absl::StatusOr<Grammar> grammar = ParseGbnf(c.grammar);
    ASSERT_TRUE(grammar.ok()) << c.grammar << ": " << grammar.status();
    for (const std::string& text : c.in) EXPECT_TRUE(Matches(*grammar, text)) << c.grammar << " <- " << text;
    for (const std::string& text : c.out) EXPECT_FALSE(Matches(*grammar, text)) << c.grammar << " <- " << text;
  }
}

TEST(GbnfTest, ErrorsNameThePlace) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "no rule 'root'"},
      {"a ::= \"x\"", "no rule 'root'"},
      {"root ::= missing", "line 1, column 10: rule 'missing' is not defined"},
      {"root ::= \"x\"\nroot ::= \"y\"", "line 2, column 1: rule 'root' is defined twice"},
      {"root ::= \"x", "line 1, column 10: this string has no end"},
      {"root ::= (\"x\"", "line 1, column 10: this '(' has no ')'"},
      {"root ::= \"x\")", "line 1, column 13:"},
      {"root ::= [a", "this '[' has no ']'"},
      {"root ::= [z-a]", "this range ends before it begins"},
      {"root ::= \"\\q\"", "unknown escape"},
      {"root ::= \"\\ud800\"", "no Unicode character"},
      {"root ::= \"x\"{3,2}", "line 1, column 13"},
      {"root ::= \"x\"{99999999}", "is expected"},
      {"root = \"x\"", "'::=' is expected"},
      {"root ::= *", "is expected"},
      {"root ::= root \"x\" | \"x\"", "left recursion"},
      {"root ::= a\na ::= \"\" b\nb ::= \"y\"? a", "left recursion"},
      {"root ::= \"a\" root", "no text matches"},
      {"root ::= []", "no text matches"},
      {"root ::= \"\xFF\"", "not valid UTF-8"},
      {"root ::= ((((\"abcdefgh\"{1000}){1000}){1000}){1000})", "too large"},
      {"root ::= ((((\"\"{9999}){9999}){9999}){9999})", "too large"},
      {"root ::= " + std::string(100, '(') + "\"x\"" + std::string(100, ')'), "nested more than"},
      {"root ::= \"x\"**********", "repetitions of one item"},
  };
  for (const auto& [text, message] : cases) {
    const absl::StatusOr<Grammar> grammar = ParseGbnf(text);
    ASSERT_FALSE(grammar.ok()) << text;
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(grammar.status().message()), HasSubstr(message)) << text;
  }
}

}  // namespace
}  // namespace kvist::grammar
