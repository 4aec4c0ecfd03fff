#include "modelfile/jinja/repr.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status.h"
#include "modelfile/jinja/macro.h"
#include "modelfile/jinja/unicode.h"

namespace kvist::jinja {
namespace {

/// Python's repr of a str: single quotes unless only they occur inside.
void AppendQuoted(std::string_view text, std::string& out) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out.push_back(quote);
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeAt(text, pos);
    if (c.value == static_cast<char32_t>(quote) || c.value == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c.value));
    } else if (c.value == '\n') {
      out += "\\n";
    } else if (c.value == '\r') {
      out += "\\r";
    } else if (c.value == '\t') {
      out += "\\t";
    } else if (IsPrintable(c.value)) {
      out += text.substr(pos, c.bytes);
    } else if (c.value < 0x100) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint32_t>(c.value));
    } else if (c.value < 0x10000) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint32_t>(c.value));
    } else {
      absl::StrAppendFormat(&out, "\\U%08x", static_cast<uint32_t>(c.value));
    }
    pos += c.bytes;
  }
  out.push_back(quote);
}

absl::Status AppendItems(Runtime& runtime, const std::vector<Value>& items, std::string& out) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out += ", ";
    first = false;
    KVIST_RETURN_IF_ERROR(AppendRepr(runtime, item, out));
  }
  return absl::OkStatus();
}

absl::Status AppendSequence(Runtime& runtime, const Sequence& sequence, std::string& out) {
  out.push_back(sequence.is_tuple ? '(' : '[');
  KVIST_RETURN_IF_ERROR(AppendItems(runtime, sequence.items, out));
  if (sequence.is_tuple && sequence.items.size() == 1) out.push_back(',');
  out.push_back(sequence.is_tuple ? ')' : ']');
  return absl::OkStatus();
}

absl::Status AppendDict(Runtime& runtime, const Dict& dict, std::string& out) {
  out.push_back('{');
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first) out += ", ";
    first = false;
    KVIST_RETURN_IF_ERROR(AppendRepr(runtime, key, out));
    out += ": ";
    KVIST_RETURN_IF_ERROR(AppendRepr(runtime, value, out));
  }
  out.push_back('}');
  return absl::OkStatus();
}

absl::Status AppendNamespace(Runtime& runtime, const Namespace& ns, std::string& out) {
  out += "<Namespace {";
  bool first = true;
  for (const auto& [name, value] : ns.entries) {
    if (!first) out += ", ";
    first = false;
    AppendQuoted(name, out);
    out += ": ";
    KVIST_RETURN_IF_ERROR(AppendRepr(runtime, value, out));
  }
  out += "}>";
  return absl::OkStatus();
}

absl::Status AppendView(Runtime& runtime, const Value& value, std::string& out) {
  out += Cat(TypeName(value), "([");
  KVIST_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(runtime, value));
  KVIST_RETURN_IF_ERROR(AppendItems(runtime, items, out));
  out += "])";
  return absl::OkStatus();
}

absl::Status AppendLoop(const Value& value, std::string& out) {
  KVIST_ASSIGN_OR_RETURN(const Int length, value.loop().Length());
  out += Cat("<LoopContext ", IntText(value.loop().index0() + 1), "/", IntText(length), ">");
  return absl::OkStatus();
}

void AppendRange(const Range& range, std::string& out) {
  out += Cat("range(", IntText(range.start), ", ", IntText(range.stop));
  if (range.step != 1) out += Cat(", ", IntText(range.step));
  out.push_back(')');
}

