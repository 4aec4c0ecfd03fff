#include "modelfile/jinja/scope.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/status.h"

namespace kvist::jinja {
namespace {

/// Names used in a body before it assigns to them, of those asked for; in source order, nested functions included.
class UndeclaredNames {
 public:
  explicit UndeclaredNames(std::vector<std::string_view> wanted) : wanted_(std::move(wanted)) {}

  void Visit(const ast::Body& body) {
    for (const ast::Stmt& stmt : body) {
      std::visit([this](const auto& node) { VisitNode(node); }, stmt.node);
    }
  }

  bool Found(std::string_view name) const { return std::find(found_.begin(), found_.end(), name) != found_.end(); }

 private:
  void VisitNode(const ast::Output& node) {
    for (const auto& part : node.parts) {
      if (const auto* expr = std::get_if<ast::ExprPtr>(&part)) Use(*expr);
    }
  }
  void VisitNode(const ast::If& node) {
    for (const auto& [condition, body] : node.branches) {
      Use(condition);
      Visit(body);
    }
    Visit(node.otherwise);
  }
  void VisitNode(const ast::For& node) {
    Assign(node.target);
    Use(node.iterable);
    Visit(node.body);
    Visit(node.otherwise);
    Use(node.condition);
  }
  void VisitNode(const ast::Set& node) {
    Assign(node.target);
    Use(node.value);
  }
  void VisitNode(const ast::SetBlock& node) {
    Assign(node.target);
    Use(node.filter);
    Visit(node.body);
  }
  void VisitNode(const ast::MacroDef& node) { VisitFunction(*node.function); }
  void VisitNode(const ast::CallBlock& node) {
    Use(node.call);
    VisitFunction(*node.function);
  }
  void VisitNode(const ast::FilterBlock& node) {
    Visit(node.body);
    Use(node.filter);
  }
  void VisitNode(const ast::With& node) {
    for (const auto& binding : node.bindings) Assign(binding.first);
    for (const auto& binding : node.bindings) Use(binding.second);
    Visit(node.body);
  }
  void VisitNode(const ast::Break&) {}
  void VisitNode(const ast::Continue&) {}

  void VisitFunction(const ast::Function& function) {
    for (const ast::Parameter& parameter : function.parameters) Forget(parameter.name);
    for (const ast::Parameter& parameter : function.parameters) Use(parameter.default_value);
    Visit(function.body);
  }

  void Use(const ast::ExprPtr& expr) {
    if (expr != nullptr) Use(*expr);
  }
  void Use(const ast::Expr& expr) {
    if (const auto* name = std::get_if<ast::Name>(&expr.node)) {
      const auto it = std::find(wanted_.begin(), wanted_.end(), name->name);
      if (it != wanted_.end()) found_.push_back(*it);
    }
    ast::ForEachChild(expr, [this](ast::Expr& child) { Use(child); });
  }
  void Assign(const ast::Target& target) {
    if (!target.is_tuple && target.attribute.empty()) Forget(target.name);
    for (const ast::Target& part : target.parts) Assign(part);
  }
  void Forget(std::string_view name) {
    wanted_.erase(std::remove(wanted_.begin(), wanted_.end(), name), wanted_.end());
  }

  std::vector<std::string_view> wanted_;
  std::vector<std::string_view> found_;
};

/// Slots of one function (the template, a macro, the body of a call block).
struct FunctionSlots {
  uint32_t level = 0;  ///< Functions around it.
  uint32_t count = 0;
};

/// The names that one scope defines.
class Frame {
 public:
  Frame(const Frame* parent, FunctionSlots& function)
      : parent_(parent), function_(function), first_slot_(function.count) {}

  std::optional<ast::Slot> Find(const std::string& name) const {
    for (const Frame* frame = this; frame != nullptr; frame = frame->parent_) {
      const auto it = frame->names_.find(name);
      if (it != frame->names_.end()) {
        return ast::Slot{function_.level - frame->function_.level, it->second.slot};
      }
    }
    return std::nullopt;
  }

  void Load(const std::string& name) {
    if (!Find(name).has_value()) Define(name, From::kContext);
  }

  void Store(const std::string& name) {
    const auto it = names_.find(name);
    if (it == names_.end()) {
      const bool is_outer = parent_ != nullptr && parent_->Find(name).has_value();
      Define(name, is_outer ? From::kOuter : From::kNothing);
    }
    Entry& entry = names_.at(name);
    if (!entry.is_stored) stored_.push_back(name);
    entry.is_stored = true;
  }

  uint32_t Parameter(const std::string& name) {
    Define(name, From::kParameter);
    Entry& entry = names_.at(name);
    entry.is_stored = true;
    return entry.slot;
  }

