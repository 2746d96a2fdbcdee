#include "text/output_stream.h"

#include <algorithm>
#include <utility>

#include "text/json_text.h"
#include "text/tool_types.h"
#include "text/utf8.h"

namespace lathe {

namespace {

constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>", kCall = "<tool_call>", kCallEnd = "</tool_call>",
                           kKey = "<arg_key>", kKeyEnd = "</arg_key>", kValue = "<arg_value>",
                           kValueEnd = "</arg_value>", kSpace = " \t\r\n";
constexpr size_t kMostSpace = 256;  // white space between two tags
constexpr size_t kMostName = 256;   // bytes of a tool's name
constexpr size_t kMostLookahead =
    64 << 10;  // bytes that a JSON string may go on behind what looks like its value's end

using Kind = OutputDelta::Kind;
using Tags = std::initializer_list<std::string_view>;

std::string_view stripped(std::string_view s) {
  const size_t begin = s.find_first_not_of(kSpace);
  return begin == std::string_view::npos ? std::string_view() : s.substr(begin, s.find_last_not_of(kSpace) - begin + 1);
}

}  // namespace

// A machine whose every step looks at in[at..] and either takes something from it or waits for more. What a step
// decides depends on the text before it alone: so the pieces in which text comes can't matter.
struct OutputStream::State {
  enum class Step { kStart, kText, kName, kKey, kBeforeValue, kString, kJson, kAfterValue, kBroken };
  struct Tag {
    enum { kFound, kWait, kNone } is;
    std::string_view tag;
    size_t bytes;  // white space before it, and the tag
  };

  State(std::string_view tools_json, bool in_reasoning, CallNames n)
      : tools(tools_json), names(n), reasoning(in_reasoning) {}

  ToolTypes tools;
  CallNames names;
  bool reasoning;  // text is reasoning, not content
  Step step = Step::kStart;

  std::string tail;  // the beginning of a character
  std::string in;    // whole characters, not read yet from `at`
  size_t at = 0;
  size_t scan = 0;     // in[at..scan) is known to hold no end
  bool ended = false;  // no more will come

  std::string raw;  // the call as it was written, as far as it was read
  std::string name, key;
  bool declared = false, started = false;  // calls that aren't declared are read likewise, and go out as text
  int calls_started = 0, calls_ended = 0, malformed = 0;
  JsonTypes types;  // of the argument
  JsonFollower json;
  size_t json_end = 0;  // the first place that looked like the end of a JSON value, or 0

  std::string blank;  // white space that is content only if more comes
  bool has_content = false;
  std::vector<OutputDelta> out;

  std::string_view rest() const { return std::string_view(in).substr(at); }

  void emit(Kind kind, std::string_view text, int call = -1) {
    if (text.empty() && kind != Kind::kCallEnd) return;
    const bool grows = kind != Kind::kCallStart && kind != Kind::kCallEnd;
    if (grows && !out.empty() && out.back().kind == kind && out.back().call == call)
      out.back().text += text;
    else
      out.push_back({kind, std::string(text), call});
  }

  void content(std::string_view text) {
    if (!has_content && stripped(text).empty()) {
      blank += text;
      return;
    }
    has_content = true;
    emit(Kind::kContent, blank);
    blank.clear();
    emit(Kind::kContent, text);
  }

  void text(std::string_view s) { reasoning ? emit(Kind::kReasoning, s) : content(s); }
  void arguments(std::string_view s) {
    if (declared) emit(Kind::kCallArguments, s, calls_started - 1);
  }

  std::string_view take(size_t bytes) {
    const std::string_view taken = rest().substr(0, bytes);
    at += bytes;
    scan = at;
    return taken;
  }
  void take_raw(size_t bytes) { raw += take(bytes); }

  // Which of `tags` stands at in[from], after white space.
  Tag tag_at(size_t from, Tags tags) const {
    const std::string_view s = std::string_view(in).substr(from);
    const size_t space = std::min(s.find_first_not_of(kSpace), s.size());
    if (space > kMostSpace) return {Tag::kNone, {}, 0};
    const std::string_view behind = s.substr(space);
    bool may_come = false;
    for (const std::string_view tag : tags) {
      if (behind.starts_with(tag)) return {Tag::kFound, tag, space + tag.size()};
      may_come |= tag.starts_with(behind);
    }
    return {may_come && !ended ? Tag::kWait : Tag::kNone, {}, 0};
  }

  // Like tag_at, but without white space before the tag.
  Tag tag_right_at(size_t from, Tags tags) const {
    if (from < in.size() && kSpace.find(in[from]) != std::string_view::npos) return {Tag::kNone, {}, 0};
    return tag_at(from, tags);
  }

