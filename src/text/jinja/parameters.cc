#include "text/jinja/parameters.h"

#include <algorithm>

namespace lathe::jinja {

Parameters::Parameters(std::string_view function, const Arguments& arguments,
                       std::initializer_list<std::string_view> names, size_t required)
    : function_(function), names_(names), given_(names.size()) {
  if (arguments.positional.size() > names.size())
    fail("{}() takes at most {} arguments, {} were given", function, names.size(), arguments.positional.size());
  for (size_t i = 0; i < arguments.positional.size(); ++i) given_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::find(names_.begin(), names_.end(), name);
    if (at == names_.end()) fail("{}() has no argument '{}'", function, name);
    if (given_[at - names_.begin()]) fail("{}() was given '{}' twice", function, name);
    given_[at - names_.begin()] = &value;
  }
  for (size_t i = 0; i < required; ++i)
    if (!given_[i]) fail("{}() lacks its argument '{}'", function, names_[i]);
}

const Text& Parameters::text(size_t i) const {
  if (const Text* t = given_[i]->text()) return *t;
  fail("{}(): '{}' must be str, not {}", function_, names_[i], given_[i]->type_name());
}

int64_t Parameters::integer(size_t i, int64_t fallback) const {
  if (!given_[i]) return fallback;
  if (const int64_t* x = given_[i]->get<int64_t>()) return *x;
  if (const bool* b = given_[i]->get<bool>()) return *b;
  fail("{}(): '{}' must be int, not {}", function_, names_[i], given_[i]->type_name());
}

}  // namespace lathe::jinja
