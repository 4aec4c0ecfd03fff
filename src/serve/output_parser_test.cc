#include "serve/output_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "base/prng.h"
#include "base/status.h"
#include "serve/output_parser_testutil.h"

namespace kvist::serve {
namespace {

const char kTools[] = R"([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "deep": {"type": "object"}}}}},
    {"type": "function", "function": {"name": "stop"}}])";

OutputSyntax SyntaxOf(std::string_view marks_in_template, bool tools = true) {
  OutputSyntax syntax;
  syntax.tools = DetectToolSyntax(marks_in_template);
  if (tools) syntax.types = TypesOf(boost::json::parse(kTools));
  syntax.reasoning = !syntax.tools.think_open.empty() || syntax.tools.style == CallStyle::kChannels;
  return syntax;
}

/// Parts in short: "content", "(reasoning)", "0:name{arguments}" with "!" where a call has no end.
std::string Short(const std::vector<OutputPart>& parts) {
  std::string out;
  for (const OutputPart& part : parts) {
    switch (part.kind) {
      case OutputPart::Kind::kContent:
        out += part.text;
        break;
      case OutputPart::Kind::kReasoning:
        out += "(" + part.text + ")";
        break;
      case OutputPart::Kind::kCallBegin:
        EXPECT_TRUE(part.call_id.starts_with("call_")) << part.call_id;
        out += Cat("|", part.call, ":", part.call_name, " ");
        break;
      case OutputPart::Kind::kCallArguments:
        out += part.text;
        break;
      case OutputPart::Kind::kCallEnd:
        out += "|";
        break;
    }
  }
  return out;
}

/// Neighbouring pieces of one part joined.
std::vector<OutputPart> Joined(std::vector<OutputPart> parts) {
  std::vector<OutputPart> out;
  for (OutputPart& part : parts) {
    const bool text = part.kind != OutputPart::Kind::kCallBegin && part.kind != OutputPart::Kind::kCallEnd;
    if (text && !out.empty() && out.back().kind == part.kind && out.back().call == part.call) {
      out.back().text += part.text;
    } else {
      out.push_back(std::move(part));
    }
  }
  return out;
}

std::string Parse(const OutputSyntax& syntax, std::string_view text, size_t piece) {
  const auto parser = NewOutputParser(std::make_shared<const OutputSyntax>(syntax));
  std::vector<OutputPart> parts;
  for (size_t at = 0; at < text.size(); at += piece) parser->Push(text.substr(at, piece), parts);
  parser->Finish(parts);
  return Short(Joined(std::move(parts)));
}

constexpr std::string_view kHermes = "<tool_call>";
constexpr std::string_view kThinkingHermes = "<tool_call> <think>";
constexpr std::string_view kXml = "<tool_call> <function=";
constexpr std::string_view kLlama = "{\"name\": function name, \"parameters\": ...}";
constexpr std::string_view kMistral = "[TOOL_CALLS]";
constexpr std::string_view kDeepSeek = "<｜tool▁calls▁begin｜> <｜tool▁sep｜> <think>";
constexpr std::string_view kHarmony = "<|channel|> functions.";

struct Case {
  std::string_view syntax;
  std::string text, parts;
};

