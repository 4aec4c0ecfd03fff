#include "grammar/constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "base/prng.h"
#include "base/status.h"
#include "grammar/forced_tokens.h"
#include "grammar/grammar_testutil.h"
#include "modelfile/gguf.h"
#include "modelfile/tokenizer.h"

namespace kvist::grammar {
namespace {

class ConstraintTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto file = GgufFile::Open(KVIST_SOURCE_DIR "/models/default-q8_0.gguf");
    ASSERT_TRUE(file.ok()) << file.status();
    tokenizer_ = *Tokenizer::FromGguf(**file);
    table_ = std::make_shared<const TokenTable>(*tokenizer_);
  }
  static void TearDownTestSuite() {
    table_ = nullptr;
    tokenizer_ = nullptr;
  }

  static std::shared_ptr<const Constraint> Make(absl::StatusOr<Grammar> grammar) {
    EXPECT_TRUE(grammar.ok()) << grammar.status();
    return std::make_shared<const Constraint>(*std::move(grammar), table_);
  }

  static inline std::unique_ptr<const Tokenizer> tokenizer_;
  static inline std::shared_ptr<const TokenTable> table_;
};

/// The mask, one token after another.
TokenBits SlowMask(const Matcher& matcher, uint32_t vocab) {
  TokenBits bits((vocab + 31) / 32, 0);
  for (uint32_t id = 0; id < vocab; ++id) {
    Matcher copy = matcher;
    if (copy.Accept(TokenId{id})) AddToken(bits, TokenId{id});
  }
  return bits;
}

constexpr char kPerson[] = R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 5},
    "age": {"type": "integer", "minimum": 0, "maximum": 150}, "tags": {"type": "array", "items": {"enum":
    ["alpha", "alphabet", "\u00e9t\u00e9"]}}}, "required": ["name", "age", "tags"]})";

TEST_F(ConstraintTest, MasksAreWhatEachTokenAloneSays) {
  for (const char* schema : {kPerson, "true"}) {
    const auto constraint = Make(SchemaGrammar(schema));
    for (uint64_t seed = 0; seed < 6; ++seed) {
      Prng prng(seed);
      Matcher matcher(constraint, seed % 2 == 1);
      for (int step = 0; step < 12 && !matcher.IsDone(); ++step) {
        const TokenBits slow = SlowMask(matcher, tokenizer_->vocab_size());
        const std::span<const uint32_t> mask = matcher.Mask();
        ASSERT_TRUE(std::ranges::equal(mask, slow)) << schema << " step " << step;
        std::vector<TokenId> allowed;
        for (uint32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
          if (HasToken(mask, TokenId{id})) allowed.push_back(TokenId{id});
        }
        ASSERT_FALSE(allowed.empty());
        ASSERT_TRUE(matcher.Accept(allowed[prng.Next() % allowed.size()]));
      }
    }
  }
}

TEST_F(ConstraintTest, EndsOnlyWhereTheTextIsComplete) {
  Matcher matcher(Make(ParseGbnf("root ::= \"ab\" \"c\"?")));
  const auto ends_allowed = [&] {
    const std::span<const uint32_t> mask = matcher.Mask();
    for (size_t i = 0; i < mask.size(); ++i) {
      if ((mask[i] & table_->ends()[i]) != 0) return true;
    }
    return false;
  };
  ASSERT_TRUE(tokenizer_->eos().has_value());
  EXPECT_FALSE(ends_allowed());
  EXPECT_FALSE(matcher.Accept(*tokenizer_->eos()));
  for (const TokenId token : tokenizer_->Encode("ab", {.add_special = false, .continues = true}))
    ASSERT_TRUE(matcher.Accept(token));
  EXPECT_TRUE(ends_allowed());
  EXPECT_TRUE(matcher.IsComplete());
  EXPECT_FALSE(matcher.IsDone());
  EXPECT_TRUE(matcher.Accept(*tokenizer_->eos()));
  for (const TokenId token : tokenizer_->Encode("c", {.add_special = false, .continues = true}))
    ASSERT_TRUE(matcher.Accept(token));
  EXPECT_TRUE(matcher.IsDone());
}