  /// Names stored so far; what a branch adds is everything behind the count before it.
  size_t StoredCount() const { return stored_.size(); }

  /// The names that branches of an `if` stored first may keep the value they came with.
  void EndBranches(size_t stored_before) {
    for (size_t i = stored_before; i < stored_.size(); ++i) {
      const bool is_outer = parent_ != nullptr && parent_->Find(stored_[i]).has_value();
      names_.at(stored_[i]).from = is_outer ? From::kOuter : From::kContext;
    }
  }

  /// REQUIRES: every name of the scope is known, and no inner scope has begun.
  ast::Scope ToScope() const {
    ast::Scope scope;
    scope.first_slot = first_slot_;
    scope.slots_count = function_.count - first_slot_;
    for (const auto& [name, entry] : names_) {
      switch (entry.from) {
        case From::kContext:
          scope.loads.push_back({ast::SlotLoad::From::kContext, entry.slot, {}, name});
          break;
        case From::kOuter: {
          ast::Slot outer = *parent_->Find(name);
          outer.hops += function_.level - parent_->function_.level;
          scope.loads.push_back({ast::SlotLoad::From::kOuter, entry.slot, outer, ""});
          break;
        }
        case From::kNothing:
          scope.loads.push_back({ast::SlotLoad::From::kNothing, entry.slot, {}, ""});
          break;
        case From::kParameter:
          break;
      }
    }
    return scope;
  }

  FunctionSlots& function() const { return function_; }

 private:
  enum class From : uint8_t { kContext, kOuter, kNothing, kParameter };
  struct Entry {
    uint32_t slot;
    From from;
    bool is_stored = false;
  };

  void Define(const std::string& name, From from) {
    const auto [it, is_new] = names_.try_emplace(name, Entry{function_.count, from});
    if (is_new) {
      ++function_.count;
    } else {
      it->second.from = from;
    }
  }

  const Frame* const parent_;
  FunctionSlots& function_;
  const uint32_t first_slot_;
  std::map<std::string, Entry> names_;
  std::vector<std::string> stored_;  ///< In order of the first store.
};

/// First pass over a scope: which names it defines. Stops at inner scopes.
class Declarer {
 public:
  explicit Declarer(Frame& frame) : frame_(frame) {}

  void Visit(const ast::Body& body) {
    for (const ast::Stmt& stmt : body) {
      std::visit([this](const auto& node) { VisitNode(node); }, stmt.node);
    }
  }

  void Use(const ast::ExprPtr& expr) {
    if (expr != nullptr) Use(*expr);
  }

  void Assign(const ast::Target& target) {
    if (target.is_tuple) {
      for (const ast::Target& part : target.parts) Assign(part);
    } else if (target.attribute.empty()) {
      frame_.Store(target.name);
    } else {
      frame_.Load(target.name);
    }
  }

  void AssignParameter(const ast::Target& target) {
    for (const ast::Target& part : target.parts) AssignParameter(part);
    if (!target.is_tuple) frame_.Parameter(target.name);
  }

 private:
  void VisitNode(const ast::Output& node) {
    for (const auto& part : node.parts) {
      if (const auto* expr = std::get_if<ast::ExprPtr>(&part)) Use(*expr);
    }
  }
  void VisitNode(const ast::If& node) {
    Use(node.branches.front().first);
    const size_t stored_before = frame_.StoredCount();
    for (const auto& [condition, body] : node.branches) {
      Use(condition);
      Visit(body);
    }
    Visit(node.otherwise);
    frame_.EndBranches(stored_before);
  }
  void VisitNode(const ast::For& node) { Use(node.iterable); }
  void VisitNode(const ast::Set& node) {
    Use(node.value);
    Assign(node.target);
  }
  void VisitNode(const ast::SetBlock& node) { Assign(node.target); }
  void VisitNode(const ast::MacroDef& node) { frame_.Store(node.function->name); }
  void VisitNode(const ast::CallBlock& node) { Use(node.call); }
  void VisitNode(const ast::FilterBlock& node) { Use(node.filter); }
  void VisitNode(const ast::With& node) {
    for (const auto& binding : node.bindings) Use(binding.second);
  }
  void VisitNode(const ast::Break&) {}
  void VisitNode(const ast::Continue&) {}

  void Use(const ast::Expr& expr) {
    if (const auto* name = std::get_if<ast::Name>(&expr.node)) frame_.Load(name->name);
    ast::ForEachChild(expr, [this](ast::Expr& child) { Use(child); });
  }

