/// @file
/// Messages that answers no longer look at leave a session's view by themselves: with the real small model, over HTTP.

#include "serve/server_model_testutil.h"

namespace kvist::serve {
namespace {

constexpr char kFiller[] =
    "Once upon a time, a kind boy named Ben lived near the museum. Every day, he went to the museum to play. Ben liked "
    "to sing and to run in the office. His best friend was called Paul. Everyone in the village was getting ready for "
    "the big show. In the morning, he always ate soup. The sky was full of clouds.";

/// One client's chat in a session.
class FadingTest : public ServerModelTest {
 protected:
  void Say(const char* role, const std::string& content, json::object mark = {}) {
    json::object message = {{"role", role}, {"content", content}};
    if (!mark.empty()) message["kvist"] = std::move(mark);
    messages_.push_back(std::move(message));
  }

  /// Facts, filler, facts again; what the assistant said to each.
  void TellFactsAndFiller(json::object mark_of_filler = {}) {
    Say("system", "You are a friendly assistant with a good memory.");
    Say("user",
        "The code of the red vault is 4711. The code of the blue gate is 1234. The code of the gray barn is 9035.");
    Say("assistant", "Noted.");
    Say("user", kFiller, std::move(mark_of_filler));
    Say("assistant", "I see.");
    Say("user", "The code of the pink shed is 5526. The code of the teal box is 8014.");
    Say("assistant", "Noted.");
  }

  json::value AskFor(const std::string& thing, const json::object& kvist) {
    Say("user", "What is the code of the " + thing + "?");
    const json::object body = {{"messages", messages_}, {"max_tokens", 24}, {"temperature", 0}, {"kvist", kvist}};
    json::value reply = Ask(kChatPath, json::serialize(body));
    Say("assistant", TextOf(reply));
    return reply;
  }

  static const json::object* MessageOf(const json::value& reply, int64_t index) {
    for (const json::value& message : reply.at("kvist").at("messages").as_array()) {
      if (message.at("message").as_int64() == index) return &message.as_object();
    }
    return nullptr;
  }
  static bool Dropped(const json::value& reply, int64_t index) {
    const json::object* message = MessageOf(reply, index);
    return message != nullptr && message->contains("dropped");
  }

  json::array messages_;
};

constexpr int64_t kFacts1 = 1, kFillerMessage = 3, kFacts2 = 5;

TEST_F(FadingTest, FillerThatNobodyLooksAtGoesAfterThreeTurnsAndFactsStay) {
  const json::object kvist = {{"session", "fading"}, {"forget_below", 0.5}};
  std::vector<json::value> replies;
  TellFactsAndFiller();
  for (const char* thing : {"red vault", "teal box", "gray barn"}) {
    replies.push_back(AskFor(thing, kvist));
    EXPECT_FALSE(Dropped(replies.back(), kFillerMessage));
    EXPECT_EQ(MessageOf(replies.back(), kFillerMessage)->at("faint_turns").as_int64(),
              static_cast<int64_t>(replies.size()));
    EXPECT_EQ(MessageOf(replies.back(), kFacts1)->at("faint_turns").as_int64(), 0);
  }
  const json::value fourth = AskFor("pink shed", kvist);
  EXPECT_EQ(MessageOf(fourth, kFillerMessage)->at("dropped").as_string(), "attention");
  EXPECT_FALSE(Dropped(fourth, kFacts1));
  EXPECT_FALSE(Dropped(fourth, kFacts2));
  const int64_t tokens = MessageOf(fourth, kFillerMessage)->at("tokens").as_int64();
  EXPECT_EQ(fourth.at("usage").at("prompt_tokens_details").at("dropped_tokens").as_int64(), tokens);
  EXPECT_GT(CachedOf(fourth), UsageOf(fourth, "prompt_tokens") - 40);  // Nothing else was read again.
  EXPECT_EQ(TextOf(fourth), "The code of the pink shed is 5526.");
  // It stays away, and the facts can be asked for.
  const json::value fifth = AskFor("blue gate", kvist);
  EXPECT_TRUE(Dropped(fifth, kFillerMessage));
  EXPECT_EQ(TextOf(fifth), "The code of the blue gate is 1234.");
  EXPECT_GT(CachedOf(fifth), UsageOf(fifth, "prompt_tokens") - 40);
  const std::string metrics = Get(port(), "/metrics").body;
  EXPECT_NE(metrics.find("kvist_faded_messages_total"), std::string::npos);

  // The same chat again, cold and under another salt: the same decisions from the same numbers.
  messages_.clear();
  TellFactsAndFiller();
  const json::object again = {{"session", "fading"}, {"forget_below", 0.5}, {"cache_salt", "again"}};
  for (size_t i = 0; const char* thing : {"red vault", "teal box", "gray barn"}) {
    EXPECT_EQ(AskFor(thing, again).at("kvist").at("messages"), replies[i++].at("kvist").at("messages"));
  }
  EXPECT_TRUE(Dropped(AskFor("pink shed", again), kFillerMessage));
}

TEST_F(FadingTest, NothingGoesUnlessAskedForAndNothingThatIsToBeKept) {
  const auto dropped_at_the_end = [&](const json::object& kvist, const json::object& mark) {
    messages_.clear();
    TellFactsAndFiller(mark);
    json::value reply;
    for (const char* thing : {"red vault", "teal box", "gray barn", "pink shed"}) reply = AskFor(thing, kvist);
    return reply.at("usage").at("prompt_tokens_details").as_object().contains("dropped_tokens");
  };
  EXPECT_TRUE(dropped_at_the_end({{"session", "asked"}, {"forget_below", 0.5}}, {}));
  EXPECT_FALSE(dropped_at_the_end({{"session", "off"}}, {}));
  EXPECT_FALSE(dropped_at_the_end({{"session", "zero"}, {"forget_below", 0}}, {}));
  EXPECT_FALSE(dropped_at_the_end({{"session", "kept"}, {"forget_below", 0.5}}, {{"keep", true}}));
}

TEST_F(FadingTest, WithoutASessionThereIsNothingToMeasureAgainst) {
  const HttpResponse response = Post(port(), kChatPath, ChatBody("x", {{"kvist", {{"forget_below", 0.5}}}}));
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("kvist.forget_below"), std::string::npos) << response.body;
}

}  // namespace
}  // namespace kvist::serve
