#include "modelfile/jinja/parser.h"

#include <algorithm>

#include "base/status.h"
#include "modelfile/jinja/parser_internal.h"
#include "modelfile/jinja/scope.h"

namespace kvist::jinja {
namespace {

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kOutputBegin:
      return "'{{'";
    case TokenKind::kOutputEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kData:
      return "text";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return "a number";
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kName:
    case TokenKind::kOperator:
      return Cat("'", token.text.substr(0, 60), "'");
  }
  return "a token";
}

bool IsUnsupportedTag(std::string_view name) {
  constexpr std::string_view kTags[] = {"autoescape", "block", "extends", "from", "import", "include"};
  return std::find(std::begin(kTags), std::end(kTags), name) != std::end(kTags);
}

}  // namespace

absl::Status Parser::TooDeep(Position at) const {
  return SyntaxError(at, "nested deeper than ", depth_max_, " levels");
}

absl::Status Parser::CheckDepth() const {
  return depth_ > depth_max_ ? TooDeep(Current().at) : absl::OkStatus();
}

bool Parser::SkipName(std::string_view name) {
  const bool found = Current().IsName(name);
  if (found) Advance();
  return found;
}

bool Parser::SkipOperator(std::string_view op) {
  const bool found = Current().IsOperator(op);
  if (found) Advance();
  return found;
}

absl::Status Parser::Unexpected(std::string_view wanted) const {
  return SyntaxError(Current().at, "expected ", wanted, ", found ", Describe(Current()));
}

absl::Status Parser::ExpectOperator(std::string_view op) {
  return SkipOperator(op) ? absl::OkStatus() : Unexpected(Cat("'", op, "'"));
}

absl::Status Parser::Expect(TokenKind kind, std::string_view what) {
  if (Current().kind != kind) return Unexpected(what);
  Advance();
  return absl::OkStatus();
}

absl::StatusOr<std::string> Parser::ExpectName() {
  if (Current().kind != TokenKind::kName) return Unexpected("a name");
  std::string name = Current().text;
  Advance();
  return name;
}

absl::StatusOr<ast::Body> Parser::ParseTemplate() {
  ast::Body body;
  KVIST_RETURN_IF_ERROR(ParseBody({}, body));
  return body;
}

/// Statements up to the end of the template, or to a tag named in `ends`, whose name is then current.
absl::Status Parser::ParseBody(const EndNames& ends, ast::Body& body) {
  const Level level(*this);
  KVIST_RETURN_IF_ERROR(CheckDepth());
  while (Current().kind != TokenKind::kEnd) {
    const Position at = Current().at;
    if (Current().kind == TokenKind::kBlockBegin) {
      Advance();
      const bool ended =
          Current().kind == TokenKind::kName && std::find(ends.begin(), ends.end(), Current().text) != ends.end();
      if (ended) return absl::OkStatus();
      KVIST_ASSIGN_OR_RETURN(ast::Stmt stmt, ParseStatement());
      body.push_back(std::move(stmt));
      KVIST_RETURN_IF_ERROR(Expect(TokenKind::kBlockEnd, "'%}'"));
      continue;
    }
    if (body.empty() || !std::holds_alternative<ast::Output>(body.back().node)) {
      body.push_back(ast::Stmt{at, ast::Output{}});
    }
    auto& parts = std::get<ast::Output>(body.back().node).parts;
    if (Current().kind == TokenKind::kData) {
      parts.emplace_back(Current().text);
      Advance();
      continue;
    }
    Advance();  // {{
    KVIST_ASSIGN_OR_RETURN(ast::ExprPtr expr, ParseTuple({}));
    parts.emplace_back(std::move(expr));
    KVIST_RETURN_IF_ERROR(Expect(TokenKind::kOutputEnd, "'}}'"));
  }
  if (ends.empty()) return absl::OkStatus();
  return SyntaxError(Current().at, "the template ends before '{% ", ends.back(), " %}'");
}

