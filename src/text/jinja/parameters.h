#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace lathe::jinja {

// A call's arguments, by the parameters of what is called; fails as Python would where they don't fit.
class Parameters {
 public:
  Parameters(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names,
             size_t required = 0);

  const Value* get(size_t i) const { return given_[i]; }  // null: left out
  bool has(size_t i) const { return given_[i] && !given_[i]->is_none(); }
  const Text& text(size_t i) const;  // has(i)
  int64_t integer(size_t i, int64_t fallback) const;
  bool truth(size_t i, bool fallback) const { return given_[i] ? given_[i]->truthy() : fallback; }

 private:
  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> given_;
};

}  // namespace lathe::jinja
