#include <algorithm>

#include "base/status.h"
#include "modelfile/jinja/macro.h"
#include "modelfile/jinja/ops.h"
#include "modelfile/jinja/repr.h"
#include "modelfile/jinja/unicode.h"

namespace kvist::jinja {
namespace {

/// jinja2's sandbox.MAX_RANGE.
constexpr Int kRangeItemsMax = 100000;

bool IsDunder(std::string_view name) {
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

Value Unsafe(const Value& value, std::string_view name) {
  return Value::Undefined(Cat("access to attribute '", name, "' of a ", TypeName(value), " is not allowed"));
}

/// Methods that change their receiver: jinja2's immutable sandbox hides them.
bool IsMutator(const Value& value, std::string_view name) {
  constexpr std::string_view kList[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
  constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (value.IsList()) return std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
  if (value.Is(Kind::kDict)) return std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
  return false;
}

absl::StatusOr<std::optional<Value>> LoopAttribute(const Value& value, std::string_view name) {
  Loop& loop = value.loop();
  const Int index0 = loop.index0();
  if (name == "index") return Value::Integer(index0 + 1);
  if (name == "index0") return Value::Integer(index0);
  if (name == "first") return Value::Bool(index0 == 0);
  if (name == "depth") return Value::Integer(1);
  if (name == "depth0") return Value::Integer(0);
  if (name == "previtem") return index0 == 0 ? Value::Undefined("there is no previous item") : loop.previous();
  if (name == "last" || name == "nextitem") {
    KVIST_ASSIGN_OR_RETURN(const Value* next, loop.Peek());
    if (name == "last") return Value::Bool(next == nullptr);
    return next == nullptr ? Value::Undefined("there is no next item") : *next;
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    KVIST_ASSIGN_OR_RETURN(const Int length, loop.Length());
    if (name == "length") return Value::Integer(length);
    return Value::Integer(length - index0 - (name == "revindex0" ? 1 : 0));
  }
  return std::nullopt;
}

std::optional<Value> MacroAttribute(const ast::Function& function, std::string_view name) {
  if (name == "name") return function.name.empty() ? Value::None() : Value::String(function.name);
  if (name == "caller") return Value::Bool(function.caller_slot.has_value());
  if (name == "catch_kwargs") return Value::Bool(function.kwargs_slot.has_value());
  if (name == "catch_varargs") return Value::Bool(function.varargs_slot.has_value());
  if (name != "arguments") return std::nullopt;
  auto names = std::make_shared<Sequence>();
  names->is_tuple = true;
  for (const ast::Parameter& parameter : function.parameters) names->items.push_back(Value::String(parameter.name));
  return Value::Of(std::shared_ptr<const Sequence>(std::move(names)));
}

std::optional<Value> PlainAttribute(const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt:
      if (name == "real" || name == "numerator") return Value::Integer(value.integer());
      if (name == "imag") return Value::Integer(0);
      if (name == "denominator") return Value::Integer(1);
      break;
    case Kind::kFloat:
      if (name == "real") return value;
      if (name == "imag") return Value::Float(0);
      break;
    case Kind::kSequence:
      if (value.sequence().is_group && name == "grouper") return value.sequence().items[0];
      if (value.sequence().is_group && name == "list") return value.sequence().items[1];
      break;
    case Kind::kRange:
      if (name == "start") return Value::Integer(value.range().start);
      if (name == "stop") return Value::Integer(value.range().stop);
      if (name == "step") return Value::Integer(value.range().step);
      break;
    case Kind::kNamespace:
      if (const Value* entry = value.ns().Find(name)) return *entry;
      break;
    case Kind::kMacro:
      return MacroAttribute(*value.macro().function, name);
    default:
      break;
  }
  return std::nullopt;
}

absl::StatusOr<Value> TextItem(const Value& value, Int index, Runtime& runtime) {
  const Text& text = value.text();
  const Int count = text.CodePoints();
  if (index < 0) index += count;
  if (index < 0 || index >= count) return Value();
  if (text.IsAscii()) return Value::String(std::string(1, text.bytes[static_cast<size_t>(index)]), text.safe);
  const size_t begin = OffsetOf(text.bytes, static_cast<size_t>(index));
  KVIST_RETURN_IF_ERROR(runtime.Spend(begin / Runtime::kBytesPerStep));
  return Value::String(text.bytes.substr(begin, DecodeAt(text.bytes, begin).bytes), text.safe);
}

/// value[key] when both exist; undefined without a reason when not.
absl::StatusOr<Value> Subscript(Runtime& runtime, const Value& value, const Value& key) {
  if (value.Is(Kind::kDict)) {
    absl::StatusOr<const Value*> found = runtime.FindKey(value.dict(), key);
    if (absl::IsResourceExhausted(found.status())) return found.status();
    return found.ok() && *found != nullptr ? **found : Value();
  }
  if (!key.IsIntegral()) return Value();
  Int index = key.integer();
  if (value.IsText()) return TextItem(value, index, runtime);
  if (value.Is(Kind::kSequence)) {
    const std::vector<Value>& items = value.sequence().items;
    if (index < 0) index += static_cast<Int>(items.size());
    return index >= 0 && index < static_cast<Int>(items.size()) ? items[static_cast<size_t>(index)] : Value();
  }
  if (value.Is(Kind::kRange)) {
    const Range& range = value.range();
    if (index < 0) index += range.length;
    return index >= 0 && index < range.length ? Value::Integer(range.start + index * range.step) : Value();
  }
  return Value();
}

Value NotThere(const Value& value, const Value& key, Runtime& runtime) {
  std::string name;
  if (!AppendRepr(runtime, key, name).ok()) name = "?";
  if (name.size() > 100) name = Cat(name.substr(0, 97), "...");
  const std::string_view what = key.IsText() ? "attribute " : "element ";
  if (value.IsNone()) return Value::Undefined(Cat("None has no ", what, name));
  return Value::Undefined(Cat("a ", TypeName(value), " has no ", what, name));
}

struct SliceBounds {
  Int start, stop, step, count;
};

absl::StatusOr<SliceBounds> ResolveSlice(Int length, const Value* start, const Value* stop, const Value* step) {
  const auto part = [](const Value* value, Int absent) -> absl::StatusOr<Int> {
    if (value == nullptr || value->IsNone()) return absent;
    if (!value->IsIntegral()) return Fail("a slice needs ints or None, got ", TypeName(*value));
    return value->integer();
  };
  KVIST_ASSIGN_OR_RETURN(Int by, part(step, 1));
  if (by == 0) return Fail("a slice needs a step other than 0");
  by = std::clamp<Int>(by, -length - 1, length + 1);  // Longer steps reach no more items.
  const Int low = by > 0 ? 0 : -1, high = by > 0 ? length : length - 1;
  const auto clamp = [&](Int index) {
    if (index < 0) index = index < -length ? low : index + length;
    return std::clamp(index, low, high);
  };
  const bool has_start = start != nullptr && !start->IsNone(), has_stop = stop != nullptr && !stop->IsNone();
  KVIST_ASSIGN_OR_RETURN(const Int from, part(start, 0));
  KVIST_ASSIGN_OR_RETURN(const Int to, part(stop, 0));
  const Int first = has_start ? clamp(from) : (by > 0 ? low : high);
  const Int last = has_stop ? clamp(to) : (by > 0 ? high : low);
  const Int span = by > 0 ? last - first : first - last;
  const Int stride = by > 0 ? by : -by;
  return SliceBounds{first, last, by, span <= 0 ? 0 : (span + stride - 1) / stride};
}

absl::StatusOr<Value> SliceText(Runtime& runtime, const Text& text, const SliceBounds& bounds) {
  KVIST_RETURN_IF_ERROR(runtime.Spend(text.bytes.size() / Runtime::kBytesPerStep));
  if (bounds.step == 1) {
    const auto first = static_cast<size_t>(bounds.start), count = static_cast<size_t>(bounds.count);
    if (text.IsAscii()) return runtime.NewText(text.bytes.substr(count == 0 ? 0 : first, count), text.safe);
    const size_t begin = OffsetOf(text.bytes, count == 0 ? 0 : first);
    const std::string_view rest = std::string_view(text.bytes).substr(begin);
    return runtime.NewText(std::string(rest.substr(0, OffsetOf(rest, count))), text.safe);
  }
  std::vector<size_t> offsets;  // [code points]
  KVIST_RETURN_IF_ERROR(runtime.Spend(text.bytes.size() / 4));
  for (size_t pos = 0; pos < text.bytes.size(); pos += DecodeAt(text.bytes, pos).bytes) offsets.push_back(pos);
  std::string out;
  for (Int i = 0; i < bounds.count; ++i) {
    const size_t pos = offsets[static_cast<size_t>(bounds.start + i * bounds.step)];
    out += std::string_view(text.bytes).substr(pos, DecodeAt(text.bytes, pos).bytes);
  }
  return runtime.NewText(std::move(out), text.safe);
}

}  // namespace

absl::StatusOr<bool> Contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kText: {
      if (!item.IsText()) return Fail("'in' on a str needs a str, got ", TypeName(item));
      KVIST_RETURN_IF_ERROR(runtime.Spend(container.str().size() / Runtime::kBytesPerStep));
      return container.str().find(item.str()) != std::string_view::npos;
    }
    case Kind::kDict: {
      KVIST_ASSIGN_OR_RETURN(const Value* found, runtime.FindKey(container.dict(), item));
      return found != nullptr;
    }
    case Kind::kSequence:
      for (const Value& candidate : container.sequence().items) {
        KVIST_ASSIGN_OR_RETURN(const bool equal, Equals(runtime, candidate, item));
        if (equal) return true;
      }
      return false;
    case Kind::kIterator: {  // Uses up the items before the one found.
      Iterator& iterator = container.iterator();
      while (iterator.next < iterator.items.size()) {
        KVIST_ASSIGN_OR_RETURN(const bool equal, Equals(runtime, iterator.items[iterator.next++], item));
        if (equal) return true;
      }
      KVIST_RETURN_IF_ERROR(iterator.error);
      return false;
    }
    default: {
      KVIST_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(runtime, container));
      for (const Value& candidate : items) {
        KVIST_ASSIGN_OR_RETURN(const bool equal, Equals(runtime, candidate, item));
        if (equal) return true;
      }
      return false;
    }
  }
}

