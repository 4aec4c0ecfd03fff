#include <algorithm>

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

constexpr size_t kNone = std::string_view::npos;

/// Applies a pure function to the receiver.
Result MapText(Runtime& runtime, const Value& self, std::string (*fn)(std::string_view)) {
  KVIST_RETURN_IF_ERROR(runtime.Spend(self.str().size() / kCaseBytesPerStep));
  return runtime.NewText(fn(self.str()), self.text().safe);
}
Result Upper(Runtime& runtime, const Value& self, const Args&) {
  return MapText(runtime, self, ToUpper);
}
Result Lower(Runtime& runtime, const Value& self, const Args&) {
  return MapText(runtime, self, ToLower);
}
Result CapitalizeMethod(Runtime& runtime, const Value& self, const Args&) {
  return MapText(runtime, self, Capitalize);
}
Result Title(Runtime& runtime, const Value& self, const Args&) {
  return MapText(runtime, self, ToTitle);
}
Result SwapCaseMethod(Runtime& runtime, const Value& self, const Args&) {
  return MapText(runtime, self, SwapCase);
}

Result StripEnds(Runtime& runtime, const Value& self, const Args& args, bool left, bool right) {
  std::string_view chars;
  if (args.HasValue(0)) {
    KVIST_ASSIGN_OR_RETURN(chars, args.Text(0, ""));
  }
  const std::string_view stripped = Strip(self.str(), args.HasValue(0) ? &chars : nullptr, left, right);
  return runtime.NewText(std::string(stripped), self.text().safe);
}
Result StripBoth(Runtime& runtime, const Value& self, const Args& args) {
  return StripEnds(runtime, self, args, true, true);
}
Result StripLeft(Runtime& runtime, const Value& self, const Args& args) {
  return StripEnds(runtime, self, args, true, false);
}
Result StripRight(Runtime& runtime, const Value& self, const Args& args) {
  return StripEnds(runtime, self, args, false, true);
}

Result SplitText(Runtime& runtime, const Value& self, const Args& args, bool from_right) {
  std::string_view separator;
  if (args.HasValue(0)) {
    KVIST_ASSIGN_OR_RETURN(separator, args.Text(0, ""));
    if (separator.empty()) return Fail("'split' needs a separator that is not empty");
  }
  KVIST_ASSIGN_OR_RETURN(const Int splits_max, args.Integer(1, -1));
  KVIST_ASSIGN_OR_RETURN(const std::vector<std::string_view> parts,
                         Split(runtime, self.str(), args.HasValue(0) ? &separator : nullptr, splits_max, from_right));
  return ListOfText(runtime, parts, self.text().safe);
}
Result SplitLeft(Runtime& runtime, const Value& self, const Args& args) {
  return SplitText(runtime, self, args, false);
}
Result SplitRight(Runtime& runtime, const Value& self, const Args& args) {
  return SplitText(runtime, self, args, true);
}

Result SplitLinesMethod(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const std::vector<std::string_view> lines,
                         SplitLines(runtime, self.str(), args.Truthy(0, false)));
  return ListOfText(runtime, lines, self.text().safe);
}

Result PartitionText(Runtime& runtime, const Value& self, const Args& args, bool from_right) {
  KVIST_ASSIGN_OR_RETURN(const std::string_view separator, args.Text(0, ""));
  if (separator.empty()) return Fail("'partition' needs a separator that is not empty");
  const std::string_view text = self.str();
  const size_t found = from_right ? text.rfind(separator) : text.find(separator);
  std::string_view parts[3] = {text, "", ""};
  if (found != kNone) {
    parts[0] = text.substr(0, found);
    parts[1] = separator;
    parts[2] = text.substr(found + separator.size());
  } else if (from_right) {
    std::swap(parts[0], parts[2]);
  }
  std::vector<Value> items;
  for (const std::string_view part : parts) {
    KVIST_ASSIGN_OR_RETURN(Value value, runtime.NewText(std::string(part), self.text().safe));
    items.push_back(std::move(value));
  }
  return runtime.NewTuple(std::move(items));
}
Result Partition(Runtime& runtime, const Value& self, const Args& args) {
  return PartitionText(runtime, self, args, false);
}
Result PartitionRight(Runtime& runtime, const Value& self, const Args& args) {
  return PartitionText(runtime, self, args, true);
}

