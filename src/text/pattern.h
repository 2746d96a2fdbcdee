#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace lathe {

// A regular expression of a tokenizer file. Those are written for Oniguruma; this one is run by PCRE2 (JIT, Unicode
// properties), after rewriting what the two understand differently. A search that backtracks without end is given up.
class Pattern {
 public:
  // `place` names file and field in messages.
  static Result<Pattern> compile(std::string_view oniguruma, const std::string& place);

  // What searching writes to: one a thread.
  class Scratch;
  Scratch make_scratch() const;

  enum class Found { kMatch, kNone, kGaveUp };
  // First match in `text`, valid UTF-8, from byte `from` on.
  Found search(std::string_view text, size_t from, Scratch& scratch, size_t& begin, size_t& end) const;

 private:
  struct Free {
    void operator()(void* code) const;
  };
  std::unique_ptr<void, Free> code_;
  bool jit_ = false;
};

class Pattern::Scratch {
 public:
  Scratch(Scratch&&) = default;

 private:
  friend class Pattern;
  Scratch() = default;
  struct Free {
    void operator()(void* data) const;
  };
  struct FreeContext {
    void operator()(void* context) const;
  };
  struct FreeStack {
    void operator()(void* stack) const;
  };
  std::unique_ptr<void, Free> data_;
  std::unique_ptr<void, FreeContext> context_;
  std::unique_ptr<void, FreeStack> stack_;
};

// Exposed for its test: the same expression in PCRE2's syntax; an error says what can't be carried over.
Result<std::string> pcre2_from_oniguruma(std::string_view pattern);

}  // namespace lathe
