#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/pattern.h"
#include "text/tokenizer_file.h"

namespace lathe {

// The pre-tokenizer: cuts text into the pieces that are merged each by itself. Steps run one behind the other, each on
// the pieces of the one before, and none sees beyond its piece.
class Splitter {
 public:
  static Result<Splitter> build(const TokenizerFile& file);

  struct Scratch {
    std::vector<std::optional<Pattern::Scratch>> patterns;  // one a step
  };
  Scratch make_scratch() const;

  // Pieces in order, never empty; a view lasts as long as the call. `text` is valid UTF-8.
  using Sink = std::function<void(std::string_view)>;
  Status split(std::string_view text, Scratch& scratch, const Sink& sink) const;

 private:
  struct Step {
    SplitStep how;
    std::optional<Pattern> pattern;
  };
  Status run(size_t step, std::string_view text, Scratch& scratch, const Sink& sink) const;
  Status split_by(size_t step, std::string_view text, Scratch& scratch, const Sink& sink) const;

  std::vector<Step> steps_;
  std::string name_;  // of the file
};

}  // namespace lathe
