/// @file
/// Calls as the public templates write them are read back as they were. Needs the templates (KVIST_SHARED_DATA).

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <boost/json.hpp>

#include "modelfile/chat_template.h"
#include "serve/output_parser.h"

namespace kvist::serve {
namespace {

namespace json = boost::json;

std::filesystem::path Templates() {
  const char* set = std::getenv("KVIST_SHARED_DATA");
  return std::filesystem::path(set != nullptr ? set : KVIST_SOURCE_DIR "/../shared/data") / "templates";
}

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

TEST(ToolTemplates, CallsAreReadBackAsTheTemplateWroteThem) {
  if (!std::filesystem::exists(Templates())) GTEST_SKIP() << "no templates here";
  const std::map<std::string, CallStyle> styles = {
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", CallStyle::kTaggedJson},
      {"Qwen-Qwen2.5-7B-Instruct", CallStyle::kTaggedJson},
      {"Qwen-QwQ-32B", CallStyle::kTaggedJson},
      {"Qwen-Qwen3-0.6B", CallStyle::kTaggedJson},
      {"Qwen3-Coder", CallStyle::kTaggedXml},
      {"Qwen3.5-4B", CallStyle::kTaggedXml},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", CallStyle::kSeparated},
      {"meta-llama-Llama-3.1-8B-Instruct", CallStyle::kBareJson},
      {"meta-llama-Llama-3.2-3B-Instruct", CallStyle::kBareJson},
      {"meta-llama-Llama-3.3-70B-Instruct", CallStyle::kBareJson},
      {"mistralai-Mistral-Nemo-Instruct-2407", CallStyle::kJsonList},
      {"openai-gpt-oss-120b", CallStyle::kChannels},
      {"google-gemma-2-2b-it", CallStyle::kNone},
      {"microsoft-Phi-3.5-mini-instruct", CallStyle::kNone},
      {"HuggingFaceTB-SmolLM3-3B", CallStyle::kNone},  // This one leaves tools out.
      {"ibm-granite-granite-3.3-2B-Instruct", CallStyle::kJsonList},
  };
  const json::value arguments = json::parse(R"({"city": "Oslo, \"N\"", "days": 2})");
  const json::value tools = json::parse(R"([{"type": "function", "function": {"name": "weather", "description": "d",
      "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "c"}, "days":
      {"type": "integer", "description": "n"}}, "required": ["city"]}}}])");
  int read_back = 0;
  for (const auto& [name, style] : styles) {
    SCOPED_TRACE(name);
    const std::string source = ReadAll(Templates() / (name + ".jinja"));
    OutputSyntax syntax{.tools = DetectToolSyntax(source), .types = TypesOf(tools)};
    EXPECT_EQ(syntax.tools.style, style);
    // Granite's template writes no calls of its own.
    if (style == CallStyle::kNone || name.starts_with("ibm")) continue;
    const auto chat_template = ChatTemplate::Parse(source);
    ASSERT_TRUE(chat_template.ok()) << chat_template.status();
    ChatTemplateInputs inputs{.tools = tools, .bos_token = "", .eos_token = "<EOS>"};
    inputs.messages = {{{"role", "user"}, {"content", "How is it?"}}};
    const auto prompt = chat_template->Render(inputs);
    ASSERT_TRUE(prompt.ok()) << prompt.status();
    inputs.messages.push_back(
        {{"role", "assistant"},
         {"content", ""},
         {"tool_calls", json::array{{{"id", "abcdefghi"},
                                     {"type", "function"},
                                     {"function", {{"name", "weather"}, {"arguments", arguments}}}}}}});
    inputs.add_generation_prompt = false;
    const auto whole = chat_template->Render(inputs);
    ASSERT_TRUE(whole.ok()) << whole.status();
    // The answer, from where the model would have begun: what the prompt opens beyond the common part is not in it.
    auto differ = static_cast<size_t>(std::ranges::mismatch(*prompt, *whole).in2 - whole->begin());
    const size_t tag = whole->rfind('<', differ);  // Both may go on with a tag, each with another one.
    if (tag < differ && whole->find('>', tag) >= differ) differ = tag;
    std::string answer = whole->substr(differ);
    for (const std::string end : {"<|im_end|>", "<|eot_id|>", "<EOS>", "<｜end▁of▁sentence｜>"}) {
      answer = answer.substr(0, answer.find(end));
    }
    const auto parser = NewOutputParser(std::make_shared<const OutputSyntax>(syntax));
    std::vector<OutputPart> parts;
    for (const char c : answer) parser->Push(std::string_view(&c, 1), parts);
    parser->Finish(parts);
    std::string called, text;
    for (const OutputPart& part : parts) {
      if (part.kind == OutputPart::Kind::kCallBegin) called = part.call_name;
      if (part.kind == OutputPart::Kind::kCallArguments) text += part.text;
    }
    EXPECT_EQ(called, "weather") << answer;
    boost::system::error_code error;
    EXPECT_EQ(json::parse(text, error), arguments) << answer;
    ++read_back;
  }
  EXPECT_EQ(read_back, 12);
}

}  // namespace
}  // namespace kvist::serve
