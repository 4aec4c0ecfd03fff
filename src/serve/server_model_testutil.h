#pragma once

/// @file
/// The server with the real small model behind it, and requests to it: what several files of tests share.

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/json.hpp>

#include "modelfile/chat_prompt.h"
#include "runtime/runtime.h"
#include "serve/fake_world_testutil.h"
#include "serve/http_testutil.h"

namespace kvist::serve {

namespace json = boost::json;

inline constexpr char kFacts[] =
    "The purple key opens the shiny suitcase. The teal card opens the small door. Everyone clapped, and Will was "
    "happy. ";

class ServerModelTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto started = runtime::Start(
        {.model_path = KVIST_SOURCE_DIR "/models/default-q8_0.gguf", .threads = 2, .kv_memory_bytes = 64u << 20});
    ASSERT_TRUE(started.ok()) << started.status();
    runtime_ = *std::move(started);
    ASSERT_TRUE(runtime_->chat_template.has_value()) << runtime_->chat_template_status;
    encoder_ = std::make_unique<ChatEncoder>(*runtime_->tokenizer, *runtime_->chat_template);
    ServedModel model{.id = "small",
                      .tokenizer = runtime_->tokenizer.get(),
                      .context_tokens_max = runtime_->engine->context_tokens_max(),
                      // Its own template knows no tools; a grammar makes it write calls all the same.
                      .tools = DetectToolSyntax("<tool_call> <think>")};
    model.encode_chat = [](ChatTemplateInputs inputs, std::span<const uint32_t> marked) {
      return encoder_->EncodeMarked(std::move(inputs), marked);
    };
    server_ = std::make_unique<RunningServer>(ServerOptions{}, std::move(model), *runtime_->engine, runtime_->clock);
  }
  static void TearDownTestSuite() {
    server_.reset();
    encoder_.reset();
    runtime_.reset();
  }

  static uint16_t port() { return server_->port(); }

  static json::object Message(const std::string& text) { return {{"role", "user"}, {"content", text}}; }

  /// A greedy chat with one message; `more` fields on top.
  static std::string ChatBody(const std::string& question, json::object more = {}) {
    json::array messages;
    messages.push_back(Message(kFacts + question));
    json::object body = {{"messages", std::move(messages)}, {"temperature", 0}, {"max_tokens", 24}};
    for (auto& member : more) body[member.key()] = member.value();
    return json::serialize(body);
  }
  static std::string TextBody(std::string_view prompt, json::object more = {}) {
    return PromptBody(json::value(prompt), std::move(more));
  }
  static std::string PromptBody(json::value prompt, json::object more = {}) {
    json::object body = {{"prompt", std::move(prompt)}, {"temperature", 0}, {"max_tokens", 24}};
    for (auto& member : more) body[member.key()] = member.value();
    return json::serialize(body);
  }

  static json::value Ask(const char* path, const std::string& body) {
    const HttpResponse response = Post(port(), path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return response.status == 200 ? json::parse(response.body) : json::value();
  }
  static std::string TextOf(const json::value& reply) {
    const json::object& choice = reply.at("choices").at(0).as_object();
    return std::string(choice.contains("text") ? choice.at("text").as_string()
                                               : choice.at("message").at("content").as_string());
  }
  static std::string FinishOf(const json::value& reply) {
    return std::string(reply.at("choices").at(0).at("finish_reason").as_string());
  }
  static int64_t UsageOf(const json::value& reply, const char* name) { return reply.at("usage").at(name).as_int64(); }
  static int64_t CachedOf(const json::value& reply) {
    return reply.at("usage").at("prompt_tokens_details").at("cached_tokens").as_int64();
  }

  struct Streamed {
    std::string text, finish;
    json::value usage;
  };
  static Streamed Collect(const std::string& stream) {
    Streamed out;
    for (const std::string& data : SseData(stream)) {
      if (data == "[DONE]") break;
      const json::value chunk = json::parse(data);
      if (chunk.as_object().contains("usage") && !chunk.at("usage").is_null()) out.usage = chunk.at("usage");
      for (const json::value& choice : chunk.at("choices").as_array()) {
        const json::object& fields = choice.as_object();
        if (const json::value* text = fields.if_contains("text")) out.text += std::string(text->as_string());
        if (const json::value* delta = fields.if_contains("delta");
            delta != nullptr && delta->as_object().contains("content")) {
          out.text += std::string(delta->at("content").as_string());
        }
        if (choice.at("finish_reason").is_string()) out.finish = std::string(choice.at("finish_reason").as_string());
      }
    }
    return out;
  }

  static inline std::unique_ptr<runtime::Runtime> runtime_;
  static inline std::unique_ptr<ChatEncoder> encoder_;
  static inline std::unique_ptr<RunningServer> server_;
};

}  // namespace kvist::serve
