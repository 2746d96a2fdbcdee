#include "serve/reply.h"

#include <random>

namespace lathe::serve {

bool ReplyChoice::has_call() const {
  for (const Block& b : blocks)
    if (b.kind == Block::Kind::kCall) return true;
  return false;
}

std::string ReplyChoice::text(Block::Kind kind) const {
  std::string all;
  for (const Block& b : blocks)
    if (b.kind == kind) all += b.text;
  return all;
}

std::string new_id(std::string_view prefix) {
  static constexpr char kLetters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  thread_local std::mt19937_64 random{(uint64_t{std::random_device{}()} << 32) ^ std::random_device{}()};
  std::string id(prefix);
  for (int i = 0; i < 24; ++i) id += kLetters[random() % 62];
  return id;
}

void append_event(std::string& out, const Json& data, std::string_view event) {
  if (!event.empty()) out.append("event: ").append(event).append("\n");
  out.append("data: ").append(dump(data)).append("\n\n");
}

Json usage_json(const Usage& u) {
  return {{"prompt_tokens", u.prompt_tokens},
          {"completion_tokens", u.completion_tokens},
          {"total_tokens", u.prompt_tokens + u.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", u.cached_tokens}, {"image_tokens", u.image_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", u.reasoning_tokens}}}};
}

}  // namespace lathe::serve
