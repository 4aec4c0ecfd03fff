#include "serve/call_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <boost/json.hpp>

#include "base/status.h"
#include "serve/json_call.h"

namespace kvist::serve::internal {

namespace json = boost::json;

namespace {

using Result = CallReader::Result;
constexpr size_t kNameBytesMax = 256;

bool IsSpace(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/// Takes `bytes` off the front.
void Take(std::string& text, size_t bytes, PartList& parts) {
  parts.Note(std::string_view(text).substr(0, bytes));
  text.erase(0, bytes);
}

void TakeSpace(std::string& text, PartList& parts) {
  size_t bytes = 0;
  while (bytes < text.size() && IsSpace(text[bytes])) ++bytes;
  Take(text, bytes, parts);
}

/// Takes `mark` off the front. kMore: the text may still become it.
Result TakeMark(std::string& text, std::string_view mark, PartList& parts) {
  if (std::string_view(text).starts_with(mark)) {
    Take(text, mark.size(), parts);
    return Result::kDone;
  }
  return mark.starts_with(text) ? Result::kMore : Result::kFault;
}

/// Reads one call in JSON.
Result ReadJsonCall(JsonCall& call, std::string& text, PartList& parts) {
  size_t used = 0;
  JsonCall::Step step = JsonCall::Step::kMore;
  while (used < text.size() && step == JsonCall::Step::kMore) {
    const char byte = text[used++];
    parts.Note(std::string_view(&byte, 1));  // Before it is read: what is read may begin or end the call.
    step = call.Read(byte, parts);
  }
  text.erase(0, used);
  if (step == JsonCall::Step::kFault && parts.in_call()) parts.EndCall();
  if (step == JsonCall::Step::kMore) return Result::kMore;
  return step == JsonCall::Step::kDone ? Result::kDone : Result::kFault;
}

class TaggedJsonReader final : public CallReader {
 public:
  explicit TaggedJsonReader(const OutputSyntax& syntax) : close_(syntax.tools.close), call_(syntax, false) {}

  Result Read(std::string& text, PartList& parts) override {
    if (!call_done_) {
      const Result result = ReadJsonCall(call_, text, parts);
      if (result != Result::kDone) return result;
      call_done_ = true;
    }
    TakeSpace(text, parts);
    return TakeMark(text, close_, parts);
  }

 private:
  const std::string_view close_;
  JsonCall call_;
  bool call_done_ = false;
};

/// A list of calls, or a single one; without brackets, calls may also be joined by ';'.
class JsonListReader final : public CallReader {
 public:
  JsonListReader(const OutputSyntax& syntax, bool only_known_names)
      : syntax_(syntax), only_known_names_(only_known_names) {}

  Result Read(std::string& text, PartList& parts) override {
    while (true) {
      if (call_) {
        const Result result = ReadJsonCall(*call_, text, parts);
        if (result != Result::kDone) return result;
        call_.reset();
      }
      TakeSpace(text, parts);
      if (text.empty()) return Result::kMore;
      const char next = text[0];
      if (next == '{' && !after_call_) {
        call_.emplace(syntax_, only_known_names_);
        after_call_ = true;
        continue;
      }
      if (next == '[' && !in_list_ && !after_call_) {
        in_list_ = true;
      } else if (next == (in_list_ ? ',' : ';') && after_call_) {
        after_call_ = false;
      } else if (next == ']' && in_list_) {
        Take(text, 1, parts);
        return after_call_ ? Result::kDone : Result::kFault;
      } else {
        return after_call_ && !in_list_ ? Result::kDone : Result::kFault;
      }
      Take(text, 1, parts);
    }
  }

 private:
  const OutputSyntax& syntax_;
  const bool only_known_names_;
  std::optional<JsonCall> call_;
  bool in_list_ = false, after_call_ = false;
};

/// A value in XML as JSON: by the type that the tool's schema names, else by its looks.
std::string XmlValue(std::string_view value, std::string_view type) {
  // One line break belongs to each tag.
  if (value.starts_with('\n')) value.remove_prefix(1);
  if (value.ends_with('\n')) value.remove_suffix(1);
  if (type != "string") {
    boost::system::error_code error;
    const json::value parsed = json::parse(value, error);
    if (!error) return json::serialize(parsed);
    if (value == "True" || value == "False") return value == "True" ? "true" : "false";
    if (value == "None") return "null";
  }
  return json::serialize(json::string(value));
}

class TaggedXmlReader final : public CallReader {
 public:
  explicit TaggedXmlReader(const OutputSyntax& syntax) : syntax_(syntax) {}

  Result Read(std::string& text, PartList& parts) override {
    while (true) {
      TakeSpace(text, parts);
      Result result = Result::kFault;
      switch (at_) {
        case At::kFunction:
          result = ReadFunction(text, parts);
          break;
        case At::kParameters:
          result = ReadParameter(text, parts);
          break;
        case At::kClose:
          return TakeMark(text, syntax_.tools.close, parts);
      }
      if (result == Result::kFault && parts.in_call()) End(parts);
      if (result != Result::kDone) return result;
    }
  }

 private:
  enum class At : uint8_t { kFunction, kParameters, kClose };

  /// "<TAG=NAME>" at the front of `text`. @return its length; 0 = not yet, npos = it is none
  static size_t FindTag(std::string_view text, std::string_view tag, std::string_view& name) {
    if (!text.starts_with(tag)) return tag.starts_with(text) ? 0 : std::string_view::npos;
    const size_t end = text.find('>');
    const size_t bytes = std::min(end, text.size()) - tag.size();
    if (bytes > kNameBytesMax || (end != std::string_view::npos && bytes == 0)) return std::string_view::npos;
    if (end == std::string_view::npos) return 0;
    name = text.substr(tag.size(), bytes);
    return end + 1;
  }

  Result ReadFunction(std::string& text, PartList& parts) {
    std::string_view name;
    const size_t bytes = FindTag(text, "<function=", name);
    if (bytes == 0) return Result::kMore;
    if (bytes == std::string_view::npos) return Result::kFault;
    name_ = name;
    Take(text, bytes, parts);
    at_ = At::kParameters;
    return Result::kDone;
  }

  Result ReadParameter(std::string& text, PartList& parts) {
    constexpr std::string_view kFunctionEnd = "</function>", kValueEnd = "</parameter>";
    if (const Result end = TakeMark(text, kFunctionEnd, parts); end != Result::kFault) {
      if (end == Result::kDone) End(parts);
      return end;
    }
    std::string_view key;
    const size_t begin = FindTag(text, "<parameter=", key);
    if (begin == 0) return Result::kMore;
    if (begin == std::string_view::npos) return Result::kFault;
    const size_t end = text.find(kValueEnd, begin);
    if (end == std::string::npos) return Result::kMore;
    const std::string value = XmlValue(std::string_view(text).substr(begin, end - begin), TypeOf(key));
    const std::string member = Cat(json::serialize(json::string(key)), ": ", value);
    if (!parts.in_call()) parts.BeginCall(name_);
    parts.Arguments(Cat(has_members_ ? ", " : "{", member));
    has_members_ = true;
    Take(text, end + kValueEnd.size(), parts);
    return Result::kDone;
  }

  std::string_view TypeOf(std::string_view key) const {
    const auto tool = syntax_.types.find(name_);
    if (tool == syntax_.types.end()) return "";
    const auto parameter = tool->second.find(key);
    return parameter == tool->second.end() ? std::string_view() : std::string_view(parameter->second);
  }

  void End(PartList& parts) {
    if (!parts.in_call()) parts.BeginCall(name_);
    parts.Arguments(has_members_ ? "}" : "{}");
    parts.EndCall();
    at_ = At::kClose;
  }

  const OutputSyntax& syntax_;
  At at_ = At::kFunction;
  std::string name_;
  bool has_members_ = false;
};

/// <call begin>function<separator>NAME\n```json\n{...}\n```<call end>, repeated; then the closing mark.
class SeparatedReader final : public CallReader {
 public:
  explicit SeparatedReader(const OutputSyntax& syntax) : close_(syntax.tools.close) {}

  Result Read(std::string& text, PartList& parts) override {
    while (true) {
      Result result = Result::kFault;
      switch (at_) {
        case At::kBegin:
          TakeSpace(text, parts);
          if (has_calls_) {
            result = TakeMark(text, close_, parts);
            if (result != Result::kFault) return result;
          }
          result = TakeMark(text, marks::kCallBegin, parts);
          if (result == Result::kDone) at_ = At::kHead;
          break;
        case At::kHead:
          result = ReadHead(text, parts);
          break;
        case At::kArguments:
          result = ReadArguments(text, parts);
          break;
        case At::kEnd:
          TakeSpace(text, parts);
          result = TakeMark(text, end_, parts);
          if (result == Result::kDone) at_ = At::kBegin;
          break;
      }
      if (result != Result::kDone) return result;
    }
  }

 private:
  enum class At : uint8_t { kBegin, kHead, kArguments, kEnd };

  Result ReadHead(std::string& text, PartList& parts) {
    constexpr std::string_view kFence = "```json\n";
    const size_t separator = text.find(marks::kSeparator);
    const size_t name = separator + marks::kSeparator.size();
    const size_t line = separator == std::string::npos ? separator : text.find('\n', name);
    if (line == std::string::npos) return text.size() > 2 * kNameBytesMax ? Result::kFault : Result::kMore;
    const std::string_view rest = std::string_view(text).substr(line + 1);
    if (line == name || line - name > kNameBytesMax || !rest.starts_with(kFence)) {
      return kFence.starts_with(rest) && line > name ? Result::kMore : Result::kFault;
    }
    name_ = text.substr(name, line - name);
    Take(text, line + 1 + kFence.size(), parts);
    span_ = {};
    at_ = At::kArguments;
    return Result::kDone;
  }

  Result ReadArguments(std::string& text, PartList& parts) {
    if (!span_.begun()) {
      TakeSpace(text, parts);
      if (text.empty()) return Result::kMore;
      if (text[0] != '{') return Result::kFault;
      parts.BeginCall(name_);
    }
    size_t used = 0;
    JsonSpan::Step step = JsonSpan::Step::kInside;
    while (used < text.size() && step == JsonSpan::Step::kInside) step = span_.Read(text[used++]);
    if (step == JsonSpan::Step::kFault) --used;
    parts.Arguments(std::string_view(text).substr(0, used));
    text.erase(0, used);
    if (step == JsonSpan::Step::kInside) return Result::kMore;
    parts.EndCall();
    has_calls_ = true;
    at_ = At::kEnd;
    return step == JsonSpan::Step::kLast ? Result::kDone : Result::kFault;
  }

  const std::string_view close_;
  const std::string end_ = Cat("```", marks::kCallEnd);
  At at_ = At::kBegin;
  std::string name_;
  JsonSpan span_;
  bool has_calls_ = false;
};

}  // namespace

std::unique_ptr<CallReader> NewCallReader(const OutputSyntax& syntax) {
  switch (syntax.tools.style) {
    case CallStyle::kTaggedJson:
      return std::make_unique<TaggedJsonReader>(syntax);
    case CallStyle::kTaggedXml:
      return std::make_unique<TaggedXmlReader>(syntax);
    case CallStyle::kSeparated:
      return std::make_unique<SeparatedReader>(syntax);
    case CallStyle::kBareJson:
      return std::make_unique<JsonListReader>(syntax, /*only_known_names=*/true);
    default:
      return std::make_unique<JsonListReader>(syntax, /*only_known_names=*/false);
  }
}

}  // namespace kvist::serve::internal