  // Moves scan to the first place in[scan..] where one of `tags` stands or may still come; to the end if there's none.
  Tag find(Tags tags) {
    for (;; ++scan) {
      scan = std::min(in.find('<', scan), in.size());
      if (scan == in.size()) return {Tag::kWait, {}, 0};
      if (const Tag tag = tag_right_at(scan, tags); tag.is != Tag::kNone) return tag;
    }
  }

  // One step; false if more text is needed.
  bool advance() {
    switch (step) {
      case Step::kStart:
        return start();
      case Step::kText:
        return read_text();
      case Step::kName:
        return read_name();
      case Step::kKey:
        return read_key();
      case Step::kBeforeValue:
        return begin_value();
      case Step::kString:
        return read_string();
      case Step::kJson:
        return read_json();
      case Step::kAfterValue:
        return end_argument();
      case Step::kBroken:
        return read_broken();
    }
    return false;
  }

  bool start() {
    if (rest().empty()) return false;
    const Tag think = reasoning ? tag_right_at(at, {kThink}) : tag_at(at, {kThink});
    if (think.is == Tag::kWait) return false;
    if (think.is == Tag::kFound) take(think.bytes), reasoning = true;
    step = Step::kText;
    return true;
  }

  bool read_text() {
    const Tag tag = reasoning ? find({kThinkEnd, kCall}) : find({kCall});
    text(take(scan - at));
    if (tag.is == Tag::kWait) return false;
    if (tag.tag == kThinkEnd) {
      take(tag.bytes);
      reasoning = false;
      return true;
    }
    raw.clear();
    take_raw(tag.bytes);
    declared = started = false;
    step = Step::kName;
    return true;
  }

  // The tag wasn't the beginning of a call: it is text, and so is what follows.
  bool not_a_call() {
    ++malformed;
    text(raw);
    step = Step::kText;
    return true;
  }

  bool read_name() {
    const std::string_view s = rest();
    const size_t begin = std::min(s.find_first_not_of(kSpace), s.size());
    const size_t end = s.find_first_of(" \t\r\n<", begin);
    if (begin > kMostSpace || std::min(end, s.size()) - begin > kMostName || end == begin) return not_a_call();
    if (end == std::string_view::npos) return ended ? not_a_call() : false;
    const Tag tag = tag_at(at + end, {kKey, kCallEnd});
    if (tag.is == Tag::kWait) return false;
    if (tag.is == Tag::kNone) return not_a_call();
    name = s.substr(begin, end - begin);
    declared = names == CallNames::kAny || tools.declares(name);
    take_raw(end + tag.bytes);
    if (tag.tag == kCallEnd) return end_call();
    step = Step::kKey;
    return true;
  }

  void start_call() {
    if (declared && !started) emit(Kind::kCallStart, name, calls_started++);
    started = true;
  }

  bool end_call() {
    step = Step::kText;
    if (!declared) {
      ++malformed;
      content(raw);
      return true;
    }
    arguments_end();
    ++calls_ended;
    emit(Kind::kCallEnd, "", calls_started - 1);
    return true;
  }

  void arguments_end() {
    const bool without = !started;
    start_call();
    arguments(without ? "{}" : "}");
  }

  // What was read of the call, and what follows up to its end, is content.
  bool broken() {
    ++malformed;
    content(raw);
    step = Step::kBroken;
    return true;
  }

  bool read_broken() {
    const Tag tag = find({kCall, kCallEnd});
    content(take(scan - at));
    if (tag.is == Tag::kWait) return false;
    if (tag.tag == kCallEnd) content(take(tag.bytes));
    step = Step::kText;
    return true;
  }

  bool read_key() {
    const Tag tag = find({kKeyEnd, kKey, kValue, kValueEnd, kCall, kCallEnd});
    if (tag.is == Tag::kWait) return false;
    if (tag.tag != kKeyEnd) return broken();
    key = stripped(rest().substr(0, scan - at));
    take_raw(scan - at + tag.bytes);
    step = Step::kBeforeValue;
    return true;
  }

  bool begin_value() {
    const Tag tag = tag_at(at, {kValue});
    if (tag.is == Tag::kWait) return false;
    if (tag.is == Tag::kNone) return broken();
    take_raw(tag.bytes);
    std::string before = started ? ",\"" : "{\"";
    append_json_escaped(before, key);
    start_call();
    arguments(before + "\":");
    types = tools.of(name, key);
    step = types.bits == JsonTypes::kString ? Step::kString : Step::kJson;
    if (step == Step::kString) arguments("\"");
    json = {};
    json_end = 0;
    return true;
  }

