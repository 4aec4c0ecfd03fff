#pragma once

/// @file
/// Takes a model's output apart as it comes: content, reasoning, calls of tools. What may still become a mark is held
/// back until it is certain; a call that is not written as it should be is content, with nothing lost. Threads: one.
/// Non-goals: how parts are sent (answer_format.h), which marks a model knows (tool_syntax.h).

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "serve/output_part.h"
#include "serve/tool_syntax.h"

namespace kvist::serve {

/// What to look for in one answer.
struct OutputSyntax {
  ToolSyntax tools;
  ToolTypes types;                   ///< Of the tools that are offered; none = calls are not looked for.
  bool reasoning = false;            ///< Marked reasoning is apart from the content.
  bool starts_in_reasoning = false;  ///< The prompt has opened it.
  std::vector<TokenId> controls;     ///< Control tokens whose text the parser needs.

  bool finds_calls() const { return tools.style != CallStyle::kNone && !types.empty(); }
  bool finds_anything() const { return finds_calls() || reasoning; }
};

/// Of one choice.
class OutputParser {
 public:
  virtual ~OutputParser() = default;
  /// More text. Appends the parts that are certain now.
  virtual void Push(std::string_view text, std::vector<OutputPart>& parts) = 0;
  /// The end of the output: what was held back becomes what it is.
  virtual void Finish(std::vector<OutputPart>& parts) = 0;
  /// Calls begun so far.
  virtual uint32_t calls() const = 0;
};

/// `syntax` finds something.
std::unique_ptr<OutputParser> NewOutputParser(std::shared_ptr<const OutputSyntax> syntax);

/// For the output parsers.
namespace internal {

/// Parts, numbered and joined.
class PartList {
 public:
  void Content(std::string_view text) { Text(OutputPart::Kind::kContent, text); }
  void Reasoning(std::string_view text) { Text(OutputPart::Kind::kReasoning, text); }
  void BeginCall(std::string_view name);
  void Arguments(std::string_view text) { Text(OutputPart::Kind::kCallArguments, text); }
  void EndCall();
  bool in_call() const { return in_call_; }
  /// Text that was read and is no part yet: of marks and the beginnings of calls. A call's begin and end forget it.
  void Note(std::string_view text) { noted_ += text; }
  /// It was no call after all: what was noted is content, unless it is white space only.
  void GiveBack();
  /// It was only layout.
  void Forget() { noted_.clear(); }
  uint32_t calls() const { return calls_; }
  /// Moves the parts to the end of `parts`.
  void TakeTo(std::vector<OutputPart>& parts);

 private:
  void Text(OutputPart::Kind kind, std::string_view text);

  std::vector<OutputPart> parts_;
  std::string noted_;
  uint32_t calls_ = 0;
  bool in_call_ = false;
};

/// Longest end of `text` that `mark` begins with, but not all of it.
size_t HeldBack(std::string_view text, std::string_view mark);

std::unique_ptr<OutputParser> NewChannelParser(std::shared_ptr<const OutputSyntax> syntax);

}  // namespace internal
}  // namespace kvist::serve
