#include "feedback/eval_suite.h"

#include <zlib.h>

#include <sstream>

#include "base/mapped_file.h"

namespace lathe {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxCompressed = int64_t{64} << 20;
constexpr size_t kMaxText = size_t{512} << 20;

Result<std::string> gunzip(const std::string& compressed, const std::string& path) {
  z_stream z{};
  constexpr int kGzip = 15 + 16;
  if (inflateInit2(&z, kGzip) != Z_OK) return internal("zlib could not start");
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
  z.avail_in = static_cast<uInt>(compressed.size());
  std::string text;
  std::vector<char> piece(1 << 20);
  int state = Z_OK;
  while (state == Z_OK && text.size() <= kMaxText) {
    z.next_out = reinterpret_cast<Bytef*>(piece.data());
    z.avail_out = static_cast<uInt>(piece.size());
    state = inflate(&z, Z_NO_FLUSH);
    text.append(piece.data(), piece.size() - z.avail_out);
    if (state == Z_BUF_ERROR) break;
  }
  inflateEnd(&z);
  if (text.size() > kMaxText) return invalid("{}: more than {} bytes of text", path, kMaxText);
  if (state != Z_STREAM_END) return corrupt("{}: not gzip, or cut short", path);
  return text;
}

Result<Mark> mark_of(const Json& ask) {
  const std::string name = ask.value("mark", "exact");
  if (name == "exact") return Mark::kExact;
  if (name == "json") return Mark::kJson;
  if (name == "tool_calls") return Mark::kToolCalls;
  return corrupt("mark: '{}' is not one of exact, json, tool_calls", name);
}

Result<EvalItem> item_of(const Json& j) {
  if (!j.is_object() || !j.contains("id") || !j["id"].is_string() || !j.contains("task") || !j["task"].is_string())
    return corrupt("id and task must be strings");
  EvalItem item{.id = j["id"],
                .task = j["task"],
                .messages = j.value("messages", Json()),
                .tools = j.value("tools", Json()),
                .asks = {}};
  if (!item.messages.is_array() || item.messages.empty()) return corrupt("messages: must be a list");
  const Json asks = j.value("asks", Json());
  if (!asks.is_array() || asks.empty()) return corrupt("asks: must be a list");
  for (const Json& a : asks) {
    if (!a.is_object() || !a.contains("answer")) return corrupt("asks: each needs an answer");
    EvalAsk ask;
    if (a.contains("user") && a["user"].is_string()) ask.user = a["user"];
    LATHE_ASSIGN(ask.mark, mark_of(a));
    ask.answer = a["answer"];
    if (ask.mark == Mark::kToolCalls ? !ask.answer.is_array() : !ask.answer.is_string())
      return corrupt("asks: answer has the wrong type for its mark");
    item.asks.push_back(std::move(ask));
  }
  if (j.contains("context") && j["context"].is_number_integer()) item.context = j["context"];
  item.quick = j.contains("quick") && j["quick"] == true;
  item.hard = j.contains("hard") && j["hard"] == true;
  return item;
}

}  // namespace

Result<std::vector<EvalItem>> read_eval_suite(const std::string& path) {
  LATHE_ASSIGN(const std::string compressed, read_text_file(path, kMaxCompressed));
  LATHE_ASSIGN(const std::string text, gunzip(compressed, path));
  std::vector<EvalItem> items;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty()) continue;
    const Json j = Json::parse(line, nullptr, false);
    if (j.is_discarded()) return corrupt("{}:{}: not JSON", path, number);
    Result<EvalItem> item = item_of(j);
    if (!item.is_ok()) return item.status().within(fmt::format("{}:{}", path, number));
    items.push_back(std::move(item).value());
  }
  if (items.empty()) return corrupt("{}: has no items", path);
  return items;
}

}  // namespace lathe
