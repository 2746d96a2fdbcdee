#include <algorithm>

#include "text/jinja/filter.h"
#include "text/jinja/parser.h"
#include "text/jinja/test.h"

namespace lathe::jinja {

namespace {
// Brackets and such within one another; a chain of operators or filters in a row.
constexpr int kMaxNested = 100;
constexpr int kMaxDepth = 400;
using Kind = Expr::Kind;
}  // namespace

struct ExpressionParser::Nested {
  explicit Nested(ExpressionParser& p) : parser(p) {
    if (++parser.nested_ > kMaxNested) {
      --parser.nested_;
      parser.broken(fmt::format("an expression is nested deeper than {} levels", kMaxNested));
    }
  }
  ~Nested() { --parser.nested_; }
  ExpressionParser& parser;
};

bool ExpressionParser::skip_operator(std::string_view op) { return at_operator(op) && (skip(), true); }
bool ExpressionParser::skip_name(std::string_view name) { return at_name(name) && (skip(), true); }

void ExpressionParser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) broken(fmt::format("expected '{}', got {}", op, describe(current())));
}

std::string ExpressionParser::expect_name() {
  if (current().kind != Token::Kind::kName) broken(fmt::format("expected a name, got {}", describe(current())));
  std::string name = current().text;
  skip();
  return name;
}

void ExpressionParser::expect_kind(Token::Kind kind, std::string_view what) {
  if (current().kind != kind) broken(fmt::format("expected {}, got {}", what, describe(current())));
  skip();
}

void ExpressionParser::broken(std::string message) const { throw SyntaxFailure{std::move(message), current().line}; }

std::string ExpressionParser::describe(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kData:
      return "template text";
    case Token::Kind::kBlockBegin:
      return "'{%'";
    case Token::Kind::kBlockEnd:
      return "'%}'";
    case Token::Kind::kPrintBegin:
      return "'{{'";
    case Token::Kind::kPrintEnd:
      return "'}}'";
    case Token::Kind::kConstant:
      return token.value.text() ? "a string" : "a number";
    case Token::Kind::kEnd:
      return "the end of the template";
    default:
      return fmt::format("'{}'", token.text);
  }
}

Name ExpressionParser::intern(const std::string& name) {
  const auto it = std::find(names_.begin(), names_.end(), name);
  if (it == names_.end()) return names_.push_back(name), static_cast<Name>(names_.size() - 1);
  return static_cast<Name>(it - names_.begin());
}

bool ExpressionParser::mentions(std::string_view name, size_t since) const {
  return std::any_of(tokens_.begin() + since, tokens_.begin() + at_,
                     [&](const Token& token) { return token.kind == Token::Kind::kName && token.text == name; });
}

Expr::Ptr ExpressionParser::make(Kind kind, int line, std::vector<Expr::Ptr> args) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = line;
  node->args = std::move(args);
  seal(*node);
  return node;
}

void ExpressionParser::seal(Expr& node) const {
  const auto contains = [&](const Expr::Ptr& part) {
    if (part) node.depth = std::max(node.depth, part->depth + 1);
  };
  for (const auto& part : node.args) contains(part);
  for (const auto& [name, part] : node.named) contains(part);
  contains(node.star), contains(node.star_star);
  if (node.depth > kMaxDepth)
    throw SyntaxFailure{fmt::format("an expression has more than {} steps in a row", kMaxDepth), node.line};
}

namespace {
std::vector<Expr::Ptr> parts(Expr::Ptr a, Expr::Ptr b = nullptr, Expr::Ptr c = nullptr) {
  std::vector<Expr::Ptr> out;
  out.push_back(std::move(a));
  if (b) out.push_back(std::move(b));
  if (c) out.push_back(std::move(c));
  return out;
}
}  // namespace

Expr::Ptr ExpressionParser::expression(bool with_conditional) {
  return with_conditional ? conditional() : disjunction();
}

Expr::Ptr ExpressionParser::conditional() {
  const Nested nested(*this);
  Expr::Ptr node = disjunction();
  while (at_name("if")) {
    const int line = current().line;
    skip();
    Expr::Ptr condition = disjunction();
    Expr::Ptr otherwise = skip_name("else") ? conditional() : nullptr;
    node = make(Kind::kConditional, line, parts(std::move(condition), std::move(node), std::move(otherwise)));
  }
  return node;
}

