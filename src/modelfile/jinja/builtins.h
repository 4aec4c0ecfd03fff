#pragma once

/// @file
/// The tables of built-in filters, tests, functions and methods, one per source file. A new one is one row in its
/// table. Threads: any (the tables are constant).

#include <span>

#include "modelfile/jinja/runtime.h"

namespace kvist::jinja {

std::span<const Builtin> TextFilters();
std::span<const Builtin> SequenceFilters();
std::span<const Builtin> SelectionFilters();
std::span<const Builtin> ValueFilters();
std::span<const Builtin> Tests();
std::span<const Builtin> Globals();
std::span<const Builtin> TextMethods();
std::span<const Builtin> TextPredicates();
std::span<const Builtin> SequenceMethods();
std::span<const Builtin> DictMethods();
std::span<const Builtin> LoopMethods();

/// Follows "a.b.0" from item to item, as filters with an `attribute` argument do.
class AttributePath {
 public:
  /// `attribute`: a str with parts between dots, an int, or None for the item itself.
  explicit AttributePath(const Value& attribute);

  /// `fallback` (may be nullptr) replaces what is undefined on the way.
  absl::StatusOr<Value> Get(Runtime& runtime, const Value& item, const Value* fallback = nullptr) const;

 private:
  std::vector<Value> parts_;
};

/// Lower case for str, other values as they are: how filters compare when not case-sensitive.
absl::StatusOr<Value> IgnoreCase(Runtime& runtime, const Value& value);

}  // namespace kvist::jinja
