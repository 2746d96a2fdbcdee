#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/value.h"

namespace lathe::jinja {

// Bounds of one rendering. A prompt of a million tokens stays far within them; a template that never ends, or grows
// without end, doesn't get far.
struct Limits {
  int64_t steps = 50'000'000;              // statements and expressions run
  int depth = 600;                         // of expressions, blocks and macro calls within one another
  int64_t output_bytes = 256 << 20;        // what it prints
  int64_t built_bytes = int64_t{2} << 30;  // all strings and lists made on the way, together
};

struct Ast;

// A chat template: the subset of Jinja that published templates use, as Jinja's immutable sandbox runs it with
// trim_blocks and lstrip_blocks on. It can read what it is given and nothing else: no files, no other templates, no
// names but its variables and a fixed list of functions, filters and tests.
class Template {
 public:
  // `name` stands in messages, with the line.
  static Result<Template> parse(std::string_view source, const std::string& name);

  // Variables may hide functions. Errors: what the template raises itself, uses of undefined values, limits.
  Result<Text> render(const std::vector<std::pair<std::string, Value>>& variables, std::time_t now,
                      const Limits& limits = {}) const;

  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::shared_ptr<const Ast> ast_;
};

}  // namespace lathe::jinja