Expr::Ptr ExpressionParser::disjunction() {
  Expr::Ptr node = conjunction();
  while (at_name("or")) {
    const int line = current().line;
    skip();
    node = make(Kind::kOr, line, parts(std::move(node), conjunction()));
  }
  return node;
}

Expr::Ptr ExpressionParser::conjunction() {
  Expr::Ptr node = negation();
  while (at_name("and")) {
    const int line = current().line;
    skip();
    node = make(Kind::kAnd, line, parts(std::move(node), negation()));
  }
  return node;
}

Expr::Ptr ExpressionParser::negation() {
  const int line = current().line;
  if (!skip_name("not")) return comparison();
  const Nested nested(*this);
  return make(Kind::kNot, line, parts(negation()));
}

Expr::Ptr ExpressionParser::comparison() {
  const int line = current().line;
  std::vector<Expr::Ptr> operands = parts(sum());
  std::vector<Expr::Compare> compares;
  constexpr std::pair<std::string_view, Expr::Compare> kOperators[] = {
      {"==", Expr::Compare::kEqual},     {"!=", Expr::Compare::kNotEqual}, {"<", Expr::Compare::kLess},
      {"<=", Expr::Compare::kLessEqual}, {">", Expr::Compare::kGreater},   {">=", Expr::Compare::kGreaterEqual}};
  for (;;) {
    const auto op =
        std::find_if(std::begin(kOperators), std::end(kOperators), [&](const auto& o) { return at_operator(o.first); });
    if (op != std::end(kOperators)) {
      skip();
      compares.push_back(op->second);
    } else if (skip_name("in")) {
      compares.push_back(Expr::Compare::kIn);
    } else if (at_name("not") && look().kind == Token::Kind::kName && look().text == "in") {
      skip(), skip();
      compares.push_back(Expr::Compare::kNotIn);
    } else {
      break;
    }
    operands.push_back(sum());
  }
  if (compares.empty()) return std::move(operands[0]);
  Expr::Ptr node = make(Kind::kCompare, line, std::move(operands));
  node->compares = std::move(compares);
  return node;
}

Expr::Ptr ExpressionParser::sum() {
  Expr::Ptr node = concatenation();
  while (at_operator("+") || at_operator("-")) {
    const Kind kind = at_operator("+") ? Kind::kAdd : Kind::kSubtract;
    const int line = current().line;
    skip();
    node = make(kind, line, parts(std::move(node), concatenation()));
  }
  return node;
}

Expr::Ptr ExpressionParser::concatenation() {
  const int line = current().line;
  std::vector<Expr::Ptr> operands = parts(product());
  while (skip_operator("~")) operands.push_back(product());
  return operands.size() == 1 ? std::move(operands[0]) : make(Kind::kConcat, line, std::move(operands));
}

Expr::Ptr ExpressionParser::product() {
  constexpr std::pair<std::string_view, Kind> kOperators[] = {
      {"*", Kind::kMultiply}, {"/", Kind::kDivide}, {"//", Kind::kFloorDivide}, {"%", Kind::kModulo}};
  Expr::Ptr node = power();
  for (;;) {
    const auto op =
        std::find_if(std::begin(kOperators), std::end(kOperators), [&](const auto& o) { return at_operator(o.first); });
    if (op == std::end(kOperators)) return node;
    const int line = current().line;
    skip();
    node = make(op->second, line, parts(std::move(node), power()));
  }
}

Expr::Ptr ExpressionParser::power() {
  Expr::Ptr node = unary();
  while (at_operator("**")) {
    const int line = current().line;
    skip();
    node = make(Kind::kPower, line, parts(std::move(node), unary()));
  }
  return node;
}

