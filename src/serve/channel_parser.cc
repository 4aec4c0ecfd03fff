#include <algorithm>
#include <array>
#include <utility>

#include "serve/output_parser.h"

/// @file
/// Output in messages with headers: `<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final
/// <|message|>...`; a recipient in the header makes a message a call. Format: OpenAI's harmony
/// (https://github.com/openai/harmony).

namespace kvist::serve::internal {
namespace {

constexpr size_t kHeaderBytesMax = 1024;
constexpr std::array kBodyEnds = {marks::kEnd, marks::kStart, marks::kCall, marks::kChannel};

/// The word after `key`, up to white space or another mark.
std::string_view WordAfter(std::string_view header, std::string_view key) {
  const size_t at = header.find(key);
  if (at == std::string_view::npos) return {};
  header.remove_prefix(at + key.size());
  return header.substr(0, std::min(header.find_first_of(" \n\t<"), header.size()));
}

class ChannelParser final : public OutputParser {
 public:
  explicit ChannelParser(std::shared_ptr<const OutputSyntax> syntax) : syntax_(std::move(syntax)) {}

  void Push(std::string_view text, std::vector<OutputPart>& parts) override {
    text_ += text;
    while (Step(/*last=*/false)) {
    }
    list_.TakeTo(parts);
  }

  void Finish(std::vector<OutputPart>& parts) override {
    while (Step(/*last=*/true)) {
    }
    if (list_.in_call()) list_.EndCall();
    list_.TakeTo(parts);
  }

  uint32_t calls() const override { return list_.calls(); }

 private:
  enum class Body : uint8_t { kHeader, kContent, kReasoning, kCall };

  bool Step(bool last) { return body_ == Body::kHeader ? Header(last) : Message(last); }

  bool Header(bool last) {
    if (text_.empty()) return false;
    const size_t end = text_.find(marks::kMessage);
    if (end == std::string::npos) {
      if (!last && text_.size() <= kHeaderBytesMax && MayBeHeader()) return false;
      body_ = Body::kContent;  // Nothing that a header could be; a mark that it begins with is text, too.
      search_from_ = 1;
      return true;
    }
    const std::string header = text_.substr(0, end);
    text_.erase(0, end + marks::kMessage.size());
    std::string_view recipient = WordAfter(header, "to=");
    constexpr std::string_view kFunctions = "functions.";
    if (recipient.starts_with(kFunctions)) recipient.remove_prefix(kFunctions.size());
    if (!recipient.empty() && syntax_->finds_calls()) {
      list_.BeginCall(recipient);
      body_ = Body::kCall;
    } else {
      const bool thinks = syntax_->reasoning && WordAfter(header, marks::kChannel) != "final";
      body_ = thinks ? Body::kReasoning : Body::kContent;
    }
    return true;
  }

  bool MayBeHeader() const {
    return std::ranges::any_of(std::array<std::string_view, 3>{marks::kStart, marks::kChannel, " to="},
                               [this](std::string_view begin) {
                                 const std::string_view text = text_;
                                 return text.starts_with(begin) || begin.starts_with(text);
                               });
  }

  bool Message(bool last) {
    if (text_.empty()) return false;
    size_t end = std::string::npos, mark_bytes = 0, held = 0;
    for (const std::string_view mark : kBodyEnds) {
      held = std::max(held, HeldBack(text_, mark));
      const size_t at = text_.find(mark, search_from_);
      if (at >= end) continue;
      end = at;
      // A header begins with its mark.
      mark_bytes = mark == marks::kEnd || mark == marks::kCall ? mark.size() : 0;
    }
    const bool found = end != std::string::npos;
    const std::string_view ready = std::string_view(text_).substr(0, found ? end : text_.size() - (last ? 0 : held));
    switch (body_) {
      case Body::kReasoning:
        list_.Reasoning(ready);
        break;
      case Body::kCall:
        list_.Arguments(ready);
        break;
      default:
        list_.Content(ready);
    }
    if (!ready.empty()) search_from_ = 0;
    text_.erase(0, ready.size() + mark_bytes);
    if (!found) return false;
    if (list_.in_call()) list_.EndCall();
    body_ = Body::kHeader;
    return true;
  }

  const std::shared_ptr<const OutputSyntax> syntax_;
  Body body_ = Body::kHeader;
  std::string text_;        ///< Not yet told.
  size_t search_from_ = 0;  ///< No mark that ends a message begins before it.
  PartList list_;
};

}  // namespace

std::unique_ptr<OutputParser> NewChannelParser(std::shared_ptr<const OutputSyntax> syntax) {
  return std::make_unique<ChannelParser>(std::move(syntax));
}

}  // namespace kvist::serve::internal