TEST(OutputParserTest, TakesOutputsApartHoweverTheyArrive) {
  const std::string weather = R"({"city": "Oslo", "days": 2})";
  const Case cases[] = {
      {kHermes, "plain text", "plain text"},
      {kHermes, " a < b <tool", " a < b <tool"},
      {kHermes, "<tool_call>\n{\"name\": \"weather\", \"arguments\": " + weather + "}\n</tool_call>",
       "|0:weather " + weather + "|"},
      {kHermes,
       "Let me look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n"
       "{\"arguments\": {\"a\": [1, \"}\"]}, \"name\": \"stop\"}\n</tool_call>\n",
       "Let me look.|0:weather {}||1:stop {\"a\": [1, \"}\"]}|"},
      {kHermes, "<tool_call>{\"name\": \"stop\"}</tool_call> bye", "|0:stop {}| bye"},
      {kHermes, R"(<tool_call>{"name": "stop", "arguments": "{\"a\": \"\\\"\"}"}</tool_call>)",
       R"(|0:stop {"a": "\""}|)"},
      {kHermes, "<tool_call>\nnot json\n</tool_call> x", "<tool_call>\nnot json\n</tool_call> x"},
      {kHermes, "<tool_call>{\"nam", "<tool_call>{\"nam"},
      {kHermes, "<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>",
       "<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>"},
      {kHermes, "<tool_call>{\"name\": \"stop\", \"arguments\": {\"a\": ", "|0:stop {\"a\": |"},
      {kHermes, "<tool_call>{\"name\": \"stop\", \"arguments\": {}}", "|0:stop {}|"},
      {kThinkingHermes, "<think>\nhm, <b> \n</think>\n\nanswer", "(hm, <b>)answer"},
      {kThinkingHermes, "\n<think>never ends </thin", "(never ends </thin)"},
      {kThinkingHermes, "<thinner>", "<thinner>"},
      {kThinkingHermes, "<think></think><tool_call>{\"name\": \"stop\"}</tool_call>", "|0:stop {}|"},
      {kThinkingHermes, "<think>a <tool_call> b</think> c", "(a <tool_call> b)c"},
      {kXml,
       "Sure.\n\n<tool_call>\n<function=weather>\n<parameter=city>\nOslo \"N\"\n</parameter>\n<parameter=days>\n2\n"
       "</parameter>\n<parameter=deep>\n{\"a\": [1]}\n</parameter>\n</function>\n</tool_call>",
       "Sure.|0:weather {\"city\": \"Oslo \\\"N\\\"\", \"days\": 2, \"deep\": {\"a\":[1]}}|"},
      {kXml, "<tool_call>\n<function=stop>\n</function>\n</tool_call>", "|0:stop {}|"},
      {kXml, "<tool_call>\n<function=weather>\n<parameter=city>\n12\n</parameter>\n</function>\n</tool_call>",
       "|0:weather {\"city\": \"12\"}|"},
      {kXml, "<tool_call>\n<funct", "<tool_call>\n<funct"},
      {kXml, "<tool_call>hm</tool_call>", "<tool_call>hm</tool_call>"},
      {kLlama, "{\"name\": \"weather\", \"parameters\": " + weather + "}", "|0:weather " + weather + "|"},
      {kLlama, "<|python_tag|>{\"name\": \"stop\", \"parameters\": {}}; {\"name\": \"stop\", \"parameters\": {}}",
       "|0:stop {}||1:stop {}|"},
      {kLlama, "{\"name\": \"nobody\", \"parameters\": {}}", "{\"name\": \"nobody\", \"parameters\": {}}"},
      {kLlama, "{\"answer\": 42}", "{\"answer\": 42}"},
      {kLlama, "text {\"name\": \"stop\", \"parameters\": {}}", "text {\"name\": \"stop\", \"parameters\": {}}"},
      {kMistral,
       "[TOOL_CALLS] [{\"name\": \"stop\", \"arguments\": {}}, {\"name\": \"weather\", \"arguments\": {\"days\": 1}, "
       "\"id\": \"abcdefghi\"}]",
       "|0:stop {}||1:weather {\"days\": 1}|"},
      {kMistral, "[TOOL_CALLS] []", "[TOOL_CALLS] []"},
      {kMistral, "[TOOL_CALLS][{\"name\": \"stop\"}, oops]", "|0:stop {}|, oops]"},
      {kDeepSeek,
       "<think>x</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n" + weather +
           "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>stop\n```json\n{}\n```"
           "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "(x)|0:weather " + weather + "||1:stop {}|"},
      {kDeepSeek, "<｜tool▁calls▁begin｜>what", "<｜tool▁calls▁begin｜>what"},
      {kHarmony, "<|channel|>analysis<|message|>think<|end|><|start|>assistant<|channel|>final<|message|>answer",
       "(think)answer"},
      {kHarmony,
       "<|channel|>analysis<|message|>t<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
       "<|constrain|>json<|message|>" +
           weather,
       "(t)|0:weather " + weather + "|"},
      {kHarmony, "no header", "no header"},
      {kHarmony, "<|channel|>fin", "<|channel|>fin"},
  };
  for (const Case& c : cases) {
    const OutputSyntax syntax = SyntaxOf(c.syntax);
    for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, c.text.size()}) {
      EXPECT_EQ(Parse(syntax, c.text, piece), c.parts) << c.text << " in pieces of " << piece;
    }
  }
}

