#include "serve/output_parser.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "serve/answer_format.h"
#include "serve/call_reader.h"

namespace kvist::serve {

namespace {
constexpr std::string_view kSpace = " \n\t\r";
}  // namespace

namespace internal {

void PartList::Text(OutputPart::Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (parts_.empty() || parts_.back().kind != kind) {
    OutputPart part{.kind = kind};
    if (kind == OutputPart::Kind::kCallArguments) part.call = calls_ - 1;
    parts_.push_back(std::move(part));
  }
  parts_.back().text += text;
}

void PartList::BeginCall(std::string_view name) {
  OutputPart part{.kind = OutputPart::Kind::kCallBegin};
  part.call = calls_++;
  part.call_id = NewId("call_");
  part.call_name = name;
  parts_.push_back(std::move(part));
  in_call_ = true;
  noted_.clear();
}

void PartList::EndCall() {
  OutputPart part{.kind = OutputPart::Kind::kCallEnd};
  part.call = calls_ - 1;
  parts_.push_back(std::move(part));
  in_call_ = false;
  noted_.clear();
}

void PartList::GiveBack() {
  const std::string text = std::exchange(noted_, {});
  if (text.find_first_not_of(kSpace) != std::string::npos) Content(text);
}

void PartList::TakeTo(std::vector<OutputPart>& parts) {
  std::ranges::move(parts_, std::back_inserter(parts));
  parts_.clear();
}

size_t HeldBack(std::string_view text, std::string_view mark) {
  for (size_t n = std::min(text.size(), mark.size() - 1); n > 0; --n) {
    if (text.ends_with(mark.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace internal

namespace {

using internal::CallReader;
using internal::HeldBack;
using internal::PartList;

/// Marks around reasoning at the start, and around calls after it.
class MarkedParser final : public OutputParser {
 public:
  explicit MarkedParser(std::shared_ptr<const OutputSyntax> syntax) : syntax_(std::move(syntax)) {
    if (!syntax_->reasoning) at_ = At::kContentStart;
    if (syntax_->starts_in_reasoning) at_ = At::kReasoning;
  }

  void Push(std::string_view text, std::vector<OutputPart>& parts) override {
    text_ += text;
    while (Step(/*last=*/false)) {
    }
    list_.TakeTo(parts);
  }

  void Finish(std::vector<OutputPart>& parts) override {
    while (Step(/*last=*/true)) {
    }
    list_.TakeTo(parts);
  }

  uint32_t calls() const override { return list_.calls(); }

 private:
  enum class At : uint8_t { kStart, kReasoning, kContentStart, kContent, kCall };

  /// Reads on. @return false when there is nothing to do before there is more text
  bool Step(bool last) {
    switch (at_) {
      case At::kStart:
        return Start(last);
      case At::kReasoning:
        return Reasoning(last);
      case At::kContentStart:
        return ContentStart(last);
      case At::kContent:
        return Content(last);
      case At::kCall:
        return Call(last);
    }
    return false;
  }

  /// White space that `text_` begins with.
  size_t LeadingSpace() const { return std::min(text_.find_first_not_of(kSpace), text_.size()); }

  bool Start(bool last) {
    const std::string& open = syntax_->tools.think_open;
    const size_t space = LeadingSpace();
    const std::string_view rest = std::string_view(text_).substr(space);
    if (rest.starts_with(open)) {
      text_.erase(0, space + open.size());
      at_ = At::kReasoning;
      return true;
    }
    if (open.starts_with(rest) && !last) return false;
    at_ = At::kContentStart;
    return true;
  }

  bool Reasoning(bool last) {
    if (!reasoning_begun_) {
      text_.erase(0, LeadingSpace());
      if (text_.empty()) return false;
      reasoning_begun_ = true;
    }
    const std::string& close = syntax_->tools.think_close;
    const size_t end = text_.find(close);
    std::string_view ready = std::string_view(text_).substr(0, std::min(end, text_.size()));
    if (end == std::string::npos && !last) ready.remove_suffix(HeldBack(ready, close));
    // White space before the mark is not part of it.
    const size_t shown = ready.find_last_not_of(kSpace) + 1;  // npos + 1 is 0.
    list_.Reasoning(ready.substr(0, shown));
    if (end == std::string::npos) {
      text_.erase(0, last ? text_.size() : shown);
      return false;
    }
    text_.erase(0, end + close.size());
    after_reasoning_ = true;
    at_ = At::kContentStart;
    return true;
  }

  /// The answer proper begins; the white space that parts it from the reasoning is nobody's.
  bool ContentStart(bool last) {
    if (after_reasoning_) {
      text_.erase(0, LeadingSpace());
      if (text_.empty()) return false;
    }
    if (syntax_->finds_calls() && syntax_->tools.style == CallStyle::kBareJson) {
      const size_t space = LeadingSpace();
      const std::string_view rest = std::string_view(text_).substr(space);
      if (marks::kPythonTag.starts_with(rest) && !last) return false;  // Also when there is nothing yet.
      const bool tagged = rest.starts_with(marks::kPythonTag);
      if (tagged || rest.starts_with('{')) {
        BeginCalls(space + (tagged ? marks::kPythonTag.size() : 0));
        return true;
      }
    }
    at_ = At::kContent;
    return true;
  }

  void BeginCalls(size_t mark_end) {
    list_.Note(std::string_view(text_).substr(0, mark_end));
    text_.erase(0, mark_end);
    reader_ = internal::NewCallReader(*syntax_);
    at_ = At::kCall;
  }

  bool Content(bool last) {
    if (text_.empty()) return false;
    if (!syntax_->finds_calls() || syntax_->tools.open.empty()) {
      list_.Content(std::exchange(text_, {}));
      return false;
    }
    const std::string& open = syntax_->tools.open;
    const size_t mark = text_.find(open);
    std::string_view ready = std::string_view(text_).substr(0, std::min(mark, text_.size()));
    if (mark == std::string::npos && last) {
      // Space after calls, with nothing that follows, is nobody's.
      if (list_.calls() == 0 || ready.find_first_not_of(kSpace) != std::string_view::npos) list_.Content(ready);
      text_.clear();
      return false;
    }
    if (mark == std::string::npos) ready.remove_suffix(HeldBack(ready, open));
    // White space before a call belongs to its layout.
    const size_t shown = ready.find_last_not_of(kSpace) + 1;
    list_.Content(ready.substr(0, shown));
    text_.erase(0, shown);
    if (mark == std::string::npos) return false;
    BeginCalls(mark - shown + open.size());
    return true;
  }

  bool Call(bool last) {
    const CallReader::Result result = reader_->Read(text_, list_);
    if (result == CallReader::Result::kMore && !last) return false;
    if (result == CallReader::Result::kDone) {
      list_.Forget();
    } else if (list_.in_call()) {
      list_.EndCall();  // Cut off: what came is what there is.
      text_.clear();
    } else {
      list_.GiveBack();
    }
    at_ = At::kContent;
    return true;
  }

  const std::shared_ptr<const OutputSyntax> syntax_;
  At at_ = At::kStart;
  std::string text_;  ///< Not yet told.
  PartList list_;
  std::unique_ptr<CallReader> reader_;
  bool reasoning_begun_ = false, after_reasoning_ = false;
};

}  // namespace

std::unique_ptr<OutputParser> NewOutputParser(std::shared_ptr<const OutputSyntax> syntax) {
  if (syntax->tools.style == CallStyle::kChannels) return internal::NewChannelParser(std::move(syntax));
  return std::make_unique<MarkedParser>(std::move(syntax));
}

}  // namespace kvist::serve
