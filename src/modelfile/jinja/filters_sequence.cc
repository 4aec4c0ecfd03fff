#include <algorithm>

#include "base/status.h"
#include "modelfile/jinja/builtins.h"
#include "modelfile/jinja/ops.h"
#include "modelfile/jinja/repr.h"
#include "modelfile/jinja/strings.h"
#include "modelfile/jinja/unicode.h"

namespace kvist::jinja {
namespace {

using Result = absl::StatusOr<Value>;

Result LengthFilter(Runtime&, const Value& self, const Args&) {
  KVIST_ASSIGN_OR_RETURN(const Int length, Length(self));
  return Value::Integer(length);
}

Result First(Runtime& runtime, const Value& self, const Args&) {
  const Value nothing = Value::Undefined("there is no first item: the sequence is empty");
  if (self.Is(Kind::kIterator)) {  // Takes one item and leaves the others.
    Iterator& iterator = self.iterator();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
    KVIST_RETURN_IF_ERROR(iterator.error);
    return nothing;
  }
  if (self.IsText()) {
    const std::string_view text = self.str();
    return text.empty() ? nothing
                        : Value::String(std::string(text.substr(0, DecodeAt(text, 0).bytes)), self.text().safe);
  }
  if (self.Is(Kind::kSequence)) return self.sequence().items.empty() ? nothing : self.sequence().items.front();
  KVIST_ASSIGN_OR_RETURN(std::vector<Value> items, Items(runtime, self));
  return items.empty() ? nothing : items.front();
}

/// What Python's reversed() takes.
bool IsReversible(const Value& value) {
  return IsIterable(value) && !value.Is(Kind::kIterator) && !value.Is(Kind::kLoop);
}

Result Last(Runtime& runtime, const Value& self, const Args&) {
  const Value nothing = Value::Undefined("there is no last item: the sequence is empty");
  if (!IsReversible(self)) return Fail("a ", TypeName(self), " has no last item");
  if (self.IsText()) {
    const std::string_view text = self.str();
    if (text.empty()) return nothing;
    return Value::String(std::string(text.substr(PreviousStart(text, text.size()))), self.text().safe);
  }
  if (self.Is(Kind::kSequence)) return self.sequence().items.empty() ? nothing : self.sequence().items.back();
  KVIST_ASSIGN_OR_RETURN(std::vector<Value> items, Items(runtime, self));
  return items.empty() ? nothing : items.back();
}

Result List(Runtime& runtime, const Value& self, const Args&) {
  KVIST_ASSIGN_OR_RETURN(std::vector<Value> items, Items(runtime, self));
  return runtime.NewList(std::move(items));
}

Result Reverse(Runtime& runtime, const Value& self, const Args&) {
  if (self.IsText()) {
    const Value step = Value::Integer(-1);
    return Slice(runtime, self, nullptr, nullptr, &step);
  }
  KVIST_ASSIGN_OR_RETURN(std::vector<Value> items, Items(runtime, self));
  std::reverse(items.begin(), items.end());
  return IsReversible(self) ? runtime.NewIterator(std::move(items)) : runtime.NewList(std::move(items));
}

Result Join(Runtime& runtime, const Value& self, const Args& args) {
  const Value empty = Value::String("");
  KVIST_ASSIGN_OR_RETURN(const Value separator, ToText(runtime, args.Has(0) ? args[0] : empty));
  KVIST_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(runtime, self));
  const bool has_attribute = args.HasValue(1);
  const AttributePath path(has_attribute ? args[1] : Value::None());
  std::string out;
  bool first = true;
  for (const Value& item : items) {
    if (!first) KVIST_RETURN_IF_ERROR(AppendText(runtime, separator, out));
    first = false;
    if (has_attribute) {
      KVIST_ASSIGN_OR_RETURN(const Value value, path.Get(runtime, item));
      KVIST_RETURN_IF_ERROR(AppendText(runtime, value, out));
    } else {
      KVIST_RETURN_IF_ERROR(AppendText(runtime, item, out));
    }
  }
  return Value::String(std::move(out));
}

/// The items of `all` in another order.
std::vector<Value> Reorder(std::vector<Value> all, const std::vector<size_t>& order) {
  std::vector<Value> out;
  out.reserve(order.size());
  for (const size_t i : order) out.push_back(std::move(all[i]));
  return out;
}

Result Sort(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(std::vector<Value> items, Items(runtime, self));
  const bool case_sensitive = args.Truthy(1, false);
  std::vector<AttributePath> paths;
  if (args.Has(2) && args[2].IsText()) {
    for (const std::string_view part : SplitAt(args[2].str(), ',')) {
      paths.emplace_back(Value::String(std::string(part)));
    }
  } else {
    paths.emplace_back(args.Has(2) ? args[2] : Value::None());
  }
  std::vector<Value> keys;  // Lists, because Python compares lists: equal items that have no order pass.
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const AttributePath& path : paths) {
      KVIST_ASSIGN_OR_RETURN(Value part, path.Get(runtime, item));
      if (!case_sensitive) {
        KVIST_ASSIGN_OR_RETURN(part, IgnoreCase(runtime, part));
      }
      key.push_back(std::move(part));
    }
    KVIST_ASSIGN_OR_RETURN(Value list, runtime.NewList(std::move(key)));
    keys.push_back(std::move(list));
  }
  KVIST_ASSIGN_OR_RETURN(const std::vector<size_t> order, SortedOrder(runtime, keys, args.Truthy(0, false)));
  return runtime.NewList(Reorder(std::move(items), order));
}

