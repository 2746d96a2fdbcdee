#include "text/grammar/ebnf.h"

#include <algorithm>
#include <map>

#include "text/grammar/expression.h"
#include "text/utf8.h"

namespace lathe {

namespace {

using Kind = Expression::Kind;
constexpr int kMostRepeats = 10'000;

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class Parser {
 public:
  Parser(AutomatonBuilder& builder, std::string_view text, int most_nesting)
      : builder_(builder), p_(text), most_nesting_(most_nesting) {}

  Status parse() {
    if (!is_utf8(p_)) return invalid("the grammar isn't UTF-8");
    const int32_t text = builder_.add_rule("text");
    builder_.call(builder_.rule(text).begin, number_of("root"), builder_.rule(text).end);
    for (skip(true); !ended() && status_.is_ok(); skip(true)) rule();
    LATHE_RETURN_IF_ERROR(status_);
    std::string missing;
    for (const auto& [name, number] : numbers_)
      if (!defined_.contains(name)) missing += (missing.empty() ? "" : ", ") + name;
    if (!missing.empty()) return invalid("grammar: rules that aren't defined: {}", missing);
    return builder_.budget().status();
  }

 private:
  void fail(const std::string& what) {
    if (status_.is_ok())
      status_ = invalid("grammar: line {}: {}", 1 + std::count(p_.begin(), p_.begin() + std::min(at_, p_.size()), '\n'),
                        what);
    at_ = p_.size();
  }
  bool ended() const { return at_ >= p_.size(); }
  bool take(std::string_view s) {
    if (!p_.substr(at_).starts_with(s)) return false;
    at_ += s.size();
    return true;
  }
  // White space and comments; with `lines`, over the ends of lines.
  void skip(bool lines) {
    while (!ended()) {
      const char c = p_[at_];
      if (c == '#')
        at_ = std::min(p_.find('\n', at_), p_.size());
      else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r')))
        ++at_;
      else
        return;
    }
  }

  int32_t number_of(const std::string& name) {
    const auto [at, is_new] = numbers_.try_emplace(name, 0);
    if (is_new) at->second = builder_.add_rule(name);
    return at->second;
  }
  std::string name() {
    const size_t begin = at_;
    while (!ended() && is_name(p_[at_])) ++at_;
    return std::string(p_.substr(begin, at_ - begin));
  }

  void rule() {
    const std::string n = name();
    if (n.empty()) return fail("a rule's name is expected");
    skip(false);
    if (!take("::=")) return fail("'::=' is expected behind '" + n + "'");
    if (!defined_.try_emplace(n, true).second) return fail("rule '" + n + "' is defined twice");
    const int32_t number = number_of(n);
    const Expression right = alternatives(0);
    if (!status_.is_ok()) return;
    skip(false);
    if (!ended() && p_[at_] != '\n' && p_[at_] != '\r') return fail("the end of the rule is expected");
    add_expression(builder_, builder_.rule(number).begin, right, builder_.rule(number).end, Writing::kPlain);
  }

  // Whether | comes, maybe on a later line.
  bool take_bar(bool nested) {
    const size_t before = at_;
    skip(true);
    if (take("|")) return true;
    if (!nested) at_ = before;
    return false;
  }

  Expression alternatives(int nesting) {
    if (nesting > most_nesting_)
      return fail(fmt::format("more brackets within one another than {}", most_nesting_)), Expression();
    std::vector<Expression> all;
    do {
      skip(true);
      all.push_back(sequence(nesting));
    } while (status_.is_ok() && take_bar(nesting > 0));
    return Expression::many(Kind::kChoice, std::move(all));
  }

  Expression sequence(int nesting) {
    std::vector<Expression> parts;
    for (;;) {
      skip(nesting > 0);
      if (ended() || !status_.is_ok()) break;
      const char c = p_[at_];
      Expression part;
      if (c == '"')
        part = literal();
      else if (c == '[')
        part = Expression::of(bracket());
      else if (take("."))
        part = Expression::of(CharacterSet::all());
      else if (is_name(c)) {
        const size_t before = at_;
        const std::string n = name();
        skip(false);
        if (p_.substr(at_).starts_with("::=")) {  // the next rule, behind an empty right side
          at_ = before;
          break;
        }
        part.kind = Kind::kCall;
        part.rule = number_of(n);
      } else if (take("(")) {
        part = alternatives(nesting + 1);
        skip(true);
        if (status_.is_ok() && !take(")")) fail("'(' without ')'");
      } else {
        break;
      }
      parts.push_back(repeated(std::move(part)));
    }
    return Expression::many(Kind::kSequence, std::move(parts));
  }

  int number() {
    int n = -1;
    for (; !ended() && p_[at_] >= '0' && p_[at_] <= '9'; ++at_)
      n = std::min(std::max(n, 0) * 10 + (p_[at_] - '0'), 1 << 20);
    return n;
  }

  Expression repeated(Expression part) {
    for (;;) {
      skip(false);
      int min = 0, max = -1;
      if (take("*")) {
      } else if (take("+")) {
        min = 1;
      } else if (take("?")) {
        max = 1;
      } else if (take("{")) {
        skip(false);
        min = max = number();
        skip(false);
        if (take(",")) {
          skip(false);
          max = number();
          skip(false);
        }
        if (min < 0 || !take("}")) return fail("{m}, {m,} or {m,n} is expected"), Expression();
      } else {
        return part;
      }
      if (min > kMostRepeats || max > kMostRepeats) return fail("more than 10000 repetitions"), Expression();
      if (max >= 0 && max < min) return fail("repetitions from more to less"), Expression();
      part = Expression::repeat(std::move(part), min, max);
    }
  }

  char32_t character() {
    if (!take("\\")) {
      const Utf8Step s = utf8_step(p_, at_);
      at_ += s.bytes;
      return s.character;
    }
    if (ended()) return fail("a backslash at the end"), 0;
    const char c = p_[at_++];
    if (c == 'n') return '\n';
    if (c == 'r') return '\r';
    if (c == 't') return '\t';
    if (c == '\\' || c == '"' || c == '[' || c == ']' || c == '-' || c == '^') return static_cast<char32_t>(c);
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    char32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char d = ended() ? '\0' : p_[at_];
      const int v = d >= '0' && d <= '9'   ? d - '0'
                    : d >= 'a' && d <= 'f' ? d - 'a' + 10
                    : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                           : -1;
      if (v < 0) return fail("hexadecimal digits are expected"), 0;
      value = value * 16 + static_cast<char32_t>(v);
    }
    if (digits == 0) return fail("an escape that isn't known"), 0;
    if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return fail("no such character"), 0;
    return value;
  }

