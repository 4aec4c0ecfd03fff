#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/status.h"
#include "modelfile/jinja/builtins.h"
#include "modelfile/jinja/number_format.h"
#include "modelfile/jinja/ops.h"
#include "modelfile/jinja/repr.h"
#include "modelfile/jinja/strings.h"

namespace kvist::jinja {
namespace {

using Result = absl::StatusOr<Value>;

/// The error for a value that is no number.
absl::Status NoNumber(const Value& value, std::string_view filter) {
  if (value.IsUndefined()) return UndefinedError(value);
  return Fail("'", filter, "' needs a number, got ", TypeName(value));
}

Result Abs(Runtime&, const Value& self, const Args&) {
  if (!self.IsNumber()) return NoNumber(self, "abs");
  if (self.Is(Kind::kFloat)) return Value::Float(std::fabs(self.number()));
  return self.integer() < 0 ? Negate(self) : Positive(self);
}

/// 10^exponent; nullopt when it does not fit.
std::optional<Int> PowerOfTen(Int exponent) {
  Int power = 1;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(power, Int{10}, &power)) return std::nullopt;
  }
  return power;
}

/// round(int, -n): to a multiple of 10^n, halves to the even one.
Result RoundInt(Int value, Int digits) {
  if (digits >= 0) return Value::Integer(value);
  const std::optional<Int> unit = digits < -40 ? std::nullopt : PowerOfTen(-digits);
  if (!unit.has_value()) return Value::Integer(0);
  Int rest = value % *unit;
  if (rest < 0) rest += *unit;
  Int low = 0;
  if (__builtin_sub_overflow(value, rest, &low)) return Fail("an integer is too large");
  const Int half = *unit / 2;
  const bool up = rest > half || (rest == half && (low / *unit) % 2 != 0);
  if (up && __builtin_add_overflow(low, *unit, &low)) return Fail("an integer is too large");
  return Value::Integer(low);
}

/// round(float, digits): correctly rounded from the exact binary value.
Result RoundFloat(double value, Int digits) {
  if (!std::isfinite(value)) return Value::Float(value);
  if (digits > 323) return Value::Float(value);  // A double has no more.
  if (digits < -308) return Value::Float(std::copysign(0.0, value));
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return Value::Float(std::nearbyint(value / unit) * unit);
  }
  const std::string text = FixedText(value, static_cast<int>(digits));
  double rounded = 0;
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return Value::Float(rounded);
}

Result Round(Runtime&, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const Int digits, args.Integer(0, 0));
  KVIST_ASSIGN_OR_RETURN(const std::string_view method, args.Text(1, "common"));
  if (method != "common" && method != "ceil" && method != "floor") {
    return Fail("'round' knows the methods common, ceil and floor");
  }
  if (!self.IsNumber()) return NoNumber(self, "round");
  if (method == "common") {
    return self.IsIntegral() ? RoundInt(self.integer(), digits) : RoundFloat(self.number(), digits);
  }
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = self.number() * scale;
  if (!std::isfinite(scaled)) return Fail("'round' needs a finite number");
  if (scale == 0) return Fail("division by zero");
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Result IntFilter(Runtime&, const Value& self, const Args& args) {
  const Value fallback = args.Has(0) ? args[0] : Value::Integer(0);
  if (self.IsUndefined()) return UndefinedError(self);
  if (self.IsIntegral()) return Value::Integer(self.integer());
  if (self.Is(Kind::kFloat)) {
    if (std::isnan(self.number())) return fallback;
    KVIST_ASSIGN_OR_RETURN(const Int value, TruncateToInt(self.number()));
    return Value::Integer(value);
  }
  if (!self.IsText()) return fallback;
  KVIST_ASSIGN_OR_RETURN(const Int base, args.Integer(1, 10));
  KVIST_ASSIGN_OR_RETURN(const std::optional<Int> value, ParseInt(self.str(), base));
  if (value.has_value()) return Value::Integer(*value);
  const std::optional<double> number = ParseFloat(self.str());  // "42.7" counts as 42.
  if (!number.has_value() || !std::isfinite(*number)) return fallback;
  KVIST_ASSIGN_OR_RETURN(const Int truncated, TruncateToInt(*number));
  return Value::Integer(truncated);
}

Result FloatFilter(Runtime&, const Value& self, const Args& args) {
  if (self.IsUndefined()) return UndefinedError(self);
  if (self.IsNumber()) return Value::Float(self.number());
  if (self.IsText()) {
    if (const std::optional<double> value = ParseFloat(self.str())) return Value::Float(*value);
  }
  return args.Has(0) ? args[0] : Value::Float(0);
}

Result Default(Runtime&, const Value& self, const Args& args) {
  const bool replaces = self.IsUndefined() || (args.Truthy(1, false) && !Truthy(self));
  if (!replaces) return self;
  return args.Has(0) ? args[0] : Value::String("");
}

Result Attr(Runtime& runtime, const Value& self, const Args& args) {
  if (self.IsUndefined()) return UndefinedError(self);
  KVIST_ASSIGN_OR_RETURN(const std::string_view name, args.Text(0, ""));
  KVIST_ASSIGN_OR_RETURN(std::optional<Value> found, FindAttribute(runtime, self, name));
  if (found.has_value()) return *std::move(found);
  return Value::Undefined(Cat("a ", TypeName(self), " has no attribute '", name, "'"));
}

/// `indent` of json.dumps: a number of spaces or the text itself.
absl::Status SetIndent(Runtime& runtime, const Value& indent, JsonStyle& style) {
  style.multiline = true;
  style.item_separator = ",";
  if (indent.IsText()) {
    style.indent = indent.str();
    return absl::OkStatus();
  }
  if (!indent.IsIntegral()) return Fail("'tojson' needs an int or a str as indent, got ", TypeName(indent));
  KVIST_ASSIGN_OR_RETURN(style.indent, Pad(runtime, "", indent.integer(), " ", Alignment::kLeft));
  return absl::OkStatus();
}

/// json.dumps as Hugging Face passes it on, without escaping for HTML.
Result ToJsonFilter(Runtime& runtime, const Value& self, const Args& args) {
  JsonStyle style;
  style.ensure_ascii = args.Truthy(0, false);
  style.sort_keys = args.Truthy(3, false);
  if (args.HasValue(1)) KVIST_RETURN_IF_ERROR(SetIndent(runtime, args[1], style));
  if (args.HasValue(2)) {
    KVIST_ASSIGN_OR_RETURN(const std::vector<Value> separators, Items(runtime, args[2]));
    if (separators.size() != 2 || !separators[0].IsText() || !separators[1].IsText()) {
      return Fail("'tojson' needs two strings as separators");
    }
    style.item_separator = separators[0].str();
    style.key_separator = separators[1].str();
  }
  KVIST_ASSIGN_OR_RETURN(std::string text, ToJson(runtime, self, style));
  return Value::String(std::move(text));
}

constexpr Builtin kValueFilters[] = {
    {"abs", "", Abs},
    {"attr", "name", Attr},
    {"d", "default_value? boolean?", Default},
    {"default", "default_value? boolean?", Default},
    {"float", "default?", FloatFilter},
    {"int", "default? base?", IntFilter},
    {"round", "precision? method?", Round},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", ToJsonFilter},
};

}  // namespace

std::span<const Builtin> ValueFilters() {
  return kValueFilters;
}

}  // namespace kvist::jinja