TEST_F(ConstraintTest, ControlTokensAreAllowedOnlyWhereTheyAreNamed) {
  TokenId control{};
  for (uint32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
    if (tokenizer_->IsControl(TokenId{id}) && !tokenizer_->IsEndOfGeneration(TokenId{id}) &&
        tokenizer_->unknown() != TokenId{id}) {
      control = TokenId{id};
    }
  }
  ASSERT_TRUE(tokenizer_->IsControl(control));
  Matcher any(Make(ParseGbnf("root ::= .*")));
  EXPECT_FALSE(HasToken(any.Mask(), control));
  RuleSet rules;
  const RuleId root = rules.Add("root", Sequence({Literal(ControlBytes(control)), Literal("x")}));
  Matcher named(Make(Grammar::Compile(rules, root)));
  EXPECT_TRUE(HasToken(named.Mask(), control));
  EXPECT_EQ(ForcedTokens(named, *tokenizer_, 8).front(), control);
  EXPECT_TRUE(named.Accept(control));
}

TEST_F(ConstraintTest, ForcedTokensSpellTheForcedTextAndLeaveTheEdgeToTheModel) {
  const auto constraint = Make(SchemaGrammar(kPerson));
  const Matcher start(constraint);
  EXPECT_EQ(start.ForcedBytes(100), "{\"name\": \"");
  const std::vector<TokenId> forced = ForcedTokens(start, *tokenizer_, 100);
  ASSERT_FALSE(forced.empty());
  const std::string text = tokenizer_->Decode(forced);
  EXPECT_TRUE(std::string("{\"name\": \"").starts_with(text)) << text;
  EXPECT_LT(text.size(), 10u);
  // The same tokens stand at the beginning of whatever text follows.
  for (const std::string more : {"", "x", "Ann\", \"age\": 3", " \xC3\xA9", "\\n"}) {
    const std::vector<TokenId> whole =
        tokenizer_->Encode("{\"name\": \"" + more, {.add_special = false, .continues = true});
    EXPECT_TRUE(std::ranges::equal(std::span(whole).first(std::min(whole.size(), forced.size())), forced)) << more;
  }
  EXPECT_EQ(ForcedTokens(start, *tokenizer_, 1).size(), 1u);
  // At the grammar's end nothing is left over.
  const Matcher fixed(Make(ParseGbnf("root ::= \"the whole text\"")));
  EXPECT_EQ(tokenizer_->Decode(ForcedTokens(fixed, *tokenizer_, 100)), "the whole text");
}

TEST_F(ConstraintTest, LongTextsAndManyStatesStayWithinBounds) {
  const auto constraint = Make(SchemaGrammar("true"));
  Matcher matcher(constraint);
  std::string text = "[";
  for (int i = 0; i < 3000; ++i) {
    // Ever other nestings make ever new states.
    std::string inner = "1";
    for (int bit = 0; bit < 12; ++bit) inner = (i >> bit & 1) != 0 ? "[" + inner + "]" : "{\"a\": " + inner + "}";
    text += inner + ", ";
  }
  for (const TokenId token : tokenizer_->Encode(text, {.add_special = false, .continues = true}))
    ASSERT_TRUE(matcher.Accept(token));
  EXPECT_TRUE(matcher.Accept(tokenizer_->Encode("1", {.add_special = false, .continues = true}).back()));
  EXPECT_TRUE(std::ranges::equal(matcher.Mask(), SlowMask(matcher, tokenizer_->vocab_size())));
}

TEST_F(ConstraintTest, TooDeepANestingIsRefusedNotFollowed) {
  Matcher matcher(Make(SchemaGrammar("true")));
  const std::vector<TokenId> open = tokenizer_->Encode("[", {.add_special = false, .continues = true});
  ASSERT_EQ(open.size(), 1u);
  int depth = 0;
  while (depth < 5000 && matcher.Accept(open[0])) ++depth;
  EXPECT_GT(depth, 100);
  EXPECT_LT(depth, 5000);
}

}  // namespace
}  // namespace kvist::grammar
