#pragma once

/// @file
/// The syntax tree of a template: plain data, immutable once Parse (parser.h) and ResolveScopes (scope.h) have run.
/// Chains of equal precedence are flat lists, so that the depth of a tree is the nesting of its source.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "modelfile/jinja/lexer.h"
#include "modelfile/jinja/ops.h"
#include "modelfile/jinja/value.h"

namespace kvist::jinja::ast {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Body = std::vector<Stmt>;

/// Where a variable lives: slot of the activation that is `hops` functions further out.
struct Slot {
  uint32_t hops = 0;
  uint32_t index = 0;
};

// --- expressions ---

struct Literal {
  Value value;
};
struct Name {
  std::string name;
  Slot slot;
};
/// List or tuple display.
struct SequenceExpr {
  std::vector<ExprPtr> items;
  bool is_tuple;
};
struct DictExpr {
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
enum class UnaryOp : uint8_t { kNot, kNegate, kPositive };
struct Unary {
  UnaryOp op;
  ExprPtr operand;
};
/// a + b - c: left to right.
struct Chain {
  ExprPtr first;
  std::vector<std::pair<Arithmetic, ExprPtr>> rest;
};
/// a ~ b ~ c
struct Concat {
  std::vector<ExprPtr> parts;
};
/// a and b and c; stops at the first that decides.
struct Logical {
  bool is_and;
  std::vector<ExprPtr> parts;
};
enum class CompareOp : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
/// a < b <= c: every neighbouring pair must hold.
struct Comparison {
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};
struct Conditional {
  ExprPtr condition, then;
  ExprPtr otherwise;  ///< nullptr = undefined.
};
struct Attribute {
  ExprPtr object;
  std::string name;
};
struct Subscript {
  ExprPtr object, key;
};
struct SliceExpr {
  ExprPtr object;
  ExprPtr start, stop, step;  ///< nullptr = left out.
};
struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr more_positional, more_named;  ///< *args and **kwargs; nullptr = none.
};
struct Call {
  ExprPtr callee;
  Arguments args;
};
/// value|filter(...). In a filter or set block the innermost value is nullptr: the block's text.
struct FilterCall {
  ExprPtr value;
  std::string name;
  const Builtin* filter;  ///< nullptr = unknown, an error when it is reached.
  Arguments args;
};
struct TestCall {
  ExprPtr value;
  std::string name;
  const Builtin* test;  ///< nullptr = unknown, an error when it is reached.
  Arguments args;
};

struct Expr {
  Position at;
  uint32_t depth = 1;  ///< Levels of the tree from here down.
  std::variant<Literal, Name, SequenceExpr, DictExpr, Unary, Chain, Concat, Logical, Comparison, Conditional, Attribute,
               Subscript, SliceExpr, Call, FilterCall, TestCall>
      node;
};

/// What can be assigned to: a name, an attribute of a namespace, or a tuple of them.
struct Target {
  Position at;
  std::string name;
  std::string attribute;      ///< Not empty: an attribute of the namespace `name`.
  Slot slot;                  ///< Of `name`.
  std::vector<Target> parts;  ///< is_tuple.
  bool is_tuple = false;
};

/// Calls visit for each direct child, in evaluation order; absent ones are left out.
void ForEachChild(const Expr& expr, absl::FunctionRef<void(Expr&)> visit);

// --- scopes, filled in by ResolveScopes ---

/// How a variable of a scope gets its value when the scope is entered.
struct SlotLoad {
  enum class From : uint8_t { kContext, kOuter, kNothing };
  From from;
  uint32_t slot;     ///< In the running function's activation.
  Slot outer;        ///< kOuter.
  std::string name;  ///< kContext.
};
struct Scope {
  std::vector<SlotLoad> loads;
  uint32_t first_slot = 0, slots_count = 0;  ///< All its variables; they become undefined when it is left.
};

// --- statements ---

struct Output {
  std::vector<std::variant<std::string, ExprPtr>> parts;
};
struct If {
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExprPtr iterable;
  ExprPtr condition;  ///< nullptr = none.
  Body body, otherwise;
  uint32_t loop_slot = 0;
  Scope scope, condition_scope, otherwise_scope;
  Target condition_target;  ///< The target as the condition sees it.
};
struct Set {
  Target target;
  ExprPtr value;
};
struct SetBlock {
  Target target;
  ExprPtr filter;  ///< nullptr = none.
  Body body;
  Scope scope;
};
struct Parameter {
  std::string name;
  ExprPtr default_value;  ///< nullptr = none.
  uint32_t slot = 0;
};
/// A macro or the body of a call block.
struct Function {
  std::string name;  ///< Empty for the body of a call block.
  std::vector<Parameter> parameters;
  Body body;
  Scope scope;
  uint32_t slots_count = 0;
  std::optional<uint32_t> caller_slot, kwargs_slot, varargs_slot;  ///< Present when the body uses them.
};
struct MacroDef {
  std::unique_ptr<Function> function;
  Slot slot;
};
struct CallBlock {
  ExprPtr call;  ///< A Call; nullptr = the body is printed as it is ({% generation %}).
  std::unique_ptr<Function> function;
};
struct FilterBlock {
  ExprPtr filter;
  Body body;
  Scope scope;
};
struct With {
  std::vector<std::pair<Target, ExprPtr>> bindings;
  Body body;
  Scope scope;
};
struct Break {};
struct Continue {};

struct Stmt {
  Position at;
  std::variant<Output, If, For, Set, SetBlock, MacroDef, CallBlock, FilterBlock, With, Break, Continue> node;
};

/// A whole template.
struct Template {
  Body body;
  Scope scope;
  uint32_t slots_count = 0;
};

}  // namespace kvist::jinja::ast
