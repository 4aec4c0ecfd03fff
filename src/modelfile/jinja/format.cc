#include "modelfile/jinja/format.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/status.h"
#include "modelfile/jinja/number_format.h"
#include "modelfile/jinja/ops.h"
#include "modelfile/jinja/repr.h"
#include "modelfile/jinja/unicode.h"

namespace kvist::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

bool IsDigit(std::string_view text, size_t pos) {
  return pos < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[pos]));
}

absl::StatusOr<std::string> Text(Runtime& runtime, const Value& value, bool escape) {
  std::string out;
  KVIST_RETURN_IF_ERROR(AppendText(runtime, value, out));
  if (escape && !(value.IsText() && value.text().safe)) return EscapeHtml(out);
  return out;
}

/// One `template % values`.
class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Value& format, const Value& values)
      : runtime_(runtime), format_(format.str()), safe_(format.text().safe), values_(values) {
    if (values.IsTuple()) {
      for (const Value& value : values.sequence().items) arguments_.push_back(&value);
    } else {
      arguments_.push_back(&values);
    }
  }

  absl::StatusOr<Value> Run() {
    while (pos_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', pos_), format_.size());
      KVIST_RETURN_IF_ERROR(Put(format_.substr(pos_, percent - pos_)));
      pos_ = percent;
      if (pos_ < format_.size()) KVIST_RETURN_IF_ERROR(Conversion());
    }
    // Python takes whatever can be subscripted for a mapping, whose entries need not all be used.
    const bool mapping =
        values_.Is(Kind::kDict) || values_.IsList() || values_.Is(Kind::kRange) || values_.IsUndefined();
    if (next_ < arguments_.size() && !mapping) return Fail("not all arguments of '%' were used");
    return Value::String(std::move(out_), safe_);
  }

 private:
  absl::Status Put(std::string_view text) {
    KVIST_RETURN_IF_ERROR(runtime_.SpendBytes(text.size(), out_.size() + text.size()));
    out_ += text;
    return absl::OkStatus();
  }

  absl::StatusOr<const Value*> NextArgument() {
    if (named_ != nullptr) return std::exchange(named_, nullptr);
    if (next_ >= arguments_.size()) return Fail("'%' has fewer arguments than the format needs");
    return arguments_[next_++];
  }

  /// `(name)` after the percent sign.
  absl::Status Name() {
    if (!values_.Is(Kind::kDict)) return Fail("'%(name)' needs a dict");
    int depth = 1;
    size_t end = pos_ + 1;
    for (; end < format_.size() && depth > 0; ++end) depth += format_[end] == '(' ? 1 : format_[end] == ')' ? -1 : 0;
    if (depth > 0) return Fail("'%(' is not closed");
    const std::string_view name = format_.substr(pos_ + 1, end - pos_ - 2);
    named_ = values_.dict().FindText(name);
    if (named_ == nullptr) return Fail("the dict has no key '", name, "'");
    next_ = arguments_.size();
    pos_ = end;
    return absl::OkStatus();
  }

  /// Digits or `*`; `value` stays as it is when there is neither.
  absl::Status Number(Int& value) {
    constexpr Int kFar = Int{1} << 40;
    if (pos_ < format_.size() && format_[pos_] == '*') {
      ++pos_;
      KVIST_ASSIGN_OR_RETURN(const Value* argument, NextArgument());
      if (!argument->IsIntegral()) return Fail("'*' in a format needs an int");
      value = argument->integer();
    } else if (IsDigit(format_, pos_)) {
      value = 0;
      // Beyond the limit the digits do not count: any number of them may follow.
      for (; IsDigit(format_, pos_); ++pos_) value = value > kFar ? value : value * 10 + (format_[pos_] - '0');
    } else {
      return absl::OkStatus();
    }
    return value > kFar || value < -kFar ? Fail("a width in the format is too large") : absl::OkStatus();
  }

  absl::Status Conversion() {
    ++pos_;
    named_ = nullptr;
    if (pos_ < format_.size() && format_[pos_] == '(') KVIST_RETURN_IF_ERROR(Name());
    FormatSpec spec;
    bool left = false, zero = false;
    for (; pos_ < format_.size() && absl::StrContains("-+ #0", format_[pos_]); ++pos_) {
      const char c = format_[pos_];
      left = left || c == '-';
      zero = zero || c == '0';
      spec.alternate = spec.alternate || c == '#';
      if (c == '+' || (c == ' ' && spec.sign != '+')) spec.sign = c;
    }
    KVIST_RETURN_IF_ERROR(Number(spec.width));
    if (spec.width < 0) {
      left = true;
      spec.width = -spec.width;
    }
    if (pos_ < format_.size() && format_[pos_] == '.') {
      ++pos_;
      Int precision = 0;
      KVIST_RETURN_IF_ERROR(Number(precision));
      spec.precision = static_cast<int>(std::clamp<Int>(precision, 0, 1 << 30));
    }
    while (pos_ < format_.size() && absl::StrContains("hlL", format_[pos_])) ++pos_;
    if (pos_ >= format_.size()) return Fail("the format ends inside a conversion");
    const char type = format_[pos_++];
    if (type == '%') return Put("%");
    spec.align = left ? '<' : '>';
    if (zero && !left) {
      spec.align = '=';
      spec.fill = "0";
    }
    KVIST_ASSIGN_OR_RETURN(const Value* argument, NextArgument());
    KVIST_ASSIGN_OR_RETURN(const std::string text, Convert(*argument, type, spec));
    return Put(text);
  }

  absl::StatusOr<std::string> Convert(const Value& value, char type, FormatSpec spec) {
    switch (type) {
      case 's':
      case 'r':
      case 'a':
        return ConvertText(value, type, spec);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return ConvertInt(value, type, spec);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (value.IsUndefined()) return UndefinedError(value);
        if (!value.IsNumber()) return Fail("%", std::string(1, type), " needs a number, got ", TypeName(value));
        spec.type = type;
        return FormatFloat(runtime_, value.number(), spec);
      case 'c':
        return ConvertChar(value, spec);
      default:
        return Fail("'%", std::string(1, type), "' is no conversion");
    }
  }

  absl::StatusOr<std::string> ConvertText(const Value& value, char type, FormatSpec spec) {
    if (spec.align == '=') spec.align = '>';  // Zeros pad numbers only.
    spec.fill = " ";
    if (type == 'a') return Fail("'%a' is not supported");
    if (type == 's') {
      KVIST_ASSIGN_OR_RETURN(const std::string text, Text(runtime_, value, safe_));
      return FormatText(runtime_, text, spec);
    }
    std::string text;
    KVIST_RETURN_IF_ERROR(AppendRepr(runtime_, value, text));
    return FormatText(runtime_, safe_ ? EscapeHtml(text) : text, spec);
  }

  absl::StatusOr<std::string> ConvertInt(const Value& value, char type, FormatSpec spec) {
    const bool decimal = type == 'd' || type == 'i' || type == 'u';
    if (value.IsUndefined()) return UndefinedError(value);
    if (!value.IsIntegral() && !(decimal && value.Is(Kind::kFloat))) {
      return Fail("%", std::string(1, type), " needs ", decimal ? "a number" : "an int", ", got ", TypeName(value));
    }
    if (spec.precision > kPrecisionMax) return Fail("a precision of more than ", kPrecisionMax, " is not supported");
    Int integer = 0;
    if (value.IsIntegral()) {
      integer = value.integer();
    } else {
      KVIST_ASSIGN_OR_RETURN(integer, TruncateToInt(value.number()));
    }
    spec.type = decimal ? 'd' : type;
    return FormatInt(runtime_, integer, spec);
  }

  absl::StatusOr<std::string> ConvertChar(const Value& value, FormatSpec spec) {
    std::string text;
    if (value.IsIntegral()) {
      if (value.integer() < 0 || value.integer() > 0x10FFFF) return Fail("%c: a character code is out of range");
      AppendUtf8(static_cast<char32_t>(value.integer()), text);
    } else if (value.IsText() && value.text().CodePoints() == 1) {
      text = value.str();
    } else {
      return Fail("%c needs an int or a single character");
    }
    spec.precision = -1;
    if (spec.align == '=') spec.align = '>';
    spec.fill = " ";
    return FormatText(runtime_, text, spec);
  }

  Runtime& runtime_;
  const std::string_view format_;
  const bool safe_;
  const Value& values_;
  std::vector<const Value*> arguments_;
  size_t next_ = 0;
  const Value* named_ = nullptr;  ///< Chosen by %(name).
  size_t pos_ = 0;
  std::string out_;
};

