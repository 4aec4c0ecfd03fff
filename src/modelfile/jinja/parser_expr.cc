#include <algorithm>
#include <optional>

#include "base/status.h"
#include "modelfile/jinja/parser_internal.h"

namespace kvist::jinja {
namespace {

std::optional<ast::CompareOp> CompareOperator(const Token& token) {
  constexpr std::pair<std::string_view, ast::CompareOp> kOperators[] = {
      {"==", ast::CompareOp::kEqual},     {"!=", ast::CompareOp::kNotEqual}, {"<", ast::CompareOp::kLess},
      {"<=", ast::CompareOp::kLessEqual}, {">", ast::CompareOp::kGreater},   {">=", ast::CompareOp::kGreaterEqual},
  };
  for (const auto& [text, op] : kOperators) {
    if (token.IsOperator(text)) return op;
  }
  return std::nullopt;
}

}  // namespace

bool Parser::AtTupleEnd(std::string_view end_name) const {
  const Token& token = Current();
  if (token.kind == TokenKind::kOutputEnd || token.kind == TokenKind::kBlockEnd || token.IsOperator(")")) return true;
  return !end_name.empty() && token.IsName(end_name);
}

Parser::StatusOrExpr Parser::ParseTuple(const TupleOptions& options) {
  const Position at = Current().at;
  ast::SequenceExpr tuple{{}, true};
  bool is_tuple = false;
  for (;;) {
    if (AtTupleEnd(options.end_name)) break;
    KVIST_ASSIGN_OR_RETURN(ast::ExprPtr item, ParseExpression(options.with_conditional));
    tuple.items.push_back(std::move(item));
    if (!SkipOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !tuple.items.empty()) return std::move(tuple.items.front());
  if (!is_tuple && !options.parenthesized) return Unexpected("an expression");
  return Make(at, std::move(tuple));
}

Parser::StatusOrExpr Parser::ParseExpression(bool with_conditional) {
  const Level level(*this);
  KVIST_RETURN_IF_ERROR(CheckDepth());
  KVIST_ASSIGN_OR_RETURN(ast::ExprPtr expr, ParseOr());
  while (with_conditional && Current().IsName("if")) {
    const Position at = Current().at;
    Advance();
    ast::Conditional conditional;
    conditional.then = std::move(expr);
    KVIST_ASSIGN_OR_RETURN(conditional.condition, ParseOr());
    if (SkipName("else")) {
      KVIST_ASSIGN_OR_RETURN(conditional.otherwise, ParseExpression());
    }
    KVIST_ASSIGN_OR_RETURN(expr, Make(at, std::move(conditional)));
  }
  return expr;
}

Parser::StatusOrExpr Parser::ParseOr() {
  const Position at = Current().at;
  ast::Logical logical{false, {}};
  do {
    KVIST_ASSIGN_OR_RETURN(ast::ExprPtr part, ParseAnd());
    logical.parts.push_back(std::move(part));
  } while (SkipName("or"));
  if (logical.parts.size() == 1) return std::move(logical.parts.front());
  return Make(at, std::move(logical));
}

Parser::StatusOrExpr Parser::ParseAnd() {
  const Position at = Current().at;
  ast::Logical logical{true, {}};
  do {
    KVIST_ASSIGN_OR_RETURN(ast::ExprPtr part, ParseNot());
    logical.parts.push_back(std::move(part));
  } while (SkipName("and"));
  if (logical.parts.size() == 1) return std::move(logical.parts.front());
  return Make(at, std::move(logical));
}

Parser::StatusOrExpr Parser::ParseNot() {
  if (!Current().IsName("not")) return ParseComparison();
  const Level level(*this);
  KVIST_RETURN_IF_ERROR(CheckDepth());
  const Position at = Current().at;
  Advance();
  KVIST_ASSIGN_OR_RETURN(ast::ExprPtr operand, ParseNot());
  return Make(at, ast::Unary{ast::UnaryOp::kNot, std::move(operand)});
}

Parser::StatusOrExpr Parser::ParseComparison() {
  const Position at = Current().at;
  ast::Comparison comparison;
  KVIST_ASSIGN_OR_RETURN(comparison.first, ParseSum());
  for (;;) {
    std::optional<ast::CompareOp> op = CompareOperator(Current());
    if (Current().IsName("in")) op = ast::CompareOp::kIn;
    if (Current().IsName("not") && Ahead().IsName("in")) {
      Advance();
      op = ast::CompareOp::kNotIn;
    }
    if (!op.has_value()) break;
    Advance();
    KVIST_ASSIGN_OR_RETURN(ast::ExprPtr operand, ParseSum());
    comparison.rest.emplace_back(*op, std::move(operand));
  }
  if (comparison.rest.empty()) return std::move(comparison.first);
  return Make(at, std::move(comparison));
}

Parser::StatusOrExpr Parser::ParseChain(StatusOrExpr (Parser::*operand)(),
                                        const std::vector<std::pair<std::string_view, Arithmetic>>& operators) {
  const Position at = Current().at;
  ast::Chain chain;
  KVIST_ASSIGN_OR_RETURN(chain.first, (this->*operand)());
  for (;;) {
    const auto found = std::find_if(operators.begin(), operators.end(),
                                    [this](const auto& candidate) { return Current().IsOperator(candidate.first); });
    if (found == operators.end()) break;
    Advance();
    KVIST_ASSIGN_OR_RETURN(ast::ExprPtr right, (this->*operand)());
    chain.rest.emplace_back(found->second, std::move(right));
  }
  if (chain.rest.empty()) return std::move(chain.first);
  return Make(at, std::move(chain));
}

Parser::StatusOrExpr Parser::ParseSum() {
  return ParseChain(&Parser::ParseConcat, {{"+", Arithmetic::kAdd}, {"-", Arithmetic::kSub}});
}

Parser::StatusOrExpr Parser::ParseConcat() {
  const Position at = Current().at;
  ast::Concat concat;
  do {
    KVIST_ASSIGN_OR_RETURN(ast::ExprPtr part, ParseProduct());
    concat.parts.push_back(std::move(part));
  } while (SkipOperator("~"));
  if (concat.parts.size() == 1) return std::move(concat.parts.front());
  return Make(at, std::move(concat));
}

Parser::StatusOrExpr Parser::ParseProduct() {
  return ParseChain(
      &Parser::ParsePower,
      {{"*", Arithmetic::kMul}, {"/", Arithmetic::kDiv}, {"//", Arithmetic::kFloorDiv}, {"%", Arithmetic::kMod}});
}

Parser::StatusOrExpr Parser::ParsePower() {
  const Position at = Current().at;
  ast::Chain chain;
  KVIST_ASSIGN_OR_RETURN(chain.first, ParseUnary(true));
  while (SkipOperator("**")) {
    KVIST_ASSIGN_OR_RETURN(ast::ExprPtr right, ParseUnary(true));
    chain.rest.emplace_back(Arithmetic::kPow, std::move(right));
  }
  if (chain.rest.empty()) return std::move(chain.first);
  return Make(at, std::move(chain));
}

Parser::StatusOrExpr Parser::ParseUnary(bool with_filter) {
  const Level level(*this);
  KVIST_RETURN_IF_ERROR(CheckDepth());
  const Position at = Current().at;
  ast::ExprPtr expr;
  if (Current().IsOperator("-") || Current().IsOperator("+")) {
    const ast::UnaryOp op = Current().IsOperator("-") ? ast::UnaryOp::kNegate : ast::UnaryOp::kPositive;
    Advance();
    KVIST_ASSIGN_OR_RETURN(ast::ExprPtr operand, ParseUnary(false));
    KVIST_ASSIGN_OR_RETURN(expr, Make(at, ast::Unary{op, std::move(operand)}));
  } else {
    KVIST_ASSIGN_OR_RETURN(expr, ParsePrimary());
  }
  KVIST_ASSIGN_OR_RETURN(expr, ParsePostfix(std::move(expr)));
  return with_filter ? ParseFilterExpr(std::move(expr)) : StatusOrExpr(std::move(expr));
}

Parser::StatusOrExpr Parser::ParsePrimary() {
  const Token& token = Current();
  const Position at = token.at;
  switch (token.kind) {
    case TokenKind::kName: {
      const std::string& name = token.text;
      Advance();
      if (name == "true" || name == "True") return Make(at, ast::Literal{Value::Bool(true)});
      if (name == "false" || name == "False") return Make(at, ast::Literal{Value::Bool(false)});
      if (name == "none" || name == "None") return Make(at, ast::Literal{Value::None()});
      return Make(at, ast::Name{name, {}});
    }
    case TokenKind::kString: {
      std::string text;
      for (; Current().kind == TokenKind::kString; Advance()) text += Current().text;
      return Make(at, ast::Literal{Value::String(std::move(text))});
    }
    case TokenKind::kInteger:
      Advance();
      return Make(at, ast::Literal{Value::Integer(token.integer)});
    case TokenKind::kFloat:
      Advance();
      return Make(at, ast::Literal{Value::Float(token.number)});
    case TokenKind::kOperator:
      if (token.text == "(") {
        Advance();
        KVIST_ASSIGN_OR_RETURN(ast::ExprPtr inner, ParseTuple({.parenthesized = true}));
        KVIST_RETURN_IF_ERROR(ExpectOperator(")"));
        return inner;
      }
      if (token.text == "[") return ParseList();
      if (token.text == "{") return ParseDict();
      break;
    default:
      break;
  }
  return Unexpected("an expression");
}

Parser::StatusOrExpr Parser::ParseList() {
  const Position at = Current().at;
  Advance();
  ast::SequenceExpr list{{}, false};
  while (!Current().IsOperator("]")) {
    KVIST_ASSIGN_OR_RETURN(ast::ExprPtr item, ParseExpression());
    list.items.push_back(std::move(item));
    if (!SkipOperator(",")) break;
  }
  KVIST_RETURN_IF_ERROR(ExpectOperator("]"));
  return Make(at, std::move(list));
}

Parser::StatusOrExpr Parser::ParseDict() {
  const Position at = Current().at;
  Advance();
  ast::DictExpr dict;
  while (!Current().IsOperator("}")) {
    KVIST_ASSIGN_OR_RETURN(ast::ExprPtr key, ParseExpression());
    KVIST_RETURN_IF_ERROR(ExpectOperator(":"));
    KVIST_ASSIGN_OR_RETURN(ast::ExprPtr value, ParseExpression());
    dict.entries.emplace_back(std::move(key), std::move(value));
    if (!SkipOperator(",")) break;
  }
  KVIST_RETURN_IF_ERROR(ExpectOperator("}"));
  return Make(at, std::move(dict));
}

Parser::StatusOrExpr Parser::ParsePostfix(ast::ExprPtr expr) {
  for (;;) {
    if (Current().IsOperator(".") || Current().IsOperator("[")) {
      KVIST_ASSIGN_OR_RETURN(expr, ParseSubscript(std::move(expr)));
    } else if (Current().IsOperator("(")) {
      KVIST_ASSIGN_OR_RETURN(expr, ParseCall(std::move(expr)));
    } else {
      return expr;
    }
  }
}

Parser::StatusOrExpr Parser::ParseFilterExpr(ast::ExprPtr expr) {
  for (;;) {
    if (SkipOperator("|")) {
      KVIST_ASSIGN_OR_RETURN(expr, ParseFilter(std::move(expr)));
    } else if (SkipName("is")) {
      KVIST_ASSIGN_OR_RETURN(expr, ParseTest(std::move(expr)));
    } else if (Current().IsOperator("(")) {
      KVIST_ASSIGN_OR_RETURN(expr, ParseCall(std::move(expr)));
    } else {
      return expr;
    }
  }
}

Parser::StatusOrExpr Parser::ParseSubscript(ast::ExprPtr object) {
  const Position at = Current().at;
  if (!SkipOperator(".")) {
    Advance();
    return ParseBrackets(at, std::move(object));
  }
  const Token& token = Current();
  if (token.kind == TokenKind::kName) {
    Advance();
    return Make(at, ast::Attribute{std::move(object), token.text});
  }
  if (token.kind != TokenKind::kInteger) return Unexpected("a name or a number");
  Advance();
  KVIST_ASSIGN_OR_RETURN(ast::ExprPtr key, Make(token.at, ast::Literal{Value::Integer(token.integer)}));
  return Make(at, ast::Subscript{std::move(object), std::move(key)});
}

/// After the `[`.
Parser::StatusOrExpr Parser::ParseBrackets(Position at, ast::ExprPtr object) {
  ast::SliceExpr slice;
  ast::SequenceExpr keys{{}, true};
  bool is_slice = false;
  const auto at_part_end = [this] {
    return Current().IsOperator(":") || Current().IsOperator("]") || Current().IsOperator(",");
  };
  for (bool first = true; first ? !Current().IsOperator("]") : SkipOperator(","); first = false) {
    if (is_slice) return SyntaxError(at, "a slice beside another subscript is not supported");
    ast::ExprPtr key;
    if (!Current().IsOperator(":")) {
      KVIST_ASSIGN_OR_RETURN(key, ParseExpression());
    }
    if (!SkipOperator(":")) {
      keys.items.push_back(std::move(key));
      continue;
    }
    is_slice = true;
    slice.start = std::move(key);
    if (!at_part_end()) {
      KVIST_ASSIGN_OR_RETURN(slice.stop, ParseExpression());
    }
    if (SkipOperator(":") && !at_part_end()) {
      KVIST_ASSIGN_OR_RETURN(slice.step, ParseExpression());
    }
  }
  KVIST_RETURN_IF_ERROR(ExpectOperator("]"));
  if (is_slice) {
    if (!keys.items.empty()) return SyntaxError(at, "a slice beside another subscript is not supported");
    slice.object = std::move(object);
    return Make(at, std::move(slice));
  }
  ast::ExprPtr key;
  if (keys.items.size() == 1) {
    key = std::move(keys.items.front());
  } else {
    KVIST_ASSIGN_OR_RETURN(key, Make(at, std::move(keys)));
  }
  return Make(at, ast::Subscript{std::move(object), std::move(key)});
}

Parser::StatusOrExpr Parser::ParseCall(ast::ExprPtr callee) {
  const Position at = Current().at;
  KVIST_ASSIGN_OR_RETURN(ast::Arguments args, ParseArguments());
  return Make(at, ast::Call{std::move(callee), std::move(args)});
}

absl::StatusOr<ast::Arguments> Parser::ParseArguments() {
  const Position open = Current().at;
  KVIST_RETURN_IF_ERROR(ExpectOperator("("));
  ast::Arguments args;
  while (!Current().IsOperator(")")) {
    KVIST_RETURN_IF_ERROR(ParseArgument(open, args));
    if (!SkipOperator(",")) break;
  }
  KVIST_RETURN_IF_ERROR(ExpectOperator(")"));
  return args;
}

absl::Status Parser::ParseArgument(Position open, ast::Arguments& args) {
  const auto misplaced = [open] { return SyntaxError(open, "the arguments of the call are in the wrong order"); };
  if (SkipOperator("*")) {
    if (args.more_positional != nullptr || args.more_named != nullptr) return misplaced();
    KVIST_ASSIGN_OR_RETURN(args.more_positional, ParseExpression());
    return absl::OkStatus();
  }
  if (SkipOperator("**")) {
    if (args.more_named != nullptr) return misplaced();
    KVIST_ASSIGN_OR_RETURN(args.more_named, ParseExpression());
    return absl::OkStatus();
  }
  if (Current().kind == TokenKind::kName && Ahead().IsOperator("=")) {
    if (args.more_named != nullptr) return misplaced();
    const Token& name = Current();
    Advance();
    Advance();
    for (const auto& [other, value] : args.named) {
      if (other == name.text) return SyntaxError(name.at, "the argument '", other, "' is given twice");
    }
    KVIST_ASSIGN_OR_RETURN(ast::ExprPtr value, ParseExpression());
    args.named.emplace_back(name.text, std::move(value));
    return absl::OkStatus();
  }
  if (args.more_positional != nullptr || args.more_named != nullptr || !args.named.empty()) return misplaced();
  KVIST_ASSIGN_OR_RETURN(ast::ExprPtr value, ParseExpression());
  args.positional.push_back(std::move(value));
  return absl::OkStatus();
}

absl::StatusOr<std::string> Parser::ParseDottedName() {
  KVIST_ASSIGN_OR_RETURN(std::string name, ExpectName());
  while (SkipOperator(".")) {
    KVIST_ASSIGN_OR_RETURN(const std::string part, ExpectName());
    name += Cat(".", part);
  }
  return name;
}

Parser::StatusOrExpr Parser::ParseFilter(ast::ExprPtr value) {
  const Position at = Current().at;
  ast::FilterCall filter;
  KVIST_ASSIGN_OR_RETURN(filter.name, ParseDottedName());
  filter.filter = FindFilter(filter.name);
  filter.value = std::move(value);
  if (Current().IsOperator("(")) {
    KVIST_ASSIGN_OR_RETURN(filter.args, ParseArguments());
  }
  return Make(at, std::move(filter));
}

Parser::StatusOrExpr Parser::ParseFilters(ast::ExprPtr value) {
  while (SkipOperator("|")) {
    KVIST_ASSIGN_OR_RETURN(value, ParseFilter(std::move(value)));
  }
  return value;
}

/// After the `is`. One argument may stand without parentheses: `x is divisibleby 3`.
Parser::StatusOrExpr Parser::ParseTest(ast::ExprPtr value) {
  const Position at = Current().at;
  const bool negated = SkipName("not");
  ast::TestCall test;
  KVIST_ASSIGN_OR_RETURN(test.name, ParseDottedName());
  test.test = FindTest(test.name);
  test.value = std::move(value);
  const Token& next = Current();
  const bool opens = next.IsOperator("[") || next.IsOperator("{");
  const bool word = next.kind == TokenKind::kName && next.text != "else" && next.text != "or" && next.text != "and";
  const bool literal =
      next.kind == TokenKind::kString || next.kind == TokenKind::kInteger || next.kind == TokenKind::kFloat;
  if (next.IsOperator("(")) {
    KVIST_ASSIGN_OR_RETURN(test.args, ParseArguments());
  } else if (opens || word || literal) {
    if (next.IsName("is")) return SyntaxError(next.at, "tests cannot be chained with 'is'");
    KVIST_ASSIGN_OR_RETURN(ast::ExprPtr arg, ParsePrimary());
    KVIST_ASSIGN_OR_RETURN(arg, ParsePostfix(std::move(arg)));
    test.args.positional.push_back(std::move(arg));
  }
  KVIST_ASSIGN_OR_RETURN(ast::ExprPtr expr, Make(at, std::move(test)));
  if (!negated) return expr;
  return Make(at, ast::Unary{ast::UnaryOp::kNot, std::move(expr)});
}

}  // namespace kvist::jinja
