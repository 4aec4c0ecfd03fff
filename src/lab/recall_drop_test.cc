#include "lab/recall_drop.h"

#include <gtest/gtest.h>

#include "model/model.h"
#include "modelfile/chat_template.h"

namespace kvist::lab {
namespace {

std::vector<std::string> Texts(std::string_view text, std::string_view wanted) {
  std::vector<std::string> out;
  for (const TextPart& part : UnrelatedParts(text, wanted))
    out.emplace_back(text.substr(part.begin, part.end - part.begin));
  return out;
}

TEST(RecallDrop, PartsAreRunsOfSentencesThatShareNoWord) {
  constexpr std::string_view kText =
      "One sat. Two ran. Three slept. Four ate. The red gate is shut. Five left. Six came. \"Who?\" said Seven. Eight "
      "hid.";
  EXPECT_EQ(Texts(kText, "Which gate is red?"),
            (std::vector<std::string>{"One sat. Two ran. Three slept.", " Six came. \"Who?\" said Seven. Eight hid."}));
  EXPECT_TRUE(Texts(kText, "Two, Five and EIGHT").empty());
  EXPECT_TRUE(Texts("", "x").empty());
  EXPECT_EQ(Texts("a1\nb2\nc3\nd4\n", "the of"), (std::vector<std::string>{"a1\nb2\nc3\nd4\n"}));
}

TEST(RecallDrop, TheQuestionIsTheLastSentenceOrLine) {
  EXPECT_EQ(QuestionBegin("It rains. Where is it?"), 9u);
  EXPECT_EQ(QuestionBegin("It rains.\n\nQuestion: where. Or when?"), 27u);
  EXPECT_EQ(QuestionBegin("Where?"), 0u);
  EXPECT_EQ(QuestionBegin(""), 0u);
}

class RecallDropModel : public testing::Test {
 protected:
  RecallDropModel()
      : model_(*model::LoadModel(KVIST_SOURCE_DIR "/models/default-q8_0.gguf")),
        tokenizer_(*Tokenizer::FromGguf(*model_->file)),
        template_(*ChatTemplate::Parse(*model_->file->GetString("tokenizer.chat_template"))),
        encoder_(*tokenizer_, template_) {}

  std::string Text(std::span<const TokenId> tokens) const { return tokenizer_->Decode(tokens); }

  std::shared_ptr<const model::Model> model_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  ChatTemplate template_;
  ChatEncoder encoder_;
};

TEST_F(RecallDropModel, WhatAnswersAndWhatAsksStays) {
  RecallCase one{
      .id = "x", .family = "f", .length = 1, .messages = {}, .answer = "The teal card opens the small door."};
  const std::string before =
      "There once was a boy. He was tall. He had a dog. It was black. The sun came up. He ran home. ";
  const std::string fact = "The teal card opens the small door. ";
  const std::string after = "The dog slept. It was late. The moon was out. Nobody said a word. A train left. The end. ";
  one.messages.push_back({{"role", "system"}, {"content", "Answer the question."}});
  one.messages.push_back({{"role", "user"}, {"content", before + fact + after + "What does the teal card open?"}});
  const auto plan = PlanDrop(*tokenizer_, encoder_, one, 1.0);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(kv::FindFault(plan->ops), "");
  ASSERT_EQ(plan->ops.size(), 2u);
  const auto text = [&](uint32_t begin, uint32_t end) {
    return Text(std::span(plan->tokens).subspan(begin, end - begin));
  };
  EXPECT_TRUE(text(plan->ops[0].at, static_cast<uint32_t>(plan->tokens.size())).find("What does the teal card open?") !=
              std::string::npos);
  EXPECT_EQ(text(plan->ops[0].at - 3, plan->ops[0].at).find("What"), std::string::npos);
  EXPECT_TRUE(text(plan->ops[0].begin, plan->ops[0].end).find("The sun came up.") != std::string::npos);
  EXPECT_TRUE(text(plan->ops[1].begin, plan->ops[1].end).find("A train left.") != std::string::npos);
  const std::string left = Text(plan->Shortened());
  EXPECT_TRUE(left.find(fact) != std::string::npos) << left;
  EXPECT_TRUE(left.find("Answer the question.") != std::string::npos);
  EXPECT_EQ(left.find("He had a dog."), std::string::npos) << left;
  EXPECT_EQ(plan->Shortened().size(), plan->tokens.size() - plan->dropped);

  const auto less = PlanDrop(*tokenizer_, encoder_, one, 0.3);
  ASSERT_TRUE(less.ok());
  EXPECT_EQ(less->ops.size(), 1u);
  EXPECT_LE(less->dropped, 0.3 * static_cast<double>(less->tokens.size()));
  EXPECT_EQ(PlanDrop(*tokenizer_, encoder_, one, 0.0)->dropped, 0u);
}

}  // namespace
}  // namespace kvist::lab