/// One template.format(...).
class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, bool safe, const CallArgs& args) : runtime_(runtime), safe_(safe), args_(args) {}

  /// `level`: a specification may hold fields, whose specification may not.
  absl::StatusOr<std::string> Format(std::string_view text, int level) {
    if (level > 2) return Fail("fields are nested too deeply in a format");
    std::string out;
    for (size_t pos = 0; pos < text.size();) {
      const char c = text[pos];
      if (c != '{' && c != '}') {
        const size_t end = std::min(text.find_first_of("{}", pos), text.size());
        KVIST_RETURN_IF_ERROR(runtime_.SpendBytes(end - pos, out.size() + end - pos));
        out += text.substr(pos, end - pos);
        pos = end;
        continue;
      }
      if (pos + 1 < text.size() && text[pos + 1] == c) {
        out.push_back(c);
        pos += 2;
        continue;
      }
      if (c == '}') return Fail("a single '}' in a format");
      KVIST_ASSIGN_OR_RETURN(const size_t end, FieldEnd(text, pos));
      KVIST_ASSIGN_OR_RETURN(const std::string field, Field(text.substr(pos + 1, end - pos - 1), level));
      KVIST_RETURN_IF_ERROR(runtime_.SpendBytes(field.size(), out.size() + field.size()));
      out += field;
      pos = end + 1;
    }
    return out;
  }

 private:
  static absl::StatusOr<size_t> FieldEnd(std::string_view text, size_t open) {
    int depth = 0;
    for (size_t pos = open; pos < text.size(); ++pos) {
      depth += text[pos] == '{' ? 1 : text[pos] == '}' ? -1 : 0;
      if (depth == 0) return pos;
    }
    return Fail("a '{' in a format is not closed");
  }

  absl::StatusOr<std::string> Field(std::string_view field, int level) {
    const size_t name_end = std::min(field.find_first_of(":!"), field.size());
    KVIST_ASSIGN_OR_RETURN(Value value, Lookup(field.substr(0, name_end)));
    std::string_view rest = field.substr(name_end);
    if (rest.starts_with("!")) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':')) return Fail("a conversion after '!' is not closed");
      const char conversion = rest[1];
      if (conversion != 's' && conversion != 'r') return Fail("'!", rest.substr(1, 1), "' is not supported");
      std::string text;
      KVIST_RETURN_IF_ERROR(conversion == 's' ? AppendText(runtime_, value, text) : AppendRepr(runtime_, value, text));
      value = Value::String(std::move(text));
      rest.remove_prefix(2);
    }
    std::string spec;
    if (rest.starts_with(":")) {
      KVIST_ASSIGN_OR_RETURN(spec, Format(rest.substr(1), level + 1));
    }
    if (spec.empty()) return Text(runtime_, value, safe_);
    KVIST_ASSIGN_OR_RETURN(const FormatSpec parsed, ParseFormatSpec(spec));
    KVIST_ASSIGN_OR_RETURN(std::string text, FormatValue(runtime_, value, parsed));
    return safe_ ? EscapeHtml(text) : text;
  }

  /// `0.name[key]`, `name`, or empty for the next argument.
  absl::StatusOr<Value> Lookup(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    KVIST_ASSIGN_OR_RETURN(Value value, First(name.substr(0, first_end)));
    name.remove_prefix(first_end);
    while (!name.empty()) {
      if (name[0] == '.') {
        const size_t end = std::min(name.find_first_of(".[", 1), name.size());
        if (end == 1) return Fail("an attribute name is empty in a format");
        KVIST_ASSIGN_OR_RETURN(value, GetAttribute(runtime_, value, name.substr(1, end - 1)));
        name.remove_prefix(end);
      } else if (name[0] == '[') {
        const size_t close = name.find(']');
        if (close == kNone || close == 1) return Fail("a '[' in a format is not closed");
        KVIST_ASSIGN_OR_RETURN(value, GetItem(runtime_, value, Key(name.substr(1, close - 1))));
        name.remove_prefix(close + 1);
      } else {
        return Fail("only '.' or '[' may follow ']' in a format");
      }
    }
    return value;
  }

  static Value Key(std::string_view text) {
    if (text.size() > 18 || !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      return Value::String(std::string(text));
    }
    Int index = 0;
    for (const char c : text) index = index * 10 + (c - '0');
    return Value::Integer(index);
  }

  absl::StatusOr<Value> First(std::string_view name) {
    const Value key = name.empty() ? Value::Integer(0) : Key(name);
    if (key.IsText()) {
      for (const auto& [argument, value] : args_.named) {
        if (argument == name) return value;
      }
      return Fail("the format has no argument '", name, "'");
    }
    const bool automatic = name.empty();
    if (automatic ? numbered_ : next_ > 0) return Fail("a format has both numbered and unnumbered fields");
    numbered_ = numbered_ || !automatic;
    const Int index = automatic ? static_cast<Int>(next_++) : key.integer();
    if (index >= static_cast<Int>(args_.positional.size())) return Fail("the format needs more arguments");
    return args_.positional[static_cast<size_t>(index)];
  }

  Runtime& runtime_;
  const bool safe_;
  const CallArgs& args_;
  size_t next_ = 0;        ///< Of unnumbered fields.
  bool numbered_ = false;  ///< A field with a number was seen.
};

}  // namespace

absl::StatusOr<Value> FormatPercent(Runtime& runtime, const Value& format, const Value& values) {
  return PercentFormatter(runtime, format, values).Run();
}

absl::StatusOr<Value> FormatBraces(Runtime& runtime, const Value& format, const CallArgs& args) {
  const bool safe = format.text().safe;
  KVIST_ASSIGN_OR_RETURN(std::string text, BraceFormatter(runtime, safe, args).Format(format.str(), 1));
  return runtime.NewText(std::move(text), safe);
}

}  // namespace kvist::jinja
