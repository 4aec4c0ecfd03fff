#include "absl/cleanup/cleanup.h"
#include "base/status.h"
#include "modelfile/jinja/interpreter.h"
#include "modelfile/jinja/ops.h"
#include "modelfile/jinja/repr.h"

namespace kvist::jinja {

absl::StatusOr<Value> Interpreter::Eval(const ast::Expr& expr) {
  const Runtime::Nesting nesting(runtime_);
  absl::Status status = nesting.status();
  if (status.ok()) status = runtime_.Spend(1);
  if (!status.ok()) return Place(status, expr.at);
  StatusOrValue result = std::visit([this](const auto& node) { return EvalNode(node); }, expr.node);
  if (!result.ok()) return Place(result.status(), expr.at);
  return result;
}

absl::StatusOr<Value> Interpreter::EvalNode(const ast::Name& node) {
  const Value& value = Variable(node.slot);
  if (value.IsUndefined() && value.why().empty()) {
    return Value::Undefined(Cat("'", node.name, "' is undefined"));
  }
  return value;
}

absl::StatusOr<Value> Interpreter::EvalNode(const ast::SequenceExpr& node) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ast::ExprPtr& item : node.items) {
    KVIST_ASSIGN_OR_RETURN(Value value, Eval(*item));
    items.push_back(std::move(value));
  }
  return node.is_tuple ? runtime_.NewTuple(std::move(items)) : runtime_.NewList(std::move(items));
}

absl::StatusOr<Value> Interpreter::EvalNode(const ast::DictExpr& node) {
  std::vector<std::pair<Value, Value>> entries;
  entries.reserve(node.entries.size());
  for (const auto& [key_expr, value_expr] : node.entries) {
    KVIST_ASSIGN_OR_RETURN(Value key, Eval(*key_expr));
    KVIST_ASSIGN_OR_RETURN(Value value, Eval(*value_expr));
    entries.emplace_back(std::move(key), std::move(value));
  }
  return runtime_.NewDict(std::move(entries));
}

absl::StatusOr<Value> Interpreter::EvalNode(const ast::Unary& node) {
  KVIST_ASSIGN_OR_RETURN(const Value operand, Eval(*node.operand));
  switch (node.op) {
    case ast::UnaryOp::kNot:
      return Value::Bool(!Truthy(operand));
    case ast::UnaryOp::kNegate:
      return Negate(operand);
    case ast::UnaryOp::kPositive:
      return Positive(operand);
  }
  return Fail("unknown operator");
}

absl::StatusOr<Value> Interpreter::EvalNode(const ast::Chain& node) {
  KVIST_ASSIGN_OR_RETURN(Value left, Eval(*node.first));
  for (const auto& [op, expr] : node.rest) {
    KVIST_ASSIGN_OR_RETURN(const Value right, Eval(*expr));
    StatusOrValue result = Apply(runtime_, op, std::move(left), right);
    if (!result.ok()) return Place(result.status(), expr->at);
    left = *std::move(result);
  }
  return left;
}

absl::StatusOr<Value> Interpreter::EvalNode(const ast::Concat& node) {
  std::string text;
  for (const ast::ExprPtr& part : node.parts) {
    KVIST_ASSIGN_OR_RETURN(const Value value, Eval(*part));
    KVIST_RETURN_IF_ERROR(AppendText(runtime_, value, text));
  }
  return Value::String(std::move(text));
}

absl::StatusOr<Value> Interpreter::EvalNode(const ast::Logical& node) {
  Value value;
  for (const ast::ExprPtr& part : node.parts) {
    KVIST_ASSIGN_OR_RETURN(value, Eval(*part));
    if (Truthy(value) != node.is_and) break;
  }
  return value;
}

absl::StatusOr<bool> Interpreter::CompareValues(ast::CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case ast::CompareOp::kEqual:
      return Equals(runtime_, a, b);
    case ast::CompareOp::kNotEqual: {
      KVIST_ASSIGN_OR_RETURN(const bool equal, Equals(runtime_, a, b));
      return !equal;
    }
    case ast::CompareOp::kLess:
      return Compare(runtime_, Order::kLess, a, b);
    case ast::CompareOp::kLessEqual:
      return Compare(runtime_, Order::kLessEqual, a, b);
    case ast::CompareOp::kGreater:
      return Compare(runtime_, Order::kGreater, a, b);
    case ast::CompareOp::kGreaterEqual:
      return Compare(runtime_, Order::kGreaterEqual, a, b);
    case ast::CompareOp::kIn:
      return Contains(runtime_, b, a);
    case ast::CompareOp::kNotIn: {
      KVIST_ASSIGN_OR_RETURN(const bool contains, Contains(runtime_, b, a));
      return !contains;
    }
  }
  return Fail("unknown operator");
}

