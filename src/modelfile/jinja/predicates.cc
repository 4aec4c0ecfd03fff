#include <algorithm>

#include "base/status.h"
#include "modelfile/jinja/builtins.h"
#include "modelfile/jinja/ops.h"
#include "modelfile/jinja/repr.h"
#include "modelfile/jinja/unicode.h"

namespace kvist::jinja {
namespace {

using Result = absl::StatusOr<Value>;

Result Defined(Runtime&, const Value& self, const Args&) {
  return Value::Bool(!self.IsUndefined());
}
Result IsUndefined(Runtime&, const Value& self, const Args&) {
  return Value::Bool(self.IsUndefined());
}
Result IsNone(Runtime&, const Value& self, const Args&) {
  return Value::Bool(self.IsNone());
}
Result IsBoolean(Runtime&, const Value& self, const Args&) {
  return Value::Bool(self.Is(Kind::kBool));
}
Result IsTrue(Runtime&, const Value& self, const Args&) {
  return Value::Bool(self.Is(Kind::kBool) && self.boolean());
}
Result IsFalse(Runtime&, const Value& self, const Args&) {
  return Value::Bool(self.Is(Kind::kBool) && !self.boolean());
}
Result IsInteger(Runtime&, const Value& self, const Args&) {
  return Value::Bool(self.Is(Kind::kInt));
}
Result IsFloat(Runtime&, const Value& self, const Args&) {
  return Value::Bool(self.Is(Kind::kFloat));
}
Result IsNumber(Runtime&, const Value& self, const Args&) {
  return Value::Bool(self.IsNumber());
}
Result IsString(Runtime&, const Value& self, const Args&) {
  return Value::Bool(self.IsText());
}
Result IsMapping(Runtime&, const Value& self, const Args&) {
  return Value::Bool(self.Is(Kind::kDict));
}
Result IsEscaped(Runtime&, const Value& self, const Args&) {
  return Value::Bool(self.IsText() && self.text().safe);
}

Result IsSequence(Runtime&, const Value& self, const Args&) {
  const Kind kind = self.kind();
  return Value::Bool(kind == Kind::kText || kind == Kind::kSequence || kind == Kind::kDict || kind == Kind::kRange ||
                     kind == Kind::kUndefined);
}

Result Iterable(Runtime&, const Value& self, const Args&) {
  return Value::Bool(IsIterable(self));
}

Result IsCallable(Runtime&, const Value& self, const Args&) {
  const Kind kind = self.kind();
  return Value::Bool(kind == Kind::kBuiltin || kind == Kind::kMethod || kind == Kind::kMacro || kind == Kind::kLoop ||
                     kind == Kind::kUndefined);
}

Result IsFilter(Runtime&, const Value& self, const Args&) {
  return Value::Bool(self.IsText() && FindFilter(self.str()) != nullptr);
}
Result IsTest(Runtime&, const Value& self, const Args&) {
  return Value::Bool(self.IsText() && FindTest(self.str()) != nullptr);
}

Result AllLower(Runtime& runtime, const Value& self, const Args&) {
  KVIST_ASSIGN_OR_RETURN(const Value text, ToText(runtime, self));
  return Value::Bool(HasOnlyLower(text.str()));
}
Result AllUpper(Runtime& runtime, const Value& self, const Args&) {
  KVIST_ASSIGN_OR_RETURN(const Value text, ToText(runtime, self));
  return Value::Bool(HasOnlyUpper(text.str()));
}

Result RemainderIs(Runtime& runtime, const Value& self, const Value& divisor, Int wanted) {
  KVIST_ASSIGN_OR_RETURN(const Value rest, Apply(runtime, Arithmetic::kMod, self, divisor));
  KVIST_ASSIGN_OR_RETURN(const bool equal, Equals(runtime, rest, Value::Integer(wanted)));
  return Value::Bool(equal);
}
Result Even(Runtime& runtime, const Value& self, const Args&) {
  return RemainderIs(runtime, self, Value::Integer(2), 0);
}
Result Odd(Runtime& runtime, const Value& self, const Args&) {
  return RemainderIs(runtime, self, Value::Integer(2), 1);
}
Result DivisibleBy(Runtime& runtime, const Value& self, const Args& args) {
  return RemainderIs(runtime, self, args[0], 0);
}

Result SameAs(Runtime& runtime, const Value& self, const Args& args) {
  if (self.SameObject(args[0])) return Value::Bool(true);
  // Python keeps one object for equal short strings.
  if (!self.IsText() || !args[0].IsText()) return Value::Bool(false);
  KVIST_ASSIGN_OR_RETURN(const bool equal, Equals(runtime, self, args[0]));
  return Value::Bool(equal);
}

Result In(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const bool contains, Contains(runtime, args[0], self));
  return Value::Bool(contains);
}

Result Equal(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const bool equal, Equals(runtime, self, args[0]));
  return Value::Bool(equal);
}
Result NotEqual(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const bool equal, Equals(runtime, self, args[0]));
  return Value::Bool(!equal);
}

template <Order kOrder>
Result Ordered(Runtime& runtime, const Value& self, const Args& args) {
  KVIST_ASSIGN_OR_RETURN(const bool holds, Compare(runtime, kOrder, self, args[0]));
  return Value::Bool(holds);
}

constexpr Builtin kTests[] = {
    {"!=", "other", NotEqual},
    {"<", "other", Ordered<Order::kLess>},
    {"<=", "other", Ordered<Order::kLessEqual>},
    {"==", "other", Equal},
    {">", "other", Ordered<Order::kGreater>},
    {">=", "other", Ordered<Order::kGreaterEqual>},
    {"boolean", "", IsBoolean},
    {"callable", "", IsCallable},
    {"defined", "", Defined},
    {"divisibleby", "num", DivisibleBy},
    {"eq", "other", Equal},
    {"equalto", "other", Equal},
    {"escaped", "", IsEscaped},
    {"even", "", Even},
    {"false", "", IsFalse},
    {"filter", "", IsFilter},
    {"float", "", IsFloat},
    {"ge", "other", Ordered<Order::kGreaterEqual>},
    {"greaterthan", "other", Ordered<Order::kGreater>},
    {"gt", "other", Ordered<Order::kGreater>},
    {"in", "seq", In},
    {"integer", "", IsInteger},
    {"iterable", "", Iterable},
    {"le", "other", Ordered<Order::kLessEqual>},
    {"lessthan", "other", Ordered<Order::kLess>},
    {"lower", "", AllLower},
    {"lt", "other", Ordered<Order::kLess>},
    {"mapping", "", IsMapping},
    {"ne", "other", NotEqual},
    {"none", "", IsNone},
    {"number", "", IsNumber},
    {"odd", "", Odd},
    {"sameas", "other", SameAs},
    {"sequence", "", IsSequence},
    {"string", "", IsString},
    {"test", "", IsTest},
    {"true", "", IsTrue},
    {"undefined", "", IsUndefined},
    {"upper", "", AllUpper},
};

}  // namespace

std::span<const Builtin> Tests() {
  return kTests;
}

}  // namespace kvist::jinja
