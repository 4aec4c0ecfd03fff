#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/hash/hash.h"
#include "base/status.h"
#include "modelfile/jinja/ops.h"

namespace kvist::jinja {
namespace {

/// 2^127, the first double beyond Int.
constexpr double kIntEnd = 170141183460469231731687303715884105728.0;

/// Exact order of an int and a double: -1, 0, 1; nullopt when the double is NaN.
std::optional<int> CompareIntDouble(Int i, double d) {
  if (std::isnan(d)) return std::nullopt;
  if (d >= kIntEnd) return -1;
  if (d < -kIntEnd) return 1;
  const double whole = std::trunc(d);
  const Int truncated = static_cast<Int>(whole);
  if (i != truncated) return i < truncated ? -1 : 1;
  if (d == whole) return 0;
  return d > whole ? -1 : 1;
}

/// REQUIRES numbers.
std::optional<int> CompareNumbers(const Value& a, const Value& b) {
  if (a.IsIntegral() && b.IsIntegral()) {
    const Int x = a.integer(), y = b.integer();
    return x < y ? -1 : x > y;
  }
  if (a.IsIntegral()) return CompareIntDouble(a.integer(), b.number());
  if (b.IsIntegral()) {
    const std::optional<int> reversed = CompareIntDouble(b.integer(), a.number());
    return reversed.has_value() ? std::optional<int>(-*reversed) : std::nullopt;
  }
  const double x = a.number(), y = b.number();
  if (std::isnan(x) || std::isnan(y)) return std::nullopt;
  return x < y ? -1 : x > y;
}

absl::StatusOr<bool> SequencesEqual(Runtime& runtime, const Sequence& a, const Sequence& b) {
  if (&a == &b) return true;
  if (a.is_tuple != b.is_tuple || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    KVIST_ASSIGN_OR_RETURN(const bool equal, Equals(runtime, a.items[i], b.items[i]));
    if (!equal) return false;
  }
  return true;
}

absl::StatusOr<bool> DictsEqual(Runtime& runtime, const Dict& a, const Dict& b) {
  if (&a == &b) return true;
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    KVIST_ASSIGN_OR_RETURN(const Value* other, runtime.FindKey(b, key));
    if (other == nullptr) return false;
    KVIST_ASSIGN_OR_RETURN(const bool equal, Equals(runtime, value, *other));
    if (!equal) return false;
  }
  return true;
}

bool RangesEqual(const Range& a, const Range& b) {
  if (a.length != b.length) return false;
  return a.length == 0 || (a.start == b.start && (a.length == 1 || a.step == b.step));
}

bool OrderHolds(Order order, int sign) {
  switch (order) {
    case Order::kLess:
      return sign < 0;
    case Order::kLessEqual:
      return sign <= 0;
    case Order::kGreater:
      return sign > 0;
    case Order::kGreaterEqual:
      return sign >= 0;
  }
  return false;
}

std::string_view Symbol(Order order) {
  switch (order) {
    case Order::kLess:
      return "<";
    case Order::kLessEqual:
      return "<=";
    case Order::kGreater:
      return ">";
    case Order::kGreaterEqual:
      return ">=";
  }
  return "?";
}

}  // namespace

absl::Status UndefinedError(const Value& undefined) {
  return Fail(undefined.why().empty() ? "a value is undefined" : undefined.why());
}

bool Truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean();
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.number() != 0;
    case Kind::kText:
      return !value.str().empty();
    case Kind::kSequence:
      return !value.sequence().items.empty();
    case Kind::kDict:
      return !value.dict().entries.empty();
    case Kind::kRange:
      return value.range().length != 0;
    case Kind::kDictView:
      return !value.view().dict->entries.empty();
    default:
      return true;
  }
}

absl::StatusOr<bool> Equals(Runtime& runtime, const Value& a, const Value& b) {
  KVIST_RETURN_IF_ERROR(runtime.Spend(1));
  if (a.IsNumber() && b.IsNumber()) return CompareNumbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kText:
      KVIST_RETURN_IF_ERROR(runtime.Spend(a.str().size() / Runtime::kBytesPerStep));
      return a.str() == b.str();
    case Kind::kSequence:
      return SequencesEqual(runtime, a.sequence(), b.sequence());
    case Kind::kDict:
      return DictsEqual(runtime, a.dict(), b.dict());
    case Kind::kRange:
      return RangesEqual(a.range(), b.range());
    case Kind::kMethod:
      return a.method().method == b.method().method && a.method().self.SameObject(b.method().self);
    default:
      return a.SameObject(b);
  }
}

