#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace lathe {

// A token that is matched in raw text, before pre-tokenizing.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      // dropped by skip_special
  bool normalized = false;   // matched after normalizing, not before
  bool lstrip = false;       // swallows the white space before it
  bool rstrip = false;       // and behind it
  bool single_word = false;  // only where no word character touches it
};

// What becomes of a match of a splitting pattern.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// One step of pre-tokenizing: pieces in, smaller pieces out.
struct SplitStep {
  bool add_prefix_space = false;  // a piece that doesn't begin with a space gets one
  std::string pattern;            // Oniguruma's syntax; empty: no split
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // matches are what lies between the pattern's matches
};

enum class Normalizer { kNone, kNfc };

// tokenizer.json, as far as byte-level BPE goes. Everything else that changes ids is refused when it is read, with the
// field's name: a tokenizer that is nearly right is worse than none.
struct TokenizerFile {
  std::string name;                                         // for messages
  std::vector<std::pair<std::string, int32_t>> vocab;       // as spelled in the file
  std::vector<std::pair<std::string, std::string>> merges;  // best first
  bool ignore_merges = false;                               // a piece that is an entry of the vocabulary is taken whole
  std::vector<AddedToken> added;
  Normalizer normalizer = Normalizer::kNone;
  std::vector<SplitStep> steps;
  std::vector<std::string> prefix, suffix;  // tokens that the post-processor puts around a text

  static Result<TokenizerFile> load(const std::string& path);
  static Result<TokenizerFile> parse(std::string_view json, const std::string& name);
};

}  // namespace lathe