  Frame& frame_;
};

/// Second pass: slots for all names of a scope, then the scopes inside it.
class Resolver {
 public:
  absl::Status ResolveTemplate(ast::Template& tree) {
    FunctionSlots slots;
    Frame frame(nullptr, slots);
    Declarer(frame).Visit(tree.body);
    tree.scope = frame.ToScope();
    KVIST_RETURN_IF_ERROR(Visit(tree.body, frame, false));
    tree.slots_count = slots.count;
    return absl::OkStatus();
  }

 private:
  /// `soft`: under an `if`, where an unknown filter is no error yet.
  absl::Status Visit(ast::Body& body, Frame& frame, bool soft) {
    for (ast::Stmt& stmt : body) {
      KVIST_RETURN_IF_ERROR(std::visit([&](auto& node) { return VisitNode(stmt, node, frame, soft); }, stmt.node));
    }
    return absl::OkStatus();
  }

  absl::Status VisitNode(ast::Stmt&, ast::Output& node, Frame& frame, bool soft) {
    for (auto& part : node.parts) {
      if (auto* expr = std::get_if<ast::ExprPtr>(&part)) KVIST_RETURN_IF_ERROR(Use(*expr, frame, soft));
    }
    return absl::OkStatus();
  }

  absl::Status VisitNode(ast::Stmt&, ast::If& node, Frame& frame, bool) {
    for (auto& [condition, body] : node.branches) {
      KVIST_RETURN_IF_ERROR(Use(condition, frame, true));
      KVIST_RETURN_IF_ERROR(Visit(body, frame, true));
    }
    return Visit(node.otherwise, frame, true);
  }

  absl::Status VisitNode(ast::Stmt&, ast::For& node, Frame& frame, bool soft) {
    KVIST_RETURN_IF_ERROR(Use(node.iterable, frame, soft));
    ++loops_;
    {
      Frame inner(&frame, frame.function());
      node.loop_slot = inner.Parameter("loop");
      Declarer declarer(inner);
      declarer.AssignParameter(node.target);
      declarer.Visit(node.body);
      node.scope = inner.ToScope();
      KVIST_RETURN_IF_ERROR(Assign(node.target, inner));
      KVIST_RETURN_IF_ERROR(Visit(node.body, inner, false));
    }
    if (node.condition != nullptr) {
      Frame inner(&frame, frame.function());
      Declarer declarer(inner);
      node.condition_target = node.target;
      declarer.AssignParameter(node.condition_target);
      declarer.Use(node.condition);
      node.condition_scope = inner.ToScope();
      KVIST_RETURN_IF_ERROR(Assign(node.condition_target, inner));
      KVIST_RETURN_IF_ERROR(Use(node.condition, inner, false));
    }
    Frame inner(&frame, frame.function());
    Declarer(inner).Visit(node.otherwise);
    node.otherwise_scope = inner.ToScope();
    KVIST_RETURN_IF_ERROR(Visit(node.otherwise, inner, false));
    --loops_;
    return absl::OkStatus();
  }

  absl::Status VisitNode(ast::Stmt&, ast::Set& node, Frame& frame, bool soft) {
    KVIST_RETURN_IF_ERROR(Use(node.value, frame, soft));
    return Assign(node.target, frame);
  }

  absl::Status VisitNode(ast::Stmt&, ast::SetBlock& node, Frame& frame, bool) {
    Frame inner(&frame, frame.function());
    Declarer declarer(inner);
    declarer.Visit(node.body);
    declarer.Use(node.filter);
    node.scope = inner.ToScope();
    KVIST_RETURN_IF_ERROR(Visit(node.body, inner, false));
    KVIST_RETURN_IF_ERROR(Use(node.filter, inner, false));
    return Assign(node.target, frame);
  }

  absl::Status VisitNode(ast::Stmt& stmt, ast::MacroDef& node, Frame& frame, bool) {
    node.slot = *frame.Find(node.function->name);
    return VisitFunction(stmt.at, *node.function, frame);
  }

  absl::Status VisitNode(ast::Stmt& stmt, ast::CallBlock& node, Frame& frame, bool soft) {
    KVIST_RETURN_IF_ERROR(Use(node.call, frame, soft));
    return VisitFunction(stmt.at, *node.function, frame);
  }

  absl::Status VisitNode(ast::Stmt&, ast::FilterBlock& node, Frame& frame, bool) {
    Frame inner(&frame, frame.function());
    Declarer declarer(inner);
    declarer.Visit(node.body);
    declarer.Use(node.filter);
    node.scope = inner.ToScope();
    KVIST_RETURN_IF_ERROR(Visit(node.body, inner, false));
    return Use(node.filter, inner, false);
  }

