/// @file
/// Capsules and choices over HTTP: an answer goes on, starts again or branches with the tokens that one run would have
/// had.

#include <set>
#include <thread>

#include "serve/server_model_testutil.h"

namespace kvist::serve {
namespace {

using ServerCapsuleTest = ServerModelTest;

json::object Sampled(int64_t max_tokens) {
  return {{"max_tokens", max_tokens},    {"temperature", 1.1}, {"seed", 5},
          {"presence_penalty", 1.0},     {"ignore_eos", true}, {"stop", {"never said"}},
          {"kvist", {{"capsule", true}}}};
}

json::object With(json::object fields, std::string_view key, json::value value) {
  fields[key] = std::move(value);
  return fields;
}

std::string CapsuleOf(const json::value& reply, size_t choice = 0) {
  return std::string(reply.at("choices").at(choice).at("kvist").at("capsule").as_string());
}

HttpResponse Delete(uint16_t port, std::string_view path) {
  HttpClient client(port);
  client.Send("DELETE " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  return client.Read();
}

std::string RestoreBody(json::value restore, json::object more) {
  more["kvist"] = {{"restore", std::move(restore)}, {"capsule", true}};
  return json::serialize(more);
}

TEST_F(ServerCapsuleTest, AnAnswerGoesOnAsIfItHadNotEnded) {
  const json::value whole = Ask(kTextPath, TextBody(kFacts, Sampled(40)));
  const json::value first = Ask(kTextPath, TextBody(kFacts, Sampled(15)));
  const json::value second = Ask(kTextPath, RestoreBody(CapsuleOf(first).c_str(), {{"max_tokens", 10}}));
  const json::value third = Ask(kTextPath, RestoreBody(CapsuleOf(second).c_str(), {{"max_tokens", 15}}));
  EXPECT_EQ(TextOf(first) + TextOf(second) + TextOf(third), TextOf(whole));
  EXPECT_GE(CachedOf(third), UsageOf(third, "prompt_tokens") - 1) << "nothing but the last token is read again";
  EXPECT_EQ(UsageOf(third, "prompt_tokens"), UsageOf(first, "prompt_tokens") + 25);
}

TEST_F(ServerCapsuleTest, RollsBackAndTriesAgain) {
  const json::value first = Ask(kTextPath, TextBody(kFacts, Sampled(20)));
  const std::string capsule = CapsuleOf(first);
  const auto again = [&](int64_t output_tokens, json::object more) {
    return Ask(kTextPath, RestoreBody({{"capsule", capsule}, {"output_tokens", output_tokens}},
                                      With(std::move(more), "max_tokens", 20 - output_tokens)));
  };
  EXPECT_EQ(TextOf(again(0, {})), TextOf(first));
  const std::string rest = TextOf(again(12, {}));
  EXPECT_EQ(rest, TextOf(first).substr(TextOf(first).size() - rest.size()));
  EXPECT_EQ(TextOf(again(0, {{"seed", 6}})), TextOf(Ask(kTextPath, TextBody(kFacts, With(Sampled(20), "seed", 6)))));
  EXPECT_NE(TextOf(again(0, {{"seed", 6}})), TextOf(first));
}

TEST_F(ServerCapsuleTest, APromptFollowsTheState) {
  const json::value first = Ask(kTextPath, TextBody(kFacts, With(Sampled(12), "temperature", 0)));
  const std::string question = " What does the teal card open?";
  const json::value branched =
      Ask(kTextPath, RestoreBody(CapsuleOf(first).c_str(), {{"prompt", question}, {"max_tokens", 8}}));
  EXPECT_GE(CachedOf(branched), UsageOf(first, "prompt_tokens") + 11);
  EXPECT_EQ(TextOf(branched),
            TextOf(Ask(kTextPath, RestoreBody(CapsuleOf(first).c_str(), {{"prompt", question}, {"max_tokens", 8}}))));
}

TEST_F(ServerCapsuleTest, ChatsGoOnAndBranch) {
  const json::object greedy = {{"max_tokens", 5}, {"kvist", {{"capsule", true}}}};
  const json::value whole = Ask(kChatPath, ChatBody("What does the teal card open?"));
  const json::value begun = Ask(kChatPath, ChatBody("What does the teal card open?", greedy));
  EXPECT_EQ(FinishOf(begun), "length");
  const json::value rest = Ask(kChatPath, RestoreBody(CapsuleOf(begun).c_str(), {{"max_tokens", 24}}));
  EXPECT_EQ(rest.at("object").as_string(), "chat.completion");
  EXPECT_EQ(TextOf(begun) + TextOf(rest), TextOf(whole));
  EXPECT_EQ(FinishOf(rest), "stop");
}

TEST_F(ServerCapsuleTest, ARunningRequestIsBranched) {
  HttpClient client(port());
  json::object more = Sampled(400);
  more["stream"] = true;
  client.SendPost(kTextPath, TextBody(kFacts, more));
  std::string head = client.ReadUntil("\"text\":");
  const size_t at = head.find("cmpl-");
  ASSERT_NE(at, std::string::npos) << head;
  const std::string id = head.substr(at, head.find('"', at) - at);
  const HttpResponse kept = Post(port(), "/kvist/capsules", json::serialize(json::object{{"request", id}}));
  ASSERT_EQ(kept.status, 201) << kept.body;
  const json::value capsule = json::parse(kept.body);
  const int64_t had = capsule.at("output_tokens").as_int64();
  const std::string name(capsule.at("id").as_string());
  const json::value branch = Ask(kTextPath, RestoreBody(name.c_str(), {{"max_tokens", 10}}));
  const json::value whole = Ask(kTextPath, TextBody(kFacts, Sampled(had + 10)));
  const std::string text = TextOf(branch);
  EXPECT_EQ(text, TextOf(whole).substr(TextOf(whole).size() - text.size()));
  client.Close();
  const HttpResponse ended = Post(port(), "/kvist/capsules", R"({"request":"cmpl-none"})");
  EXPECT_EQ(ended.status, 400) << ended.body;
}

TEST_F(ServerCapsuleTest, AreListedDeletedAndBoundToTheirNamespace) {
  const json::value salted =
      Ask(kTextPath, TextBody(kFacts, With(Sampled(4), "kvist", {{"capsule", true}, {"cache_salt", "a"}})));
  const std::string id = CapsuleOf(salted);
  EXPECT_NE(Get(port(), "/kvist/capsules").body.find(id), std::string::npos);
  const json::value info = json::parse(Get(port(), "/kvist/capsules/" + id).body);
  EXPECT_EQ(info.at("output_tokens").as_int64(), 4);
  const auto restore = [&](json::object own) {
    own["restore"] = id;
    return Post(port(), kTextPath, json::serialize(json::object{{"kvist", std::move(own)}}));
  };
  EXPECT_EQ(restore({}).status, 404) << "another namespace";
  EXPECT_EQ(restore({{"cache_salt", "b"}}).status, 404);
  EXPECT_EQ(restore({{"cache_salt", "a"}}).status, 200);
  EXPECT_EQ(Delete(port(), "/kvist/capsules/" + id).status, 200);
  EXPECT_EQ(Delete(port(), "/kvist/capsules/" + id).status, 404);
  EXPECT_EQ(restore({{"cache_salt", "a"}}).status, 404);
  EXPECT_EQ(Delete(port(), "/kvist/capsules").status, 405);
}

TEST_F(ServerCapsuleTest, WrongRestoresNameTheField) {
  const json::value first = Ask(kTextPath, TextBody(kFacts, Sampled(4)));
  const std::string id = CapsuleOf(first);
  const auto refused = [&](const char* path, json::object body) {
    const HttpResponse response = Post(port(), path, json::serialize(body));
    EXPECT_GE(response.status, 400);
    EXPECT_LT(response.status, 500);
    return std::string(json::parse(response.body).at("error").at("message").as_string());
  };
  EXPECT_THAT(refused(kTextPath, {{"kvist", {{"restore", {{"capsule", id}, {"output_tokens", 5}}}}}}),
              testing::HasSubstr("has 4 tokens of output"));
  EXPECT_THAT(refused(kTextPath, {{"kvist", {{"restore", "cap-0"}}}}),
              testing::HasSubstr("there is no capsule 'cap-0'"));
  EXPECT_THAT(refused(kTextPath, {{"kvist", {{"restore", 7}}}}), testing::HasSubstr("kvist.restore"));
  EXPECT_THAT(refused(kTextPath, {{"kvist", {{"restore", json::object()}}}}), testing::HasSubstr("is missing"));
  EXPECT_THAT(refused(kTextPath, {{"echo", true}, {"kvist", {{"restore", id}}}}), testing::HasSubstr("'echo'"));
  EXPECT_THAT(refused(kTextPath, {{"kvist", {{"capsule", "yes"}}}}), testing::HasSubstr("kvist.capsule"));
  EXPECT_THAT(refused(kChatPath, {{"kvist", {{"capsule", true}}}}), testing::HasSubstr("'messages' is missing"));
}

TEST_F(ServerCapsuleTest, ChoicesAreTheAnswersOfSeedsThatFollow) {
  const json::value reply = Ask(kTextPath, TextBody(kFacts, With(Sampled(12), "n", 4)));
  const json::array& choices = reply.at("choices").as_array();
  ASSERT_EQ(choices.size(), 4u);
  std::set<std::string> texts, capsules;
  for (size_t i = 0; i < choices.size(); ++i) {
    EXPECT_EQ(choices[i].at("index").as_int64(), static_cast<int64_t>(i));
    const std::string text(choices[i].at("text").as_string());
    const int64_t seed = 5 + static_cast<int64_t>(i);
    EXPECT_EQ(text, TextOf(Ask(kTextPath, TextBody(kFacts, With(Sampled(12), "seed", seed)))));
    texts.insert(text);
    capsules.insert(CapsuleOf(reply, i));
  }
  EXPECT_GT(texts.size(), 1u);
  EXPECT_EQ(capsules.size(), 4u);
  EXPECT_EQ(UsageOf(reply, "completion_tokens"), 48);
  const json::value one = Ask(kTextPath, TextBody(kFacts, Sampled(1)));
  EXPECT_EQ(UsageOf(reply, "prompt_tokens"), UsageOf(one, "prompt_tokens"));
}

TEST_F(ServerCapsuleTest, ChoicesAreStreamedSideBySide) {
  json::object more = With(Sampled(12), "n", 3);
  const json::value whole = Ask(kChatPath, ChatBody("Why?", more));
  more["stream"] = true;
  more["stream_options"] = {{"include_usage", true}};
  const HttpResponse response = Post(port(), kChatPath, ChatBody("Why?", more));
  std::vector<std::string> texts(3);
  std::vector<int> finished(3, 0);
  int usages = 0;
  for (const std::string& data : SseData(response.body)) {
    if (data == "[DONE]") break;
    const json::value chunk = json::parse(data);
    usages += chunk.at("usage").is_object();
    for (const json::value& choice : chunk.at("choices").as_array()) {
      const size_t index = static_cast<size_t>(choice.at("index").as_int64());
      ASSERT_LT(index, 3u);
      const json::object& delta = choice.at("delta").as_object();
      if (delta.contains("content")) texts[index] += std::string(delta.at("content").as_string());
      if (choice.at("finish_reason").is_string()) ++finished[index];
    }
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(texts[i], std::string(whole.at("choices").at(i).at("message").at("content").as_string())) << i;
    EXPECT_EQ(finished[i], 1) << i;
  }
  EXPECT_EQ(usages, 1);
}

TEST_F(ServerCapsuleTest, LeavingCancelsEveryChoice) {
  json::object more = With(Sampled(2000), "n", 5);
  more["stream"] = true;
  {
    HttpClient client(port());
    client.SendPost(kTextPath, TextBody(kFacts, more));
    client.ReadUntil("\"text\":");
  }
  for (int i = 0; i < 2000 && runtime_->engine->Stats().running + runtime_->engine->Stats().waiting > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(runtime_->engine->Stats().running + runtime_->engine->Stats().waiting, 0u);
}

}  // namespace
}  // namespace kvist::serve
