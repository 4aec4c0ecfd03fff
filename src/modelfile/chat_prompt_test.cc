// Where the contents of messages lie in a prompt: what is dropped must be exactly theirs.

#include "modelfile/chat_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "modelfile/gguf.h"

namespace kvist {
namespace {

namespace json = boost::json;

class ChatPrompt : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    file_ = new std::shared_ptr<const GgufFile>(*GgufFile::Open(KVIST_SOURCE_DIR "/models/default-q8_0.gguf"));
    tokenizer_ = Tokenizer::FromGguf(**file_)->release();
  }
  static ChatTemplateInputs Inputs(const char* messages) {
    ChatTemplateInputs inputs;
    inputs.messages = json::parse(messages).as_array();
    return inputs;
  }
  static absl::StatusOr<MarkedPrompt> Encode(std::string_view source, const char* messages,
                                             std::vector<uint32_t> marked) {
    const absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(source);
    return ChatEncoder(*tokenizer_, *parsed).EncodeMarked(Inputs(messages), marked);
  }
  static std::string Spell(const MarkedPrompt& prompt, size_t range) {
    const MarkedPrompt::Range& r = prompt.ranges.at(range);
    return tokenizer_->Decode(std::span(prompt.tokens).subspan(r.begin, r.end - r.begin));
  }

  static inline std::shared_ptr<const GgufFile>* file_ = nullptr;
  static inline const Tokenizer* tokenizer_ = nullptr;
};

constexpr char kMessages[] = R"([{"role":"user","content":"Where is the key?"},
  {"role":"tool","content":"  The key is\nin the box.\n\n"},{"role":"user","content":"Thank you."}])";
constexpr std::string_view kPlain =
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<|a|>\n{% "
    "endif %}";

TEST_F(ChatPrompt, RangesSpellTheContents) {
  for (std::string_view source :
       {kPlain, std::string_view("{% for m in messages %}[{{ m.role }}] {{ m.content | trim }} [/]{% endfor %}")}) {
    const absl::StatusOr<MarkedPrompt> prompt = Encode(source, kMessages, {0, 1});
    ASSERT_TRUE(prompt.ok()) << prompt.status();
    ASSERT_EQ(prompt->ranges.size(), 2u);
    // A token that also spells what is around stays.
    EXPECT_THAT("Where is the key?", testing::HasSubstr(Spell(*prompt, 0)));
    EXPECT_THAT(Spell(*prompt, 0), testing::HasSubstr("is the key"));
    EXPECT_THAT("The key is\nin the box.", testing::HasSubstr(Spell(*prompt, 1)));
    EXPECT_THAT(Spell(*prompt, 1), testing::HasSubstr("key is\nin the box"));
    const absl::StatusOr<MarkedPrompt> plain = Encode(source, kMessages, {});
    EXPECT_EQ(plain->tokens, prompt->tokens);  // Marks change nothing.
  }
}

TEST_F(ChatPrompt, EmptyContentsHaveEmptyRanges) {
  const auto prompt = Encode(kPlain, R"([{"role":"user","content":""},{"role":"user","content":" \n "}])", {0, 1});
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  for (const MarkedPrompt::Range& range : prompt->ranges) EXPECT_EQ(range.begin, range.end);
}

TEST_F(ChatPrompt, ControlTokensInContentsAreOrdinaryTextAndPartOfTheRange) {
  const auto prompt =
      Encode(kPlain, R"([{"role":"user","content":"a <|im_end|> b </s> c"},{"role":"user","content":"x"}])", {0});
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_THAT(Spell(*prompt, 0), testing::HasSubstr("<|im_end|> b <"));
}

TEST_F(ChatPrompt, TemplatesThatChangeContentsAreRefused) {
  for (std::string_view source :
       {std::string_view("{% for m in messages %}{{ m.content | upper | length }}{% endfor %}"),
        std::string_view("{{ messages[0].content }}{{ messages[1].content }}{{ messages[1].content }}"),
        std::string_view("{{ messages[0].content }}")}) {
    EXPECT_EQ(Encode(source, kMessages, {1}).status().code(), absl::StatusCode::kInvalidArgument) << source;
  }
}

}  // namespace
}  // namespace kvist
