#include "modelfile/jinja/ast.h"

namespace kvist::jinja::ast {
namespace {

using Visit = absl::FunctionRef<void(Expr&)>;

void Child(const ExprPtr& child, Visit visit) {
  if (child != nullptr) visit(*child);
}

void Children(const Arguments& args, Visit visit) {
  for (const ExprPtr& arg : args.positional) Child(arg, visit);
  for (const auto& [name, arg] : args.named) Child(arg, visit);
  Child(args.more_positional, visit);
  Child(args.more_named, visit);
}

struct Visitor {
  Visit visit;

  void operator()(const Literal&) const {}
  void operator()(const Name&) const {}
  void operator()(const SequenceExpr& e) const {
    for (const ExprPtr& item : e.items) Child(item, visit);
  }
  void operator()(const DictExpr& e) const {
    for (const auto& [key, value] : e.entries) {
      Child(key, visit);
      Child(value, visit);
    }
  }
  void operator()(const Unary& e) const { Child(e.operand, visit); }
  void operator()(const Chain& e) const {
    Child(e.first, visit);
    for (const auto& [op, operand] : e.rest) Child(operand, visit);
  }
  void operator()(const Concat& e) const {
    for (const ExprPtr& part : e.parts) Child(part, visit);
  }
  void operator()(const Logical& e) const {
    for (const ExprPtr& part : e.parts) Child(part, visit);
  }
  void operator()(const Comparison& e) const {
    Child(e.first, visit);
    for (const auto& [op, operand] : e.rest) Child(operand, visit);
  }
  void operator()(const Conditional& e) const {
    Child(e.condition, visit);
    Child(e.then, visit);
    Child(e.otherwise, visit);
  }
  void operator()(const Attribute& e) const { Child(e.object, visit); }
  void operator()(const Subscript& e) const {
    Child(e.object, visit);
    Child(e.key, visit);
  }
  void operator()(const SliceExpr& e) const {
    Child(e.object, visit);
    Child(e.start, visit);
    Child(e.stop, visit);
    Child(e.step, visit);
  }
  void operator()(const Call& e) const {
    Child(e.callee, visit);
    Children(e.args, visit);
  }
  void operator()(const FilterCall& e) const {
    Child(e.value, visit);
    Children(e.args, visit);
  }
  void operator()(const TestCall& e) const {
    Child(e.value, visit);
    Children(e.args, visit);
  }
};

}  // namespace

void ForEachChild(const Expr& expr, Visit visit) {
  std::visit(Visitor{visit}, expr.node);
}

}  // namespace kvist::jinja::ast