  // At in[from] an </arg_value> that ends the value?
  Tag value_end(size_t from) const {
    const Tag end = tag_right_at(from, {kValueEnd});
    if (end.is != Tag::kFound) return end;
    Tag next = tag_at(from + end.bytes, {kKey, kCallEnd, kCall});
    next.bytes = end.bytes;
    return next;
  }

  bool read_string() {
    Tag end{Tag::kWait, {}, 0};
    for (;; ++scan) {
      scan = std::min(in.find('<', scan), in.size());
      if (scan == in.size()) break;
      if (end = value_end(scan); end.is != Tag::kNone) break;
    }
    const size_t bytes = scan - at;
    std::string piece;
    append_json_escaped(piece, rest().substr(0, bytes));
    take_raw(bytes);
    arguments(piece);
    if (end.is != Tag::kFound) return false;
    arguments("\"");
    take_raw(end.bytes);
    step = Step::kAfterValue;
    return true;
  }

  // JSON is held back until it is whole: only then is it known to be JSON.
  bool read_json() {
    for (;;) {
      const size_t next = std::min(in.find('<', scan), in.size());
      json.push(std::string_view(in).substr(scan, next - scan));
      scan = next;
      if (json_end != 0 && json.failed()) return end_json(json_end, false);
      if (scan == in.size()) return ended && json_end != 0 ? end_json(json_end, false) : false;
      const Tag end = value_end(scan);
      if (end.is == Tag::kWait) return false;
      if (end.is == Tag::kFound) {
        if (json.complete()) return end_json(scan, true);
        if (!json.in_string() || !json.in_container()) return end_json(json_end != 0 ? json_end : scan, false);
        if (json_end == 0) json_end = scan;
        if (scan - json_end > kMostLookahead) return end_json(json_end, false);
      }
      json.push("<");
      ++scan;
    }
  }

  bool end_json(size_t end, bool is_json) {
    const std::string_view value = rest().substr(0, end - at);
    // Where a string may stand, too, JSON of another type than the schema's is that string.
    if (is_json && types.has(JsonTypes::kString)) is_json = types.has(json.type() & ~JsonTypes::kString);
    if (is_json) {
      arguments(stripped(value));
    } else {
      std::string piece = "\"";
      append_json_escaped(piece, value);
      arguments(piece + '"');
    }
    take_raw(end - at + kValueEnd.size());
    step = Step::kAfterValue;
    return true;
  }

  bool end_argument() {
    const Tag tag = tag_at(at, {kKey, kCallEnd, kCall});  // value_end has seen it
    if (tag.tag == kCall) return end_call();              // </tool_call> is missing; nothing is lost
    take_raw(tag.bytes);
    if (tag.tag == kCallEnd) return end_call();
    step = Step::kKey;
    return true;
  }

  void run() {
    while (advance()) {
    }
    if (at > (64 << 10) || at == in.size()) {
      in.erase(0, at);
      scan -= at;
      if (json_end != 0) json_end -= std::min(json_end, at);
      at = 0;
    }
  }

  // Whole characters of `bytes` go to `in`.
  void put(std::string_view bytes) {
    tail += bytes;
    size_t i = 0;
    while (i < tail.size()) {
      const Utf8Step s = utf8_step(tail, i);
      if (s.kind == Utf8Step::Kind::kIncomplete && !ended) break;
      in += s.kind == Utf8Step::Kind::kCharacter ? std::string_view(tail).substr(i, s.bytes) : kReplacement;
      i += s.bytes;
    }
    tail.erase(0, i);
  }

  void end() {
    ended = true;
    put("");
    run();
    if (step != Step::kText && step != Step::kStart && step != Step::kBroken) {  // a call that never ended
      ++malformed;
      content(raw);
      content(take(rest().size()));
      step = Step::kText;
    }
    if (calls_ended == 0) emit(Kind::kContent, blank);
    blank.clear();
  }

  std::vector<OutputDelta> deltas() { return std::exchange(out, {}); }
};

OutputStream::OutputStream(std::string_view tools_json, bool in_reasoning, CallNames names)
    : state_(std::make_unique<State>(tools_json, in_reasoning, names)) {}
OutputStream::OutputStream(OutputStream&&) noexcept = default;
OutputStream::~OutputStream() = default;

std::vector<OutputDelta> OutputStream::push(std::string_view text) {
  state_->put(text);
  state_->run();
  return state_->deltas();
}

std::vector<OutputDelta> OutputStream::finish() {
  state_->end();
  return state_->deltas();
}

int OutputStream::malformed_calls() const { return state_->malformed; }

}  // namespace lathe
