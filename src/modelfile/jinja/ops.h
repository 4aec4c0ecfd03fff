#pragma once

/// @file
/// Python's operators on values: truth, equality, order, arithmetic, membership, subscripts, iteration.
/// Threads: that of the runtime. Errors are InvalidArgument in plain words (Python would raise TypeError,
/// ZeroDivisionError, OverflowError or jinja2's UndefinedError) or ResourceExhausted.

#include <optional>
#include <string_view>
#include <vector>

#include "modelfile/jinja/runtime.h"

namespace kvist::jinja {

enum class Arithmetic : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
enum class Order : uint8_t { kLess, kLessEqual, kGreater, kGreaterEqual };

/// The error for using an undefined value.
absl::Status UndefinedError(const Value& undefined);

bool Truthy(const Value& value);

/// Python's ==.
absl::StatusOr<bool> Equals(Runtime& runtime, const Value& a, const Value& b);

/// Equal values have equal hashes. Error: the value cannot be a dict key.
absl::StatusOr<uint64_t> Hash(Runtime& runtime, const Value& value);

/// Python's <, <=, >, >=.
absl::StatusOr<bool> Compare(Runtime& runtime, Order order, const Value& a, const Value& b);

/// `a` is consumed: a string that nobody else holds is appended to in place.
absl::StatusOr<Value> Apply(Runtime& runtime, Arithmetic op, Value a, const Value& b);
absl::StatusOr<Value> Negate(const Value& value);
absl::StatusOr<Value> Positive(const Value& value);

/// Stable order of `keys` by Python's <, as indices. Error: keys that cannot be compared.
absl::StatusOr<std::vector<size_t>> SortedOrder(Runtime& runtime, const std::vector<Value>& keys, bool reverse);

/// Python's `item in container`.
absl::StatusOr<bool> Contains(Runtime& runtime, const Value& container, const Value& item);

/// Python's len().
absl::StatusOr<Int> Length(const Value& value);

/// All items that iterating over `value` gives; an iterator is used up.
/// `late_error` receives what a generator meets after its last item; without it that is returned.
absl::StatusOr<std::vector<Value>> Items(Runtime& runtime, const Value& value, absl::Status* late_error = nullptr);
bool IsIterable(const Value& value);

/// jinja2's `value[key]`: what is not there is undefined; methods are found under their names.
absl::StatusOr<Value> GetItem(Runtime& runtime, const Value& value, const Value& key);
/// jinja2's `value.name`: methods before entries.
absl::StatusOr<Value> GetAttribute(Runtime& runtime, const Value& value, std::string_view name);
/// The attribute alone, without the entry of that name; nullopt when there is none.
absl::StatusOr<std::optional<Value>> FindAttribute(Runtime& runtime, const Value& value, std::string_view name);
/// `value[start:stop:step]`; nullptr or None = left out.
absl::StatusOr<Value> Slice(Runtime& runtime, const Value& value, const Value* start, const Value* stop,
                            const Value* step);
/// range(start, stop, step) of at most 100,000 items, as jinja2's sandbox allows. Error: step 0, too long.
absl::StatusOr<Value> NewRange(Int start, Int stop, Int step);

/// Python's int(double): towards zero. Error: not finite, or beyond what Int holds.
absl::StatusOr<Int> TruncateToInt(double value);

/// & < > ' " of `text` as HTML entities.
std::string EscapeHtml(std::string_view text);

}  // namespace kvist::jinja
