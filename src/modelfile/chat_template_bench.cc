/// @file
/// Rendering of a long conversation. Goal: 100 messages with 1 MB of text in under 20 ms, about 50 MB/s; tokenising
/// that text takes longer. Unit: bytes of output per second.

#include <string>

#include "benchmark/benchmark.h"
#include "modelfile/chat_template.h"

namespace kvist {
namespace {

/// In the manner of reasoning models: looks for the last question, splits answers at a tag, writes tool calls as JSON.
constexpr std::string_view kTemplate = R"({%- macro text(c) %}
    {%- if c is string %}{{ c }}{% else %}{% for part in c if part.type == 'text' %}{{ part.text }}{% endfor %}{% endif %}
{%- endmacro %}
{%- set ns = namespace(last=-1) %}
{%- for m in messages[::-1] %}
    {%- if m.role == 'user' and ns.last < 0 and not m.content.startswith('<result>') %}
        {%- set ns.last = messages | length - loop.index %}
    {%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- if m.role == 'assistant' %}
        {%- set parts = m.content.split('</think>') %}
        {{- '<|begin|>' + m.role + '\n' + (m.content if loop.index0 > ns.last else parts[-1].lstrip('\n')) }}
        {%- for call in m.tool_calls or [] %}
            {{- '\n<call>' ~ (call.function | tojson) ~ '</call>' }}
        {%- endfor %}
        {{- '<|end|>\n' }}
    {%- else %}
        {{- '<|begin|>' + m.role + '\n' + text(m.content) | trim + '<|end|>' + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|begin|>assistant\n' }}{% endif %})";

ChatTemplateInputs Conversation(size_t messages_count, size_t bytes) {
  ChatTemplateInputs inputs;
  std::string content = "<think>\nWell.\n</think>\n\n";
  while (content.size() < bytes / messages_count) content += "Några ord till, och ett tal: 3.14.\n";
  for (size_t i = 0; i < messages_count; ++i) {
    boost::json::object message = {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", content}};
    if (i % 10 == 1) {
      message["tool_calls"] = {{{"function", {{"name", "look"}, {"arguments", {{"text", content.substr(0, 2000)}}}}}}};
    }
    inputs.messages.push_back(std::move(message));
  }
  return inputs;
}

void BM_Render(benchmark::State& state) {
  const absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(kTemplate);
  const ChatTemplateInputs inputs =
      Conversation(static_cast<size_t>(state.range(0)), static_cast<size_t>(state.range(1)));
  size_t bytes = 0;
  for (auto _ : state) {
    const absl::StatusOr<std::string> text = parsed->Render(inputs);
    if (!text.ok()) return state.SkipWithError(std::string(text.status().message()).c_str());
    bytes += text->size();
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
}
BENCHMARK(BM_Render)->Args({100, 1 << 20})->Args({10, 1 << 12})->Args({1000, 1 << 20})->Unit(benchmark::kMillisecond);

void BM_Parse(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(ChatTemplate::Parse(kTemplate));
}
BENCHMARK(BM_Parse)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace kvist
