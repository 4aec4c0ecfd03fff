#include <algorithm>

#include "base/status.h"
#include "modelfile/jinja/builtins.h"
#include "modelfile/jinja/ops.h"
#include "modelfile/jinja/strings.h"
#include "modelfile/jinja/unicode.h"

namespace kvist::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// --- str.isalpha() and its like ---

/// Not empty, and all code points are of the class.
template <bool (*kIn)(char32_t)>
Result All(Runtime& runtime, const Value& self, const Args&) {
  const std::string_view text = self.str();
  KVIST_RETURN_IF_ERROR(runtime.Spend(text.size() / kCaseBytesPerStep));
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeAt(text, pos);
    if (!kIn(c.value)) return Value::Bool(false);
    pos += c.bytes;
  }
  return Value::Bool(!text.empty());
}

bool IsAlphaNumeric(char32_t c) {
  return c != '_' && IsWord(c);
}

Result IsAscii(Runtime&, const Value& self, const Args&) {
  const std::string_view text = self.str();
  return Value::Bool(
      std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

Result AllPrintable(Runtime& runtime, const Value& self, const Args& args) {
  return self.str().empty() ? Value::Bool(true) : All<IsPrintable>(runtime, self, args);
}

Result IsIdentifier(Runtime&, const Value& self, const Args&) {
  const std::string_view text = self.str();
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeAt(text, pos);
    if (pos == 0 ? !IsNameStart(c.value) : !IsNameRest(c.value)) return Value::Bool(false);
    pos += c.bytes;
  }
  return Value::Bool(!text.empty());
}

Result AllLower(Runtime&, const Value& self, const Args&) {
  return Value::Bool(HasOnlyLower(self.str()));
}
Result AllUpper(Runtime&, const Value& self, const Args&) {
  return Value::Bool(HasOnlyUpper(self.str()));
}

Result IsTitle(Runtime&, const Value& self, const Args&) {
  const std::string_view text = self.str();
  bool found = false, in_word = false;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeAt(text, pos);
    const bool upper = IsUpper(c.value) || IsTitleCase(c.value), lower = IsLower(c.value);
    if ((upper && in_word) || (lower && !in_word)) return Value::Bool(false);
    in_word = upper || lower;
    found = found || in_word;
    pos += c.bytes;
  }
  return Value::Bool(found);
}

constexpr Builtin kTextPredicates[] = {
    {"isalnum", "", All<IsAlphaNumeric>},
    {"isalpha", "", All<IsAlpha>},
    {"isascii", "", IsAscii},
    {"isdecimal", "", All<IsDecimal>},
    {"isdigit", "", All<IsDigit>},
    {"isidentifier", "", IsIdentifier},
    {"islower", "", AllLower},
    {"isnumeric", "", All<IsNumeric>},
    {"isprintable", "", AllPrintable},
    {"isspace", "", All<IsSpace>},
    {"istitle", "", IsTitle},
    {"isupper", "", AllUpper},
};

// --- list, tuple, range ---

Result Count(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(runtime, self));
  Int count = 0;
  for (const Value& item : items) {
    KVIST_ASSIGN_OR_RETURN(const bool equal, Equals(runtime, item, args[0]));
    count += equal;
  }
  return Value::Integer(count);
}

Result Index(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(runtime, self));
  const Int size = static_cast<Int>(items.size());
  const auto bound = [&](size_t i, Int absent) -> absl::StatusOr<Int> {
    KVIST_ASSIGN_OR_RETURN(const Int index, args.Integer(i, absent));
    return index < 0 ? std::max<Int>(0, index + size) : std::min(index, size);
  };
  KVIST_ASSIGN_OR_RETURN(const Int start, bound(1, 0));
  KVIST_ASSIGN_OR_RETURN(const Int end, bound(2, size));
  for (Int i = start; i < end; ++i) {
    KVIST_ASSIGN_OR_RETURN(const bool equal, Equals(runtime, items[static_cast<size_t>(i)], args[0]));
    if (equal) return Value::Integer(i);
  }
  return Fail("'index': the item is not there");
}

Result Copy(Runtime&, const Value& self, const Args&) {
  return self;
}  // Nothing can change it.

constexpr Builtin kSequenceMethods[] = {
    {"copy", "", Copy},
    {"count", "value", Count},
    {"index", "value start? stop?", Index},
};

// --- dict ---

Result Get(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const Value* found, runtime.FindKey(self.dict(), args[0]));
  if (found != nullptr) return *found;
  return args.Has(1) ? args[1] : Value::None();
}

template <DictView::Which kWhich>
Result View(Runtime&, const Value& self, const Args&) {
  return Value::Of(std::make_shared<const DictView>(DictView{self.dict_ptr(), kWhich}));
}

constexpr Builtin kDictMethods[] = {
    {"copy", "", Copy},
    {"get", "key default?", Get},
    {"items", "", View<DictView::Which::kItems>},
    {"keys", "", View<DictView::Which::kKeys>},
    {"values", "", View<DictView::Which::kValues>},
};

// --- loop ---

Result Cycle(Runtime&, const Value& self, const Args& args) {
  const std::vector<Value>& values = args.all().positional;
  if (!args.all().named.empty()) return Fail("'cycle' takes no named arguments");
  if (values.empty()) return Fail("'cycle' needs at least one value");
  const Int index = self.loop().index0() % static_cast<Int>(values.size());
  return values[static_cast<size_t>(index < 0 ? 0 : index)];
}

constexpr Builtin kLoopMethods[] = {
    {"cycle", "*", Cycle},
};

}  // namespace

std::span<const Builtin> TextPredicates() {
  return kTextPredicates;
}
std::span<const Builtin> SequenceMethods() {
  return kSequenceMethods;
}
std::span<const Builtin> DictMethods() {
  return kDictMethods;
}
std::span<const Builtin> LoopMethods() {
  return kLoopMethods;
}

}  // namespace kvist::jinja
