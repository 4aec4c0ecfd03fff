#pragma once

/// @file
/// The values a template computes with: Python's None, bool, int, float, str, list, tuple, dict, range and dict views,
/// and jinja2's undefined, namespace, macro and loop. A Value is a small handle; what it points to does not change
/// (as in jinja2's immutable sandbox), except namespaces, loops and iterators.
/// Threads: literals inside a parsed template are shared by renderings on several threads; all else belongs to one
/// rendering. Non-goals: operations (ops.h), text forms (repr.h).

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace kvist::jinja {

/// Python's int as far as templates need it: every JSON integer fits, overflow is an error.
using Int = __int128;

struct BoundMethod;
struct Builtin;
struct DictView;
struct Iterator;
struct Macro;
struct Namespace;
struct Range;
struct Sequence;
class Dict;
class Loop;

/// A string. `safe` marks markupsafe's Markup: escaped already, and escaping what is added to it.
struct Text {
  std::string bytes;  ///< UTF-8.
  bool safe = false;
  mutable std::atomic<int64_t> code_points{-1};  ///< Counted on first use; -1 = not yet.

  Text(std::string text, bool is_safe) : bytes(std::move(text)), safe(is_safe) {}
  int64_t CodePoints() const;
  bool IsAscii() const { return CodePoints() == static_cast<int64_t>(bytes.size()); }
};

/// The hash of a string key, the same for every Text with these bytes.
uint64_t HashText(std::string_view text);

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kSequence,
  kDict,
  kRange,
  kDictView,
  kIterator,
  kNamespace,
  kBuiltin,
  kMethod,
  kMacro,
  kLoop,
};

class Value {
 public:
  /// Undefined, without a reason.
  Value() = default;

  /// Undefined; `why` is the error of whoever uses it, e.g. "'x' is undefined".
  static Value Undefined(std::string why) {
    return Value(Missing{std::make_shared<const std::string>(std::move(why))});
  }
  static Value None() { return Value(Nothing{}); }
  static Value Bool(bool b) { return Value(b); }
  static Value Integer(Int i) { return Value(i); }
  static Value Float(double d) { return Value(d); }
  /// No limit is checked: for short strings and literals. Runtime::NewText is the counted form.
  static Value String(std::string bytes, bool safe = false) {
    return Value(std::shared_ptr<const Text>(std::make_shared<Text>(std::move(bytes), safe)));
  }
  static Value Of(std::shared_ptr<const Sequence> p) { return Value(std::move(p)); }
  static Value Of(std::shared_ptr<const Dict> p) { return Value(std::move(p)); }
  static Value Of(std::shared_ptr<const Range> p) { return Value(std::move(p)); }
  static Value Of(std::shared_ptr<const DictView> p) { return Value(std::move(p)); }
  static Value Of(std::shared_ptr<Iterator> p) { return Value(std::move(p)); }
  static Value Of(std::shared_ptr<const BoundMethod> p) { return Value(std::move(p)); }
  static Value Of(std::shared_ptr<Loop> p) { return Value(std::move(p)); }
  static Value Of(Namespace* p) { return Value(p); }
  static Value Of(const Builtin* p) { return Value(p); }
  static Value Of(const Macro* p) { return Value(p); }

  Kind kind() const { return static_cast<Kind>(rep_.index()); }
  bool Is(Kind k) const { return kind() == k; }
  bool IsUndefined() const { return Is(Kind::kUndefined); }
  bool IsNone() const { return Is(Kind::kNone); }
  bool IsText() const { return Is(Kind::kText); }
  bool IsList() const;
  bool IsTuple() const;
  /// bool or int, which Python lets stand for an int.
  bool IsIntegral() const { return Is(Kind::kInt) || Is(Kind::kBool); }
  bool IsNumber() const { return IsIntegral() || Is(Kind::kFloat); }

  // Each REQUIRES the kind it names.
  bool boolean() const { return std::get<bool>(rep_); }
  /// REQUIRES IsIntegral().
  Int integer() const { return Is(Kind::kBool) ? Int{boolean()} : std::get<Int>(rep_); }
  /// REQUIRES IsNumber(). Nearest double.
  double number() const { return Is(Kind::kFloat) ? std::get<double>(rep_) : static_cast<double>(integer()); }
  const Text& text() const { return *std::get<std::shared_ptr<const Text>>(rep_); }
  std::string_view str() const { return text().bytes; }
  const Sequence& sequence() const { return *std::get<std::shared_ptr<const Sequence>>(rep_); }
  const Dict& dict() const { return *dict_ptr(); }
  const std::shared_ptr<const Dict>& dict_ptr() const { return std::get<std::shared_ptr<const Dict>>(rep_); }
  const Range& range() const { return *std::get<std::shared_ptr<const Range>>(rep_); }
  const DictView& view() const { return *std::get<std::shared_ptr<const DictView>>(rep_); }
  Iterator& iterator() const { return *std::get<std::shared_ptr<Iterator>>(rep_); }
  const BoundMethod& method() const { return *std::get<std::shared_ptr<const BoundMethod>>(rep_); }
  Loop& loop() const { return *std::get<std::shared_ptr<Loop>>(rep_); }
  Namespace& ns() const { return *std::get<Namespace*>(rep_); }
  const Builtin& builtin() const { return *std::get<const Builtin*>(rep_); }
  const Macro& macro() const { return *std::get<const Macro*>(rep_); }

  /// Why an undefined value is undefined; empty when no reason was given.
  std::string_view why() const {
    const auto& reason = std::get<Missing>(rep_).why;
    return reason == nullptr ? std::string_view() : std::string_view(*reason);
  }

