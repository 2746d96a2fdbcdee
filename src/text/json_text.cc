#include "text/json_text.h"

namespace lathe {

namespace {
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}
}  // namespace

void JsonFollower::push(std::string_view text) {
  for (const char c : text) {
    if (failed()) return;
    push(c);
  }
}

bool JsonFollower::complete() const {
  if (at_ == At::kDone) return true;
  return open_.empty() && (at_ == At::kZero || at_ == At::kDigits || at_ == At::kFraction || at_ == At::kExponent);
}

void JsonFollower::begin_value(char c) {
  using T = JsonTypes;
  at_ = At::kFailed;
  if (c == '"') {
    begin(T::kString), at_ = At::kString, key_ = false;
  } else if (c == '{' || c == '[') {
    if (open_.size() == kMostDepth) return;
    begin(c == '{' ? T::kObject : T::kArray);
    open_.push_back(c == '{');
    at_ = c == '{' ? At::kFirstKey : At::kFirstItem;
  } else if (c == '-' || is_digit(c)) {
    begin(T::kInteger);
    at_ = c == '-' ? At::kMinus : c == '0' ? At::kZero : At::kDigits;
  } else if (c == 't' || c == 'f' || c == 'n') {
    begin(c == 'n' ? T::kNull : T::kBoolean);
    word_ = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
    at_ = At::kWord;
  }
}

void JsonFollower::end_value() { at_ = open_.empty() ? At::kDone : At::kAfter; }

void JsonFollower::push(char c) {
  // A number ends at what follows it.
  const bool ends = at_ == At::kZero || at_ == At::kDigits || at_ == At::kFraction || at_ == At::kExponent;
  const bool goes_on = (is_digit(c) && at_ != At::kZero) || (c == '.' && (at_ == At::kZero || at_ == At::kDigits)) ||
                       ((c == 'e' || c == 'E') && at_ != At::kExponent);
  if (ends && !goes_on) end_value();

  const bool space = is_space(c);
  switch (at_) {
    case At::kValue:
      if (!space) begin_value(c);
      return;
    case At::kFirstItem:
      if (space) return;
      if (c != ']') return begin_value(c);
      open_.pop_back();
      return end_value();
    case At::kFirstKey:
      if (space) return;
      if (c == '}') return open_.pop_back(), end_value();
      [[fallthrough]];
    case At::kKey:
      if (space) return;
      at_ = c == '"' ? At::kString : At::kFailed;
      key_ = true;
      return;
    case At::kColon:
      if (!space) at_ = c == ':' ? At::kValue : At::kFailed;
      return;
    case At::kAfter:
      if (space) return;
      if (c == ',') {
        at_ = open_.back() ? At::kKey : At::kValue;
      } else if (c == (open_.back() ? '}' : ']')) {
        open_.pop_back();
        end_value();
      } else {
        at_ = At::kFailed;
      }
      return;
    case At::kString:
      if (high_ && c != '\\')
        at_ = At::kFailed;
      else if (c == '"')
        key_ ? void(at_ = At::kColon) : end_value();
      else if (c == '\\')
        at_ = At::kEscape;
      else if (static_cast<uint8_t>(c) < 0x20)
        at_ = At::kFailed;
      return;
    case At::kEscape:
      if (c == 'u')
        at_ = At::kHex, hex_ = 4, unit_ = 0;
      else
        at_ = !high_ && std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos ? At::kString : At::kFailed;
      return;
    case At::kHex: {
      const int digit = hex_digit(c);
      if (digit < 0) return void(at_ = At::kFailed);
      unit_ = unit_ * 16 + digit;
      if (--hex_ > 0) return;
      const bool low = unit_ >= 0xdc00 && unit_ < 0xe000, high = unit_ >= 0xd800 && unit_ < 0xdc00;
      at_ = low == high_ ? At::kString : At::kFailed;
      high_ = high;
      return;
    }
    case At::kMinus:
      at_ = c == '0' ? At::kZero : is_digit(c) ? At::kDigits : At::kFailed;
      return;
    case At::kZero:
    case At::kDigits:
      if (is_digit(c)) return;
      if (open_.empty()) type_ = JsonTypes::kNumber;
      at_ = c == '.' ? At::kPoint : At::kE;
      return;
    case At::kPoint:
      at_ = is_digit(c) ? At::kFraction : At::kFailed;
      return;
    case At::kFraction:
      if (!is_digit(c)) at_ = At::kE;
      return;
    case At::kE:
      at_ = c == '+' || c == '-' ? At::kESign : is_digit(c) ? At::kExponent : At::kFailed;
      return;
    case At::kESign:
      at_ = is_digit(c) ? At::kExponent : At::kFailed;
      return;
    case At::kExponent:
      return;
    case At::kWord:
      if (c != word_.front()) return void(at_ = At::kFailed);
      word_.remove_prefix(1);
      if (word_.empty()) end_value();
      return;
    case At::kDone:
      if (!space) at_ = At::kFailed;
      return;
    case At::kFailed:
      return;
  }
}

void append_json_escaped(std::string& to, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '"':
        to += "\\\"";
        break;
      case '\\':
        to += "\\\\";
        break;
      case '\n':
        to += "\\n";
        break;
      case '\r':
        to += "\\r";
        break;
      case '\t':
        to += "\\t";
        break;
      case '\b':
        to += "\\b";
        break;
      case '\f':
        to += "\\f";
        break;
      default:
        if (static_cast<uint8_t>(c) < 0x20)
          to += std::string("\\u00") + "01"[c >> 4] + "0123456789abcdef"[c & 15];
        else
          to += c;
    }
  }
}

}  // namespace lathe
