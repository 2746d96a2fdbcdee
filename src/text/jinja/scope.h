#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"

namespace lathe::jinja {

// The names of one block: a for's turn, a macro's call, the template itself. What is set in a scope ends with it.
class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> parent) : parent_(std::move(parent)) {}

  void set(Name name, Value value) {
    for (auto& [n, v] : values_)
      if (n == name) return void(v = std::move(value));
    values_.emplace_back(name, std::move(value));
  }
  const Value* find(Name name) const {  // here or further out
    for (const Scope* s = this; s; s = s->parent_.get())
      for (const auto& [n, v] : s->values_)
        if (n == name) return &v;
    return nullptr;
  }
  void clear() { values_.clear(); }
  const std::shared_ptr<Scope>& parent() const { return parent_; }

 private:
  std::shared_ptr<Scope> parent_;
  std::vector<std::pair<Name, Value>> values_;
};

}  // namespace lathe::jinja
