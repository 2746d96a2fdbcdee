#include "text/chat_messages.h"

#include <functional>

#include "text/jinja/characters.h"
#include "text/jinja/json_value.h"

namespace lathe {

namespace {

using jinja::Dict;
using jinja::List;
using jinja::Value;
using Change = std::function<Result<Value>(const Value& arguments, const std::string& place)>;

Value replaced(const Dict& dict, std::string_view key, Value value) {
  Dict out = dict;
  out.set(Value(std::string(key), jinja::Origin::kData), std::move(value));
  return out;
}

Value list_of(std::vector<Value> items) {
  List out{std::move(items)};
  for (const Value& item : out.items) out.depth = std::max(out.depth, item.depth() + 1);
  return out;
}

// {"function": {"name", "arguments"}}, or the inner object alone.
Result<Value> change_call(const Value& call, const std::string& place, const Change& change) {
  if (!call.dict()) return invalid("{}: must be an object", place);
  if (const Value* function = call.dict()->find(std::string_view("function")); function && function->dict()) {
    LATHE_ASSIGN(Value inner, change_call(*function, place + ".function", change));
    return replaced(*call.dict(), "function", std::move(inner));
  }
  const Value* arguments = call.dict()->find(std::string_view("arguments"));
  if (!arguments) return call;
  LATHE_ASSIGN(Value changed, change(*arguments, place + ".arguments"));
  return replaced(*call.dict(), "arguments", std::move(changed));
}

Result<Value> change_message(const Value& message, const std::string& place, const Change& change) {
  const Value* role = message.dict() ? message.dict()->find(std::string_view("role")) : nullptr;
  if (!role || !role->text()) return invalid("{}: must be an object with a role", place);
  const Value* calls = message.dict()->find(std::string_view("tool_calls"));
  if (!calls || calls->is_none()) return message;
  if (!calls->list()) return invalid("{}.tool_calls: must be a list", place);
  std::vector<Value> changed;
  for (size_t i = 0; i < calls->list()->items.size(); ++i) {
    LATHE_ASSIGN(Value call, change_call(calls->list()->items[i], fmt::format("{}.tool_calls[{}]", place, i), change));
    changed.push_back(std::move(call));
  }
  return replaced(*message.dict(), "tool_calls", list_of(std::move(changed)));
}

Result<Value> change_messages(const Value& messages, const Change& change) {
  if (!messages.list()) return invalid("messages: must be a list");
  std::vector<Value> changed;
  for (size_t i = 0; i < messages.list()->items.size(); ++i) {
    LATHE_ASSIGN(Value message, change_message(messages.list()->items[i], fmt::format("messages[{}]", i), change));
    changed.push_back(std::move(message));
  }
  return list_of(std::move(changed));
}

bool is_blank(const Value& value) {
  return value.is_none() || (value.text() && jinja::strip_begin(value.text()->view()).empty());
}

}  // namespace

Result<Value> with_object_arguments(const Value& messages) {
  return change_messages(messages, [](const Value& arguments, const std::string& place) -> Result<Value> {
    if (is_blank(arguments)) return Value(Dict());
    if (arguments.dict()) return arguments;
    if (!arguments.text()) return invalid("{}: must be an object or its JSON", place);
    LATHE_ASSIGN(Value parsed, jinja::value_from_json(arguments.text()->view(), place));
    if (!parsed.dict()) return invalid("{}: must be a JSON object", place);
    return parsed;
  });
}

Result<Value> with_text_arguments(const Value& messages) {
  return change_messages(messages, [](const Value& arguments, const std::string& place) -> Result<Value> {
    if (is_blank(arguments)) return Value("{}", jinja::Origin::kData);
    if (arguments.text()) return arguments;
    if (!arguments.dict()) return invalid("{}: must be an object or its JSON", place);
    LATHE_ASSIGN(std::string json, jinja::json_from_value(arguments));
    return Value(std::move(json), jinja::Origin::kData);
  });
}

}  // namespace lathe
