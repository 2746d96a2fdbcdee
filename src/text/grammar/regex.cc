#include "text/grammar/regex.h"

#include <algorithm>
#include <optional>
#include <string>

#include "text/utf8.h"

namespace lathe {

namespace {

using Kind = Expression::Kind;
constexpr int kMostRepeats = 1000, kMostGroups = 200;  // one within another

CharacterSet digits() { return CharacterSet().add('0', '9'); }
CharacterSet spaces() { return CharacterSet().add('\t', '\n').add('\f', '\r').add(' ', ' '); }
CharacterSet word() { return digits().add('A', 'Z').add('a', 'z').add('_', '_'); }

std::optional<CharacterSet> posix_class(std::string_view name) {
  CharacterSet s;
  if (name == "alnum") return s.add('0', '9').add('A', 'Z').add('a', 'z');
  if (name == "alpha") return s.add('A', 'Z').add('a', 'z');
  if (name == "ascii") return s.add(0, 0x7f);
  if (name == "blank") return s.add('\t', '\t').add(' ', ' ');
  if (name == "cntrl") return s.add(0, 0x1f).add(0x7f, 0x7f);
  if (name == "digit") return digits();
  if (name == "graph") return s.add('!', '~');
  if (name == "lower") return s.add('a', 'z');
  if (name == "print") return s.add(' ', '~');
  if (name == "punct") return s.add('!', '/').add(':', '@').add('[', '`').add('{', '~');
  if (name == "space") return s.add('\t', '\r').add(' ', ' ');
  if (name == "upper") return s.add('A', 'Z');
  if (name == "word") return word();
  if (name == "xdigit") return s.add('0', '9').add('A', 'F').add('a', 'f');
  return std::nullopt;
}

class Parser {
 public:
  Parser(std::string_view pattern, RegexMatch match) : p_(pattern), match_(match) {}

  Result<Expression> parse() {
    if (!is_utf8(p_)) return invalid("the pattern isn't UTF-8");
    Expression all = alternatives(true);
    if (status_.is_ok() && at_ < p_.size()) fail("')' without '('");
    if (!status_.is_ok()) return status_;
    return all;
  }

 private:
  void fail(const std::string& what) {
    if (status_.is_ok()) status_ = invalid("pattern '{}', at byte {}: {}", p_, at_, what);
    at_ = p_.size();
  }
  bool ended() const { return at_ >= p_.size(); }
  bool next_is(std::string_view s) const { return p_.substr(at_).starts_with(s); }
  bool take(std::string_view s) {
    if (!next_is(s)) return false;
    at_ += s.size();
    return true;
  }
  char32_t take_character() {
    const Utf8Step s = utf8_step(p_, at_);
    at_ += s.bytes;
    return s.character;
  }

  Expression alternatives(bool outermost) {
    std::vector<Expression> all;
    do {
      all.push_back(outermost ? outermost_sequence() : sequence());
    } while (take("|"));
    return Expression::many(Kind::kChoice, std::move(all));
  }

  // With the anchors at its ends.
  Expression outermost_sequence() {
    bool from_begin = match_ == RegexMatch::kWhole, to_end = from_begin;
    while (take("^") || take("\\A")) from_begin = true;
    Expression body = sequence();
    while (take("$") || take("\\z")) to_end = true;
    if (!ended() && !next_is("|") && !next_is(")"))
      fail("'$' is understood at the end of an outermost alternative only");
    if (from_begin && to_end) return body;
    std::vector<Expression> parts;
    const Expression anything = Expression::repeat(Expression::of(CharacterSet::all()), 0, -1);
    if (!from_begin) parts.push_back(anything);
    parts.push_back(std::move(body));
    if (!to_end) parts.push_back(anything);
    return Expression::many(Kind::kSequence, std::move(parts));
  }

  Expression sequence() {
    std::vector<Expression> parts;
    while (!ended() && !next_is("|") && !next_is(")") && !next_is("$") && !next_is("\\z")) {
      Expression part = atom();
      parts.push_back(repeated(std::move(part)));
    }
    return Expression::many(Kind::kSequence, std::move(parts));
  }

