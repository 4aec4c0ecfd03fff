#pragma once

/// @file
/// Runs a parsed template: one Interpreter per rendering. Threads: one.

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "modelfile/jinja/ast.h"
#include "modelfile/jinja/macro.h"
#include "modelfile/jinja/runtime.h"

namespace kvist::jinja {

/// The variables that a rendering starts with.
using Inputs = absl::flat_hash_map<std::string, Value>;

class Interpreter {
 public:
  /// All three must outlive the interpreter.
  Interpreter(const ast::Template& tree, const Inputs& inputs, Runtime& runtime)
      : tree_(tree), inputs_(inputs), runtime_(runtime) {}

  /// The rendered text. Call once. Errors: InvalidArgument "chat template: line L, column C: ..." or, from
  /// raise_exception, the template's own message; ResourceExhausted.
  absl::StatusOr<std::string> Run();

 private:
  using StatusOrValue = absl::StatusOr<Value>;
  /// How a body ended.
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  using StatusOrFlow = absl::StatusOr<Flow>;

  /// Sends output to a string of its own for as long as it lives.
  class Capture {
   public:
    explicit Capture(Interpreter& interpreter)
        : interpreter_(interpreter), outer_(std::exchange(interpreter.out_, &text_)) {}
    ~Capture() { interpreter_.out_ = outer_; }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    Value Take() { return Value::String(std::move(text_)); }

   private:
    Interpreter& interpreter_;
    std::string text_;
    std::string* outer_;
  };

  // Statements (interpreter.cc).
  StatusOrFlow Exec(const ast::Body& body);
  StatusOrFlow ExecNode(const ast::Stmt& stmt, const ast::Output& node);
  StatusOrFlow ExecNode(const ast::Stmt& stmt, const ast::If& node);
  StatusOrFlow ExecNode(const ast::Stmt& stmt, const ast::For& node);
  StatusOrFlow ExecNode(const ast::Stmt& stmt, const ast::Set& node);
  StatusOrFlow ExecNode(const ast::Stmt& stmt, const ast::SetBlock& node);
  StatusOrFlow ExecNode(const ast::Stmt& stmt, const ast::MacroDef& node);
  StatusOrFlow ExecNode(const ast::Stmt& stmt, const ast::CallBlock& node);
  StatusOrFlow ExecNode(const ast::Stmt& stmt, const ast::FilterBlock& node);
  StatusOrFlow ExecNode(const ast::Stmt& stmt, const ast::With& node);
  StatusOrFlow ExecNode(const ast::Stmt&, const ast::Break&) { return Flow::kBreak; }
  StatusOrFlow ExecNode(const ast::Stmt&, const ast::Continue&) { return Flow::kContinue; }

  absl::StatusOr<std::shared_ptr<Loop>> StartLoop(const ast::For& node);
  /// All iterations; false when the `else` part is due.
  absl::StatusOr<bool> RunLoop(const ast::For& node, const std::shared_ptr<Loop>& loop);
  /// The loop's `if`, with the variables of `home`.
  absl::StatusOr<std::optional<Value>> PassCondition(const ast::For& node, const std::shared_ptr<Activation>& home,
                                                     const Value& item);
  /// The value of an assigned target: tuples of variables as tuples.
  StatusOrValue Repack(const ast::Target& target);
  absl::Status Print(const Value& value);
  /// For the result of a filter or call block, which is not converted.
  absl::Status PrintText(const Value& value);

  // Variables.
  Value& Variable(ast::Slot slot);
  Value Resolve(const std::string& name) const;
  void Enter(const ast::Scope& scope);
  void Leave(const ast::Scope& scope);
  absl::Status Assign(const ast::Target& target, Value value);

  // Expressions (interpreter_expr.cc).
  StatusOrValue Eval(const ast::Expr& expr);
  StatusOrValue EvalNode(const ast::Literal& node) { return node.value; }
  StatusOrValue EvalNode(const ast::Name& node);
  StatusOrValue EvalNode(const ast::SequenceExpr& node);
  StatusOrValue EvalNode(const ast::DictExpr& node);
  StatusOrValue EvalNode(const ast::Unary& node);
  StatusOrValue EvalNode(const ast::Chain& node);
  StatusOrValue EvalNode(const ast::Concat& node);
  StatusOrValue EvalNode(const ast::Logical& node);
  StatusOrValue EvalNode(const ast::Comparison& node);
  StatusOrValue EvalNode(const ast::Conditional& node);
  StatusOrValue EvalNode(const ast::Attribute& node);
  StatusOrValue EvalNode(const ast::Subscript& node);
  StatusOrValue EvalNode(const ast::SliceExpr& node);
  StatusOrValue EvalNode(const ast::Call& node) { return EvalCall(node, nullptr); }
  StatusOrValue EvalNode(const ast::FilterCall& node);
  StatusOrValue EvalNode(const ast::TestCall& node);

  absl::StatusOr<bool> CompareValues(ast::CompareOp op, const Value& a, const Value& b);
  absl::StatusOr<CallArgs> EvalArguments(const ast::Arguments& args);
  /// `caller` is the body of a call block, or nullptr.
  StatusOrValue EvalCall(const ast::Call& node, const Value* caller);
  StatusOrValue CallValue(const Value& callee, CallArgs& args);
  StatusOrValue CallMacro(const Macro& macro, CallArgs& args);
  absl::Status BindParameters(const ast::Function& function, CallArgs& args, std::vector<bool>& given);
  Value NewMacro(const ast::Function& function);
  /// The filters of a filter or set block, applied to its text.
  StatusOrValue EvalBlockFilter(const ast::Expr& filter, Value text);

  const ast::Template& tree_;
  const Inputs& inputs_;
  Runtime& runtime_;
  std::string* out_ = nullptr;
  std::shared_ptr<Activation> active_;
  std::deque<Macro> macros_;
  Value block_text_;  ///< What a block's innermost filter applies to.
};

/// `status` with its position before the message, unless it has one already.
absl::Status Place(const absl::Status& status, Position at);
/// An error whose message is the template's own and gets no position.
absl::Status RaisedError(std::string_view message);

}  // namespace kvist::jinja