  /// The text to append to in place, when no other Value shares it; else nullptr.
  Text* UniqueText();

  /// The same object in memory (Python's `is`).
  bool SameObject(const Value& other) const;

  /// Levels of containers inside; 0 for scalars.
  uint32_t Depth() const;

 private:
  struct Missing {
    std::shared_ptr<const std::string> why;
  };
  struct Nothing {};
  /// In the order of Kind.
  using Rep = std::variant<Missing, Nothing, bool, Int, double, std::shared_ptr<const Text>,
                           std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>, std::shared_ptr<const Range>,
                           std::shared_ptr<const DictView>, std::shared_ptr<Iterator>, Namespace*, const Builtin*,
                           std::shared_ptr<const BoundMethod>, const Macro*, std::shared_ptr<Loop>>;

  template <class T>
  explicit Value(T rep) : rep_(std::in_place_type<T>, std::move(rep)) {}

  Rep rep_;
};

/// list or tuple.
struct Sequence {
  std::vector<Value> items;
  bool is_tuple = false;
  bool is_group = false;  ///< Tuple of groupby: has the attributes `grouper` and `list`.
  uint32_t depth = 1;     ///< Levels of containers, this one included.
};

/// dict in insertion order.
class Dict {
 public:
  std::vector<std::pair<Value, Value>> entries;
  uint32_t depth = 1;

  /// nullptr when absent. `hash` is HashKey(key), `equal(k)` says whether k is the key.
  template <class Equal>
  const Value* Find(uint64_t hash, const Equal& equal) const {
    const size_t entry = Locate(hash, equal);
    return entry == entries.size() ? nullptr : &entries[entry].second;
  }
  const Value* FindText(std::string_view key) const;

  /// Appends; the key must be new. The hash is kept for Find.
  void Append(Value key, Value value, uint64_t hash);

  /// Number of the entry, entries.size() when absent. Arguments as for Find.
  template <class Equal>
  size_t Locate(uint64_t hash, const Equal& equal) const;

 private:
  void Rehash();

  std::vector<uint64_t> hashes_;  ///< [entries]
  std::vector<uint32_t> table_;  ///< Open addressing, power of two; entry number + 1, 0 = empty. Empty below 9 entries.
};

/// range(start, stop, step), step != 0.
struct Range {
  Int start, stop, step;
  Int length;
};

/// What d.keys(), d.values() and d.items() return.
struct DictView {
  enum class Which : uint8_t { kKeys, kValues, kItems };
  std::shared_ptr<const Dict> dict;
  Which which;
};

/// A generator: may be walked once. Its items are computed ahead, so an error met there waits until it is reached.
struct Iterator {
  std::vector<Value> items;
  size_t next = 0;
  absl::Status error;  ///< Found after `items`.
  uint32_t depth = 1;
};

inline bool Value::IsList() const {
  return Is(Kind::kSequence) && !sequence().is_tuple;
}
inline bool Value::IsTuple() const {
  return Is(Kind::kSequence) && sequence().is_tuple;
}

template <class Equal>
size_t Dict::Locate(uint64_t hash, const Equal& equal) const {
  if (table_.empty()) {
    for (size_t i = 0; i < entries.size(); ++i) {
      if (hashes_[i] == hash && equal(entries[i].first)) return i;
    }
    return entries.size();
  }
  for (size_t slot = hash & (table_.size() - 1); table_[slot] != 0; slot = (slot + 1) & (table_.size() - 1)) {
    const size_t i = table_[slot] - 1;
    if (hashes_[i] == hash && equal(entries[i].first)) return i;
  }
  return entries.size();
}

/// A method of a built-in type with its receiver, e.g. what `name.upper` gives.
struct BoundMethod {
  Value self;
  const Builtin* method;
};

/// namespace(...): the one thing a template may change. Owned by the rendering, so that cycles do no harm.
struct Namespace {
  std::vector<std::pair<std::string, Value>> entries;

  Value* Find(std::string_view name);
  void Set(std::string_view name, Value value);
};

/// State of a running for loop, seen by the template as `loop`. Items that a filter of the loop must approve are
/// pulled one at a time, as late as jinja2 pulls them.
class Loop {
 public:
  /// What the loop's `if` lets through: the item as the loop sees it, or nothing. Empty = all items as they are.
  using Filter = std::function<absl::StatusOr<std::optional<Value>>(const Value&)>;

  Loop(std::vector<Value> source, absl::Status source_error, Filter filter);

  /// Moves to the next item; false at the end.
  absl::StatusOr<bool> Advance();
  /// The loop ended: nothing is pulled any more (the filter may refer to a scope that is gone).
  void Close();

  const Value& current() const { return current_; }
  const Value& previous() const { return previous_; }
  Int index0() const { return index0_; }
  /// The item after the current one, or nullptr at the end.
  absl::StatusOr<const Value*> Peek();
  absl::StatusOr<Int> Length();
  uint32_t depth() const { return depth_; }

 private:
  absl::StatusOr<std::optional<Value>> Pull();

  std::vector<Value> source_;
  absl::Status source_error_;
  Filter filter_;
  size_t next_ = 0;            ///< Into source_.
  std::vector<Value> pulled_;  ///< Passed the filter, not yet current; front first.
  size_t pulled_next_ = 0;
  Value previous_, current_;
  Int index0_ = -1;
  uint32_t depth_ = 1;
};

/// Python's name of the type, e.g. "str".
std::string_view TypeName(const Value& value);

}  // namespace kvist::jinja