  // {m}, {m,}, {m,n}; else it is text.
  bool take_counts(int& min, int& max) {
    size_t i = at_ + 1;
    auto number = [&](int& n) {
      const size_t begin = i;
      for (n = 0; i < p_.size() && p_[i] >= '0' && p_[i] <= '9'; ++i) n = std::min(n * 10 + (p_[i] - '0'), 1 << 20);
      return i > begin;
    };
    if (!next_is("{") || !number(min)) return false;
    max = min;
    if (i < p_.size() && p_[i] == ',') {
      ++i;
      if (!number(max)) max = -1;
    }
    if (i >= p_.size() || p_[i] != '}') return false;
    at_ = i + 1;
    return true;
  }

  Expression repeated(Expression part) {
    int min = 0, max = -1;
    if (take("*")) {
    } else if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (!take_counts(min, max)) {
      return part;
    }
    if (min > kMostRepeats || max > kMostRepeats) fail("more than 1000 repetitions");
    if (max >= 0 && max < min) fail("repetitions from more to less");
    take("?");  // reluctant: the same texts
    int a, b;
    if (next_is("*") || next_is("+") || next_is("?") || take_counts(a, b)) fail("two repetitions in a row");
    return Expression::repeat(std::move(part), min, max);
  }

  Expression atom() {
    if (take("(")) return group();
    if (take("[")) return Expression::of(bracket());
    if (take(".")) {
      CharacterSet newline = CharacterSet::of('\n');
      return Expression::of(all_ ? CharacterSet::all() : newline.complement());
    }
    if (next_is("^") || next_is("\\A"))
      return fail("'^' is understood at the begin of an outermost alternative only"), Expression();
    if (next_is("*") || next_is("+") || next_is("?")) return fail("nothing to repeat"), Expression();
    if (take("\\Q")) return quoted();
    if (take("\\")) return Expression::of(cased(escape()));
    return Expression::of(cased(CharacterSet::of(take_character())));
  }

  CharacterSet cased(CharacterSet set) const { return any_case_ ? set.with_other_case() : set; }

  Expression quoted() {
    std::vector<Expression> parts;
    while (!ended() && !take("\\E")) parts.push_back(Expression::of(cased(CharacterSet::of(take_character()))));
    return Expression::many(Kind::kSequence, std::move(parts));
  }

  Expression group() {
    if (++groups_ > kMostGroups) return fail("more than 200 groups within one another"), Expression();
    const bool any_case = any_case_, all = all_;
    if (take("?")) {
      if (take("P<") || (next_is("<") && !next_is("<=") && !next_is("<!") && take("<"))) {
        const size_t end = p_.find('>', at_);
        if (end == std::string_view::npos || end == at_) return fail("a group's name without '>'"), Expression();
        at_ = end + 1;
      } else if (!flags()) {
        --groups_;
        return Expression();  // (?i): up to the end of the group that it stands in
      }
    }
    Expression inner = alternatives(false);
    if (next_is("$") || next_is("\\z")) fail("'$' is understood at the end of an outermost alternative only");
    if (status_.is_ok() && !take(")")) fail("'(' without ')'");
    any_case_ = any_case;
    all_ = all;
    --groups_;
    return inner;
  }

  // Behind "(?". True if a group follows.
  bool flags() {
    if (next_is("=") || next_is("!") || next_is("<")) return fail("look around isn't in RE2's syntax"), false;
    bool on = true;
    while (!ended()) {
      if (take(":")) return true;
      if (take(")")) return false;
      if (take("-"))
        on = false;
      else if (take("i"))
        any_case_ = on;
      else if (take("s"))
        all_ = on;
      else
        return fail("this flag isn't supported"), false;
    }
    return fail("'(' without ')'"), false;
  }

  int hex(int most) {
    int value = 0, count = 0;
    for (; count < most && !ended(); ++count, ++at_) {
      const char c = p_[at_];
      if (c >= '0' && c <= '9')
        value = value * 16 + (c - '0');
      else if (c >= 'a' && c <= 'f')
        value = value * 16 + (c - 'a' + 10);
      else if (c >= 'A' && c <= 'F')
        value = value * 16 + (c - 'A' + 10);
      else
        break;
    }
    return count == 0 ? -1 : value;
  }

