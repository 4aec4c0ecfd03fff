#include "modelfile/jinja/interpreter.h"

#include "absl/cleanup/cleanup.h"
#include "base/status.h"
#include "modelfile/jinja/ops.h"
#include "modelfile/jinja/repr.h"

namespace kvist::jinja {
namespace {

/// Marks a status whose message needs no position any more, and one whose message is the template's own.
constexpr absl::string_view kPlaced = "kvist.jinja.placed";
constexpr absl::string_view kRaised = "kvist.jinja.raised";

}  // namespace

absl::Status Place(const absl::Status& status, Position at) {
  if (status.ok() || status.GetPayload(kPlaced).has_value()) return status;
  absl::Status placed = Annotate(status, Cat("line ", at.line, ", column ", at.column));
  placed.SetPayload(kPlaced, absl::Cord());
  return placed;
}

absl::Status RaisedError(std::string_view message) {
  absl::Status status = absl::InvalidArgumentError(ToAbsl(message));
  status.SetPayload(kPlaced, absl::Cord());
  status.SetPayload(kRaised, absl::Cord());
  return status;
}

absl::StatusOr<std::string> Interpreter::Run() {
  std::string out;
  out_ = &out;
  active_ = std::make_shared<Activation>();
  active_->slots.resize(tree_.slots_count);
  Enter(tree_.scope);
  const absl::Status status = Exec(tree_.body).status();
  active_ = nullptr;
  if (status.ok()) return out;
  if (status.GetPayload(kRaised).has_value()) return absl::Status(status.code(), status.message());
  return Annotate(status, "chat template");
}

Value& Interpreter::Variable(ast::Slot slot) {
  Activation* activation = active_.get();
  for (uint32_t hops = slot.hops; hops > 0; --hops) activation = activation->outer.get();
  return activation->slots[slot.index];
}

Value Interpreter::Resolve(const std::string& name) const {
  const auto it = inputs_.find(name);
  if (it != inputs_.end()) return it->second;
  const Builtin* global = FindGlobal(name);
  return global == nullptr ? Value() : Value::Of(global);
}

void Interpreter::Enter(const ast::Scope& scope) {
  for (const ast::SlotLoad& load : scope.loads) {
    Value& slot = active_->slots[load.slot];
    switch (load.from) {
      case ast::SlotLoad::From::kContext:
        slot = Resolve(load.name);
        break;
      case ast::SlotLoad::From::kOuter:
        slot = Variable(load.outer);
        break;
      case ast::SlotLoad::From::kNothing:
        slot = Value();
        break;
    }
  }
}

void Interpreter::Leave(const ast::Scope& scope) {
  for (uint32_t i = 0; i < scope.slots_count; ++i) active_->slots[scope.first_slot + i] = Value();
}

absl::Status Interpreter::Assign(const ast::Target& target, Value value) {
  if (!target.is_tuple) {
    Value& variable = Variable(target.slot);
    if (target.attribute.empty()) {
      variable = std::move(value);
      return absl::OkStatus();
    }
    if (!variable.Is(Kind::kNamespace)) {
      return Place(Fail("'", target.name, "' is not a namespace, so its attribute cannot be set"), target.at);
    }
    variable.ns().Set(target.attribute, std::move(value));
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<Value>> items = Items(runtime_, value);
  if (!items.ok()) return Place(items.status(), target.at);
  if (items->size() != target.parts.size()) {
    return Place(Fail("expected ", target.parts.size(), " values to unpack, got ", items->size()), target.at);
  }
  for (size_t i = 0; i < items->size(); ++i) {
    KVIST_RETURN_IF_ERROR(Assign(target.parts[i], std::move((*items)[i])));
  }
  return absl::OkStatus();
}

Interpreter::StatusOrFlow Interpreter::Exec(const ast::Body& body) {
  const Runtime::Nesting nesting(runtime_);
  KVIST_RETURN_IF_ERROR(nesting.status());
  for (const ast::Stmt& stmt : body) {
    KVIST_RETURN_IF_ERROR(Place(runtime_.Spend(1), stmt.at));
    StatusOrFlow flow = std::visit([&](const auto& node) { return ExecNode(stmt, node); }, stmt.node);
    if (!flow.ok()) return Place(flow.status(), stmt.at);
    if (*flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::Status Interpreter::Print(const Value& value) {
  return AppendText(runtime_, value, *out_);
}

absl::Status Interpreter::PrintText(const Value& value) {
  return value.IsText() ? Print(value) : Fail("the result of the block must be a str, not a ", TypeName(value));
}

Interpreter::StatusOrFlow Interpreter::ExecNode(const ast::Stmt&, const ast::Output& node) {
  for (const auto& part : node.parts) {
    if (const auto* text = std::get_if<std::string>(&part)) {
      KVIST_RETURN_IF_ERROR(runtime_.Spend(1));
      KVIST_RETURN_IF_ERROR(runtime_.SpendBytes(text->size(), out_->size() + text->size()));
      *out_ += *text;
    } else {
      const ast::Expr& expr = *std::get<ast::ExprPtr>(part);
      KVIST_ASSIGN_OR_RETURN(const Value value, Eval(expr));
      KVIST_RETURN_IF_ERROR(Place(Print(value), expr.at));
    }
  }
  return Flow::kNext;
}

Interpreter::StatusOrFlow Interpreter::ExecNode(const ast::Stmt&, const ast::If& node) {
  for (const auto& [condition, body] : node.branches) {
    KVIST_ASSIGN_OR_RETURN(const Value value, Eval(*condition));
    if (Truthy(value)) return Exec(body);
  }
  return Exec(node.otherwise);
}

absl::StatusOr<Value> Interpreter::Repack(const ast::Target& target) {
  if (!target.is_tuple) return Variable(target.slot);
  std::vector<Value> parts;
  for (const ast::Target& part : target.parts) {
    KVIST_ASSIGN_OR_RETURN(Value value, Repack(part));
    parts.push_back(std::move(value));
  }
  return runtime_.NewTuple(std::move(parts));
}

absl::StatusOr<std::optional<Value>> Interpreter::PassCondition(const ast::For& node,
                                                                const std::shared_ptr<Activation>& home,
                                                                const Value& item) {
  // Asked for from wherever `loop` is used, which may be inside a macro.
  const std::shared_ptr<Activation> current = std::exchange(active_, home);
  const absl::Cleanup restore = [this, &current] { active_ = current; };
  Enter(node.condition_scope);
  KVIST_RETURN_IF_ERROR(Assign(node.condition_target, item));
  KVIST_ASSIGN_OR_RETURN(const Value passes, Eval(*node.condition));
  if (!Truthy(passes)) return std::optional<Value>();
  KVIST_ASSIGN_OR_RETURN(Value packed, Repack(node.condition_target));  // A list that was unpacked is a tuple now.
  return std::optional<Value>(std::move(packed));
}

absl::StatusOr<std::shared_ptr<Loop>> Interpreter::StartLoop(const ast::For& node) {
  KVIST_ASSIGN_OR_RETURN(const Value iterable, Eval(*node.iterable));
  absl::Status late_error;
  absl::StatusOr<std::vector<Value>> items = Items(runtime_, iterable, &late_error);
  if (!items.ok()) return Place(items.status(), node.iterable->at);
  Loop::Filter filter;
  if (node.condition != nullptr) {
    filter = [this, &node, home = active_](const Value& item) { return PassCondition(node, home, item); };
  }
  return std::make_shared<Loop>(*std::move(items), Place(late_error, node.iterable->at), std::move(filter));
}

absl::StatusOr<bool> Interpreter::RunLoop(const ast::For& node, const std::shared_ptr<Loop>& loop) {
  bool completed = false;  // As in jinja2, an iteration left by break or continue does not count.
  for (;;) {
    KVIST_ASSIGN_OR_RETURN(const bool more, loop->Advance());
    if (!more) return completed;
    KVIST_RETURN_IF_ERROR(runtime_.Spend(1 + node.scope.slots_count));
    KVIST_RETURN_IF_ERROR(Assign(node.target, loop->current()));
    active_->slots[node.loop_slot] = Value::Of(loop);
    Enter(node.scope);
    KVIST_ASSIGN_OR_RETURN(const Flow flow, Exec(node.body));
    if (flow == Flow::kBreak) return completed;
    if (flow == Flow::kNext) completed = true;
  }
}

Interpreter::StatusOrFlow Interpreter::ExecNode(const ast::Stmt&, const ast::For& node) {
  KVIST_ASSIGN_OR_RETURN(const std::shared_ptr<Loop> loop, StartLoop(node));
  const absl::StatusOr<bool> completed = RunLoop(node, loop);
  loop->Close();
  Leave(node.scope);
  if (!completed.ok()) return completed.status();
  if (*completed || node.otherwise.empty()) return Flow::kNext;
  Enter(node.otherwise_scope);
  StatusOrFlow flow = Exec(node.otherwise);
  Leave(node.otherwise_scope);
  return flow;
}

Interpreter::StatusOrFlow Interpreter::ExecNode(const ast::Stmt&, const ast::Set& node) {
  KVIST_ASSIGN_OR_RETURN(Value value, Eval(*node.value));
  KVIST_RETURN_IF_ERROR(Assign(node.target, std::move(value)));
  return Flow::kNext;
}

Interpreter::StatusOrFlow Interpreter::ExecNode(const ast::Stmt&, const ast::SetBlock& node) {
  Enter(node.scope);
  const absl::Cleanup leave = [this, &node] { Leave(node.scope); };
  Value text;
  {
    Capture capture(*this);
    KVIST_ASSIGN_OR_RETURN(const Flow flow, Exec(node.body));
    if (flow != Flow::kNext) return flow;
    text = capture.Take();
  }
  if (node.filter != nullptr) {
    KVIST_ASSIGN_OR_RETURN(text, EvalBlockFilter(*node.filter, std::move(text)));
  }
  KVIST_RETURN_IF_ERROR(Assign(node.target, std::move(text)));
  return Flow::kNext;
}

Interpreter::StatusOrFlow Interpreter::ExecNode(const ast::Stmt&, const ast::FilterBlock& node) {
  Enter(node.scope);
  const absl::Cleanup leave = [this, &node] { Leave(node.scope); };
  Value text;
  {
    Capture capture(*this);
    KVIST_ASSIGN_OR_RETURN(const Flow flow, Exec(node.body));
    if (flow != Flow::kNext) return flow;
    text = capture.Take();
  }
  KVIST_ASSIGN_OR_RETURN(text, EvalBlockFilter(*node.filter, std::move(text)));
  KVIST_RETURN_IF_ERROR(PrintText(text));
  return Flow::kNext;
}

Interpreter::StatusOrFlow Interpreter::ExecNode(const ast::Stmt&, const ast::MacroDef& node) {
  KVIST_RETURN_IF_ERROR(runtime_.Spend(Runtime::kStepsPerItem));
  Variable(node.slot) = NewMacro(*node.function);
  return Flow::kNext;
}

Interpreter::StatusOrFlow Interpreter::ExecNode(const ast::Stmt&, const ast::CallBlock& node) {
  KVIST_RETURN_IF_ERROR(runtime_.Spend(Runtime::kStepsPerItem));
  const Value caller = NewMacro(*node.function);
  Value text;
  if (node.call == nullptr) {
    CallArgs none;
    KVIST_ASSIGN_OR_RETURN(text, CallMacro(caller.macro(), none));
  } else {
    absl::StatusOr<Value> result = EvalCall(std::get<ast::Call>(node.call->node), &caller);
    if (!result.ok()) return Place(result.status(), node.call->at);
    text = *std::move(result);
  }
  KVIST_RETURN_IF_ERROR(PrintText(text));
  return Flow::kNext;
}

Interpreter::StatusOrFlow Interpreter::ExecNode(const ast::Stmt&, const ast::With& node) {
  Enter(node.scope);
  const absl::Cleanup leave = [this, &node] { Leave(node.scope); };
  for (const auto& [target, expr] : node.bindings) {
    KVIST_ASSIGN_OR_RETURN(Value value, Eval(*expr));
    KVIST_RETURN_IF_ERROR(Assign(target, std::move(value)));
  }
  return Exec(node.body);
}

}  // namespace kvist::jinja