  Expression literal() {
    ++at_;
    std::vector<Expression> parts;
    while (!take("\"")) {
      if (ended() || p_[at_] == '\n') return fail("a literal without its end"), Expression();
      parts.push_back(Expression::of(CharacterSet::of(character())));
      if (!status_.is_ok()) return {};
    }
    return Expression::many(Kind::kSequence, std::move(parts));
  }

  CharacterSet bracket() {
    ++at_;
    const bool opposite = take("^");
    CharacterSet set;
    while (!take("]")) {
      if (ended() || p_[at_] == '\n') return fail("'[' without ']'"), CharacterSet();
      const char32_t low = character();
      char32_t high = low;
      if (p_.substr(at_).starts_with("-") && !p_.substr(at_).starts_with("-]")) {
        ++at_;
        if (ended()) return fail("'[' without ']'"), CharacterSet();
        high = character();
      }
      if (!status_.is_ok()) return {};
      if (high < low) return fail("a range from more to less"), CharacterSet();
      set.add(low, high);
    }
    return opposite ? set.complement() : set;
  }

  AutomatonBuilder& builder_;
  std::string_view p_;
  int most_nesting_;
  size_t at_ = 0;
  std::map<std::string, int32_t> numbers_;
  std::map<std::string, bool> defined_;
  Status status_;
};

}  // namespace

Status add_ebnf(AutomatonBuilder& builder, std::string_view grammar, int most_nesting) {
  return Parser(builder, grammar, most_nesting).parse();
}

}  // namespace lathe
