#include "text/pattern.h"

namespace lathe {

namespace {

// White space by Unicode's White_Space property. PCRE2's own \s adds U+180E.
constexpr const char* kSpace =
    R"(\x09-\x0d\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr const char* kWord = R"(\p{L}\p{M}\p{Nd}\p{Pc})";
constexpr const char* kHex = "0-9A-Fa-f";

// Members of a class escape that the two libraries define differently, or null.
const char* members_of(char escape) {
  switch (escape) {
    case 's':
    case 'S':
      return kSpace;
    case 'w':
    case 'W':
      return kWord;
    case 'h':
    case 'H':
      return kHex;  // PCRE2's \h is horizontal space
    default:
      return nullptr;
  }
}
bool negated(char escape) { return escape >= 'A' && escape <= 'Z'; }

class Rewriter {
 public:
  explicit Rewriter(std::string_view in) : in_(in) {}

  Result<std::string> run() {
    while (at_ < in_.size()) {
      if (in_[at_] == '[') {
        LATHE_ASSIGN(const std::string set, char_class());
        out_ += set;
      } else if (in_[at_] == '\\') {
        LATHE_RETURN_IF_ERROR(escape());
      } else {
        out_ += in_[at_++];
      }
    }
    return std::move(out_);
  }

 private:
  Status escape() {
    if (at_ + 1 >= in_.size()) return corrupt("not a regular expression: a backslash at its end");
    const char c = in_[at_ + 1];
    if (const char* members = members_of(c)) {
      out_ += fmt::format("[{}{}]", negated(c) ? "^" : "", members);
    } else {
      out_ += in_.substr(at_, 2);
    }
    at_ += 2;
    return Status::ok();
  }

  // [...] with its own escapes. A && [^B] inside, Oniguruma's intersection, becomes a lookahead in front:
  // (?:(?![B])[A]).
  Result<std::string> char_class() {
    std::string set = "[";
    ++at_;
    if (next_is("^")) set += in_[at_++];
    bool first = true;
    for (; at_ < in_.size(); first = false) {
      const char c = in_[at_];
      if (c == ']' && !first) return ++at_, set + "]";
      if (next_is("[:")) {
        LATHE_RETURN_IF_ERROR(posix(set));
      } else if (c == '[') {
        return invalid("a class within a class is not supported");
      } else if (next_is("&&")) {
        return intersection(set);
      } else if (c == '\\') {
        LATHE_RETURN_IF_ERROR(escape_in_class(set));
      } else {
        set += c;
        ++at_;
      }
    }
    return corrupt("not a regular expression: a class is not closed");
  }

  Status posix(std::string& set) {
    const size_t close = in_.find(":]", at_);
    if (close == std::string_view::npos) return corrupt("not a regular expression: a POSIX class is not closed");
    set += in_.substr(at_, close + 2 - at_);
    at_ = close + 2;
    return Status::ok();
  }

  Status escape_in_class(std::string& set) {
    if (at_ + 1 >= in_.size()) return corrupt("not a regular expression: a backslash at its end");
    const char c = in_[at_ + 1];
    const char* members = members_of(c);
    if (members && negated(c)) return invalid("\\{} within a class is not supported", c);
    if (members) {
      set += members;
    } else {
      set += in_.substr(at_, 2);
    }
    at_ += 2;
    return Status::ok();
  }

  Result<std::string> intersection(const std::string& left) {
    at_ += 2;
    if (left.starts_with("[^") || !next_is("[^")) return invalid("of intersections only [A&&[^B]] is supported");
    LATHE_ASSIGN(std::string right, char_class());
    if (!next_is("]")) return invalid("of intersections only [A&&[^B]] is supported");
    ++at_;
    right.erase(1, 1);  // the ^
    return fmt::format("(?:(?!{}){}])", right, left);
  }

  bool next_is(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> pcre2_from_oniguruma(std::string_view pattern) { return Rewriter(pattern).run(); }

}  // namespace lathe