  CharacterSet character(int value) {
    if (value < 0 || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
      return fail("no such character"), CharacterSet();
    return CharacterSet::of(static_cast<char32_t>(value));
  }

  // Behind a backslash.
  CharacterSet escape() {
    if (ended()) return fail("a backslash at the end"), CharacterSet();
    const char c = p_[at_++];
    switch (c) {
      case 'd':
        return digits();
      case 'D':
        return digits().complement();
      case 's':
        return spaces();
      case 'S':
        return spaces().complement();
      case 'w':
        return word();
      case 'W':
        return word().complement();
      case 'n':
        return CharacterSet::of('\n');
      case 't':
        return CharacterSet::of('\t');
      case 'r':
        return CharacterSet::of('\r');
      case 'f':
        return CharacterSet::of('\f');
      case 'v':
        return CharacterSet::of('\v');
      case 'a':
        return CharacterSet::of('\a');
      case 'p':
        return category(false);
      case 'P':
        return category(true);
      case 'x':
        if (take("{")) {
          const int value = hex(8);
          if (!take("}")) fail("\\x{ without }");
          return character(value);
        }
        return character(hex(2));
      case 'u':
        return character(hex(4));
      default:
        break;
    }
    const bool word_character = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (word_character || static_cast<uint8_t>(c) >= 0x80) {
      --at_;
      return fail("the escape isn't supported (or not in RE2's syntax)"), CharacterSet();
    }
    return CharacterSet::of(static_cast<uint8_t>(c));
  }

  CharacterSet category(bool opposite) {
    std::string_view name = p_.substr(at_, 1);
    if (take("{")) {
      const size_t end = p_.find('}', at_);
      if (end == std::string_view::npos) return fail("\\p{ without }"), CharacterSet();
      name = p_.substr(at_, end - at_);
      at_ = end + 1;
    } else {
      at_ += name.size();
    }
    if (name.starts_with('^')) {
      opposite = !opposite;
      name.remove_prefix(1);
    }
    const CharacterSet set = CharacterSet::of_category(name);
    if (set.empty()) return fail("no general category of that name (scripts aren't supported)"), CharacterSet();
    return opposite ? set.complement() : set;
  }

  // Behind "[".
  CharacterSet bracket() {
    const bool opposite = take("^");
    CharacterSet set;
    for (bool first = true;; first = false) {
      if (ended()) return fail("'[' without ']'"), CharacterSet();
      if (!first && take("]")) break;
      if (take("[:")) {
        const size_t end = p_.find(":]", at_);
        if (end == std::string_view::npos) return fail("'[:' without ':]'"), CharacterSet();
        std::string_view name = p_.substr(at_, end - at_);
        const bool not_it = name.starts_with('^');
        if (not_it) name.remove_prefix(1);
        const auto found = posix_class(name);
        if (!found) return fail("no class of that name"), CharacterSet();
        set.add(not_it ? found->complement() : *found);
        at_ = end + 2;
        continue;
      }
      const CharacterSet low = take("\\") ? escape() : CharacterSet::of(take_character());
      if (next_is("-") && !p_.substr(at_).starts_with("-]") && is_one(low)) {
        take("-");
        if (ended()) return fail("'[' without ']'"), CharacterSet();
        const CharacterSet high = take("\\") ? escape() : CharacterSet::of(take_character());
        if (!is_one(high) || one(high) < one(low)) return fail("a range from more to less"), CharacterSet();
        set.add(one(low), one(high));
      } else {
        set.add(low);
      }
      if (!status_.is_ok()) return {};
    }
    set = cased(std::move(set));
    return opposite ? set.complement() : set;
  }

  static bool is_one(const CharacterSet& s) {
    return s.ranges().size() == 1 && s.ranges()[0].low == s.ranges()[0].high;
  }
  static char32_t one(const CharacterSet& s) { return s.ranges()[0].low; }

  std::string_view p_;
  RegexMatch match_;
  size_t at_ = 0;
  int groups_ = 0;
  bool any_case_ = false, all_ = false;
  Status status_;
};

}  // namespace

Result<Expression> parse_regex(std::string_view pattern, RegexMatch match) { return Parser(pattern, match).parse(); }

}  // namespace lathe
