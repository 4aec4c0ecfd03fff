#include "grammar/fuzz_testutil.h"

#include <string>

#include <boost/json.hpp>

#include "base/check.h"
#include "base/prng.h"
#include "grammar/automaton.h"
#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "grammar/regex.h"
#include "modelfile/tokenizer_utf8.h"

namespace kvist::grammar {

namespace json = boost::json;

namespace {

constexpr int kStepsMax = 200;

absl::StatusOr<Grammar> Compile(std::string_view input) {
  const char kind = input.empty() ? '\0' : input[0];
  if (!input.empty()) input.remove_prefix(1);
  if (kind != 's' && kind != 'l' && kind != 'r') return ParseGbnf(input);
  RuleSet rules;
  absl::StatusOr<Node> node = absl::InvalidArgumentError("no JSON");
  if (kind == 'r') {
    node = ParseRegex(input, RegexMatch::kFind, [](const std::vector<CharRange>& ranges) { return Chars(ranges); });
  } else {
    boost::system::error_code error;
    const json::value schema = json::parse(input, error);
    if (!error) node = SchemaNode(schema, {.strict = kind == 's'}, rules);
  }
  if (!node.ok()) return node.status();
  return Grammar::Compile(rules, rules.Add("root", *node));
}

/// Writes one text of the grammar by chance, as far as it comes. Short texts are likelier to end.
void Write(const Grammar& grammar, bool is_json, uint64_t seed) {
  Automaton automaton(grammar);
  Prng prng(seed);
  Automaton::StateId state = Automaton::kStart;
  std::string text;
  for (int step = 0; step < kStepsMax; ++step) {
    if (automaton.IsComplete(state)) {
      KVIST_CHECK(ValidUtf8Prefix(text) == text.size());
      boost::system::error_code error;
      if (is_json) json::parse(text, error);
      KVIST_CHECK(!error);
    }
    std::string next;
    for (int byte = 0; byte < 256; ++byte) {
      if (automaton.Next(state, static_cast<uint8_t>(byte)) != Automaton::kDead) next += static_cast<char>(byte);
    }
    if (next.empty()) {
      KVIST_CHECK(automaton.IsComplete(state));
      return;
    }
    const int forced = automaton.ForcedByte(state);
    KVIST_CHECK(forced < 0 || (next.size() == 1 && static_cast<uint8_t>(next[0]) == forced));
    text += next[prng.Below(next.size())];
    state = automaton.Next(state, static_cast<uint8_t>(text.back()));
  }
}

}  // namespace

bool CheckGrammarInput(std::string_view input) {
  const absl::StatusOr<Grammar> grammar = Compile(input);
  if (!grammar.ok()) {
    KVIST_CHECK(grammar.status().code() == absl::StatusCode::kInvalidArgument);
    return false;
  }
  const bool is_json = input[0] == 's' || input[0] == 'l';
  for (uint64_t seed = 0; seed < 3; ++seed) Write(*grammar, is_json, seed);
  return true;
}

}  // namespace kvist::grammar