absl::Status AppendUncounted(Runtime& runtime, const Value& value, std::string& out) {
  switch (value.kind()) {
    case Kind::kUndefined:
      out += "Undefined";
      return absl::OkStatus();
    case Kind::kNone:
      out += "None";
      return absl::OkStatus();
    case Kind::kBool:
      out += value.boolean() ? "True" : "False";
      return absl::OkStatus();
    case Kind::kInt:
      out += IntText(value.integer());
      return absl::OkStatus();
    case Kind::kFloat:
      out += FloatText(value.number());
      return absl::OkStatus();
    case Kind::kText:
      if (value.text().safe) out += "Markup(";
      AppendQuoted(value.str(), out);
      if (value.text().safe) out += ")";
      return absl::OkStatus();
    case Kind::kSequence:
      return AppendSequence(runtime, value.sequence(), out);
    case Kind::kDict:
      return AppendDict(runtime, value.dict(), out);
    case Kind::kRange:
      AppendRange(value.range(), out);
      return absl::OkStatus();
    case Kind::kDictView:
      return AppendView(runtime, value, out);
    case Kind::kNamespace:
      return AppendNamespace(runtime, value.ns(), out);
    case Kind::kLoop:
      return AppendLoop(value, out);
    case Kind::kMacro:
      if (value.macro().function->name.empty()) {
        out += "<Macro anonymous>";
        return absl::OkStatus();
      }
      out += "<Macro ";
      AppendQuoted(value.macro().function->name, out);
      out.push_back('>');
      return absl::OkStatus();
    case Kind::kIterator:  // Python prints an address, which nothing can rely on.
      out += "<generator>";
      return absl::OkStatus();
    case Kind::kBuiltin:
      out += Cat("<function ", value.builtin().name, ">");
      return absl::OkStatus();
    case Kind::kMethod:
      out += Cat("<method ", value.method().method->name, ">");
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

/// Digits and decimal exponent of the shortest text of a finite `value`: value = 0.d1d2d3... * 10^(exponent + 1).
struct Digits {
  bool negative;
  std::string digits;
  int exponent;
};

Digits ShortestDigits(double value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  Digits out{text.front() == '-', "", 0};
  if (out.negative) text.remove_prefix(1);
  const size_t e = text.find('e');
  KVIST_CHECK(e != std::string_view::npos);
  for (const char c : text.substr(0, e)) {
    if (c != '.') out.digits.push_back(c);
  }
  const char* exponent = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(exponent, text.data() + text.size(), out.exponent);
  return out;
}

}  // namespace

std::string IntText(Int value) {
  if (value == 0) return "0";
  std::string out;
  const bool negative = value < 0;
  auto rest = static_cast<unsigned __int128>(value);
  if (negative) rest = -rest;
  for (; rest != 0; rest /= 10) out.push_back(static_cast<char>('0' + static_cast<int>(rest % 10)));
  if (negative) out.push_back('-');
  std::reverse(out.begin(), out.end());
  return out;
}

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const Digits d = ShortestDigits(value);
  std::string out = d.negative ? "-" : "";
  const int count = static_cast<int>(d.digits.size());
  if (d.exponent < -4 || d.exponent >= 16) {
    out += d.digits.substr(0, 1);
    if (count > 1) out += Cat(".", d.digits.substr(1));
    absl::StrAppendFormat(&out, "e%c%02d", d.exponent < 0 ? '-' : '+', std::abs(d.exponent));
  } else if (d.exponent < 0) {
    out += Cat("0.", std::string(static_cast<size_t>(-d.exponent - 1), '0'), d.digits);
  } else if (count <= d.exponent + 1) {
    out += Cat(d.digits, std::string(static_cast<size_t>(d.exponent + 1 - count), '0'), ".0");
  } else {
    const size_t whole = static_cast<size_t>(d.exponent) + 1;
    out += Cat(d.digits.substr(0, whole), ".", d.digits.substr(whole));
  }
  return out;
}

std::string FixedText(double value, int digits) {
  return absl::StrFormat("%.*f", digits, value);
}
std::string ScientificText(double value, int digits) {
  return absl::StrFormat("%.*e", digits, value);
}

absl::Status AppendRepr(Runtime& runtime, const Value& value, std::string& out) {
  KVIST_RETURN_IF_ERROR(runtime.Spend(1));
  const Runtime::Nesting nesting(runtime);  // A namespace may contain itself.
  KVIST_RETURN_IF_ERROR(nesting.status());
  const size_t before = out.size();
  KVIST_RETURN_IF_ERROR(AppendUncounted(runtime, value, out));
  return runtime.SpendBytes(out.size() - before, out.size());
}

absl::Status AppendText(Runtime& runtime, const Value& value, std::string& out) {
  if (value.IsUndefined()) return absl::OkStatus();
  if (!value.IsText()) return AppendRepr(runtime, value, out);
  KVIST_RETURN_IF_ERROR(runtime.SpendBytes(value.str().size(), out.size() + value.str().size()));
  out += value.str();
  return absl::OkStatus();
}

absl::StatusOr<Value> ToText(Runtime& runtime, const Value& value) {
  if (value.IsText()) return value;
  std::string out;
  KVIST_RETURN_IF_ERROR(AppendText(runtime, value, out));
  return Value::String(std::move(out));
}

}  // namespace kvist::jinja