TEST(OutputParserTest, ReasoningThatThePromptOpenedNeedsNoMark) {
  OutputSyntax syntax = SyntaxOf(kThinkingHermes);
  syntax.starts_in_reasoning = true;
  EXPECT_EQ(Parse(syntax, "\nwell\n</think>\n\nyes", 1), "(well)yes");
  EXPECT_EQ(Parse(syntax, "cut off", 3), "(cut off)");
}

TEST(OutputParserTest, WithoutToolsNothingIsACall) {
  const OutputSyntax syntax = SyntaxOf(kThinkingHermes, /*tools=*/false);
  const std::string text = "<tool_call>{\"name\": \"stop\"}</tool_call> ";
  EXPECT_EQ(Parse(syntax, "<think>a</think>" + text, 1), "(a)" + text);
}

TEST(OutputParserTest, ContentAndArgumentsComeAsSoonAsTheyAreCertain) {
  const auto parser = NewOutputParser(std::make_shared<const OutputSyntax>(SyntaxOf(kHermes)));
  const auto push = [&](std::string_view text) {
    std::vector<OutputPart> parts;
    parser->Push(text, parts);
    return Short(parts);
  };
  EXPECT_EQ(push("Hello"), "Hello");
  EXPECT_EQ(push(" <to"), "");
  EXPECT_EQ(push("y>"), " <toy>");
  EXPECT_EQ(push("<tool_call>{\"name\": \"weather\", \"arguments\": "), "");
  EXPECT_EQ(push("{\"ci"), "|0:weather {\"ci");
  EXPECT_EQ(push("ty\": \"Os"), "ty\": \"Os");
  EXPECT_EQ(push("lo\"}"), "lo\"}");
  EXPECT_EQ(push("}"), "|");
  EXPECT_EQ(parser->calls(), 1u);
}

TEST(OutputParserTest, HostileOutputsLoseNothingAndEnd) {
  const std::string_view pieces[] = {"<tool_call>",
                                     "</tool_call>",
                                     "{",
                                     "}",
                                     "\"name\"",
                                     ":",
                                     "\"stop\"",
                                     ",",
                                     " ",
                                     "\n",
                                     "\"arguments\"",
                                     "<think>",
                                     "</think>",
                                     "<function=",
                                     "stop",
                                     ">",
                                     "<parameter=",
                                     "a",
                                     "</parameter>",
                                     "</function>",
                                     "[TOOL_CALLS]",
                                     "[",
                                     "]",
                                     "<|channel|>",
                                     "<|message|>",
                                     "<|end|>",
                                     "<|start|>",
                                     "to=functions.x",
                                     "\\"};
  for (const std::string_view kind : {kThinkingHermes, kXml, kLlama, kMistral, kDeepSeek, kHarmony}) {
    const OutputSyntax syntax = SyntaxOf(kind);
    for (uint64_t seed = 0; seed < 2000; ++seed) {
      Prng prng(seed);
      std::string text;
      for (uint64_t i = prng.Below(30); i-- > 0;) text += pieces[prng.Below(std::size(pieces))];
      EXPECT_EQ(Parse(syntax, text, 1), Parse(syntax, text, 5)) << text;
      // What has no mark of calls, reasoning or channels is content as it is.
      const bool plain = text.find_first_of("<[{") == std::string::npos;
      EXPECT_TRUE(!plain || Parse(syntax, text, 1) == text) << text;
    }
  }
}

TEST(OutputParserTest, TheFuzzersCorpusHoldsCalls) {
  int calls = 0;
  for (const auto& entry : std::filesystem::directory_iterator(KVIST_SOURCE_DIR "/tests/fuzz/output_parser")) {
    std::ifstream in(entry.path(), std::ios::binary);
    calls += CheckOutput(std::string((std::istreambuf_iterator<char>(in)), {}));
  }
  EXPECT_GE(calls, 8);
}

TEST(ToolSyntaxTest, KnowsTheTemplatesByTheirMarks) {
  EXPECT_EQ(DetectToolSyntax("").style, CallStyle::kNone);
  EXPECT_EQ(DetectToolSyntax("{{ messages }}").think_open, "");
  EXPECT_EQ(DetectToolSyntax(kThinkingHermes).think_close, "</think>");
  EXPECT_EQ(DetectToolSyntax(kXml).style, CallStyle::kTaggedXml);
  EXPECT_EQ(DetectToolSyntax(kLlama).style, CallStyle::kBareJson);
  EXPECT_EQ(DetectToolSyntax(kHarmony).style, CallStyle::kChannels);
}

}  // namespace
}  // namespace kvist::serve
