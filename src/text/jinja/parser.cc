#include "text/jinja/parser.h"

#include <algorithm>
#include <span>

namespace lathe::jinja {

namespace {

constexpr int kMaxBlocks = 64;  // within one another

class StatementParser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Ast run() {
    Ast ast;
    ast.body = body({});
    ast.names = std::move(names_);
    return ast;
  }

 private:
  using Kind = Stmt::Kind;

  // Statements up to a block whose tag is one of `ends`, which then is the current token.
  Body body(std::span<const std::string_view> ends) {
    if (++blocks_ > kMaxBlocks) broken(fmt::format("blocks are nested deeper than {} levels", kMaxBlocks));
    Body out;
    for (;;) {
      const Token& token = current();
      if (token.kind == Token::Kind::kEnd) {
        if (!ends.empty()) broken(fmt::format("the template ends where {} is missing", fmt::join(ends, " or ")));
        break;
      }
      if (token.kind == Token::Kind::kData) {
        auto s = start(Kind::kData);
        s->data = Text(token.text, Origin::kTemplate);
        skip();
        out.push_back(std::move(s));
      } else if (token.kind == Token::Kind::kPrintBegin) {
        auto s = start(Kind::kPrint);
        skip();
        s->exprs.push_back(tuple(true));
        expect_kind(Token::Kind::kPrintEnd, "'}}'");
        out.push_back(std::move(s));
      } else {
        expect_kind(Token::Kind::kBlockBegin, "'{%'");
        if (current().kind == Token::Kind::kName && std::find(ends.begin(), ends.end(), current().text) != ends.end())
          break;
        statement(out, ends);
        expect_kind(Token::Kind::kBlockEnd, "'%}'");
      }
    }
    --blocks_;
    return out;
  }

  // The body of a block, from the end of its tag to the end tag, which is taken and returned.
  std::string block(Body& to, std::initializer_list<std::string_view> ends) {
    skip_operator(":");
    expect_kind(Token::Kind::kBlockEnd, "'%}'");
    to = body({ends.begin(), ends.size()});
    return expect_name();
  }

  std::unique_ptr<Stmt> start(Kind kind) const {
    auto s = std::make_unique<Stmt>();
    s->kind = kind;
    s->line = current().line;
    return s;
  }

  void statement(Body& out, std::span<const std::string_view> ends) {
    const std::string tag = current().kind == Token::Kind::kName ? current().text : "";
    std::unique_ptr<Stmt> s;
    if (tag == "if") {
      s = if_();
    } else if (tag == "for") {
      s = for_();
    } else if (tag == "set") {
      s = set();
    } else if (tag == "macro") {
      s = macro();
    } else if (tag == "with") {
      s = with();
    } else if (tag == "filter") {
      s = filter_block();
    } else if (tag == "break" || tag == "continue") {
      if (!in_loop_) broken(fmt::format("{} outside of a for", tag));
      s = start(tag == "break" ? Kind::kBreak : Kind::kContinue);
      skip();
    } else if (tag == "generation") {  // marks what an assistant wrote, for training; the text is its body's
      s = start(Kind::kScope);
      skip();
      block(s->bodies.emplace_back(), {"endgeneration"});
    } else {
      unknown(tag, ends);
    }
    out.push_back(std::move(s));
  }

  [[noreturn]] void unknown(const std::string& tag, std::span<const std::string_view> ends) const {
    if (tag.empty()) broken(fmt::format("expected the name of a tag, got {}", describe(current())));
    if (tag.starts_with("end") || tag == "else" || tag == "elif")
      broken(ends.empty() ? fmt::format("'{}' has nothing to end", tag)
                          : fmt::format("'{}' where {} is expected", tag, fmt::join(ends, " or ")));
    broken(fmt::format("the tag '{}' is not supported", tag));
  }

  std::unique_ptr<Stmt> if_() {
    auto s = start(Kind::kIf);
    for (std::string tag = "if"; tag == "if" || tag == "elif";) {
      if (s->bodies.empty()) skip();
      s->exprs.push_back(tuple(false));
      tag = block(s->bodies.emplace_back(), {"elif", "else", "endif"});
      if (tag == "else") block(s->bodies.emplace_back(), {"endif"});
    }
    return s;
  }

