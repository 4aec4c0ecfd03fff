#include <algorithm>

#include "base/status.h"
#include "modelfile/jinja/builtins.h"
#include "modelfile/jinja/ops.h"

namespace kvist::jinja {
namespace {

using Result = absl::StatusOr<Value>;

/// Python's generators fail only when they are walked: `fill` adds items to the vector until it fails.
template <class Fill>
Result Generate(Runtime& runtime, Fill fill) {
  std::vector<Value> items;
  absl::Status status = fill(items);
  return runtime.NewIterator(std::move(items), std::move(status));
}

/// Calls `fn(item)` for each item of `value`, which may fail late itself.
template <class Fn>
absl::Status ForEachItem(Runtime& runtime, const Value& value, Fn fn) {
  absl::Status late;
  KVIST_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(runtime, value, &late));
  for (const Value& item : items) KVIST_RETURN_IF_ERROR(fn(item));
  return late;
}

absl::Status MapAttribute(Runtime& runtime, const Value& self, const CallArgs& args, std::vector<Value>& out) {
  Value attribute;
  const Value* fallback = nullptr;
  for (const auto& [name, value] : args.named) {
    if (name == "attribute") {
      attribute = value;
    } else if (name == "default") {
      fallback = &value;
    } else {
      return Fail("'map' takes no argument named '", name, "'");
    }
  }
  const AttributePath path(attribute);
  return ForEachItem(runtime, self, [&](const Value& item) -> absl::Status {
    KVIST_ASSIGN_OR_RETURN(Value value, path.Get(runtime, item, fallback));
    out.push_back(std::move(value));
    return absl::OkStatus();
  });
}

/// The filter or test that the first argument names.
absl::StatusOr<const Builtin*> Named(const Value& name, const Builtin* (*find)(std::string_view),
                                     std::string_view what) {
  const Builtin* builtin = name.IsText() ? find(name.str()) : nullptr;
  if (builtin == nullptr) return Fail("there is no ", what, name.IsText() ? Cat(" '", name.str(), "'") : "");
  return builtin;
}

absl::Status MapFilter(Runtime& runtime, const Value& self, const CallArgs& args, std::vector<Value>& out) {
  if (args.positional.empty()) return Fail("'map' needs the name of a filter, or attribute=...");
  return ForEachItem(runtime, self, [&](const Value& item) -> absl::Status {
    KVIST_ASSIGN_OR_RETURN(const Builtin* filter, Named(args.positional[0], FindFilter, "filter"));
    KVIST_RETURN_IF_ERROR(runtime.Spend(1 + args.positional.size() + args.named.size()));
    CallArgs rest{{args.positional.begin() + 1, args.positional.end()}, args.named};
    KVIST_ASSIGN_OR_RETURN(Value value, Invoke(runtime, *filter, item, rest));
    out.push_back(std::move(value));
    return absl::OkStatus();
  });
}

/// Filters may name filters: map('map', 'map', ...) nests as deep as it has arguments.
Result Map(Runtime& runtime, const Value& self, const Args& args) {
  const Runtime::Nesting nesting(runtime);
  KVIST_RETURN_IF_ERROR(nesting.status());
  const CallArgs& all = args.all();
  return Generate(runtime, [&](std::vector<Value>& out) -> absl::Status {
    if (!Truthy(self)) return absl::OkStatus();
    const bool by_attribute =
        all.positional.empty() && std::any_of(all.named.begin(), all.named.end(),
                                              [](const auto& argument) { return argument.first == "attribute"; });
    return by_attribute ? MapAttribute(runtime, self, all, out) : MapFilter(runtime, self, all, out);
  });
}

/// select, reject, selectattr, rejectattr: keeps the items whose test has the result `wanted`.
Result SelectItems(Runtime& runtime, const Value& self, const CallArgs& args, bool by_attribute, bool wanted) {
  const Runtime::Nesting nesting(runtime);
  KVIST_RETURN_IF_ERROR(nesting.status());
  return Generate(runtime, [&](std::vector<Value>& out) -> absl::Status {
    if (!Truthy(self)) return absl::OkStatus();
    if (by_attribute && args.positional.empty()) return Fail("the name of the attribute is missing");
    const AttributePath path(by_attribute ? args.positional[0] : Value::None());
    const size_t skipped = by_attribute ? 1 : 0;
    const bool has_test = args.positional.size() > skipped;
    return ForEachItem(runtime, self, [&](const Value& item) -> absl::Status {
      KVIST_ASSIGN_OR_RETURN(Value value, path.Get(runtime, item));
      if (has_test) {
        KVIST_ASSIGN_OR_RETURN(const Builtin* test, Named(args.positional[skipped], FindTest, "test"));
        KVIST_RETURN_IF_ERROR(runtime.Spend(1 + args.positional.size() + args.named.size()));
        CallArgs rest{{args.positional.begin() + static_cast<ptrdiff_t>(skipped) + 1, args.positional.end()},
                      args.named};
        KVIST_ASSIGN_OR_RETURN(value, Invoke(runtime, *test, value, rest));
      }
      if (Truthy(value) == wanted) out.push_back(item);
      return absl::OkStatus();
    });
  });
}

Result Select(Runtime& runtime, const Value& self, const Args& args) {
  return SelectItems(runtime, self, args.all(), false, true);
}
Result Reject(Runtime& runtime, const Value& self, const Args& args) {
  return SelectItems(runtime, self, args.all(), false, false);
}
Result SelectAttr(Runtime& runtime, const Value& self, const Args& args) {
  return SelectItems(runtime, self, args.all(), true, true);
}
Result RejectAttr(Runtime& runtime, const Value& self, const Args& args) {
  return SelectItems(runtime, self, args.all(), true, false);
}

Result Unique(Runtime& runtime, const Value& self, const Args& args) {
  const bool case_sensitive = args.Truthy(0, false);
  const AttributePath path(args.Has(1) ? args[1] : Value::None());
  return Generate(runtime, [&](std::vector<Value>& out) -> absl::Status {
    Dict seen;
    return ForEachItem(runtime, self, [&](const Value& item) -> absl::Status {
      KVIST_ASSIGN_OR_RETURN(Value key, path.Get(runtime, item));
      if (!case_sensitive) {
        KVIST_ASSIGN_OR_RETURN(key, IgnoreCase(runtime, key));
      }
      const size_t before = seen.entries.size();
      KVIST_RETURN_IF_ERROR(runtime.PutEntry(seen, std::move(key), Value::None()));
      if (seen.entries.size() > before) out.push_back(item);
      return absl::OkStatus();
    });
  });
}

Result ItemsFilter(Runtime& runtime, const Value& self, const Args&) {
  return Generate(runtime, [&](std::vector<Value>& out) -> absl::Status {
    if (self.IsUndefined()) return absl::OkStatus();
    if (!self.Is(Kind::kDict)) return Fail("'items' needs a dict, got ", TypeName(self));
    for (const auto& [key, value] : self.dict().entries) {
      KVIST_ASSIGN_OR_RETURN(Value pair, runtime.NewTuple({key, value}));
      out.push_back(std::move(pair));
    }
    return absl::OkStatus();
  });
}

Result Batch(Runtime& runtime, const Value& self, const Args& args) {
  return Generate(runtime, [&](std::vector<Value>& out) -> absl::Status {
    const auto flush = [&](std::vector<Value>& line) -> absl::Status {
      KVIST_ASSIGN_OR_RETURN(Value list, runtime.NewList(std::exchange(line, {})));
      out.push_back(std::move(list));
      return absl::OkStatus();
    };
    std::vector<Value> line;
    const absl::Status status = ForEachItem(runtime, self, [&](const Value& item) -> absl::Status {
      const Value size = Value::Integer(static_cast<Int>(line.size()));
      KVIST_ASSIGN_OR_RETURN(const bool full, Equals(runtime, size, args[0]));
      if (full) KVIST_RETURN_IF_ERROR(flush(line));
      line.push_back(item);
      return absl::OkStatus();
    });
    KVIST_RETURN_IF_ERROR(status);
    if (line.empty()) return absl::OkStatus();
    if (args.HasValue(1)) {
      KVIST_ASSIGN_OR_RETURN(const Int width, args.Integer(0, 0));
      while (static_cast<Int>(line.size()) < width) {
        KVIST_RETURN_IF_ERROR(runtime.Spend(Runtime::kStepsPerItem));
        line.push_back(args[1]);
      }
    }
    return flush(line);
  });
}

Result SliceFilter(Runtime& runtime, const Value& self, const Args& args) {
  return Generate(runtime, [&](std::vector<Value>& out) -> absl::Status {
    KVIST_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(runtime, self));
    KVIST_ASSIGN_OR_RETURN(const Int slices, args.Integer(0, 1));
    if (slices == 0) return Fail("'slice' needs a number other than 0");
    if (slices < 0) return absl::OkStatus();
    const Int count = static_cast<Int>(items.size());
    const Int per_slice = count / slices, with_extra = count % slices;
    Int begin = 0;
    for (Int i = 0; i < slices; ++i) {
      KVIST_RETURN_IF_ERROR(runtime.Spend(Runtime::kStepsPerItem));
      const Int end = begin + per_slice + (i < with_extra ? 1 : 0);
      std::vector<Value> slice(items.begin() + static_cast<ptrdiff_t>(begin),
                               items.begin() + static_cast<ptrdiff_t>(end));
      if (args.HasValue(1) && i >= with_extra) slice.push_back(args[1]);
      KVIST_ASSIGN_OR_RETURN(Value list, runtime.NewList(std::move(slice)));
      out.push_back(std::move(list));
      begin = end;
    }
    return absl::OkStatus();
  });
}

constexpr Builtin kSelectionFilters[] = {
    {"batch", "linecount fill_with?", Batch},
    {"items", "", ItemsFilter},
    {"map", "*", Map},
    {"reject", "*", Reject},
    {"rejectattr", "*", RejectAttr},
    {"select", "*", Select},
    {"selectattr", "*", SelectAttr},
    {"slice", "slices fill_with?", SliceFilter},
    {"unique", "case_sensitive? attribute?", Unique},
};

}  // namespace

std::span<const Builtin> SelectionFilters() {
  return kSelectionFilters;
}

}  // namespace kvist::jinja