Expr::Ptr ExpressionParser::unary(bool with_filters) {
  const int line = current().line;
  Expr::Ptr node;
  if (at_operator("-") || at_operator("+")) {
    const Nested nested(*this);
    const Kind kind = at_operator("-") ? Kind::kNegate : Kind::kPlus;
    skip();
    node = make(kind, line, parts(unary(false)));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filters_and_tests(std::move(node)) : std::move(node);
}

Expr::Ptr ExpressionParser::primary() {
  const Token& token = current();
  const int line = token.line;
  if (token.kind == Token::Kind::kName) {
    Expr::Ptr node = make(Kind::kConst, line);
    if (token.text == "true" || token.text == "True" || token.text == "false" || token.text == "False") {
      node->value = token.text == "true" || token.text == "True";
    } else if (token.text == "none" || token.text == "None") {
      node->value = None{};
    } else {
      node->kind = Kind::kName;
      node->name = intern(token.text);
    }
    skip();
    return node;
  }
  if (token.kind == Token::Kind::kConstant) {
    Expr::Ptr node = make(Kind::kConst, line);
    node->value = token.value;
    skip();
    if (!node->value.text()) return node;
    TextBuilder joined;  // strings side by side are one
    joined.append(*node->value.text());
    for (; current().kind == Token::Kind::kConstant && current().value.text(); skip())
      joined.append(*current().value.text());
    node->value = joined.take();
    return node;
  }
  if (skip_operator("(")) {
    Expr::Ptr node = tuple(true, "", true);
    expect_operator(")");
    return node;
  }
  if (at_operator("[")) return list_literal();
  if (at_operator("{")) return dict_literal();
  broken(fmt::format("expected an expression, got {}", describe(token)));
}

Expr::Ptr ExpressionParser::list_literal() {
  const int line = current().line;
  skip();
  std::vector<Expr::Ptr> items;
  while (!at_operator("]")) {
    if (!items.empty()) expect_operator(",");
    if (at_operator("]")) break;
    items.push_back(expression());
  }
  skip();
  return make(Kind::kList, line, std::move(items));
}

Expr::Ptr ExpressionParser::dict_literal() {
  const int line = current().line;
  skip();
  std::vector<Expr::Ptr> items;
  while (!at_operator("}")) {
    if (!items.empty()) expect_operator(",");
    if (at_operator("}")) break;
    items.push_back(expression());
    expect_operator(":");
    items.push_back(expression());
  }
  skip();
  return make(Kind::kDict, line, std::move(items));
}

Expr::Ptr ExpressionParser::tuple(bool with_conditional, std::string_view end, bool in_parentheses) {
  const int line = current().line;
  std::vector<Expr::Ptr> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty()) expect_operator(",");
    const bool ended = current().kind == Token::Kind::kPrintEnd || current().kind == Token::Kind::kBlockEnd ||
                       at_operator(")") || (!end.empty() && at_name(end));
    if (ended) break;
    items.push_back(expression(with_conditional));
    if (!at_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items[0]);
  if (!is_tuple && !in_parentheses) broken(fmt::format("expected an expression, got {}", describe(current())));
  return make(Kind::kTuple, line, std::move(items));
}

Expr::Ptr ExpressionParser::postfix(Expr::Ptr node) {
  for (;;) {
    if (at_operator(".") || at_operator("[")) {
      node = subscript(std::move(node));
    } else if (at_operator("(")) {
      Expr::Ptr call = make(Kind::kCall, current().line, parts(std::move(node)));
      arguments(*call);
      node = std::move(call);
    } else {
      return node;
    }
  }
}

Expr::Ptr ExpressionParser::filters_and_tests(Expr::Ptr node) {
  for (;;) {
    if (at_operator("|")) {
      node = filters(std::move(node));
    } else if (at_name("is")) {
      node = test(std::move(node));
    } else if (at_operator("(")) {
      Expr::Ptr call = make(Kind::kCall, current().line, parts(std::move(node)));
      arguments(*call);
      node = std::move(call);
    } else {
      return node;
    }
  }
}

