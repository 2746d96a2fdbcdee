#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/added_token_matcher.h"
#include "text/vocabulary.h"

namespace lathe {

struct EncodeOptions {
  // Whether added tokens (<|user|>, <think>, ...) spelled out in the text become their ids, as in the reference
  // library. Off for text from outside: then no text can forge a control token.
  bool match_added = true;
  // Sorted ranges of the text that stay text though match_added is on. The text must then be valid UTF-8.
  std::span<const ByteRange> literal = {};
  // Puts the post-processor's tokens (Llama's <|begin_of_text|>) around the ids. Chat templates write their own.
  bool add_special = false;
};

// Byte-level BPE of a tokenizer.json: text to ids and back, as the reference library does it. Safe to use from several
// threads at once.
class Tokenizer {
 public:
  // A tokenizer.json, or a folder that holds one.
  static Result<Tokenizer> load(const std::string& path);
  static Result<Tokenizer> parse(std::string_view json, const std::string& name);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Text that isn't UTF-8 is read with U+FFFD for every broken piece (Unicode's maximal subparts). An error only where
  // the file's own pattern backtracks past its limit, the text is longer than 1 GiB, or `literal` meets broken text.
  Result<std::vector<int32_t>> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // Bytes that are no character become U+FFFD, likewise. Ids without a token (a model's padding rows) give nothing.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  const Vocabulary& vocabulary() const;
  // Id of an added token, or of an entry spelled as in the file; -1 if there is none.
  int32_t id_of(std::string_view token) const;
  // As the file spells it: "Ġhello", "<|user|>".
  std::string spelling(int32_t id) const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lathe
