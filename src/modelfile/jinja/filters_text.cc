#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/status.h"
#include "modelfile/jinja/builtins.h"
#include "modelfile/jinja/format.h"
#include "modelfile/jinja/ops.h"
#include "modelfile/jinja/repr.h"
#include "modelfile/jinja/strings.h"
#include "modelfile/jinja/unicode.h"

namespace kvist::jinja {
namespace {

using Result = absl::StatusOr<Value>;

/// Applies a pure function to the text of `self`.
Result MapText(Runtime& runtime, const Value& self, std::string (*fn)(std::string_view)) {
  KVIST_ASSIGN_OR_RETURN(const Value text, ToText(runtime, self));
  KVIST_RETURN_IF_ERROR(runtime.Spend(text.str().size() / kCaseBytesPerStep));
  return runtime.NewText(fn(text.str()), text.text().safe);
}

/// Words begin after white space and - ( { [ <; their first letter becomes upper case, the others lower.
std::string TitleWords(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const auto breaks = [text](size_t at) {
      const CodePoint c = DecodeAt(text, at);
      return IsSpace(c.value) || absl::StrContains("-({[<", text[at]);
    };
    const size_t begin = pos;
    while (pos < text.size() && breaks(pos)) pos += DecodeAt(text, pos).bytes;
    out += text.substr(begin, pos - begin);
    if (pos == text.size()) break;
    const size_t word = pos;
    while (pos < text.size() && !breaks(pos)) pos += DecodeAt(text, pos).bytes;
    const size_t first = DecodeAt(text, word).bytes;
    out += ToUpper(text.substr(word, first));
    out += ToLower(text.substr(word + first, pos - word - first));
  }
  return out;
}

Result Upper(Runtime& runtime, const Value& self, const Args&) {
  return MapText(runtime, self, ToUpper);
}
Result Lower(Runtime& runtime, const Value& self, const Args&) {
  return MapText(runtime, self, ToLower);
}
Result CapitalizeFilter(Runtime& runtime, const Value& self, const Args&) {
  return MapText(runtime, self, Capitalize);
}
Result Title(Runtime& runtime, const Value& self, const Args&) {
  return MapText(runtime, self, TitleWords);
}

Result Trim(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const Value text, ToText(runtime, self));
  if (!args.HasValue(0)) {
    return runtime.NewText(std::string(Strip(text.str(), nullptr, true, true)), text.text().safe);
  }
  KVIST_ASSIGN_OR_RETURN(const std::string_view chars, args.Text(0, ""));
  return runtime.NewText(std::string(Strip(text.str(), &chars, true, true)), text.text().safe);
}

Result ReplaceFilter(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const Value text, ToText(runtime, self));
  KVIST_ASSIGN_OR_RETURN(const Value old, ToText(runtime, args[0]));
  KVIST_ASSIGN_OR_RETURN(const Value replacement, ToText(runtime, args[1]));
  Int count = -1;
  if (args.HasValue(2)) {
    KVIST_ASSIGN_OR_RETURN(count, args.Integer(2, -1));
  }
  KVIST_ASSIGN_OR_RETURN(std::string out, Replace(runtime, text.str(), old.str(), replacement.str(), count));
  return Value::String(std::move(out));
}

Result Center(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const Value text, ToText(runtime, self));
  KVIST_ASSIGN_OR_RETURN(const Int width, args.Integer(0, 80));
  KVIST_ASSIGN_OR_RETURN(std::string out, Pad(runtime, text.str(), width, " ", Alignment::kCenter));
  return Value::String(std::move(out), text.text().safe);
}

Result Indent(Runtime& runtime, const Value& self, const Args& args) {
  if (self.IsUndefined()) return UndefinedError(self);
  if (!self.IsText()) return Fail("'indent' needs a str, got ", TypeName(self));
  std::string indention;
  if (args.Has(0) && args[0].IsText()) {
    indention = args[0].str();
  } else {
    KVIST_ASSIGN_OR_RETURN(const Int width, args.Integer(0, 4));
    KVIST_ASSIGN_OR_RETURN(indention, Pad(runtime, "", width, " ", Alignment::kLeft));
  }
  const bool first = args.Truthy(1, false), blank = args.Truthy(2, false);
  const std::string text = Cat(self.str(), "\n");
  std::string out;
  bool is_first_line = true;
  KVIST_ASSIGN_OR_RETURN(const std::vector<std::string_view> lines, SplitLines(runtime, text, false));
  for (const std::string_view line : lines) {
    if (!is_first_line) out.push_back('\n');
    const bool indents = is_first_line ? first : (blank || !line.empty());
    const size_t added = (indents ? indention.size() : 0) + line.size() + 1;
    KVIST_RETURN_IF_ERROR(runtime.SpendBytes(added, out.size() + added));
    if (indents) out += indention;
    out += line;
    is_first_line = false;
  }
  return Value::String(std::move(out), self.text().safe);
}