/// The part of the receiver that optional arguments `first` and `first + 1` (start, end) leave, and where it starts.
struct Window {
  std::string_view text;
  Int start = 0;        ///< In code points.
  bool beyond = false;  ///< The start lies behind the end of the receiver: nothing is found, not even "".
};
absl::StatusOr<Window> WindowOf(Runtime& runtime, const Value& self, const Args& args, size_t first) {
  if (!args.HasValue(first) && !args.HasValue(first + 1)) return Window{self.str()};
  KVIST_RETURN_IF_ERROR(runtime.Spend(self.str().size() / Runtime::kBytesPerStep));
  const Int length = self.text().CodePoints();
  const auto bound = [&](size_t i, Int absent) -> absl::StatusOr<Int> {
    if (!args.HasValue(i)) return absent;
    KVIST_ASSIGN_OR_RETURN(const Int index, args.Integer(i, absent));
    return index < 0 ? std::max<Int>(0, index + length) : index;
  };
  KVIST_ASSIGN_OR_RETURN(const Int start, bound(first, 0));
  KVIST_ASSIGN_OR_RETURN(const Int given_end, bound(first + 1, length));
  const Int end = std::min(given_end, length);
  if (start > end) return Window{"", start, true};
  const std::string_view rest = self.str().substr(OffsetOf(self.str(), static_cast<size_t>(start)));
  return Window{rest.substr(0, OffsetOf(rest, static_cast<size_t>(end - start))), start, false};
}

/// startswith and endswith: a str, or a tuple of which one must fit.
Result HasEnd(Runtime& runtime, const Value& self, const Args& args, bool (*fits)(std::string_view, std::string_view)) {
  KVIST_ASSIGN_OR_RETURN(const Window window, WindowOf(runtime, self, args, 1));
  const auto one = [&](const Value& affix) { return !window.beyond && fits(window.text, affix.str()); };
  if (args[0].IsText()) return Value::Bool(one(args[0]));
  if (!args[0].IsTuple()) return Fail("expected a str or a tuple of them, got ", TypeName(args[0]));
  for (const Value& affix : args[0].sequence().items) {
    if (!affix.IsText()) return Fail("expected a tuple of str, got one with a ", TypeName(affix));
    if (one(affix)) return Value::Bool(true);
  }
  return Value::Bool(false);
}
Result StartsWith(Runtime& runtime, const Value& self, const Args& args) {
  return HasEnd(runtime, self, args, [](std::string_view text, std::string_view p) { return text.starts_with(p); });
}
Result EndsWith(Runtime& runtime, const Value& self, const Args& args) {
  return HasEnd(runtime, self, args, [](std::string_view text, std::string_view s) { return text.ends_with(s); });
}

Result RemovePrefix(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const std::string_view prefix, args.Text(0, ""));
  std::string_view text = self.str();
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  return runtime.NewText(std::string(text), self.text().safe);
}
Result RemoveSuffix(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const std::string_view suffix, args.Text(0, ""));
  std::string_view text = self.str();
  if (text.ends_with(suffix)) text.remove_suffix(suffix.size());
  return runtime.NewText(std::string(text), self.text().safe);
}

/// Code point index of a substring in the receiver; -1 when it is not there.
absl::StatusOr<Int> IndexOf(Runtime& runtime, const Value& self, const Args& args, bool from_right) {
  KVIST_ASSIGN_OR_RETURN(const std::string_view wanted, args.Text(0, ""));
  KVIST_ASSIGN_OR_RETURN(const Window window, WindowOf(runtime, self, args, 1));
  KVIST_RETURN_IF_ERROR(runtime.Spend(self.str().size() / Runtime::kBytesPerStep));
  if (window.beyond) return Int{-1};
  const size_t found = from_right ? window.text.rfind(wanted) : window.text.find(wanted);
  if (found == kNone) return Int{-1};
  return window.start + static_cast<Int>(CountCodePoints(window.text.substr(0, found)));
}
Result Find(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const Int index, IndexOf(runtime, self, args, false));
  return Value::Integer(index);
}
Result FindRight(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const Int index, IndexOf(runtime, self, args, true));
  return Value::Integer(index);
}
Result TextIndex(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const Int index, IndexOf(runtime, self, args, false));
  return index < 0 ? Result(Fail("'index': the text is not there")) : Value::Integer(index);
}
Result IndexRight(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const Int index, IndexOf(runtime, self, args, true));
  return index < 0 ? Result(Fail("'rindex': the text is not there")) : Value::Integer(index);
}

Result TextCount(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const std::string_view wanted, args.Text(0, ""));
  KVIST_ASSIGN_OR_RETURN(const Window window, WindowOf(runtime, self, args, 1));
  KVIST_RETURN_IF_ERROR(runtime.Spend(self.str().size() / Runtime::kBytesPerStep));
  if (window.beyond) return Value::Integer(0);
  if (wanted.empty()) return Value::Integer(static_cast<Int>(CountCodePoints(window.text)) + 1);
  Int count = 0;
  for (size_t pos = window.text.find(wanted); pos != kNone; pos = window.text.find(wanted, pos + wanted.size()))
    ++count;
  return Value::Integer(count);
}

Result ReplaceMethod(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const std::string_view old, args.Text(0, ""));
  KVIST_ASSIGN_OR_RETURN(const std::string_view replacement, args.Text(1, ""));
  KVIST_ASSIGN_OR_RETURN(const Int count, args.Integer(2, -1));
  const bool escapes = self.text().safe && !args[1].text().safe;
  const std::string escaped = escapes ? EscapeHtml(replacement) : "";
  KVIST_ASSIGN_OR_RETURN(std::string out, Replace(runtime, self.str(), old, escapes ? escaped : replacement, count));
  return Value::String(std::move(out), self.text().safe);
}

