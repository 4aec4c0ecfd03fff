#include "serve/output_parser_testutil.h"

#include <set>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "base/check.h"
#include "base/status.h"
#include "serve/output_parser.h"

namespace kvist::serve {
namespace {

using Kind = OutputPart::Kind;

constexpr std::string_view kTemplates[] = {"<tool_call> <think>",
                                           "<tool_call> <function= <think>",
                                           "{\"name\": function name, \"parameters\":",
                                           "[TOOL_CALLS]",
                                           "<｜tool▁calls▁begin｜> <｜tool▁sep｜> <think>",
                                           "<|channel|> functions."};

struct Parsed {
  std::string parts;  ///< All of them, with the bounds between different ones.
  int calls = 0;
};

Parsed Parse(const std::shared_ptr<const OutputSyntax>& syntax, std::string_view text, size_t piece) {
  const auto parser = NewOutputParser(syntax);
  std::vector<OutputPart> parts;
  for (size_t at = 0; at < text.size(); at += piece) parser->Push(text.substr(at, piece), parts);
  parser->Finish(parts);
  Parsed parsed;
  std::set<std::string> ids;
  Kind last = Kind::kCallEnd;
  bool in_call = false;
  for (const OutputPart& part : parts) {
    if (part.kind == Kind::kCallBegin) {
      KVIST_CHECK(!in_call && part.call == static_cast<uint32_t>(parsed.calls) && !part.call_name.empty());
      KVIST_CHECK(ids.insert(part.call_id).second);
      ++parsed.calls;
    } else {
      KVIST_CHECK(in_call == (part.kind == Kind::kCallArguments || part.kind == Kind::kCallEnd));
      if (in_call) KVIST_CHECK(part.call + 1 == static_cast<uint32_t>(parsed.calls));
    }
    in_call = part.kind == Kind::kCallBegin || part.kind == Kind::kCallArguments;
    if (part.kind != last || part.kind == Kind::kCallBegin) parsed.parts += Cat("\n", static_cast<int>(part.kind), ":");
    parsed.parts += Cat(part.call_name, part.text);
    last = part.kind;
  }
  KVIST_CHECK(!in_call && parser->calls() == static_cast<uint32_t>(parsed.calls));
  return parsed;
}

}  // namespace

int CheckOutput(std::string_view input) {
  if (input.empty()) return 0;
  auto syntax = std::make_shared<OutputSyntax>();
  syntax->tools = DetectToolSyntax(kTemplates[static_cast<unsigned char>(input[0]) % std::size(kTemplates)]);
  syntax->types = {{"find", {{"what", "string"}}}};
  syntax->reasoning = !syntax->tools.think_open.empty() || syntax->tools.style == CallStyle::kChannels;
  const std::string_view text = input.substr(1);
  const Parsed whole = Parse(syntax, text, text.size() + 1);
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{64}}) {
    KVIST_CHECK(Parse(syntax, text, piece).parts == whole.parts);
  }
  const bool plain = text.find_first_of("<[{") == std::string_view::npos;
  KVIST_CHECK(!plain || text.empty() || whole.parts == Cat("\n0:", text));
  return whole.calls;
}

}  // namespace kvist::serve
