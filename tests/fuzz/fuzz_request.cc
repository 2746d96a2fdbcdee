// Request bodies from anywhere, through every API's reader; data: URIs and grammars included, nothing is generated.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "serve/conversation.h"
#include "serve/images.h"
#include "serve/routes.h"
#include "serve/structured.h"
#include "text/utf8.h"

// Input: one byte that picks the API, then the body.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe::serve;
  if (size < 1) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  constexpr Api kApis[] = {kChat, kCompletions, kResponses, kMessages, kCountTokens, kRender, kTokenize, kDetokenize};
  const Api api = kApis[data[0] % 8];
  std::vector<uint8_t> bytes;
  if (decode_base64(text, bytes)) {
    std::vector<uint8_t> again;
    LATHE_CHECK(decode_base64(encode_base64({reinterpret_cast<const char*>(bytes.data()), bytes.size()}), again) &&
                again == bytes);
  }
  (void)match_route("GET", text, data[0] & 1);
  Errors errors;
  std::set<std::string> unknown;
  Json body = parse_body(text, errors);
  Fields fields = read_fields(api, body, unknown, errors);
  const ConversationRules rules{.strict = (data[0] & 16) != 0, .template_keys = {"reasoning_effort"}};
  Conversation c;
  if (api == kMessages || api == kCountTokens)
    c = read_messages_api(fields, rules, errors);
  else if (api == kResponses)
    c = read_responses_input(fields, rules, errors);
  else if (api != kDetokenize && api != kCompletions)
    c = read_chat(fields, rules, errors);
  read_structure(fields, errors);
  // What passes is what templates can rely on.
  if (errors.any()) {
    LATHE_CHECK(!error_json(errors.first(), ErrorShape::kOpenAi).empty() && lathe::is_utf8(errors.first().message));
    return 0;
  }
  for (const Json& m : c.messages) {
    LATHE_CHECK(m["role"].is_string() && (m["content"].is_string() || m["content"].is_array()));
    if (m.contains("tool_calls"))
      for (const Json& call : m["tool_calls"])
        LATHE_CHECK(call["function"]["name"].is_string() && call["function"]["arguments"].is_object());
  }
  return 0;
}
