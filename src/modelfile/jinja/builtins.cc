#include "modelfile/jinja/builtins.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "modelfile/jinja/ops.h"
#include "modelfile/jinja/strings.h"
#include "modelfile/jinja/unicode.h"

namespace kvist::jinja {
namespace {

using Index = absl::flat_hash_map<std::string_view, const Builtin*>;

Index IndexOf(std::initializer_list<std::span<const Builtin>> tables) {
  Index index;
  for (const std::span<const Builtin> table : tables) {
    for (const Builtin& builtin : table) index.emplace(builtin.name, &builtin);
  }
  return index;
}

const Builtin* Lookup(const Index& index, std::string_view name) {
  const auto it = index.find(name);
  return it == index.end() ? nullptr : it->second;
}

}  // namespace

const Builtin* FindFilter(std::string_view name) {
  static const Index index = IndexOf({TextFilters(), SequenceFilters(), SelectionFilters(), ValueFilters()});
  return Lookup(index, name);
}

const Builtin* FindTest(std::string_view name) {
  static const Index index = IndexOf({Tests()});
  return Lookup(index, name);
}

const Builtin* FindGlobal(std::string_view name) {
  static const Index index = IndexOf({Globals()});
  return Lookup(index, name);
}

const Builtin* FindMethod(const Value& receiver, std::string_view name) {
  static const Index text = IndexOf({TextMethods(), TextPredicates()});
  static const Index sequence = IndexOf({SequenceMethods()});
  static const Index dict = IndexOf({DictMethods()});
  static const Index loop = IndexOf({LoopMethods()});
  switch (receiver.kind()) {
    case Kind::kText:
      return Lookup(text, name);
    case Kind::kSequence:
    case Kind::kRange:
      if (name == "copy" && !receiver.IsList()) return nullptr;
      return Lookup(sequence, name);
    case Kind::kDict:
      return Lookup(dict, name);
    case Kind::kLoop:
      return Lookup(loop, name);
    default:
      return nullptr;
  }
}

AttributePath::AttributePath(const Value& attribute) {
  if (attribute.IsNone()) return;
  if (!attribute.IsText()) {
    parts_.push_back(attribute);
    return;
  }
  for (const std::string_view part : SplitAt(attribute.str(), '.')) {
    const bool is_number = !part.empty() && part.size() <= 18 &&
                           std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!is_number) {
      parts_.push_back(Value::String(std::string(part)));
      continue;
    }
    Int index = 0;
    for (const char c : part) index = index * 10 + (c - '0');
    parts_.push_back(Value::Integer(index));
  }
}

absl::StatusOr<Value> AttributePath::Get(Runtime& runtime, const Value& item, const Value* fallback) const {
  Value value = item;
  for (const Value& part : parts_) {
    KVIST_RETURN_IF_ERROR(runtime.Spend(1));
    KVIST_ASSIGN_OR_RETURN(value, GetItem(runtime, value, part));
    if (value.IsUndefined() && fallback != nullptr && !fallback->IsNone()) value = *fallback;
  }
  return value;
}

absl::StatusOr<Value> IgnoreCase(Runtime& runtime, const Value& value) {
  if (!value.IsText()) return value;
  return runtime.NewText(ToLower(value.str()), value.text().safe);
}

}  // namespace kvist::jinja