absl::StatusOr<ast::Body> Parser::ParseStatements(const EndNames& ends) {
  SkipOperator(":");
  KVIST_RETURN_IF_ERROR(Expect(TokenKind::kBlockEnd, "'%}'"));
  ast::Body body;
  KVIST_RETURN_IF_ERROR(ParseBody(ends, body));
  return body;
}

absl::StatusOr<ast::Body> Parser::ParseStatementsTo(std::string_view end) {
  KVIST_ASSIGN_OR_RETURN(ast::Body body, ParseStatements({end}));
  Advance();
  return body;
}

absl::StatusOr<ast::Stmt> Parser::ParseStatement() {
  struct Tag {
    std::string_view name;
    absl::StatusOr<ast::Stmt> (Parser::*parse)();
  };
  static constexpr Tag kTags[] = {
      {"if", &Parser::ParseIf},
      {"for", &Parser::ParseFor},
      {"set", &Parser::ParseSet},
      {"macro", &Parser::ParseMacro},
      {"call", &Parser::ParseCallBlock},
      {"filter", &Parser::ParseFilterBlock},
      {"with", &Parser::ParseWith},
      {"print", &Parser::ParsePrint},
      {"generation", &Parser::ParseGeneration},
      {"break", &Parser::ParseLoopControl},
      {"continue", &Parser::ParseLoopControl},
  };
  if (Current().kind != TokenKind::kName) return Unexpected("the name of a tag");
  for (const Tag& tag : kTags) {
    if (Current().text == tag.name) return (this->*tag.parse)();
  }
  if (IsUnsupportedTag(Current().text)) {
    return SyntaxError(Current().at, "the tag '", Current().text, "' is not supported in a chat template");
  }
  return SyntaxError(Current().at, "unknown tag ", Describe(Current()));
}

absl::StatusOr<ast::Stmt> Parser::ParseIf() {
  const Position at = Current().at;
  ast::If node;
  do {
    Advance();
    KVIST_ASSIGN_OR_RETURN(ast::ExprPtr condition, ParseTuple({.with_conditional = false}));
    KVIST_ASSIGN_OR_RETURN(ast::Body body, ParseStatements({"elif", "else", "endif"}));
    node.branches.emplace_back(std::move(condition), std::move(body));
  } while (Current().IsName("elif"));
  const bool has_else = Current().IsName("else");
  Advance();
  if (has_else) {
    KVIST_ASSIGN_OR_RETURN(node.otherwise, ParseStatementsTo("endif"));
  }
  return ast::Stmt{at, std::move(node)};
}

absl::StatusOr<ast::Stmt> Parser::ParseFor() {
  const Position at = Current().at;
  Advance();
  ast::For node;
  KVIST_ASSIGN_OR_RETURN(node.target, ParseTarget(false, "in"));
  if (!SkipName("in")) return Unexpected("'in'");
  KVIST_ASSIGN_OR_RETURN(node.iterable, ParseTuple({.with_conditional = false, .end_name = "recursive"}));
  if (SkipName("if")) {
    KVIST_ASSIGN_OR_RETURN(node.condition, ParseExpression());
  }
  if (Current().IsName("recursive")) return SyntaxError(Current().at, "recursive loops are not supported");
  ++loops_open_;
  KVIST_ASSIGN_OR_RETURN(node.body, ParseStatements({"else", "endfor"}));
  --loops_open_;
  const bool has_else = Current().IsName("else");
  Advance();
  if (has_else) {
    KVIST_ASSIGN_OR_RETURN(node.otherwise, ParseStatementsTo("endfor"));
  }
  return ast::Stmt{at, std::move(node)};
}

absl::StatusOr<ast::Stmt> Parser::ParseSet() {
  const Position at = Current().at;
  Advance();
  KVIST_ASSIGN_OR_RETURN(ast::Target target, ParseTarget(true, ""));
  if (SkipOperator("=")) {
    KVIST_ASSIGN_OR_RETURN(ast::ExprPtr value, ParseTuple({}));
    return ast::Stmt{at, ast::Set{std::move(target), std::move(value)}};
  }
  ast::SetBlock node;
  node.target = std::move(target);
  KVIST_ASSIGN_OR_RETURN(node.filter, ParseFilters(nullptr));
  KVIST_ASSIGN_OR_RETURN(node.body, ParseStatementsTo("endset"));
  return ast::Stmt{at, std::move(node)};
}