Expr::Ptr ExpressionParser::subscript(Expr::Ptr node) {
  const int line = current().line;
  if (skip_operator(".")) {
    if (current().kind == Token::Kind::kConstant && current().value.is<int64_t>()) {
      Expr::Ptr index = make(Kind::kConst, line);
      index->value = current().value;
      skip();
      return make(Kind::kItem, line, parts(std::move(node), std::move(index)));
    }
    Expr::Ptr attribute = make(Kind::kAttribute, line, parts(std::move(node)));
    attribute->text = expect_name();
    return attribute;
  }
  skip();
  std::vector<Expr::Ptr> items;
  while (!at_operator("]")) {
    if (!items.empty()) expect_operator(",");
    items.push_back(slice_or_item());
  }
  if (items.empty()) broken("expected an index");
  skip();
  const auto is_bare = [](const Expr::Ptr& item) { return item->kind == Kind::kSlice && item->args.size() == 3; };
  if (items.size() > 1) {
    if (std::any_of(items.begin(), items.end(), is_bare)) broken("a slice stands alone in its brackets");
    return make(Kind::kItem, line, parts(std::move(node), make(Kind::kTuple, line, std::move(items))));
  }
  if (is_bare(items[0])) {  // a slice still without its object
    Expr::Ptr slice = std::move(items[0]);
    slice->args.insert(slice->args.begin(), std::move(node));
    seal(*slice);
    return slice;
  }
  return make(Kind::kItem, line, parts(std::move(node), std::move(items[0])));
}

// a slice comes back without its object: begin, end, step
Expr::Ptr ExpressionParser::slice_or_item() {
  const int line = current().line;
  Expr::Ptr begin = at_operator(":") ? nullptr : expression();
  if (!skip_operator(":")) return begin;
  const auto bound = [&]() -> Expr::Ptr {
    return at_operator(":") || at_operator("]") || at_operator(",") ? nullptr : expression();
  };
  Expr::Ptr end = bound();
  Expr::Ptr step = skip_operator(":") ? bound() : nullptr;
  std::vector<Expr::Ptr> bounds;
  bounds.push_back(std::move(begin));
  bounds.push_back(std::move(end));
  bounds.push_back(std::move(step));
  return make(Kind::kSlice, line, std::move(bounds));
}

void ExpressionParser::arguments(Expr& call) {
  expect_operator("(");
  bool first = true;
  while (!at_operator(")")) {
    if (!first) expect_operator(",");
    if (at_operator(")")) break;
    first = false;
    if (skip_operator("**")) {
      if (call.star_star) broken("a second ** argument");
      call.star_star = expression();
    } else if (skip_operator("*")) {
      if (call.star || call.star_star) broken("a * argument comes first, and once");
      call.star = expression();
    } else if (current().kind == Token::Kind::kName && look().kind == Token::Kind::kOperator && look().text == "=") {
      if (call.star_star) broken("a keyword argument behind **");
      std::string name = expect_name();
      skip();
      call.named.emplace_back(std::move(name), expression());
    } else {
      if (call.star || call.star_star || !call.named.empty())
        broken("an argument without a name behind one with a name");
      call.args.push_back(expression());
    }
  }
  skip();
  seal(call);
}

Expr::Ptr ExpressionParser::filters(Expr::Ptr node, bool first_bare) {
  while (first_bare || at_operator("|")) {
    if (!first_bare) skip();
    first_bare = false;
    Expr::Ptr filter = make(Kind::kFilter, current().line, parts(std::move(node)));
    filter->text = expect_name();
    while (skip_operator(".")) filter->text += "." + expect_name();
    filter->filter = find_filter(filter->text);
    if (at_operator("(")) arguments(*filter);
    node = std::move(filter);
  }
  return node;
}

Expr::Ptr ExpressionParser::test(Expr::Ptr node) {
  const int line = current().line;
  skip();  // is
  const bool negated = skip_name("not");
  Expr::Ptr test = make(Kind::kTest, line, parts(std::move(node)));
  test->text = expect_name();
  test->test = find_test(test->text);
  const bool bare_argument =
      current().kind == Token::Kind::kConstant || at_operator("[") || at_operator("{") ||
      (current().kind == Token::Kind::kName && !at_name("else") && !at_name("or") && !at_name("and"));
  if (at_operator("(")) {
    arguments(*test);
  } else if (bare_argument) {
    if (at_name("is")) broken("tests can't be chained with is");
    test->args.push_back(postfix(primary()));
    seal(*test);
  }
  return negated ? make(Kind::kNot, line, parts(std::move(test))) : std::move(test);
}

}  // namespace lathe::jinja