absl::StatusOr<Int> Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kText:
      return value.text().CodePoints();
    case Kind::kSequence:
      return static_cast<Int>(value.sequence().items.size());
    case Kind::kDict:
      return static_cast<Int>(value.dict().entries.size());
    case Kind::kRange:
      return value.range().length;
    case Kind::kDictView:
      return static_cast<Int>(value.view().dict->entries.size());
    case Kind::kLoop:
      return value.loop().Length();
    default:
      return Fail("a ", TypeName(value), " has no length");
  }
}

bool IsIterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kText:
    case Kind::kSequence:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kDictView:
    case Kind::kIterator:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

absl::StatusOr<std::vector<Value>> Items(Runtime& runtime, const Value& value, absl::Status* late_error) {
  std::vector<Value> out;
  switch (value.kind()) {
    case Kind::kUndefined:
      return out;
    case Kind::kText: {
      const Text& text = value.text();
      KVIST_RETURN_IF_ERROR(runtime.Spend(static_cast<uint64_t>(text.CodePoints()) * Runtime::kStepsPerItem));
      for (size_t pos = 0; pos < text.bytes.size();) {
        const size_t bytes = DecodeAt(text.bytes, pos).bytes;
        out.push_back(Value::String(text.bytes.substr(pos, bytes), text.safe));
        pos += bytes;
      }
      return out;
    }
    case Kind::kSequence:
      KVIST_RETURN_IF_ERROR(runtime.Spend(value.sequence().items.size()));
      return value.sequence().items;
    case Kind::kDict:
      KVIST_RETURN_IF_ERROR(runtime.Spend(value.dict().entries.size()));
      for (const auto& entry : value.dict().entries) out.push_back(entry.first);
      return out;
    case Kind::kRange: {
      const Range& range = value.range();
      KVIST_RETURN_IF_ERROR(runtime.Spend(static_cast<uint64_t>(range.length) * Runtime::kStepsPerItem));
      for (Int i = 0; i < range.length; ++i) out.push_back(Value::Integer(range.start + i * range.step));
      return out;
    }
    case Kind::kDictView: {
      const DictView& view = value.view();
      KVIST_RETURN_IF_ERROR(runtime.Spend(view.dict->entries.size()));
      for (const auto& [key, item] : view.dict->entries) {
        if (view.which == DictView::Which::kItems) {
          KVIST_ASSIGN_OR_RETURN(Value pair, runtime.NewTuple({key, item}));
          out.push_back(std::move(pair));
        } else {
          out.push_back(view.which == DictView::Which::kKeys ? key : item);
        }
      }
      return out;
    }
    case Kind::kIterator: {
      Iterator& iterator = value.iterator();
      KVIST_RETURN_IF_ERROR(runtime.Spend(iterator.items.size() - iterator.next));
      out.assign(iterator.items.begin() + static_cast<ptrdiff_t>(iterator.next), iterator.items.end());
      iterator.next = iterator.items.size();
      if (late_error != nullptr) {
        *late_error = iterator.error;
      } else if (!iterator.error.ok()) {
        return iterator.error;
      }
      iterator.error = absl::OkStatus();
      return out;
    }
    case Kind::kLoop:
      return Fail("walking a loop object itself is not supported");
    default:
      return Fail("a ", TypeName(value), " cannot be iterated over");
  }
}