/// The body of a function: loops outside cannot be left from inside.
absl::StatusOr<ast::Body> Parser::ParseFunctionBody(std::string_view end) {
  const uint32_t loops_open = std::exchange(loops_open_, 0);
  absl::StatusOr<ast::Body> body = ParseStatementsTo(end);
  loops_open_ = loops_open;
  return body;
}

absl::Status Parser::ParseSignature(ast::Function& function) {
  KVIST_RETURN_IF_ERROR(ExpectOperator("("));
  while (!Current().IsOperator(")")) {
    if (!function.parameters.empty()) KVIST_RETURN_IF_ERROR(ExpectOperator(","));
    const Position at = Current().at;
    KVIST_ASSIGN_OR_RETURN(const ast::Target name, ParseTargetPart(false));
    if (name.is_tuple) return SyntaxError(at, "a parameter must be a name");
    for (const ast::Parameter& other : function.parameters) {
      if (other.name == name.name) return SyntaxError(at, "two parameters are called '", name.name, "'");
    }
    ast::Parameter parameter;
    parameter.name = name.name;
    if (SkipOperator("=")) {
      KVIST_ASSIGN_OR_RETURN(parameter.default_value, ParseExpression());
    } else if (!function.parameters.empty() && function.parameters.back().default_value != nullptr) {
      return SyntaxError(at, "a parameter without a default follows one with a default");
    }
    function.parameters.push_back(std::move(parameter));
  }
  return ExpectOperator(")");
}

absl::StatusOr<ast::Stmt> Parser::ParseMacro() {
  const Position at = Current().at;
  Advance();
  auto function = std::make_unique<ast::Function>();
  KVIST_ASSIGN_OR_RETURN(const ast::Target name, ParseTargetPart(false));
  if (name.is_tuple) return SyntaxError(at, "a macro needs a name");
  function->name = name.name;
  KVIST_RETURN_IF_ERROR(ParseSignature(*function));
  KVIST_ASSIGN_OR_RETURN(function->body, ParseFunctionBody("endmacro"));
  return ast::Stmt{at, ast::MacroDef{std::move(function), {}}};
}

absl::StatusOr<ast::Stmt> Parser::ParseCallBlock() {
  const Position at = Current().at;
  Advance();
  ast::CallBlock node{nullptr, std::make_unique<ast::Function>()};
  if (Current().IsOperator("(")) KVIST_RETURN_IF_ERROR(ParseSignature(*node.function));
  KVIST_ASSIGN_OR_RETURN(node.call, ParseExpression());
  if (!std::holds_alternative<ast::Call>(node.call->node)) return SyntaxError(at, "a call block needs a call");
  KVIST_ASSIGN_OR_RETURN(node.function->body, ParseFunctionBody("endcall"));
  return ast::Stmt{at, std::move(node)};
}

/// {% generation %} marks the text of the assistant for training; when rendering it only is a scope.
absl::StatusOr<ast::Stmt> Parser::ParseGeneration() {
  const Position at = Current().at;
  Advance();
  ast::CallBlock node{nullptr, std::make_unique<ast::Function>()};
  KVIST_ASSIGN_OR_RETURN(node.function->body, ParseFunctionBody("endgeneration"));
  return ast::Stmt{at, std::move(node)};
}

absl::StatusOr<ast::Stmt> Parser::ParseFilterBlock() {
  const Position at = Current().at;
  Advance();
  ast::FilterBlock node;
  KVIST_ASSIGN_OR_RETURN(node.filter, ParseFilter(nullptr));
  KVIST_ASSIGN_OR_RETURN(node.filter, ParseFilters(std::move(node.filter)));
  KVIST_ASSIGN_OR_RETURN(node.body, ParseStatementsTo("endfilter"));
  return ast::Stmt{at, std::move(node)};
}

