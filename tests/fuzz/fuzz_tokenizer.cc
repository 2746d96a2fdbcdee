// tokenizer.json from anywhere, then any text through what it became.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

// Input: a tokenizer.json, then, behind a zero byte, a text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  const auto tokenizer = lathe::Tokenizer::parse(input.substr(0, cut), "fuzz");
  if (!tokenizer.is_ok()) return 0;
  const std::string_view text = cut == std::string_view::npos ? input : input.substr(cut + 1);
  for (bool match : {true, false}) {
    const auto ids = tokenizer->encode(text, {.match_added = match, .add_special = match});
    if (!ids.is_ok()) continue;
    std::string streamed;
    lathe::StreamDecoder stream(*tokenizer);
    for (int32_t id : *ids) streamed += stream.push(id);
    streamed += stream.finish();
    LATHE_CHECK(streamed == tokenizer->decode(*ids) && lathe::is_utf8(streamed));
  }
  return 0;
}
