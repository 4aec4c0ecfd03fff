#include "modelfile/chat_template_testutil.h"

#include "base/check.h"

namespace kvist {
namespace {

/// A conversation with every kind of field that templates look at.
constexpr std::string_view kSmallConversation = R"({
  "messages": [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": [{"type": "text", "text": "H\u00e9 \ud83d\ude00"}]},
    {"role": "assistant", "content": null, "reasoning_content": "hm\n",
     "tool_calls": [{"id": "call12345", "type": "function", "function": {"name": "f", "arguments": {"a": [1, 2.5, true]}}}]},
    {"role": "tool", "content": "42", "tool_call_id": "call12345"},
    {"role": "user", "content": " bye\n"}
  ],
  "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object",
    "properties": {"a": {"type": "array", "items": {"type": "number"}}}, "required": ["a"]}}}],
  "bos_token": "<s>", "eos_token": "</s>", "x": 3, "y": "text", "z": {"k": [1, "v", null]}
})";

void CheckError(const absl::Status& status) {
  KVIST_CHECK(absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status));
  KVIST_CHECK(!status.message().empty() || absl::IsInvalidArgument(status));  // raise_exception('') is allowed.
}

}  // namespace

absl::StatusOr<std::string> RenderCase(const TemplateCase& test, ChatTemplateLimits limits) {
  absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(test.source, limits);
  if (!parsed.ok()) return parsed.status();
  ChatTemplateInputs inputs;
  inputs.extra = test.inputs;
  if (const boost::json::value* now = inputs.extra.if_contains("now")) {
    if (now->is_int64()) inputs.now_unix_s = now->get_int64();
    inputs.extra.erase("now");
  }
  return parsed->Render(inputs);
}

void RunTemplateFuzzInput(std::string_view bytes) {
  constexpr ChatTemplateLimits kSmall = {
      .steps_max = 30'000, .output_bytes_max = 1 << 16, .depth_max = 60, .source_bytes_max = 1 << 14};
  const size_t nul = bytes.find('\0');
  const std::string_view source = bytes.substr(0, nul);
  const std::string_view json = nul == std::string_view::npos ? kSmallConversation : bytes.substr(nul + 1);

  absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(source, kSmall);
  if (!parsed.ok()) {
    CheckError(parsed.status());
    return;
  }
  boost::json::error_code error;
  boost::json::parse_options options;
  options.max_depth = 100;
  const boost::json::value variables =
      boost::json::parse(boost::json::string_view(json.data(), json.size()), error, {}, options);
  ChatTemplateInputs inputs;
  inputs.now_unix_s = 1'753'600'000;
  if (!error && variables.is_object()) inputs.extra = variables.get_object();

  const absl::StatusOr<std::string> first = parsed->Render(inputs);
  const absl::StatusOr<std::string> second = parsed->Render(inputs);
  KVIST_CHECK(first.status() == second.status());
  if (!first.ok()) return CheckError(first.status());
  KVIST_CHECK(*first == *second);
  KVIST_CHECK(first->size() <= kSmall.output_bytes_max);
}

}  // namespace kvist