absl::StatusOr<ast::Stmt> Parser::ParseWith() {
  const Position at = Current().at;
  Advance();
  ast::With node;
  while (Current().kind != TokenKind::kBlockEnd) {
    if (!node.bindings.empty()) KVIST_RETURN_IF_ERROR(ExpectOperator(","));
    KVIST_ASSIGN_OR_RETURN(ast::Target target, ParseTarget(false, ""));
    KVIST_RETURN_IF_ERROR(ExpectOperator("="));
    KVIST_ASSIGN_OR_RETURN(ast::ExprPtr value, ParseExpression());
    node.bindings.emplace_back(std::move(target), std::move(value));
  }
  KVIST_ASSIGN_OR_RETURN(node.body, ParseStatementsTo("endwith"));
  return ast::Stmt{at, std::move(node)};
}

absl::StatusOr<ast::Stmt> Parser::ParsePrint() {
  const Position at = Current().at;
  Advance();
  ast::Output node;
  while (Current().kind != TokenKind::kBlockEnd) {
    if (!node.parts.empty()) KVIST_RETURN_IF_ERROR(ExpectOperator(","));
    KVIST_ASSIGN_OR_RETURN(ast::ExprPtr expr, ParseExpression());
    node.parts.emplace_back(std::move(expr));
  }
  return ast::Stmt{at, std::move(node)};
}

absl::StatusOr<ast::Stmt> Parser::ParseLoopControl() {
  const Position at = Current().at;
  const bool is_break = Current().IsName("break");
  if (loops_open_ == 0) return SyntaxError(at, Describe(Current()), " outside of a loop");
  Advance();
  return is_break ? ast::Stmt{at, ast::Break{}} : ast::Stmt{at, ast::Continue{}};
}

/// A name, an attribute of a namespace, or several of them separated by commas.
absl::StatusOr<ast::Target> Parser::ParseTarget(bool with_namespace, std::string_view end_name) {
  ast::Target tuple;
  tuple.at = Current().at;
  for (;;) {
    if (AtTupleEnd(end_name)) break;
    KVIST_ASSIGN_OR_RETURN(ast::Target part, ParseTargetPart(with_namespace));
    tuple.parts.push_back(std::move(part));
    if (!SkipOperator(",")) break;
    tuple.is_tuple = true;
  }
  if (tuple.is_tuple) return tuple;
  if (tuple.parts.empty()) return Unexpected("a name to assign to");
  ast::Target only = std::move(tuple.parts.front());
  return only;
}

absl::StatusOr<ast::Target> Parser::ParseTargetPart(bool with_namespace) {
  const Position at = Current().at;
  if (with_namespace && Current().kind == TokenKind::kName && Ahead().IsOperator(".")) {
    ast::Target target;
    target.at = at;
    target.name = Current().text;
    Advance();
    Advance();
    KVIST_ASSIGN_OR_RETURN(target.attribute, ExpectName());
    return target;
  }
  KVIST_ASSIGN_OR_RETURN(const ast::ExprPtr expr, ParsePrimary());
  return ToTarget(*expr);
}

absl::StatusOr<ast::Target> Parser::ToTarget(const ast::Expr& expr) const {
  ast::Target target;
  target.at = expr.at;
  if (const auto* name = std::get_if<ast::Name>(&expr.node)) {
    target.name = name->name;
    return target;
  }
  const auto* tuple = std::get_if<ast::SequenceExpr>(&expr.node);
  if (tuple == nullptr || !tuple->is_tuple) return SyntaxError(expr.at, "this cannot be assigned to");
  target.is_tuple = true;
  for (const ast::ExprPtr& item : tuple->items) {
    KVIST_ASSIGN_OR_RETURN(ast::Target part, ToTarget(*item));
    target.parts.push_back(std::move(part));
  }
  return target;
}

absl::StatusOr<ast::Template> Parse(std::string_view source, uint32_t depth_max) {
  KVIST_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  ast::Template result;
  KVIST_ASSIGN_OR_RETURN(result.body, Parser(std::move(tokens), depth_max).ParseTemplate());
  KVIST_RETURN_IF_ERROR(ResolveScopes(result));
  return result;
}

}  // namespace kvist::jinja