Result Truncate(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const Int length, args.Integer(0, 255));
  KVIST_ASSIGN_OR_RETURN(const std::string_view end, args.Text(2, "..."));
  Int leeway = 5;
  if (args.HasValue(3)) {
    KVIST_ASSIGN_OR_RETURN(leeway, args.Integer(3, 5));
  }
  const Int end_length = static_cast<Int>(CountCodePoints(end));
  if (length < end_length) return Fail("'truncate' needs a length of at least ", static_cast<int64_t>(end_length));
  if (leeway < 0) return Fail("'truncate' needs a leeway of at least 0");
  KVIST_ASSIGN_OR_RETURN(const Int total, Length(self));
  if (total <= length + leeway) return self;
  if (!self.IsText()) return Fail("'truncate' needs a str, got ", TypeName(self));
  std::string_view kept = self.str().substr(0, OffsetOf(self.str(), static_cast<size_t>(length - end_length)));
  if (!args.Truthy(1, false)) kept = kept.substr(0, kept.rfind(' '));
  return runtime.NewText(Cat(kept, end), self.text().safe);
}

Result WordCount(Runtime& runtime, const Value& self, const Args&) {
  KVIST_ASSIGN_OR_RETURN(const Value value, ToText(runtime, self));
  const std::string_view text = value.str();
  KVIST_RETURN_IF_ERROR(runtime.Spend(text.size() / Runtime::kBytesPerStep));
  Int words = 0;
  bool inside = false;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeAt(text, pos);
    const bool is_word = IsWord(c.value);
    words += is_word && !inside;
    inside = is_word;
    pos += c.bytes;
  }
  return Value::Integer(words);
}

Result Format(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const Value text, ToText(runtime, self));
  CallArgs& all = args.all();
  if (!all.positional.empty() && !all.named.empty()) return Fail("'format' takes either positional or named arguments");
  if (all.named.empty()) {
    KVIST_ASSIGN_OR_RETURN(const Value values, runtime.NewTuple(all.positional));
    return FormatPercent(runtime, text, values);
  }
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [name, value] : all.named) entries.emplace_back(Value::String(name), value);
  KVIST_ASSIGN_OR_RETURN(const Value values, runtime.NewDict(std::move(entries)));
  return FormatPercent(runtime, text, values);
}

Result String(Runtime& runtime, const Value& self, const Args&) {
  return ToText(runtime, self);
}

Result Safe(Runtime& runtime, const Value& self, const Args&) {
  KVIST_ASSIGN_OR_RETURN(const Value text, ToText(runtime, self));
  return runtime.NewText(std::string(text.str()), true);
}

Result ForceEscape(Runtime& runtime, const Value& self, const Args&) {
  KVIST_ASSIGN_OR_RETURN(const Value text, ToText(runtime, self));
  return runtime.NewText(EscapeHtml(text.str()), true);
}

Result Escape(Runtime& runtime, const Value& self, const Args& args) {
  if (self.IsText() && self.text().safe) return self;
  return ForceEscape(runtime, self, args);
}

/// Percent-encoding of UTF-8; letters, digits and _.-~ stay.
std::string Quote(std::string_view text, bool for_query) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || absl::StrContains("_.-~", c) || (c == '/' && !for_query)) {
      out.push_back(c);
    } else if (c == ' ' && for_query) {
      out.push_back('+');
    } else {
      out.push_back('%');
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    }
  }
  return out;
}

Result UrlEncode(Runtime& runtime, const Value& self, const Args&) {
  if (self.IsText() || !IsIterable(self)) {
    KVIST_ASSIGN_OR_RETURN(const Value text, ToText(runtime, self));
    return runtime.NewText(Quote(text.str(), false));
  }
  std::vector<std::pair<Value, Value>> pairs;
  if (self.Is(Kind::kDict)) {
    pairs = self.dict().entries;
  } else {
    KVIST_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(runtime, self));
    for (const Value& item : items) {
      KVIST_ASSIGN_OR_RETURN(const std::vector<Value> pair, Items(runtime, item));
      if (pair.size() != 2) return Fail("'urlencode' needs pairs of key and value");
      pairs.emplace_back(pair[0], pair[1]);
    }
  }
  std::string out;
  for (const auto& [key, value] : pairs) {
    KVIST_ASSIGN_OR_RETURN(const Value key_text, ToText(runtime, key));
    KVIST_ASSIGN_OR_RETURN(const Value value_text, ToText(runtime, value));
    const std::string_view joint = out.empty() ? "" : "&";
    const std::string part = Cat(joint, Quote(key_text.str(), true), "=", Quote(value_text.str(), true));
    KVIST_RETURN_IF_ERROR(runtime.SpendBytes(part.size(), out.size() + part.size()));
    out += part;
  }
  return Value::String(std::move(out));
}

constexpr Builtin kTextFilters[] = {
    {"capitalize", "", CapitalizeFilter},
    {"center", "width?", Center},
    {"e", "", Escape},
    {"escape", "", Escape},
    {"forceescape", "", ForceEscape},
    {"format", "*", Format},
    {"indent", "width? first? blank?", Indent},
    {"lower", "", Lower},
    {"replace", "old new count?", ReplaceFilter},
    {"safe", "", Safe},
    {"string", "", String},
    {"title", "", Title},
    {"trim", "chars?", Trim},
    {"truncate", "length? killwords? end? leeway?", Truncate},
    {"upper", "", Upper},
    {"urlencode", "", UrlEncode},
    {"wordcount", "", WordCount},
};

}  // namespace

std::span<const Builtin> TextFilters() {
  return kTextFilters;
}

}  // namespace kvist::jinja