absl::StatusOr<uint64_t> Hash(Runtime& runtime, const Value& value) {
  KVIST_RETURN_IF_ERROR(runtime.Spend(1));
  switch (value.kind()) {
    case Kind::kUndefined:
      return 1;
    case Kind::kNone:
      return 2;
    case Kind::kBool:
    case Kind::kInt: {
      const auto bits = static_cast<unsigned __int128>(value.integer());
      return absl::HashOf(static_cast<uint64_t>(bits), static_cast<uint64_t>(bits >> 64));
    }
    case Kind::kFloat: {
      const double d = value.number();
      if (d == std::trunc(d) && d > -kIntEnd && d < kIntEnd) {  // Equal to an int: hashed as it.
        return Hash(runtime, Value::Integer(static_cast<Int>(d)));
      }
      return absl::HashOf(d);
    }
    case Kind::kText:
      KVIST_RETURN_IF_ERROR(runtime.Spend(value.str().size() / Runtime::kBytesPerStep));
      return HashText(value.str());
    case Kind::kSequence: {
      if (!value.sequence().is_tuple) break;
      uint64_t hash = 3;
      for (const Value& item : value.sequence().items) {
        KVIST_ASSIGN_OR_RETURN(const uint64_t part, Hash(runtime, item));
        hash = absl::HashOf(hash, part);
      }
      return hash;
    }
    case Kind::kRange: {
      const Range& range = value.range();
      return absl::HashOf(static_cast<uint64_t>(range.length),
                          range.length > 0 ? static_cast<uint64_t>(range.start) : 0);
    }
    case Kind::kNamespace:
      return absl::HashOf(&value.ns());
    case Kind::kBuiltin:
      return absl::HashOf(&value.builtin());
    case Kind::kMacro:
      return absl::HashOf(&value.macro());
    case Kind::kMethod:
      return absl::HashOf(value.method().method);
    case Kind::kIterator:
      return absl::HashOf(&value.iterator());
    case Kind::kLoop:
      return absl::HashOf(&value.loop());
    default:
      break;
  }
  return Fail("a ", TypeName(value), " cannot be a key: it is unhashable");
}

absl::StatusOr<bool> Compare(Runtime& runtime, Order order, const Value& a, const Value& b) {
  KVIST_RETURN_IF_ERROR(runtime.Spend(1));
  if (a.IsUndefined()) return UndefinedError(a);
  if (b.IsUndefined()) return UndefinedError(b);
  if (a.IsNumber() && b.IsNumber()) {
    const std::optional<int> sign = CompareNumbers(a, b);
    return sign.has_value() && OrderHolds(order, *sign);
  }
  if (a.IsText() && b.IsText()) {  // The order of UTF-8 bytes is the order of code points.
    KVIST_RETURN_IF_ERROR(runtime.Spend(a.str().size() / Runtime::kBytesPerStep));
    return OrderHolds(order, a.str().compare(b.str()));
  }
  if (a.Is(Kind::kSequence) && b.Is(Kind::kSequence) && a.IsTuple() == b.IsTuple()) {
    const std::vector<Value>&x = a.sequence().items, &y = b.sequence().items;
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      KVIST_ASSIGN_OR_RETURN(const bool equal, Equals(runtime, x[i], y[i]));
      if (!equal) return Compare(runtime, order, x[i], y[i]);
    }
    return OrderHolds(order, x.size() < y.size() ? -1 : x.size() > y.size());
  }
  return Fail("'", Symbol(order), "' is not defined between ", TypeName(a), " and ", TypeName(b));
}

absl::StatusOr<std::vector<size_t>> SortedOrder(Runtime& runtime, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  absl::Status status;
  const auto less = [&](size_t a, size_t b) {
    if (!status.ok()) return false;
    absl::StatusOr<bool> result = Compare(runtime, Order::kLess, keys[a], keys[b]);
    if (!result.ok()) status = result.status();
    return result.ok() && *result;
  };
  // Merge sort, which no inconsistent order (NaN, a failed comparison) can lead astray. Python reverses by sorting the
  // reversed input and reversing again, which keeps equal items in their order.
  if (reverse) std::reverse(order.begin(), order.end());
  std::vector<size_t> merged(order.size());
  for (size_t width = 1; width < order.size() && status.ok(); width *= 2) {
    for (size_t begin = 0; begin < order.size(); begin += 2 * width) {
      const auto first = order.begin() + static_cast<ptrdiff_t>(begin);
      const auto middle = order.begin() + static_cast<ptrdiff_t>(std::min(begin + width, order.size()));
      const auto last = order.begin() + static_cast<ptrdiff_t>(std::min(begin + 2 * width, order.size()));
      std::merge(first, middle, middle, last, merged.begin() + static_cast<ptrdiff_t>(begin), less);
    }
    order.swap(merged);
  }
  KVIST_RETURN_IF_ERROR(status);
  if (reverse) std::reverse(order.begin(), order.end());
  return order;
}

absl::StatusOr<Int> TruncateToInt(double value) {
  if (std::isnan(value)) return Fail("NaN has no integer value");
  if (std::isinf(value)) return Fail("infinity has no integer value");
  if (value >= kIntEnd || value < -kIntEnd) return Fail("an integer is too large");
  return static_cast<Int>(value);
}

}  // namespace kvist::jinja