Result DictSort(Runtime& runtime, const Value& self, const Args& args) {
  if (self.IsUndefined()) return UndefinedError(self);
  if (!self.Is(Kind::kDict)) return Fail("'dictsort' needs a dict, got ", TypeName(self));
  KVIST_ASSIGN_OR_RETURN(const std::string_view by, args.Text(1, "key"));
  if (by != "key" && by != "value") return Fail("'dictsort' sorts by 'key' or 'value'");
  std::vector<Value> keys, pairs;
  for (const auto& [key, value] : self.dict().entries) {
    Value sort_key = by == "key" ? key : value;
    if (!args.Truthy(0, false)) {
      KVIST_ASSIGN_OR_RETURN(sort_key, IgnoreCase(runtime, sort_key));
    }
    keys.push_back(std::move(sort_key));
    KVIST_ASSIGN_OR_RETURN(Value pair, runtime.NewTuple({key, value}));
    pairs.push_back(std::move(pair));
  }
  KVIST_ASSIGN_OR_RETURN(const std::vector<size_t> order, SortedOrder(runtime, keys, args.Truthy(2, false)));
  return runtime.NewList(Reorder(std::move(pairs), order));
}

/// Keys of items: an attribute (None: the item), in lower case unless case matters.
absl::StatusOr<std::vector<Value>> KeysOf(Runtime& runtime, const std::vector<Value>& items, const Value& attribute,
                                          bool case_sensitive, const Value* fallback = nullptr) {
  const AttributePath path(attribute);
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    KVIST_ASSIGN_OR_RETURN(Value key, path.Get(runtime, item, fallback));
    if (!case_sensitive) {
      KVIST_ASSIGN_OR_RETURN(key, IgnoreCase(runtime, key));
    }
    keys.push_back(std::move(key));
  }
  return keys;
}

Result Extreme(Runtime& runtime, const Value& self, const Args& args, Order better) {
  KVIST_ASSIGN_OR_RETURN(std::vector<Value> items, Items(runtime, self));
  if (items.empty()) return Value::Undefined("there is no smallest or largest item: the sequence is empty");
  const Value attribute = args.Has(1) ? args[1] : Value::None();
  KVIST_ASSIGN_OR_RETURN(const std::vector<Value> keys, KeysOf(runtime, items, attribute, args.Truthy(0, false)));
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    KVIST_ASSIGN_OR_RETURN(const bool is_better, Compare(runtime, better, keys[i], keys[best]));
    if (is_better) best = i;
  }
  return items[best];
}

Result Min(Runtime& runtime, const Value& self, const Args& args) {
  return Extreme(runtime, self, args, Order::kLess);
}
Result Max(Runtime& runtime, const Value& self, const Args& args) {
  return Extreme(runtime, self, args, Order::kGreater);
}

Result Sum(Runtime& runtime, const Value& self, const Args& args) {
  Value total = args.Has(1) ? args[1] : Value::Integer(0);
  if (total.IsText()) return Fail("'sum' does not add strings: use 'join'");
  KVIST_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(runtime, self));
  const AttributePath path(args.Has(0) ? args[0] : Value::None());
  for (const Value& item : items) {
    KVIST_ASSIGN_OR_RETURN(const Value part, path.Get(runtime, item));
    KVIST_ASSIGN_OR_RETURN(total, Apply(runtime, Arithmetic::kAdd, std::move(total), part));
  }
  return total;
}

Result GroupBy(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(std::vector<Value> items, Items(runtime, self));
  const Value* fallback = args.HasValue(1) ? &args[1] : nullptr;
  KVIST_ASSIGN_OR_RETURN(const std::vector<Value> keys,
                         KeysOf(runtime, items, args[0], args.Truthy(2, false), fallback));
  KVIST_ASSIGN_OR_RETURN(const std::vector<Value> names, KeysOf(runtime, items, args[0], true, fallback));
  KVIST_ASSIGN_OR_RETURN(const std::vector<size_t> order, SortedOrder(runtime, keys, false));
  std::vector<Value> groups;
  for (size_t i = 0; i < order.size();) {
    const size_t first = order[i];
    std::vector<Value> members;
    while (i < order.size()) {
      KVIST_ASSIGN_OR_RETURN(const bool same, Equals(runtime, keys[order[i]], keys[first]));
      if (!same && !members.empty()) break;
      members.push_back(items[order[i++]]);
    }
    KVIST_ASSIGN_OR_RETURN(Value list, runtime.NewList(std::move(members)));
    KVIST_ASSIGN_OR_RETURN(Value group, runtime.NewTuple({names[first], std::move(list)}, /*is_group=*/true));
    groups.push_back(std::move(group));
  }
  return runtime.NewList(std::move(groups));
}

constexpr Builtin kSequenceFilters[] = {
    {"count", "", LengthFilter},
    {"dictsort", "case_sensitive? by? reverse?", DictSort},
    {"first", "", First},
    {"groupby", "attribute default? case_sensitive?", GroupBy},
    {"join", "d? attribute?", Join},
    {"last", "", Last},
    {"length", "", LengthFilter},
    {"list", "", List},
    {"max", "case_sensitive? attribute?", Max},
    {"min", "case_sensitive? attribute?", Min},
    {"reverse", "", Reverse},
    {"sort", "reverse? case_sensitive? attribute?", Sort},
    {"sum", "attribute? start?", Sum},
};

}  // namespace

std::span<const Builtin> SequenceFilters() {
  return kSequenceFilters;
}

}  // namespace kvist::jinja
