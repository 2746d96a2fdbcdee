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

// What a request asks for. Exactly one of the sources.
struct GrammarSource {
  enum class Kind { kJsonObject, kJsonSchema, kRegex, kChoice, kEbnf };
  Kind kind = Kind::kJsonObject;
  std::string text;                  // the schema as JSON, the pattern, or the grammar
  std::vector<std::string> choices;  // of kChoice
};

struct GrammarLimits {
  int schema_bytes = 256 << 10, schema_depth = 64, schema_nodes = 4096, enum_values = 10'000;
  int pattern_bytes = 1 << 10, grammar_bytes = 64 << 10, grammar_nesting = 200;
  double seconds = 5;
  int64_t bytes = int64_t{256} << 20;
};

// Immutable; shared by all choices of all requests that asked for the same.
class Grammar {
 public:
  virtual ~Grammar() = default;
  // Errors (invalid) list every keyword that isn't supported: none is ignored.
  static Result<std::shared_ptr<const Grammar>> compile(const GrammarSource& source, const Tokenizer& tokenizer,
                                                        const GrammarLimits& limits = {});
  virtual int64_t bytes() const = 0;
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