absl::StatusOr<std::optional<Value>> FindAttribute(Runtime& runtime, const Value& value, std::string_view name) {
  KVIST_RETURN_IF_ERROR(runtime.Spend(1));
  if (IsDunder(name) || IsMutator(value, name)) return Unsafe(value, name);
  std::optional<Value> found;
  if (value.Is(Kind::kLoop)) {
    KVIST_ASSIGN_OR_RETURN(found, LoopAttribute(value, name));
  } else {
    found = PlainAttribute(value, name);
  }
  if (!found.has_value()) {
    if (const Builtin* method = FindMethod(value, name)) {
      found = Value::Of(std::make_shared<const BoundMethod>(BoundMethod{value, method}));
    }
  }
  if (found.has_value() && name.starts_with("_")) return Unsafe(value, name);
  return found;
}

absl::StatusOr<Value> GetAttribute(Runtime& runtime, const Value& value, std::string_view name) {
  if (value.IsUndefined() && name != "__class__") return UndefinedError(value);
  if (value.Is(Kind::kDict) && FindMethod(value, name) == nullptr && !IsMutator(value, name) && !IsDunder(name)) {
    if (const Value* entry = value.dict().FindText(name)) return *entry;  // The usual case, short.
  } else {
    KVIST_ASSIGN_OR_RETURN(std::optional<Value> found, FindAttribute(runtime, value, name));
    if (found.has_value()) return *std::move(found);
  }
  return NotThere(value, Value::String(std::string(name)), runtime);
}

