#include "feedback/json_scanner.h"

#include <cstdint>

namespace lathe {

namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

void append_utf8(std::string& out, uint32_t c) {
  if (c >= 0xD800 && c < 0xE000) c = 0xFFFD;
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

// The four digits of \uXXXX from `at`; -1 if they aren't there.
int32_t four_digits(std::string_view text, size_t at) {
  if (at + 4 > text.size()) return -1;
  int32_t value = 0;
  for (size_t i = at; i < at + 4; ++i) {
    if (hex(text[i]) < 0) return -1;
    value = value * 16 + hex(text[i]);
  }
  return value;
}

}  // namespace

char JsonScanner::peek() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonScanner::take(char c) {
  if (peek() != c || at_ >= text_.size()) return false;
  ++at_;
  return true;
}

std::optional<std::string> JsonScanner::string() {
  if (!take('"')) return std::nullopt;
  std::string out;
  while (at_ < text_.size()) {
    const char c = text_[at_++];
    if (c == '"') return out;
    if (c != '\\') {
      out += c;
      continue;
    }
    if (at_ >= text_.size()) return std::nullopt;
    const char e = text_[at_++];
    switch (e) {
      case 'n':
        out += '\n';
        break;
      case 't':
        out += '\t';
        break;
      case 'r':
        out += '\r';
        break;
      case 'b':
        out += '\b';
        break;
      case 'f':
        out += '\f';
        break;
      case '"':
      case '\\':
      case '/':
        out += e;
        break;
      case 'u': {
        int32_t code = four_digits(text_, at_);
        if (code < 0) {
          out += "\\u";  // a path of Windows, not an escape
          break;
        }
        at_ += 4;
        const int32_t low = text_.substr(at_, 2) == "\\u" ? four_digits(text_, at_ + 2) : -1;
        if (code >= 0xD800 && code < 0xDC00 && low >= 0xDC00 && low < 0xE000) {
          code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
          at_ += 6;
        }
        append_utf8(out, static_cast<uint32_t>(code));
        break;
      }
      default:
        out += '\\', out += e;
    }
  }
  return std::nullopt;
}

std::optional<std::string_view> JsonScanner::skip() {
  const char first = peek();
  const size_t begin = at_;
  if (first == '"' || first == '{' || first == '[') {
    int depth = 0;
    bool in_string = false;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (in_string) {
        if (c == '\\')
          ++at_;
        else if (c == '"')
          in_string = false;
      } else if (c == '"') {
        in_string = true;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (c == '}' || c == ']') {
        --depth;
      }
      if (!in_string && depth == 0) return ++at_, text_.substr(begin, at_ - begin);
    }
    at_ = text_.size();
    return std::nullopt;
  }
  while (at_ < text_.size() && !is_space(text_[at_]) && text_[at_] != ',' && text_[at_] != '}' && text_[at_] != ']' &&
         text_[at_] != ':' && text_[at_] != '"')
    ++at_;
  if (at_ == begin) return std::nullopt;
  return text_.substr(begin, at_ - begin);
}

bool JsonScanner::find_object() {
  while (at_ < text_.size()) {
    const size_t brace = text_.find('{', at_);
    if (brace == std::string_view::npos) break;
    at_ = brace + 1;
    if (peek() == '"') return at_ = brace, true;
  }
  at_ = text_.size();
  return false;
}

}  // namespace lathe
