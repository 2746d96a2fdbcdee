#include "text/jinja/template.h"

#include "text/jinja/machine.h"
#include "text/jinja/parser.h"
#include "text/utf8.h"

namespace lathe::jinja {

namespace {
constexpr size_t kMaxSource = 4 << 20;
}

Result<Template> Template::parse(std::string_view source, const std::string& name) {
  if (source.size() > kMaxSource) return invalid("{}: longer than {} MiB", name, kMaxSource >> 20);
  if (!is_utf8(source)) return corrupt("{}: not UTF-8", name);
  Template result;
  result.name_ = name;
  try {
    result.ast_ = std::make_shared<const Ast>(jinja::parse(source));
  } catch (const SyntaxFailure& failure) {
    return corrupt("{}:{}: {}", name, failure.line, failure.message);
  }
  return result;
}

Result<Text> Template::render(const std::vector<std::pair<std::string, Value>>& variables, std::time_t now,
                              const Limits& limits) const {
  Machine machine(*ast_, limits, now);
  try {
    return machine.run(variables);
  } catch (const Failure& failure) {
    return invalid("{}:{}: {}", name_, machine.line(), failure.message);
  }
}

}  // namespace lathe::jinja