absl::StatusOr<Value> GetItem(Runtime& runtime, const Value& value, const Value& key) {
  if (value.IsUndefined()) return UndefinedError(value);
  KVIST_ASSIGN_OR_RETURN(Value item, Subscript(runtime, value, key));
  if (!item.IsUndefined() || !item.why().empty()) return item;
  if (key.IsText()) {
    KVIST_ASSIGN_OR_RETURN(std::optional<Value> found, FindAttribute(runtime, value, key.str()));
    if (found.has_value()) return *std::move(found);
  }
  return NotThere(value, key, runtime);
}

absl::StatusOr<Value> Slice(Runtime& runtime, const Value& value, const Value* start, const Value* stop,
                            const Value* step) {
  if (value.IsUndefined()) return UndefinedError(value);
  if (!value.IsText() && !value.Is(Kind::kSequence) && !value.Is(Kind::kRange)) {
    return Fail("a ", TypeName(value), " cannot be sliced");
  }
  KVIST_ASSIGN_OR_RETURN(const Int length, Length(value));
  KVIST_ASSIGN_OR_RETURN(const SliceBounds bounds, ResolveSlice(length, start, stop, step));
  if (value.IsText()) return SliceText(runtime, value.text(), bounds);
  if (value.Is(Kind::kRange)) {
    const Range& range = value.range();
    const Int first = range.start + bounds.start * range.step;
    return NewRange(first, range.start + bounds.stop * range.step, bounds.step * range.step);
  }
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(bounds.count));
  for (Int i = 0; i < bounds.count; ++i) {
    items.push_back(value.sequence().items[static_cast<size_t>(bounds.start + i * bounds.step)]);
  }
  return value.IsTuple() ? runtime.NewTuple(std::move(items)) : runtime.NewList(std::move(items));
}

absl::StatusOr<Value> NewRange(Int start, Int stop, Int step) {
  if (step == 0) return Fail("range() needs a step other than 0");
  // Far beyond any length that is allowed, and far from overflow.
  constexpr Int kFar = Int{1} << 120;
  if (std::max({start, stop, step}) > kFar || std::min({start, stop, step}) < -kFar) {
    return Fail("range() argument is too large");
  }
  const Int span = step > 0 ? stop - start : start - stop;
  const Int stride = step > 0 ? step : -step;
  const Int length = span <= 0 ? 0 : (span + stride - 1) / stride;
  if (length > kRangeItemsMax) return Fail("range() is longer than ", static_cast<int64_t>(kRangeItemsMax), " items");
  return Value::Of(std::make_shared<const Range>(Range{start, stop, step, length}));
}

}  // namespace kvist::jinja
