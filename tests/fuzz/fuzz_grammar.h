#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/byte_alphabet.h"
#include "text/grammar/grammar.h"
#include "text/grammar/token_trie.h"
#include "text/json_text.h"

// What the fuzzers of grammars share: a small vocabulary, and a walk under the mask that the input steers.
namespace lathe::fuzz {

inline const Tokenizer& tokenizer() {
  static const Tokenizer t = [] {
    std::string vocab;
    int id = 0;
    auto add = [&](const std::string& bytes) {
      std::string key = "\"";
      append_json_escaped(key, spelling_of_bytes(bytes));
      vocab += fmt::format("{}{}\":{}", vocab.empty() ? "" : ",", key, id++);
    };
    for (int c = 0; c < 256; ++c) add(std::string(1, static_cast<char>(c)));
    for (const char* s :
         {"ab", "{\"", "\":", "\",", "12", "tr", "ue", "nul", "]}", "\xc3\xa9", "\xa9\"", "\n  ", ", \""})
      add(s);
    return Tokenizer::parse("{\"model\":{\"type\":\"BPE\",\"vocab\":{" + vocab +
                                R"(},"merges":[]},"pre_tokenizer":{"type":"ByteLevel",
      "add_prefix_space":false,"use_regex":false},"decoder":{"type":"ByteLevel"},"added_tokens":[{"id":300,"content":"<tool_call>","special":false,
      "single_word":false,"lstrip":false,"rstrip":false,"normalized":false}]})",
                            "fuzz")
        .value();
  }();
  return t;
}

// Compiles within a small budget and walks: every token of the mask can be taken, none besides.
inline void run(const GrammarSource& source, std::string_view steps) {
  static const auto trie = std::make_shared<const TokenTrie>(tokenizer().vocabulary());
  const auto grammar = Grammar::compile(source, tokenizer(), trie, {.seconds = 1, .bytes = 16 << 20});
  if (!grammar.is_ok()) {
    LATHE_CHECK(!grammar.status().message().empty());
    return;
  }
  GrammarState state(*grammar);
  std::vector<uint32_t> mask((trie->size() + 31) / 32);
  for (const char step : steps.substr(0, 64)) {
    const bool any = state.allowed({}, mask);
    LATHE_CHECK(any || !state.must_end() || state.may_end());
    std::vector<int32_t> allowed;
    for (int32_t t = 0; t < trie->size(); ++t) {
      const bool may = mask[t / 32] >> (t % 32) & 1;
      LATHE_CHECK(GrammarState(state).advance(t) == may);
      if (may) allowed.push_back(t);
    }
    if (allowed.empty()) break;
    LATHE_CHECK(state.advance(allowed[static_cast<uint8_t>(step) % allowed.size()]));
  }
}

// The input: a grammar, then, behind a zero byte, the steps.
inline int run(GrammarSource::Kind kind, const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  run({kind, std::string(input.substr(0, cut)), {}},
      cut == std::string_view::npos ? "0123456789abcdef" : input.substr(cut + 1));
  return 0;
}

}  // namespace lathe::fuzz
