#include "text/jinja/text_operations.h"

#include <algorithm>

#include "text/jinja/characters.h"
#include "text/jinja/machine.h"
#include "text/utf8.h"

namespace lathe::jinja {

Text part(const Text& text, size_t begin, size_t end) {
  TextBuilder out;
  if (begin < end) out.append(text, begin, end - begin);
  return out.take();
}

Text stripped(const Text& text, const Text* chars, Side side) {
  const std::string_view s = text.view();
  const auto goes = [&](size_t at) {
    const Utf8Step step = utf8_step(s, at);
    return chars ? chars->view().find(s.substr(at, step.bytes)) != std::string_view::npos : is_space(step.character);
  };
  size_t begin = 0, end = s.size();
  if (side != Side::kRight)
    while (begin < end && goes(begin)) begin += utf8_step(s, begin).bytes;
  if (side != Side::kLeft)
    while (end > begin && goes(previous_character(s, end))) end = previous_character(s, end);
  return part(text, begin, end);
}

Text replaced(Machine& machine, const Text& text, std::string_view old, const Text& by, int64_t count) {
  const std::string_view s = text.view();
  machine.charge(s.size());
  TextBuilder out;
  size_t done = 0;
  const auto put = [&](size_t at) {
    machine.charge(by.size());
    out.append(text, done, at - done);
    out.append(by);
    --count;
  };
  if (old.empty()) {  // between all characters and at both ends
    for (size_t at = 0; count != 0 && at <= s.size(); at += at < s.size() ? utf8_step(s, at).bytes : 1) {
      put(at);
      done = at;
    }
  } else {
    for (size_t at = s.find(old); count != 0 && at != std::string_view::npos; at = s.find(old, done)) {
      put(at);
      done = at + old.size();
    }
  }
  out.append(text, done, s.size() - done);
  return out.take();
}

namespace {

using Cuts = std::vector<std::pair<size_t, size_t>>;  // pieces

Cuts cut_at_spaces(std::string_view s, int64_t count) {
  Cuts cuts;
  size_t at = 0;
  const auto skip = [&](bool spaces) {
    while (at < s.size()) {
      const Utf8Step step = utf8_step(s, at);
      if (is_space(step.character) != spaces) break;
      at += step.bytes;
    }
  };
  for (skip(true); at < s.size(); skip(true)) {
    if (count == 0) return cuts.emplace_back(at, strip_end(s).size()), cuts;
    const size_t begin = at;
    skip(false);
    cuts.emplace_back(begin, at);
    --count;
  }
  return cuts;
}

Cuts cut_at_spaces_from_right(std::string_view s, int64_t count) {
  Cuts cuts;
  size_t at = s.size();
  const auto skip = [&](bool spaces) {
    while (at > 0) {
      const size_t before = previous_character(s, at);
      if (is_space(utf8_step(s, before).character) != spaces) break;
      at = before;
    }
  };
  for (skip(true); at > 0; skip(true)) {
    if (count == 0) {
      cuts.emplace_back(s.size() - strip_begin(s).size(), at);
      break;
    }
    const size_t end = at;
    skip(false);
    cuts.emplace_back(at, end);
    --count;
  }
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

Cuts cut_at(std::string_view s, std::string_view separator, int64_t count) {
  Cuts cuts;
  size_t done = 0;
  for (size_t at = s.find(separator); count != 0 && at != std::string_view::npos; at = s.find(separator, done)) {
    cuts.emplace_back(done, at);
    done = at + separator.size();
    --count;
  }
  cuts.emplace_back(done, s.size());
  return cuts;
}

Cuts cut_at_from_right(std::string_view s, std::string_view separator, int64_t count) {
  Cuts cuts;
  size_t end = s.size();
  while (count != 0 && end >= separator.size()) {
    const size_t at = s.substr(0, end).rfind(separator);
    if (at == std::string_view::npos) break;
    cuts.emplace_back(at + separator.size(), end);
    end = at;
    --count;
  }
  cuts.emplace_back(0, end);
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

std::vector<Value> pieces(Machine& machine, const Text& text, const Cuts& cuts) {
  machine.charge(text.size() + cuts.size() * 64);
  std::vector<Value> out;
  for (const auto& [begin, end] : cuts) out.emplace_back(part(text, begin, end));
  return out;
}

}  // namespace

std::vector<Value> split(Machine& machine, const Text& text, const Text* separator, int64_t count, Side from) {
  if (separator && separator->size() == 0) fail("empty separator");
  const std::string_view s = text.view();
  if (!separator)
    return pieces(machine, text, from == Side::kLeft ? cut_at_spaces(s, count) : cut_at_spaces_from_right(s, count));
  return pieces(
      machine, text,
      from == Side::kLeft ? cut_at(s, separator->view(), count) : cut_at_from_right(s, separator->view(), count));
}

std::vector<Value> split_lines(Machine& machine, const Text& text, bool keep_ends) {
  const std::string_view s = text.view();
  Cuts cuts;
  for (size_t begin = 0; begin < s.size();) {
    size_t end = begin, next = s.size();
    for (; end < s.size(); end += utf8_step(s, end).bytes) {
      const Utf8Step step = utf8_step(s, end);
      const char32_t c = step.character;
      if (!((c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029)) continue;
      next = end + step.bytes;
      if (c == '\r' && next < s.size() && s[next] == '\n') ++next;
      break;
    }
    cuts.emplace_back(begin, keep_ends ? next : end);
    begin = next;
  }
  return pieces(machine, text, cuts);
}

Text joined(Machine& machine, const Text& separator, const std::vector<Value>& items) {
  TextBuilder out;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::shared_ptr<const Text> item = machine.str(items[i]);
    machine.charge(item->size() + separator.size());
    if (i > 0) out.append(separator);
    out.append(*item);
  }
  return out.take();
}

bool every(std::string_view text, bool (*holds)(char32_t)) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (!holds(step.character)) return false;
    at += step.bytes;
  }
  return !text.empty();
}

bool has_case(std::string_view text, bool upper) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (is_title(step.character) || (upper ? is_lower(step.character) : is_upper(step.character))) return false;
    any = any || (upper ? is_upper(step.character) : is_lower(step.character));
    at += step.bytes;
  }
  return any;
}

}  // namespace lathe::jinja
