#include "text/jinja/python_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/characters.h"
#include "text/jinja/machine.h"
#include "text/utf8.h"

namespace lathe::jinja {

std::string float_repr(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  char buffer[32];
  const char* end = std::to_chars(buffer, buffer + sizeof buffer, x, std::chars_format::scientific).ptr;
  std::string_view all(buffer, end - buffer);
  const bool negative = all[0] == '-';
  if (negative) all.remove_prefix(1);
  const size_t e = all.find('e');
  std::string digits(all.substr(0, e));
  std::erase(digits, '.');
  int exponent = 0;
  const std::string_view written = all.substr(e + 1 + (all[e + 1] == '+'));
  std::from_chars(written.data(), written.data() + written.size(), exponent);
  std::string out = negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(-exponent - 1, '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

namespace {

std::string text_repr(std::string_view text) {
  const bool doubled = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = doubled ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    const char32_t c = step.character;
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      out += text.substr(at, step.bytes);
    } else {
      out += c < 0x100     ? fmt::format("\\x{:02x}", static_cast<uint32_t>(c))
             : c < 0x10000 ? fmt::format("\\u{:04x}", static_cast<uint32_t>(c))
                           : fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
    at += step.bytes;
  }
  return out + quote;
}

void append_list(Machine& machine, const List& list, TextBuilder& out) {
  constexpr const char* kOpen[] = {"[", "(", "dict_keys([", "dict_values([", "dict_items(["};
  constexpr const char* kClose[] = {"]", ")", "])", "])", "])"};
  const int flavor = static_cast<int>(list.flavor);
  out.append(kOpen[flavor], Origin::kTemplate);
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.append(", ", Origin::kTemplate);
    append_repr(machine, list.items[i], out);
  }
  if (list.flavor == List::Flavor::kTuple && list.items.size() == 1) out.append(",", Origin::kTemplate);
  out.append(kClose[flavor], Origin::kTemplate);
}

void append_dict(Machine& machine, const Dict& dict, TextBuilder& out) {
  out.append("{", Origin::kTemplate);
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out.append(", ", Origin::kTemplate);
    append_repr(machine, dict.entries[i].first, out);
    out.append(": ", Origin::kTemplate);
    append_repr(machine, dict.entries[i].second, out);
  }
  out.append("}", Origin::kTemplate);
}

}  // namespace

void append_str(Machine& machine, const Value& value, TextBuilder& out) {
  if (const Text* t = value.text()) {
    machine.charge(t->size());
    out.append(*t);
  } else if (!value.is_undefined()) {
    append_repr(machine, value, out);
  }
}

void append_repr(Machine& machine, const Value& value, TextBuilder& out) {
  machine.charge(8);
  const auto plain = [&](std::string_view text) { out.append(text, Origin::kTemplate); };
  if (const Text* t = value.text()) {
    machine.charge(t->size());
    out.append(text_repr(t->view()), t->origin());
  } else if (value.is_undefined()) {
    plain("Undefined");
  } else if (value.is_none()) {
    plain("None");
  } else if (const bool* b = value.get<bool>()) {
    plain(*b ? "True" : "False");
  } else if (const int64_t* i = value.get<int64_t>()) {
    plain(std::to_string(*i));
  } else if (const double* d = value.get<double>()) {
    plain(float_repr(*d));
  } else if (const BigInt* big = value.get<BigInt>()) {
    machine.charge(big->digits->size());
    plain(*big->digits);
  } else if (const List* l = value.list()) {
    append_list(machine, *l, out);
  } else if (const Dict* m = value.dict()) {
    append_dict(machine, *m, out);
  } else {
    plain(fmt::format("<{}>", value.type_name()));
  }
}

namespace {

class JsonWriter {
 public:
  JsonWriter(Machine& machine, const JsonStyle& style) : machine_(machine), style_(style) {}

  std::string take() { return std::move(out_); }

  void write(const Value& value) {
    machine_.charge(8);
    if (const Text* t = value.text()) {
      write_text(t->view());
    } else if (value.is_none()) {
      out_ += "null";
    } else if (const bool* b = value.get<bool>()) {
      out_ += *b ? "true" : "false";
    } else if (value.is_number()) {
      write_number(value);
    } else if (const List* l = value.list();
               l && (l->flavor == List::Flavor::kList || l->flavor == List::Flavor::kTuple)) {
      write_list(*l);
    } else if (const Dict* d = value.dict()) {
      write_dict(*d);
    } else {
      fail("Object of type {} is not JSON serializable", value.type_name());
    }
  }

 private:
  void write_number(const Value& value) {
    if (const double* d = value.get<double>()) {
      out_ += std::isnan(*d) ? "NaN" : std::isinf(*d) ? (*d < 0 ? "-Infinity" : "Infinity") : float_repr(*d);
    } else if (const int64_t* i = value.get<int64_t>()) {
      out_ += std::to_string(*i);
    } else {
      out_ += *value.get<BigInt>()->digits;
    }
  }

  void write_text(std::string_view text) {
    machine_.charge(text.size());
    out_ += '"';
    for (size_t at = 0; at < text.size();) {
      const Utf8Step step = utf8_step(text, at);
      write_character(step.character, text.substr(at, step.bytes));
      at += step.bytes;
    }
    out_ += '"';
  }

  void write_character(char32_t c, std::string_view bytes) {
    constexpr std::string_view kShort = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
    if (c < 0x80 && kShort.find(static_cast<char>(c)) != std::string_view::npos && c != 0) {
      out_ += '\\';
      out_ += kLetters[kShort.find(static_cast<char>(c))];
    } else if (c < 0x20 || (style_.ascii && c >= 0x7F && c < 0x10000)) {
      out_ += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else if (style_.ascii && c >= 0x10000) {
      const uint32_t rest = static_cast<uint32_t>(c) - 0x10000;
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
      out_ += bytes;
    }
  }

  void line(int level) {
    if (!style_.indented) return;
    machine_.charge(style_.indent.size() * level);
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += style_.indent;
  }

  void write_list(const List& list) {
    out_ += '[';
    ++level_;
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_ += style_.between;
      line(level_);
      write(list.items[i]);
    }
    --level_;
    if (!list.items.empty()) line(level_);
    out_ += ']';
  }

  std::string key_text(const Value& key) {
    if (const Text* t = key.text()) return std::string(t->view());
    if (!key.is_none() && !key.is_number()) fail("keys must be str, int, float, bool or None, not {}", key.type_name());
    JsonWriter inner(machine_, style_);
    inner.write(key);
    return inner.take();
  }

  void write_dict(const Dict& dict) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sorted)
      std::stable_sort(entries.begin(), entries.end(), [](auto* a, auto* b) { return less(a->first, b->first); });
    out_ += '{';
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.between;
      line(level_);
      write_text(key_text(entries[i]->first));
      out_ += style_.colon;
      write(entries[i]->second);
    }
    --level_;
    if (!entries.empty()) line(level_);
    out_ += '}';
  }

  Machine& machine_;
  const JsonStyle& style_;
  std::string out_;
  int level_ = 0;
};

}  // namespace

std::string to_json(Machine& machine, const Value& value, const JsonStyle& style) {
  JsonWriter writer(machine, style);
  writer.write(value);
  return writer.take();
}

}  // namespace lathe::jinja