  absl::Status VisitNode(ast::Stmt&, ast::With& node, Frame& frame, bool soft) {
    for (auto& binding : node.bindings) KVIST_RETURN_IF_ERROR(Use(binding.second, frame, soft));
    Frame inner(&frame, frame.function());
    Declarer declarer(inner);
    for (auto& binding : node.bindings) declarer.AssignParameter(binding.first);
    declarer.Visit(node.body);
    node.scope = inner.ToScope();
    for (auto& binding : node.bindings) KVIST_RETURN_IF_ERROR(Assign(binding.first, inner, false));
    return Visit(node.body, inner, false);
  }

  absl::Status VisitNode(ast::Stmt&, ast::Break&, Frame&, bool) { return absl::OkStatus(); }
  absl::Status VisitNode(ast::Stmt&, ast::Continue&, Frame&, bool) { return absl::OkStatus(); }

  absl::Status VisitFunction(Position at, ast::Function& function, const Frame& outer) {
    FunctionSlots slots;
    slots.level = outer.function().level + 1;
    Frame frame(&outer, slots);
    Declarer declarer(frame);
    for (ast::Parameter& parameter : function.parameters) parameter.slot = frame.Parameter(parameter.name);
    for (const ast::Parameter& parameter : function.parameters) declarer.Use(parameter.default_value);
    declarer.Visit(function.body);
    KVIST_RETURN_IF_ERROR(DeclareSpecials(at, function, frame));
    function.scope = frame.ToScope();
    for (ast::Parameter& parameter : function.parameters) {
      KVIST_RETURN_IF_ERROR(Use(parameter.default_value, frame, false));
    }
    KVIST_RETURN_IF_ERROR(Visit(function.body, frame, false));
    function.slots_count = slots.count;
    return absl::OkStatus();
  }

  /// `caller`, `kwargs` and `varargs` exist when the body uses them and no parameter has the name.
  absl::Status DeclareSpecials(Position at, ast::Function& function, Frame& frame) {
    UndeclaredNames used({"caller", "kwargs", "varargs"});
    used.Visit(function.body);
    const auto parameter = [&function](std::string_view name) -> const ast::Parameter* {
      for (const ast::Parameter& candidate : function.parameters) {
        if (candidate.name == name) return &candidate;
      }
      return nullptr;
    };
    if (used.Found("caller")) {
      const ast::Parameter* caller = parameter("caller");
      if (caller == nullptr) {
        function.caller_slot = frame.Parameter("caller");
      } else if (caller->default_value == nullptr) {
        return SyntaxError(at, "the parameter 'caller' needs a default");
      }
    }
    if (used.Found("kwargs") && parameter("kwargs") == nullptr) function.kwargs_slot = frame.Parameter("kwargs");
    if (used.Found("varargs") && parameter("varargs") == nullptr) function.varargs_slot = frame.Parameter("varargs");
    return absl::OkStatus();
  }

  absl::Status Use(ast::ExprPtr& expr, Frame& frame, bool soft) {
    return expr == nullptr ? absl::OkStatus() : Use(*expr, frame, soft);
  }

  absl::Status Use(ast::Expr& expr, Frame& frame, bool soft) {
    if (auto* name = std::get_if<ast::Name>(&expr.node)) {
      const std::optional<ast::Slot> slot = frame.Find(name->name);
      KVIST_CHECK(slot.has_value());  // The first pass saw the same names.
      name->slot = *slot;
    } else if (const auto* filter = std::get_if<ast::FilterCall>(&expr.node)) {
      if (filter->filter == nullptr && !soft) return SyntaxError(expr.at, "there is no filter '", filter->name, "'");
    } else if (const auto* test = std::get_if<ast::TestCall>(&expr.node)) {
      if (test->test == nullptr && !soft) return SyntaxError(expr.at, "there is no test '", test->name, "'");
    }
    soft = soft || std::holds_alternative<ast::Conditional>(expr.node);
    absl::Status status;
    ast::ForEachChild(expr, [&](ast::Expr& child) {
      if (status.ok()) status = Use(child, frame, soft);
    });
    return status;
  }

  absl::Status Assign(ast::Target& target, const Frame& frame, bool guard_loop = true) {
    for (ast::Target& part : target.parts) KVIST_RETURN_IF_ERROR(Assign(part, frame, guard_loop));
    if (target.is_tuple) return absl::OkStatus();
    if (guard_loop && loops_ > 0 && target.attribute.empty() && target.name == "loop") {
      return SyntaxError(target.at, "'loop' cannot be assigned to inside a loop");
    }
    target.slot = *frame.Find(target.name);
    return absl::OkStatus();
  }

  uint32_t loops_ = 0;  ///< For loops around the current statement.
};

}  // namespace

absl::Status ResolveScopes(ast::Template& tree) {
  return Resolver().ResolveTemplate(tree);
}

}  // namespace kvist::jinja
