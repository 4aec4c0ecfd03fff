#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "modelfile/jinja/format.h"
#include "modelfile/jinja/ops.h"

namespace kvist::jinja {
namespace {

constexpr std::string_view kOverflow = "an integer is too large";

std::string_view Symbol(Arithmetic op) {
  constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<size_t>(op)];
}

absl::Status Unsupported(Arithmetic op, const Value& a, const Value& b) {
  if (a.IsUndefined()) return UndefinedError(a);
  if (b.IsUndefined()) return UndefinedError(b);
  return Fail("'", Symbol(op), "' is not defined between ", TypeName(a), " and ", TypeName(b));
}

/// Python rounds quotients down and gives remainders the sign of the divisor.
Int FloorDivide(Int a, Int b) {
  const Int quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

absl::StatusOr<Value> IntPower(Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) return Fail("0 cannot be raised to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  Int result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return Fail(kOverflow);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return Fail(kOverflow);
  }
  return Value::Integer(result);
}

absl::StatusOr<Value> IntArithmetic(Arithmetic op, Int a, Int b) {
  const bool divides = op == Arithmetic::kDiv || op == Arithmetic::kFloorDiv || op == Arithmetic::kMod;
  if (divides && b == 0) return Fail("division by zero");
  Int result = 0;
  bool overflow = false;
  switch (op) {
    case Arithmetic::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Arithmetic::kSub:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Arithmetic::kMul:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Arithmetic::kDiv:
      return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    case Arithmetic::kFloorDiv:
      if (b == -1) return IntArithmetic(Arithmetic::kSub, 0, a);  // The smallest Int has no positive twin.
      result = FloorDivide(a, b);
      break;
    case Arithmetic::kMod:
      if (b != -1) result = a - FloorDivide(a, b) * b;
      break;
    case Arithmetic::kPow:
      return IntPower(a, b);
  }
  if (overflow) return Fail(kOverflow);
  return Value::Integer(result);
}

/// Remainder with the sign of `b`, and the floored quotient that goes with it.
std::pair<double, double> FloatDivMod(double a, double b) {
  double mod = std::fmod(a, b);
  double quotient = (a - mod) / b;
  if (mod != 0) {
    if ((b < 0) != (mod < 0)) {
      mod += b;
      quotient -= 1;
    }
  } else {
    mod = std::copysign(0.0, b);
  }
  if (quotient == 0) return {std::copysign(0.0, a / b), mod};
  const double floored = std::floor(quotient);
  return {quotient - floored > 0.5 ? floored + 1 : floored, mod};
}

absl::StatusOr<Value> FloatPower(double a, double b) {
  if (a == 0 && b < 0) return Fail("0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::trunc(b)) {
    return Fail("a negative number has no real power ", b);
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) return Fail("a power is too large");
  return Value::Float(result);
}

absl::StatusOr<Value> FloatArithmetic(Arithmetic op, double a, double b) {
  const bool divides = op == Arithmetic::kDiv || op == Arithmetic::kFloorDiv || op == Arithmetic::kMod;
  if (divides && b == 0) return Fail("division by zero");
  switch (op) {
    case Arithmetic::kAdd:
      return Value::Float(a + b);
    case Arithmetic::kSub:
      return Value::Float(a - b);
    case Arithmetic::kMul:
      return Value::Float(a * b);
    case Arithmetic::kDiv:
      return Value::Float(a / b);
    case Arithmetic::kFloorDiv:
      return Value::Float(FloatDivMod(a, b).first);
    case Arithmetic::kMod:
      return Value::Float(FloatDivMod(a, b).second);
    case Arithmetic::kPow:
      return FloatPower(a, b);
  }
  return Fail("unknown operator");
}

/// One side safe: the other is escaped (markupsafe's rule).
absl::StatusOr<Value> Concatenate(Runtime& runtime, Value a, const Value& b) {
  const bool safe = a.text().safe || b.text().safe;
  if (safe && a.text().safe != b.text().safe) {
    const std::string left = a.text().safe ? std::string(a.str()) : EscapeHtml(a.str());
    return runtime.NewText(Cat(left, b.text().safe ? std::string(b.str()) : EscapeHtml(b.str())), true);
  }
  const size_t total = a.str().size() + b.str().size();
  if (Text* text = a.UniqueText()) {
    KVIST_RETURN_IF_ERROR(runtime.SpendBytes(b.str().size(), total));
    text->bytes += b.str();
    text->code_points.store(-1, std::memory_order_relaxed);
    return a;
  }
  KVIST_RETURN_IF_ERROR(runtime.SpendBytes(total, total));
  return Value::String(Cat(a.str(), b.str()), safe);
}

absl::StatusOr<Value> Repeat(Runtime& runtime, const Value& value, Int times) {
  times = std::max<Int>(times, 0);
  if (value.IsText()) {
    const std::string_view text = value.str();
    if (text.empty()) return value;
    const Int limit = static_cast<Int>(runtime.limits().bytes_max / text.size()) + 1;
    const size_t count = static_cast<size_t>(std::min(times, limit));
    KVIST_RETURN_IF_ERROR(runtime.SpendBytes(count * text.size(), count * text.size()));
    std::string out;
    out.reserve(count * text.size());
    for (size_t i = 0; i < count; ++i) out += text;
    return Value::String(std::move(out), value.text().safe);
  }
  const std::vector<Value>& items = value.sequence().items;
  std::vector<Value> out;
  if (!items.empty()) {
    // One more than the budget could pay for is enough to be refused.
    const Int limit = static_cast<Int>(runtime.limits().steps_max / items.size()) + 1;
    const size_t count = static_cast<size_t>(std::min(times, limit));
    KVIST_RETURN_IF_ERROR(runtime.Spend(count * items.size()));
    out.reserve(count * items.size());
    for (size_t i = 0; i < count; ++i) out.insert(out.end(), items.begin(), items.end());
  }
  return value.IsTuple() ? runtime.NewTuple(std::move(out)) : runtime.NewList(std::move(out));
}

}  // namespace

