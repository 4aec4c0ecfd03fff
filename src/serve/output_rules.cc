#include "serve/output_rules.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "grammar/gbnf.h"
#include "grammar/json_nodes.h"
#include "grammar/json_schema.h"
#include "grammar/regex.h"
#include "serve/api_error.h"
#include "serve/tool_grammar.h"

namespace kvist::serve {

namespace json = boost::json;
using grammar::Grammar;
using grammar::Node;
using grammar::RuleSet;

namespace {

constexpr size_t kTailTokens = 8;  // Of the prompt, in which reasoning may be opened.

/// Characters of a text that is not inside JSON.
Node PlainChar(const std::vector<grammar::CharRange>& ranges) {
  return grammar::Chars(ranges);
}

/// The format that `wish` names.
absl::StatusOr<Node> FormNode(const OutputWish& wish, const std::stop_token& stop, RuleSet& rules) {
  switch (wish.form) {
    case OutputWish::Form::kJsonObject:
      return grammar::JsonRules(rules).AnyObject();
    case OutputWish::Form::kSchema:
      return grammar::SchemaNode(wish.schema, {.strict = wish.strict, .stop = stop}, rules);
    case OutputWish::Form::kRegex:  // Of the whole output, as vLLM has it.
      return grammar::ParseRegex(wish.text, grammar::RegexMatch::kWhole, PlainChar);
    default:
      return grammar::Literal("");
  }
}

/// The end of the prompt, with control tokens spelled out, opens reasoning and leaves it open.
bool OpensReasoning(const OutputContext& context) {
  const ToolSyntax& syntax = context.tools;
  if (syntax.think_open.empty()) return false;
  const std::span<const TokenId> tail = context.prompt.last(std::min(kTailTokens, context.prompt.size()));
  const std::string text = context.tokenizer.Decode(tail, /*render_control=*/true);
  const size_t open = text.rfind(syntax.think_open);
  if (open == std::string::npos) return false;
  return text.find_first_not_of(" \n", open + syntax.think_open.size()) == std::string::npos;
}

/// A chat's answer: reasoning may come before what is asked for, where the model has marks for it.
absl::StatusOr<Node> AfterReasoning(const OutputContext& context, bool opened, Node answer, RuleSet& rules) {
  const ToolSyntax& syntax = context.tools;
  if (syntax.think_open.empty()) return answer;
  const Node close = MarkNode(syntax.think_close, context.tokenizer);
  const bool is_text = close->literal == syntax.think_close;
  const Node any = grammar::Repeat(grammar::Chars({{0, grammar::kCharMax}}), 0, grammar::kUnbounded);
  const Node through = is_text ? grammar::TextThrough(rules, syntax.think_close) : grammar::Sequence({any, close});
  const Node rest = grammar::Sequence({through, grammar::Repeat(grammar::Literal("\n"), 0, 2)});
  if (opened) return grammar::Sequence({rest, std::move(answer)});
  const Node thought = grammar::Sequence({MarkNode(syntax.think_open, context.tokenizer), rest});
  return grammar::Sequence({grammar::Optional(thought), std::move(answer)});
}

/// Everything that a wish's grammar depends on.
std::string KeyOf(const OutputWish& wish, std::string_view kind, const json::value& tools) {
  const bool calls = !tools.is_null();
  return Cat(kind, "\n", static_cast<int>(wish.form), wish.strict ? "!" : "", "\n", wish.text, "\n",
             json::serialize(wish.schema), "\n", static_cast<int>(wish.calls), wish.parallel_calls ? "+" : "", "\n",
             wish.call_name, "\n", calls ? json::serialize(tools) : std::string());
}

/// What the root of a wish is in a chat.
absl::StatusOr<Grammar> CompileChat(const OutputContext& context, const OutputWish& wish, const json::value& tools,
                                    bool opened) {
  RuleSet rules;
  Node answer;
  const bool has_calls = tools.is_array() && context.tools.style != CallStyle::kNone;
  if (has_calls) {
    KVIST_ASSIGN_OR_RETURN(answer, CallsNode(context.tools, context.tokenizer, tools.get_array(), wish.call_name,
                                             wish.parallel_calls, context.stop, rules));
  }
  if (!wish.forces_calls()) {
    KVIST_ASSIGN_OR_RETURN(Node form, FormNode(wish, context.stop, rules));
    answer = has_calls ? grammar::Choice({std::move(answer), std::move(form)}) : std::move(form);
  }
  KVIST_ASSIGN_OR_RETURN(answer, AfterReasoning(context, opened, std::move(answer), rules));
  return Grammar::Compile(rules, rules.Add("root", std::move(answer)));
}

absl::StatusOr<Grammar> CompileText(const OutputWish& wish, const std::stop_token& stop) {
  if (wish.form == OutputWish::Form::kGrammar) return grammar::ParseGbnf(wish.text);
  RuleSet rules;
  KVIST_ASSIGN_OR_RETURN(Node form, FormNode(wish, stop, rules));
  return Grammar::Compile(rules, rules.Add("root", std::move(form)));
}

/// Names the field, unless the error does.
absl::Status AtField(const absl::Status& status, std::string_view field) {
  if (status.ok() || ErrorFromStatus(status).param.has_value()) return status;
  return GrammarFault(field, status);
}

absl::StatusOr<OutputRules> WithConstraint(OutputRules rules, const OutputContext& context, const std::string& key,
                                           std::string_view field,
                                           const std::function<absl::StatusOr<Grammar>()>& compile) {
  auto constraint = context.grammars.Get(key, compile);
  if (!constraint.ok()) return AtField(constraint.status(), field);
  rules.constraint = *std::move(constraint);
  return rules;
}

}  // namespace

absl::StatusOr<OutputRules> MakeTextRules(const OutputContext& context, const OutputWish& wish) {
  if (wish.form == OutputWish::Form::kText) return OutputRules{};
  return WithConstraint({}, context, KeyOf(wish, "text", nullptr), wish.place,
                        [&] { return CompileText(wish, context.stop); });
}

absl::StatusOr<OutputRules> MakeChatRules(const OutputContext& context, const OutputWish& wish,
                                          const json::value& tools) {
  if (wish.forces_calls() && context.tools.style == CallStyle::kNone) {
    return BadParam("tool_choice", "'tool_choice' wants a call, but the model's chat template knows no tools");
  }
  if (wish.forces_calls() && wish.form != OutputWish::Form::kText) {
    return BadParam("tool_choice", Cat("'tool_choice' cannot force a call together with '", wish.place, "'"));
  }
  // A grammar of the client's own says all of the output; nothing is added to it, and nothing is taken apart.
  if (wish.form == OutputWish::Form::kGrammar) return MakeTextRules(context, wish);
  OutputRules rules;
  OutputSyntax syntax{.tools = context.tools, .types = TypesOf(tools)};
  syntax.reasoning =
      wish.reasoning_apart && (!context.tools.think_open.empty() || context.tools.style == CallStyle::kChannels);
  const bool opened = OpensReasoning(context);
  syntax.starts_in_reasoning = syntax.reasoning && opened;
  if (syntax.finds_anything()) {
    syntax.controls = ControlMarks(syntax.tools, context.tokenizer);
    rules.syntax = std::make_shared<const OutputSyntax>(std::move(syntax));
  }
  if (wish.form == OutputWish::Form::kText && !wish.forces_calls()) return rules;
  return WithConstraint(std::move(rules), context, KeyOf(wish, opened ? "opened chat" : "chat", tools),
                        wish.forces_calls() ? "tools" : wish.place,
                        [&] { return CompileChat(context, wish, tools, opened); });
}

}  // namespace kvist::serve