absl::StatusOr<Value> Interpreter::EvalNode(const ast::Comparison& node) {
  KVIST_ASSIGN_OR_RETURN(Value left, Eval(*node.first));
  for (const auto& [op, expr] : node.rest) {
    KVIST_ASSIGN_OR_RETURN(Value right, Eval(*expr));
    KVIST_ASSIGN_OR_RETURN(const bool holds, CompareValues(op, left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

absl::StatusOr<Value> Interpreter::EvalNode(const ast::Conditional& node) {
  KVIST_ASSIGN_OR_RETURN(const Value condition, Eval(*node.condition));
  if (Truthy(condition)) return Eval(*node.then);
  if (node.otherwise != nullptr) return Eval(*node.otherwise);
  return Value::Undefined("the condition of an if-expression without else is false");
}

absl::StatusOr<Value> Interpreter::EvalNode(const ast::Attribute& node) {
  KVIST_ASSIGN_OR_RETURN(const Value object, Eval(*node.object));
  return GetAttribute(runtime_, object, node.name);
}

absl::StatusOr<Value> Interpreter::EvalNode(const ast::Subscript& node) {
  KVIST_ASSIGN_OR_RETURN(const Value object, Eval(*node.object));
  KVIST_ASSIGN_OR_RETURN(const Value key, Eval(*node.key));
  return GetItem(runtime_, object, key);
}

absl::StatusOr<Value> Interpreter::EvalNode(const ast::SliceExpr& node) {
  KVIST_ASSIGN_OR_RETURN(const Value object, Eval(*node.object));
  Value parts[3];
  const ast::ExprPtr* exprs[3] = {&node.start, &node.stop, &node.step};
  for (size_t i = 0; i < 3; ++i) {
    if (*exprs[i] == nullptr) {
      parts[i] = Value::None();
    } else {
      KVIST_ASSIGN_OR_RETURN(parts[i], Eval(**exprs[i]));
    }
  }
  return Slice(runtime_, object, &parts[0], &parts[1], &parts[2]);
}

absl::StatusOr<CallArgs> Interpreter::EvalArguments(const ast::Arguments& args) {
  CallArgs out;
  for (const ast::ExprPtr& arg : args.positional) {
    KVIST_ASSIGN_OR_RETURN(Value value, Eval(*arg));
    out.positional.push_back(std::move(value));
  }
  for (const auto& [name, arg] : args.named) {
    KVIST_ASSIGN_OR_RETURN(Value value, Eval(*arg));
    out.named.emplace_back(name, std::move(value));
  }
  if (args.more_positional != nullptr) {
    KVIST_ASSIGN_OR_RETURN(const Value more, Eval(*args.more_positional));
    KVIST_ASSIGN_OR_RETURN(const std::vector<Value> items, Items(runtime_, more));
    out.positional.insert(out.positional.end(), items.begin(), items.end());
  }
  if (args.more_named != nullptr) {
    KVIST_ASSIGN_OR_RETURN(const Value more, Eval(*args.more_named));
    if (!more.Is(Kind::kDict)) return Fail("** needs a dict, got ", TypeName(more));
    for (const auto& [key, value] : more.dict().entries) {
      if (!key.IsText()) return Fail("an argument name must be a str, got ", TypeName(key));
      for (const auto& [name, other] : out.named) {
        if (name == key.str()) return Fail("the argument '", name, "' is given twice");
      }
      out.named.emplace_back(std::string(key.str()), value);
    }
  }
  return out;
}

absl::StatusOr<Value> Interpreter::EvalCall(const ast::Call& node, const Value* caller) {
  KVIST_ASSIGN_OR_RETURN(const Value callee, Eval(*node.callee));
  KVIST_ASSIGN_OR_RETURN(CallArgs args, EvalArguments(node.args));
  if (caller != nullptr) args.named.emplace_back("caller", *caller);
  return CallValue(callee, args);
}

absl::StatusOr<Value> Interpreter::CallValue(const Value& callee, CallArgs& args) {
  switch (callee.kind()) {
    case Kind::kUndefined:
      return UndefinedError(callee);
    case Kind::kBuiltin:
      return Invoke(runtime_, callee.builtin(), Value(), args);
    case Kind::kMethod:
      return Invoke(runtime_, *callee.method().method, callee.method().self, args);
    case Kind::kMacro:
      return CallMacro(callee.macro(), args);
    case Kind::kLoop:
      return Fail("recursive loops are not supported");
    default:
      return Fail("a ", TypeName(callee), " cannot be called");
  }
}

Value Interpreter::NewMacro(const ast::Function& function) {
  macros_.push_back(Macro{&function, active_});
  return Value::Of(&macros_.back());
}

/// Puts the arguments into the slots of the running activation; what is left over goes to kwargs and varargs.
absl::Status Interpreter::BindParameters(const ast::Function& function, CallArgs& args, std::vector<bool>& given) {
  std::vector<Value>& slots = active_->slots;
  const size_t count = function.parameters.size();
  const auto take_named = [&args](std::string_view name, Value& slot) {
    for (auto it = args.named.begin(); it != args.named.end(); ++it) {
      if (it->first != name) continue;
      slot = std::move(it->second);
      args.named.erase(it);
      return true;
    }
    return false;
  };
  for (size_t i = 0; i < count; ++i) {
    Value& slot = slots[function.parameters[i].slot];
    if (i < args.positional.size()) slot = std::move(args.positional[i]);
    given[i] = i < args.positional.size() || take_named(function.parameters[i].name, slot);
  }
  if (function.caller_slot.has_value()) {
    Value& caller = slots[*function.caller_slot];
    if (!take_named("caller", caller) || caller.IsNone()) caller = Value::Undefined("no caller is defined");
  }
  if (function.kwargs_slot.has_value()) {
    std::vector<std::pair<Value, Value>> entries;
    for (auto& [name, value] : args.named) entries.emplace_back(Value::String(name), std::move(value));
    KVIST_ASSIGN_OR_RETURN(slots[*function.kwargs_slot], runtime_.NewDict(std::move(entries)));
  } else if (!args.named.empty()) {
    return Fail("macro '", function.name, "' takes no argument named '", args.named.front().first, "'");
  }
  const size_t used = std::min(count, args.positional.size());
  if (function.varargs_slot.has_value()) {
    std::vector<Value> rest(std::make_move_iterator(args.positional.begin() + static_cast<ptrdiff_t>(used)),
                            std::make_move_iterator(args.positional.end()));
    KVIST_ASSIGN_OR_RETURN(slots[*function.varargs_slot], runtime_.NewTuple(std::move(rest)));
  } else if (args.positional.size() > count) {
    return Fail("macro '", function.name, "' takes at most ", count, " argument(s)");
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> Interpreter::CallMacro(const Macro& macro, CallArgs& args) {
  const ast::Function& function = *macro.function;
  KVIST_RETURN_IF_ERROR(runtime_.Spend(1 + function.slots_count));
  auto activation = std::make_shared<Activation>();
  activation->slots.resize(function.slots_count);
  activation->outer = macro.closure;
  const std::shared_ptr<Activation> calling = std::exchange(active_, std::move(activation));
  const absl::Cleanup restore = [this, &calling] { active_ = calling; };

  std::vector<bool> given(function.parameters.size());
  KVIST_RETURN_IF_ERROR(BindParameters(function, args, given));
  Enter(function.scope);
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    const ast::Parameter& parameter = function.parameters[i];
    if (given[i]) continue;
    Value& slot = active_->slots[parameter.slot];
    if (parameter.default_value == nullptr) {
      slot = Value::Undefined(Cat("parameter '", parameter.name, "' was not provided"));
    } else {
      KVIST_ASSIGN_OR_RETURN(slot, Eval(*parameter.default_value));
    }
  }
  Capture capture(*this);
  KVIST_RETURN_IF_ERROR(Exec(function.body).status());
  return capture.Take();
}

absl::StatusOr<Value> Interpreter::EvalBlockFilter(const ast::Expr& filter, Value text) {
  Value outer = std::exchange(block_text_, std::move(text));
  StatusOrValue result = Eval(filter);
  block_text_ = std::move(outer);
  return result;
}

absl::StatusOr<Value> Interpreter::EvalNode(const ast::FilterCall& node) {
  Value subject;
  if (node.value == nullptr) {
    subject = block_text_;
  } else {
    KVIST_ASSIGN_OR_RETURN(subject, Eval(*node.value));
  }
  if (node.filter == nullptr) return Fail("there is no filter '", node.name, "'");
  KVIST_ASSIGN_OR_RETURN(CallArgs args, EvalArguments(node.args));
  return Invoke(runtime_, *node.filter, subject, args);
}

absl::StatusOr<Value> Interpreter::EvalNode(const ast::TestCall& node) {
  KVIST_ASSIGN_OR_RETURN(const Value subject, Eval(*node.value));
  if (node.test == nullptr) return Fail("there is no test '", node.name, "'");
  KVIST_ASSIGN_OR_RETURN(CallArgs args, EvalArguments(node.args));
  return Invoke(runtime_, *node.test, subject, args);
}

}  // namespace kvist::jinja