  std::unique_ptr<Stmt> for_() {
    auto s = start(Kind::kFor);
    skip();
    s->targets.push_back(target_list("in"));
    if (!skip_name("in")) broken(fmt::format("expected 'in', got {}", describe(current())));
    s->exprs.push_back(tuple(false, "recursive"));
    if (skip_name("if")) s->exprs.push_back(expression());
    if (at_name("recursive")) broken("a recursive for is not supported");
    const bool outer = std::exchange(in_loop_, true);
    const std::string end = block(s->bodies.emplace_back(), {"else", "endfor"});
    in_loop_ = outer;
    if (end == "else") block(s->bodies.emplace_back(), {"endfor"});
    s->loop = intern("loop");
    return s;
  }

  // a or a, b or (a, b), c: names only
  Target target_list(std::string_view end) {
    Target tuple;
    bool is_tuple = false;
    while (!(at_name(end) || at_operator("=") || at_operator("|") || at_operator(")") ||
             current().kind == Token::Kind::kBlockEnd)) {
      if (skip_operator("(")) {
        tuple.parts.push_back(target_list(")"));
        expect_operator(")");
      } else {
        tuple.parts.push_back(name_target());
      }
      if (!skip_operator(",")) break;
      is_tuple = true;
    }
    if (tuple.parts.empty()) broken(fmt::format("expected a name to assign to, got {}", describe(current())));
    return is_tuple ? std::move(tuple) : std::move(tuple.parts[0]);
  }

  Target name_target() {
    for (const char* word : {"true", "false", "none", "True", "False", "None"})
      if (at_name(word)) broken(fmt::format("can't assign to '{}'", word));
    Target target;
    target.name = intern(expect_name());
    return target;
  }

  std::unique_ptr<Stmt> set() {
    auto s = start(Kind::kSet);
    skip();
    if (look().kind == Token::Kind::kOperator && look().text == ".") {
      Target target = name_target();
      skip();
      target.attribute = expect_name();
      s->targets.push_back(std::move(target));
    } else {
      s->targets.push_back(target_list("="));
    }
    if (skip_operator("=")) {
      s->exprs.push_back(tuple(true));
      return s;
    }
    s->kind = Kind::kSetBlock;
    if (at_operator("|")) s->chain = filters(make(Expr::Kind::kConst, s->line));
    block(s->bodies.emplace_back(), {"endset"});
    return s;
  }

  std::unique_ptr<Stmt> macro() {
    auto s = start(Kind::kMacro);
    skip();
    auto macro = std::make_shared<Macro>();
    macro->name = expect_name();
    s->name = intern(macro->name);
    expect_operator("(");
    while (!at_operator(")")) {
      if (!macro->parameters.empty()) expect_operator(",");
      macro->parameter_names.push_back(expect_name());
      macro->parameters.push_back(intern(macro->parameter_names.back()));
      if (skip_operator("=")) {
        macro->defaults.push_back(expression());
      } else if (!macro->defaults.empty()) {
        broken("a parameter without a default behind one with a default");
      }
    }
    skip();
    const bool outer = std::exchange(in_loop_, false);
    const size_t begin = position();
    block(macro->body, {"endmacro"});
    in_loop_ = outer;
    if (mentions("varargs", begin)) macro->varargs = intern("varargs");
    if (mentions("kwargs", begin)) macro->kwargs = intern("kwargs");
    s->macro = std::move(macro);
    return s;
  }

  std::unique_ptr<Stmt> with() {
    auto s = start(Kind::kWith);
    skip();
    while (current().kind != Token::Kind::kBlockEnd) {
      if (!s->targets.empty()) expect_operator(",");
      s->targets.push_back(name_target());
      expect_operator("=");
      s->exprs.push_back(expression());
    }
    block(s->bodies.emplace_back(), {"endwith"});
    return s;
  }

  std::unique_ptr<Stmt> filter_block() {
    auto s = start(Kind::kFilterBlock);
    skip();
    s->chain = filters(make(Expr::Kind::kConst, s->line), true);
    block(s->bodies.emplace_back(), {"endfilter"});
    return s;
  }

  bool in_loop_ = false;
  int blocks_ = 0;
};

}  // namespace

Ast parse(std::string_view source) { return StatementParser(lex(source)).run(); }

}  // namespace lathe::jinja
