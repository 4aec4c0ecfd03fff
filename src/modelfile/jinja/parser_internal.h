#pragma once

/// @file
/// The parser's state and its two halves: expressions (parser_expr.cc) and statements (parser.cc).
/// Only for those files.

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "modelfile/jinja/ast.h"

namespace kvist::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, uint32_t depth_max) : tokens_(std::move(tokens)), depth_max_(depth_max) {}

  absl::StatusOr<ast::Body> ParseTemplate();

 private:
  using StatusOrExpr = absl::StatusOr<ast::ExprPtr>;

  /// Names that end a body, e.g. {"elif", "else", "endif"}.
  using EndNames = std::vector<std::string_view>;

  /// How an unparenthesised list of expressions is read.
  struct TupleOptions {
    bool with_conditional = true;
    bool parenthesized = false;
    std::string_view end_name = {};  ///< A name that also ends it.
  };

  /// Counts recursion for as long as it lives.
  struct Level {
    explicit Level(Parser& p) : parser(p) { ++parser.depth_; }
    ~Level() { --parser.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    Parser& parser;
  };
  absl::Status CheckDepth() const;

  // Tokens.
  const Token& Current() const { return tokens_[next_]; }
  const Token& Ahead() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  void Advance() { next_ = std::min(next_ + 1, tokens_.size() - 1); }
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view op);
  absl::Status ExpectOperator(std::string_view op);
  absl::Status Expect(TokenKind kind, std::string_view what);
  absl::StatusOr<std::string> ExpectName();
  absl::Status Unexpected(std::string_view wanted) const;

  // Statements.
  absl::Status ParseBody(const EndNames& ends, ast::Body& body);
  /// After the head of a tag: its end, the body and the name that ends it, which stays current.
  absl::StatusOr<ast::Body> ParseStatements(const EndNames& ends);
  /// The same; the one end name is skipped.
  absl::StatusOr<ast::Body> ParseStatementsTo(std::string_view end);
  absl::StatusOr<ast::Stmt> ParseStatement();
  absl::StatusOr<ast::Stmt> ParseIf();
  absl::StatusOr<ast::Stmt> ParseFor();
  absl::StatusOr<ast::Stmt> ParseSet();
  absl::StatusOr<ast::Stmt> ParseMacro();
  absl::StatusOr<ast::Stmt> ParseCallBlock();
  absl::StatusOr<ast::Stmt> ParseFilterBlock();
  absl::StatusOr<ast::Stmt> ParseWith();
  absl::StatusOr<ast::Stmt> ParsePrint();
  absl::StatusOr<ast::Stmt> ParseGeneration();
  absl::StatusOr<ast::Stmt> ParseLoopControl();
  absl::Status ParseSignature(ast::Function& function);
  absl::StatusOr<ast::Body> ParseFunctionBody(std::string_view end);

  // Assignment targets.
  absl::StatusOr<ast::Target> ParseTarget(bool with_namespace, std::string_view end_name);
  absl::StatusOr<ast::Target> ParseTargetPart(bool with_namespace);
  absl::StatusOr<ast::Target> ToTarget(const ast::Expr& expr) const;

  // Expressions, loosest first.
  StatusOrExpr ParseTuple(const TupleOptions& options);
  bool AtTupleEnd(std::string_view end_name) const;
  StatusOrExpr ParseExpression(bool with_conditional = true);
  StatusOrExpr ParseOr();
  StatusOrExpr ParseAnd();
  StatusOrExpr ParseNot();
  StatusOrExpr ParseComparison();
  StatusOrExpr ParseSum();
  StatusOrExpr ParseConcat();
  StatusOrExpr ParseProduct();
  StatusOrExpr ParsePower();
  StatusOrExpr ParseUnary(bool with_filter);
  StatusOrExpr ParsePrimary();
  StatusOrExpr ParseList();
  StatusOrExpr ParseDict();
  StatusOrExpr ParsePostfix(ast::ExprPtr expr);
  StatusOrExpr ParseFilterExpr(ast::ExprPtr expr);
  StatusOrExpr ParseSubscript(ast::ExprPtr object);
  StatusOrExpr ParseBrackets(Position at, ast::ExprPtr object);
  StatusOrExpr ParseCall(ast::ExprPtr callee);
  /// One filter, after its `|`.
  StatusOrExpr ParseFilter(ast::ExprPtr value);
  /// `| filter` as often as it comes; `value` may be nullptr.
  StatusOrExpr ParseFilters(ast::ExprPtr value);
  StatusOrExpr ParseTest(ast::ExprPtr value);
  absl::StatusOr<std::string> ParseDottedName();
  absl::StatusOr<ast::Arguments> ParseArguments();
  absl::Status ParseArgument(Position open, ast::Arguments& args);

  /// A left-to-right chain of binary operators of one precedence.
  StatusOrExpr ParseChain(StatusOrExpr (Parser::*operand)(),
                          const std::vector<std::pair<std::string_view, Arithmetic>>& operators);

  /// Wraps a node and measures its depth.
  template <class Node>
  StatusOrExpr Make(Position at, Node node) const {
    auto expr = std::make_unique<ast::Expr>();
    expr->at = at;
    expr->node = std::move(node);
    uint32_t below = 0;
    ast::ForEachChild(*expr, [&below](ast::Expr& child) { below = std::max(below, child.depth); });
    expr->depth = below + 1;
    if (expr->depth > depth_max_) return TooDeep(at);
    return expr;
  }
  absl::Status TooDeep(Position at) const;

  const std::vector<Token> tokens_;
  const uint32_t depth_max_;
  size_t next_ = 0;
  uint32_t depth_ = 0;
  uint32_t loops_open_ = 0;  ///< In the function being parsed.
};

}  // namespace kvist::jinja