Result JoinMethod(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(runtime, args[0]));
  const bool safe = self.text().safe;
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) KVIST_RETURN_IF_ERROR(AppendText(runtime, self, out));
    if (safe) {  // Markup escapes what it joins, and takes any value.
      KVIST_ASSIGN_OR_RETURN(const Value text, ToText(runtime, items[i]));
      const Value part = text.text().safe ? text : Value::String(EscapeHtml(text.str()));
      KVIST_RETURN_IF_ERROR(AppendText(runtime, part, out));
    } else {
      if (!items[i].IsText()) return Fail("'join' needs strings, item ", i, " is a ", TypeName(items[i]));
      KVIST_RETURN_IF_ERROR(AppendText(runtime, items[i], out));
    }
  }
  return Value::String(std::move(out), safe);
}

Result PadText(Runtime& runtime, const Value& self, const Args& args, Alignment alignment) {
  KVIST_ASSIGN_OR_RETURN(const Int width, args.Integer(0, 0));
  KVIST_ASSIGN_OR_RETURN(const std::string_view fill, args.Text(1, " "));
  if (CountCodePoints(fill) != 1) return Fail("padding needs exactly one character");
  KVIST_ASSIGN_OR_RETURN(std::string out, Pad(runtime, self.str(), width, fill, alignment));
  return Value::String(std::move(out), self.text().safe);
}
Result JustifyLeft(Runtime& runtime, const Value& self, const Args& args) {
  return PadText(runtime, self, args, Alignment::kLeft);
}
Result JustifyRight(Runtime& runtime, const Value& self, const Args& args) {
  return PadText(runtime, self, args, Alignment::kRight);
}
Result Center(Runtime& runtime, const Value& self, const Args& args) {
  return PadText(runtime, self, args, Alignment::kCenter);
}

Result ZeroFill(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const Int width, args.Integer(0, 0));
  std::string_view text = self.str();
  const bool has_sign = text.starts_with('+') || text.starts_with('-');
  const std::string sign(text.substr(0, has_sign ? 1 : 0));
  text.remove_prefix(sign.size());
  const Int rest = width - static_cast<Int>(sign.size());
  KVIST_ASSIGN_OR_RETURN(const std::string digits, Pad(runtime, text, rest, "0", Alignment::kRight));
  return runtime.NewText(sign + digits, self.text().safe);
}

Result ExpandTabs(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const Int size, args.Integer(0, 8));
  std::string out;
  Int column = 0;
  const std::string_view text = self.str();
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeAt(text, pos);
    if (c.value == '\t') {
      const Int spaces = size > 0 ? size - column % size : 0;
      KVIST_ASSIGN_OR_RETURN(const std::string blank, Pad(runtime, "", spaces, " ", Alignment::kLeft));
      KVIST_RETURN_IF_ERROR(runtime.SpendBytes(blank.size(), out.size() + blank.size()));
      out += blank;
      column += spaces;
    } else {
      out += text.substr(pos, c.bytes);
      column = c.value == '\n' || c.value == '\r' ? 0 : column + 1;
    }
    pos += c.bytes;
  }
  return runtime.NewText(std::move(out), self.text().safe);
}

Result Format(Runtime& runtime, const Value& self, const Args& args) {
  return FormatBraces(runtime, self, args.all());
}

constexpr Builtin kTextMethods[] = {
    {"capitalize", "", CapitalizeMethod},
    {"center", "width fillchar?", Center},
    {"count", "sub start? end?", TextCount},
    {"endswith", "suffix start? end?", EndsWith},
    {"expandtabs", "tabsize?", ExpandTabs},
    {"find", "sub start? end?", Find},
    {"format", "*", Format},
    {"index", "sub start? end?", TextIndex},
    {"join", "iterable", JoinMethod},
    {"ljust", "width fillchar?", JustifyLeft},
    {"lower", "", Lower},
    {"lstrip", "chars?", StripLeft},
    {"partition", "sep", Partition},
    {"removeprefix", "prefix", RemovePrefix},
    {"removesuffix", "suffix", RemoveSuffix},
    {"replace", "old new count?", ReplaceMethod},
    {"rfind", "sub start? end?", FindRight},
    {"rindex", "sub start? end?", IndexRight},
    {"rjust", "width fillchar?", JustifyRight},
    {"rpartition", "sep", PartitionRight},
    {"rsplit", "sep? maxsplit?", SplitRight},
    {"rstrip", "chars?", StripRight},
    {"split", "sep? maxsplit?", SplitLeft},
    {"splitlines", "keepends?", SplitLinesMethod},
    {"startswith", "prefix start? end?", StartsWith},
    {"strip", "chars?", StripBoth},
    {"swapcase", "", SwapCaseMethod},
    {"title", "", Title},
    {"upper", "", Upper},
    {"zfill", "width", ZeroFill},
};

}  // namespace

std::span<const Builtin> TextMethods() {
  return kTextMethods;
}

}  // namespace kvist::jinja
