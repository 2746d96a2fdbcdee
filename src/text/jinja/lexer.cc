#include "text/jinja/lexer.h"

#include <algorithm>
#include <charconv>

#include "text/jinja/characters.h"
#include "text/utf8.h"

namespace lathe::jinja {

namespace {

using Kind = Token::Kind;

std::string with_unix_newlines(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80);
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_unix_newlines(source)), s_(source_) {}

  std::vector<Token> run() {
    while (at_ < s_.size()) text();
    push(Kind::kEnd);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void broken(std::string message) const { throw SyntaxFailure{std::move(message), line_}; }
  bool looking_at(std::string_view text) const { return s_.substr(at_).starts_with(text); }
  void push(Kind kind, std::string text = "", Value value = {}) {
    tokens_.push_back({kind, line_, std::move(text), std::move(value)});
  }
  void move_to(size_t to) {
    line_ += static_cast<int>(std::count(s_.begin() + at_, s_.begin() + to, '\n'));
    at_ = to;
  }
  size_t behind_spaces(size_t at) const {
    while (at < s_.size()) {
      const Utf8Step step = utf8_step(s_, at);
      if (!is_space(step.character)) break;
      at += step.bytes;
    }
    return at;
  }

  // Data up to the next tag, then the tag.
  void text() {
    size_t begin = at_;
    for (;; ++begin) {
      begin = s_.find('{', begin);
      if (begin == std::string_view::npos || begin + 1 >= s_.size())
        return data(s_.size(), ' ', false), move_to(s_.size());
      if (s_[begin + 1] == '%' || s_[begin + 1] == '{' || s_[begin + 1] == '#') break;
    }
    const char kind = s_[begin + 1];
    const char sign = begin + 2 < s_.size() && (s_[begin + 2] == '-' || s_[begin + 2] == '+') ? s_[begin + 2] : ' ';
    data(begin, sign, kind != '{');
    move_to(begin + (sign == ' ' ? 2 : 3));
    if (kind == '#') return comment();
    if (kind == '%' && raw()) return;
    push(kind == '%' ? Kind::kBlockBegin : Kind::kPrintBegin);
    inside(kind == '%');
  }

  // source[at_, end) in front of a tag; `sign` is the tag's.
  void data(size_t end, char sign, bool block) {
    std::string_view text = s_.substr(at_, end - at_);
    if (sign == '-') {
      text = strip_end(text);
    } else if (block && sign != '+') {
      const size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
      if ((line > 0 || line_starting_) && strip_end(text.substr(line)).empty()) text = text.substr(0, line);
    }
    if (!text.empty()) push(Kind::kData, std::string(text));
  }

  // A tag ends at `end` with `close` behind it; the sign in front of it may have been read.
  void leave(size_t end, char sign, bool block) {
    if (sign == '-') {
      end = behind_spaces(end);
    } else if (block && sign != '+' && end < s_.size() && s_[end] == '\n') {
      ++end;
    }
    move_to(end);
    line_starting_ = end > 0 && s_[end - 1] == '\n';
  }

  void comment() {
    const size_t close = s_.find("#}", at_);
    if (close == std::string_view::npos) broken("a comment is not closed");
    const char sign = close > at_ && (s_[close - 1] == '-' || s_[close - 1] == '+') ? s_[close - 1] : ' ';
    leave(close + 2, sign, true);
  }

  // {% raw %} ... {% endraw %}; false if this isn't one.
  bool raw() {
    size_t p = behind_spaces(at_);
    if (!s_.substr(p).starts_with("raw")) return false;
    p = behind_spaces(p + 3);
    const bool strips = s_.substr(p).starts_with("-%}");
    if (!strips && !s_.substr(p).starts_with("%}")) return false;
    p += strips ? 3 : 2;
    if (strips) p = behind_spaces(p);
    const int opened = line_;
    move_to(p);
    line_starting_ = p > 0 && s_[p - 1] == '\n';
    for (size_t begin = s_.find("{%", at_); begin != std::string_view::npos; begin = s_.find("{%", begin + 2)) {
      size_t q = begin + 2;
      const char sign = q < s_.size() && (s_[q] == '-' || s_[q] == '+') ? s_[q++] : ' ';
      q = behind_spaces(q);
      if (!s_.substr(q).starts_with("endraw")) continue;
      q = behind_spaces(q + 6);
      const char closing = q < s_.size() && (s_[q] == '-' || s_[q] == '+') ? s_[q++] : ' ';
      if (!s_.substr(q).starts_with("%}")) continue;
      data(begin, sign, true);
      leave(q + 2, closing, true);
      return true;
    }
    line_ = opened;
    broken("a raw block is not closed");
  }

  // The tokens of a tag, to its end.
  void inside(bool block) {
    const std::string_view close = block ? "%}" : "}}";
    std::string open;  // brackets
    while (at_ < s_.size()) {
      if (open.empty()) {
        const bool signed_close =
            (s_[at_] == '-' || (block && s_[at_] == '+')) && s_.substr(at_ + 1).starts_with(close);
        if (signed_close || looking_at(close)) {
          push(block ? Kind::kBlockEnd : Kind::kPrintEnd);
          return leave(at_ + close.size() + signed_close, signed_close ? s_[at_] : ' ', block);
        }
      }
      if (const size_t end = behind_spaces(at_); end > at_) {
        move_to(end);
      } else if (is_digit(s_[at_])) {
        number();
      } else if (is_name(s_[at_])) {
        size_t name_end = at_;
        while (name_end < s_.size() && is_name(s_[name_end])) ++name_end;
        push(Kind::kName, std::string(s_.substr(at_, name_end - at_)));
        move_to(name_end);
      } else if (s_[at_] == '\'' || s_[at_] == '"') {
        literal();
      } else {
        operation(open);
      }
    }
    broken(block ? "a block is not closed with %}" : "an expression is not closed with }}");
  }

  void operation(std::string& open) {
    constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kOne = "+-*/%~[](){}><=.:|,;";
    std::string_view op;
    for (std::string_view two : kTwo)
      if (looking_at(two)) op = two;
    if (op.empty() && kOne.find(s_[at_]) != std::string_view::npos) op = s_.substr(at_, 1);
    if (op.empty()) broken(fmt::format("unexpected character '{}'", s_.substr(at_, utf8_step(s_, at_).bytes)));
    if (op == "(" || op == "[" || op == "{") open += op == "(" ? ')' : op == "[" ? ']' : '}';
    if (op == ")" || op == "]" || op == "}") {
      if (open.empty()) broken(fmt::format("unexpected '{}'", op));
      if (open.back() != op[0]) broken(fmt::format("unexpected '{}', expected '{}'", op, open.back()));
      open.pop_back();
    }
    push(Kind::kOperator, std::string(op));
    move_to(at_ + op.size());
  }

  // Digits with single underscores between them.
  size_t digits_end(size_t at) const {
    while (at < s_.size() && (is_digit(s_[at]) || (s_[at] == '_' && at + 1 < s_.size() && is_digit(s_[at + 1])))) ++at;
    return at;
  }

  void number() {
    const bool after_dot = at_ > 0 && s_[at_ - 1] == '.';
    size_t end = digits_end(at_);
    bool fraction = false;
    if (!after_dot) {
      if (end + 1 < s_.size() && s_[end] == '.' && is_digit(s_[end + 1])) end = digits_end(end + 1), fraction = true;
      if (end < s_.size() && (s_[end] == 'e' || s_[end] == 'E')) {
        const size_t sign = end + 1 < s_.size() && (s_[end + 1] == '+' || s_[end + 1] == '-') ? 1 : 0;
        if (end + 1 + sign < s_.size() && is_digit(s_[end + 1 + sign]))
          end = digits_end(end + 1 + sign), fraction = true;
      }
    }
    std::string text(s_.substr(at_, end - at_));
    std::erase(text, '_');
    if (!fraction && text == "0" && end < s_.size() &&
        std::string_view("xXoObB").find(s_[end]) != std::string_view::npos)
      return based(end);
    Value value;
    if (double d = 0; fraction) {
      if (std::from_chars(text.data(), text.data() + text.size(), d).ec != std::errc())
        broken("a number is out of range");
      value = d;
    } else {
      if (text.size() > 1 && text[0] == '0' && text.find_first_not_of('0') != std::string::npos)
        broken("an integer begins with 0");
      value = integer(text, 10);
    }
    push(Kind::kConstant, "", std::move(value));
    move_to(end);
  }

  void based(size_t letter) {
    const int base = (s_[letter] | 32) == 'x' ? 16 : (s_[letter] | 32) == 'o' ? 8 : 2;
    size_t end = letter + 1;
    std::string text;
    for (; end < s_.size() && is_name(s_[end]); ++end)
      if (s_[end] != '_') text += s_[end];
    push(Kind::kConstant, "", integer(text, base));
    move_to(end);
  }

  Value integer(const std::string& text, int base) const {
    int64_t i = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), i, base);
    if (error != std::errc() || end != text.data() + text.size()) broken("an integer is malformed or too large");
    return i;
  }

  void literal() {
    const char quote = s_[at_];
    size_t end = at_ + 1;
    while (end < s_.size() && s_[end] != quote) end += s_[end] == '\\' ? 2 : 1;
    if (end >= s_.size()) broken("a string is not closed");
    push(Kind::kConstant, "", Value(unescaped(s_.substr(at_ + 1, end - at_ - 1)), Origin::kTemplate));
    move_to(end + 1);
  }

  std::string unescaped(std::string_view in) const {
    std::string out;
    for (size_t i = 0; i < in.size(); ++i) {
      if (in[i] != '\\') {
        out += in[i];
        continue;
      }
      const char c = in[++i];
      constexpr std::string_view kFrom = "ntr\\'\"abfv", kTo = "\n\t\r\\'\"\a\b\f\v";
      if (const size_t k = kFrom.find(c); k != std::string_view::npos) {
        out += kTo[k];
      } else if (c == '\n') {  // goes on in the next line
      } else if (c == 'x' || c == 'u' || c == 'U') {
        i += append_code(out, in.substr(i + 1), c == 'x' ? 2 : c == 'u' ? 4 : 8, 16);
      } else if (c >= '0' && c <= '7') {
        size_t n = 1;
        while (n < 3 && i + n < in.size() && in[i + n] >= '0' && in[i + n] <= '7') ++n;
        append_code(out, in.substr(i), n, 8);
        i += n - 1;
      } else {
        out += '\\';  // Python keeps what it doesn't know
        out += c;
      }
    }
    return out;
  }

  size_t append_code(std::string& out, std::string_view digits, size_t count, int base) const {
    uint32_t code = 0;
    digits = digits.substr(0, count);
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
    if (digits.size() < count || error != std::errc() || stop != digits.data() + count)
      broken("a string holds a malformed escape");
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) broken("a string's escape is no character");
    append_utf8(out, code);
    return count;
  }

  const std::string source_;
  const std::string_view s_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> lex(std::string_view source) { return Lexer(source).run(); }

}  // namespace lathe::jinja