absl::StatusOr<Value> Apply(Runtime& runtime, Arithmetic op, Value a, const Value& b) {
  if (a.IsIntegral() && b.IsIntegral()) return IntArithmetic(op, a.integer(), b.integer());
  if (a.IsNumber() && b.IsNumber()) return FloatArithmetic(op, a.number(), b.number());
  if (op == Arithmetic::kAdd) {
    if (a.IsText() && b.IsText()) return Concatenate(runtime, std::move(a), b);
    if (a.Is(Kind::kSequence) && b.Is(Kind::kSequence) && a.IsTuple() == b.IsTuple()) {
      std::vector<Value> items;
      items.reserve(a.sequence().items.size() + b.sequence().items.size());
      items.insert(items.end(), a.sequence().items.begin(), a.sequence().items.end());
      items.insert(items.end(), b.sequence().items.begin(), b.sequence().items.end());
      return a.IsTuple() ? runtime.NewTuple(std::move(items)) : runtime.NewList(std::move(items));
    }
  }
  if (op == Arithmetic::kMul) {
    if ((a.IsText() || a.Is(Kind::kSequence)) && b.IsIntegral()) return Repeat(runtime, a, b.integer());
    if ((b.IsText() || b.Is(Kind::kSequence)) && a.IsIntegral()) return Repeat(runtime, b, a.integer());
  }
  if (op == Arithmetic::kMod && a.IsText()) return FormatPercent(runtime, a, b);
  return Unsupported(op, a, b);
}

absl::StatusOr<Value> Negate(const Value& value) {
  if (value.IsIntegral()) return IntArithmetic(Arithmetic::kSub, 0, value.integer());
  if (value.Is(Kind::kFloat)) return Value::Float(-value.number());
  if (value.IsUndefined()) return UndefinedError(value);
  return Fail("'-' is not defined for ", TypeName(value));
}

absl::StatusOr<Value> Positive(const Value& value) {
  if (value.IsIntegral()) return Value::Integer(value.integer());
  if (value.Is(Kind::kFloat)) return value;
  if (value.IsUndefined()) return UndefinedError(value);
  return Fail("'+' is not defined for ", TypeName(value));
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

}  // namespace kvist::jinja
