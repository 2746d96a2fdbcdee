#pragma once

#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace lathe::jinja {

// Throws SyntaxFailure.
Ast parse(std::string_view source);

// Reads expressions off a stream of tokens; the statement parser shares it.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  const Token& current() const { return tokens_[at_]; }
  const Token& look(size_t ahead = 1) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  void skip() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool at_operator(std::string_view op) const {
    return current().kind == Token::Kind::kOperator && current().text == op;
  }
  bool at_name(std::string_view name) const { return current().kind == Token::Kind::kName && current().text == name; }
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_operator(std::string_view op);
  std::string expect_name();
  void expect_kind(Token::Kind kind, std::string_view what);
  [[noreturn]] void broken(std::string message) const;
  static std::string describe(const Token& token);

  Name intern(const std::string& name);
  size_t position() const { return at_; }
  bool mentions(std::string_view name, size_t since) const;  // among the tokens from `since` up to the current one

  Expr::Ptr expression(bool conditional = true);
  // a, b, c without brackets is a tuple. `end`: a name that ends it.
  Expr::Ptr tuple(bool conditional, std::string_view end = "", bool in_parentheses = false);
  // Filters behind `node`, each with its `|`; `first_bare`: the first one's was left out.
  Expr::Ptr filters(Expr::Ptr node, bool first_bare = false);
  Expr::Ptr make(Expr::Kind kind, int line, std::vector<Expr::Ptr> args = {}) const;

  std::vector<std::string> names_;

 private:
  struct Nested;  // counts how deep the parser itself is
  Expr::Ptr conditional();
  Expr::Ptr disjunction();
  Expr::Ptr conjunction();
  Expr::Ptr negation();
  Expr::Ptr comparison();
  Expr::Ptr sum();
  Expr::Ptr concatenation();
  Expr::Ptr product();
  Expr::Ptr power();
  Expr::Ptr unary(bool with_filters = true);
  Expr::Ptr primary();
  Expr::Ptr postfix(Expr::Ptr node);
  Expr::Ptr filters_and_tests(Expr::Ptr node);
  Expr::Ptr subscript(Expr::Ptr node);
  Expr::Ptr slice_or_item();
  Expr::Ptr test(Expr::Ptr node);
  Expr::Ptr list_literal();
  Expr::Ptr dict_literal();
  void arguments(Expr& call);
  void seal(Expr& node) const;  // depth from its parts

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nested_ = 0;
};

}  // namespace lathe::jinja
