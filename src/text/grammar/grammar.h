#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

// Structured output (serving.md 6): what a text may look like, compiled against a tokenizer, so that every step of a
// generation can ask which tokens may come next.
namespace lathe {

class TokenTrie;

// What a request asks for. docs/structured_output.md says what each may hold.
struct GrammarSource {
  enum class Kind { kJsonObject, kJsonSchema, kRegex, kChoice, kEbnf, kToolCalls };
  Kind kind = Kind::kJsonObject;
  std::string text;                  // the schema as JSON, the pattern, the grammar, or of kToolCalls the list of tools
  std::vector<std::string> choices;  // of kChoice: the texts; of kToolCalls: the tools that may be called, all if empty
  bool parallel = true;              // of kToolCalls: more than one call
  std::string tools;                 // of the other kinds: calls of these tools may come instead of the text; "": none
  friend auto operator<=>(const GrammarSource&, const GrammarSource&) = default;
};

struct GrammarLimits {
  int schema_bytes = 256 << 10, schema_depth = 64, schema_nodes = 4096, enum_values = 10'000;
  int pattern_bytes = 1 << 10, grammar_bytes = 64 << 10, grammar_nesting = 200;
  double seconds = 5;
  int64_t bytes = int64_t{256} << 20;
};

// Immutable, but for the masks that it keeps; shared by all choices of all requests that asked for the same.
class Grammar {
 public:
  virtual ~Grammar() = default;
  // Errors (invalid) list every keyword that isn't supported: none is ignored.
  static Result<std::shared_ptr<const Grammar>> compile(const GrammarSource& source, const Tokenizer& tokenizer,
                                                        const GrammarLimits& limits = {});
  // The same with the tokenizer's trie at hand, which takes a while to make (GrammarCache keeps one).
  static Result<std::shared_ptr<const Grammar>> compile(const GrammarSource& source, const Tokenizer& tokenizer,
                                                        std::shared_ptr<const TokenTrie> trie,
                                                        const GrammarLimits& limits = {});
  virtual int64_t bytes() const = 0;  // grows with use, up to a limit: masks are kept
};

// Where one output stands in a grammar. A value: copied for forks and for draft positions.
class GrammarState {
 public:
  explicit GrammarState(std::shared_ptr<const Grammar> grammar);
  GrammarState(const GrammarState&);
  GrammarState& operator=(const GrammarState&);
  GrammarState(GrammarState&&) noexcept;
  GrammarState& operator=(GrammarState&&) noexcept;
  ~GrammarState();

  // Sets bit i of `allowed` (32 a word, low bit first) where token i may come next. Special tokens may not, but for
  // those of `ends` (the model's end tokens) where the text may end here. False if nothing at all may come.
  bool allowed(std::span<const int32_t> ends, std::span<uint32_t> allowed) const;
  // False, and unchanged, if the token may not come.
  bool advance(int32_t token);
  bool may_end() const;   // the text so far is complete
  bool must_end() const;  // and nothing can follow

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lathe
