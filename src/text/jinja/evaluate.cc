#include <algorithm>

#include "text/jinja/machine.h"
#include "text/jinja/method.h"
#include "text/jinja/operators.h"
#include "text/utf8.h"

namespace lathe::jinja {

using Kind = Expr::Kind;

Value Machine::eval(const Expr& expr) {
  const Deeper deeper(*this);
  step(expr.line);
  switch (expr.kind) {
    case Kind::kConst:
      return expr.value;
    case Kind::kName:
      return eval_name(expr);
    case Kind::kList:
      return list(eval_all(expr));
    case Kind::kTuple:
      return list(eval_all(expr), List::Flavor::kTuple);
    case Kind::kDict:
      return eval_dict(expr);
    case Kind::kAttribute:
      return attribute(eval(*expr.args[0]), expr.text);
    case Kind::kItem: {
      const Value object = eval(*expr.args[0]);
      return item(object, eval(*expr.args[1]));
    }
    case Kind::kSlice:
      return eval_slice(expr);
    case Kind::kCall:
      return eval_call(expr);
    case Kind::kFilter: {
      const Value input = eval(*expr.args[0]);
      Arguments arguments = eval_arguments(expr, 1);
      return filter(expr.text, expr.filter, input, arguments);
    }
    case Kind::kTest: {
      const Value subject = eval(*expr.args[0]);
      Arguments arguments = eval_arguments(expr, 1);
      return test(expr.text, expr.test, subject, arguments);
    }
    case Kind::kNot:
      return !eval(*expr.args[0]).truthy();
    case Kind::kNegate:
      return negated(eval(*expr.args[0]));
    case Kind::kPlus:
      return positive(eval(*expr.args[0]));
    case Kind::kAnd:
    case Kind::kOr: {
      Value left = eval(*expr.args[0]);
      return left.truthy() == (expr.kind == Kind::kAnd) ? eval(*expr.args[1]) : left;
    }
    case Kind::kConcat:
      return eval_concat(expr);
    case Kind::kCompare:
      return eval_compare(expr);
    case Kind::kConditional:
      if (eval(*expr.args[0]).truthy()) return eval(*expr.args[1]);
      if (expr.args.size() > 2) return eval(*expr.args[2]);
      return Value::undefined("the inline if has no else");
    default: {
      const Value left = eval(*expr.args[0]);
      return binary(*this, expr.kind, left, eval(*expr.args[1]));
    }
  }
}

Value Machine::eval_name(const Expr& expr) {
  if (const Value* value = scope_->find(expr.name)) return *value;
  return Value::undefined(fmt::format("'{}' is undefined", ast_.names[expr.name]));
}

std::vector<Value> Machine::eval_all(const Expr& expr) {
  std::vector<Value> items;
  for (const auto& arg : expr.args) items.push_back(eval(*arg));
  return items;
}

Value Machine::eval_dict(const Expr& expr) {
  Dict made;
  for (size_t i = 0; i < expr.args.size(); i += 2) {
    Value key = eval(*expr.args[i]);
    check_key(key);
    made.set(std::move(key), eval(*expr.args[i + 1]));
  }
  return dict(std::move(made));
}

Value Machine::eval_slice(const Expr& expr) {
  const Value object = eval(*expr.args[0]);
  Value bounds[3];
  for (int i = 0; i < 3; ++i)
    if (expr.args[i + 1]) bounds[i] = eval(*expr.args[i + 1]);
  const auto given = [&](int i) { return expr.args[i + 1] ? &bounds[i] : nullptr; };
  return slice(*this, object, given(0), given(1), given(2));
}

Value Machine::eval_concat(const Expr& expr) {
  TextBuilder out;
  for (const auto& arg : expr.args) {
    const std::shared_ptr<const Text> part = str(eval(*arg));
    charge(part->size());
    out.append(*part);
  }
  return text(out);
}

bool Machine::eval_compare(const Expr& expr) {
  Value left = eval(*expr.args[0]);
  for (size_t i = 0; i < expr.compares.size(); ++i) {
    Value right = eval(*expr.args[i + 1]);
    bool holds = false;
    switch (expr.compares[i]) {
      case Expr::Compare::kEqual:
        holds = equal(left, right);
        break;
      case Expr::Compare::kNotEqual:
        holds = !equal(left, right);
        break;
      case Expr::Compare::kLess:
        holds = less(left, right);
        break;
      case Expr::Compare::kLessEqual:
        holds = less(left, right) || equal(left, right);
        break;
      case Expr::Compare::kGreater:
        holds = less(right, left);
        break;
      case Expr::Compare::kGreaterEqual:
        holds = less(right, left) || equal(left, right);
        break;
      case Expr::Compare::kIn:
        holds = contains(right, left);
        break;
      case Expr::Compare::kNotIn:
        holds = !contains(right, left);
        break;
    }
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Arguments Machine::eval_arguments(const Expr& expr, size_t first) {
  Arguments arguments;
  for (size_t i = first; i < expr.args.size(); ++i) arguments.positional.push_back(eval(*expr.args[i]));
  if (expr.star)
    for (Value& item : items_of(eval(*expr.star))) arguments.positional.push_back(std::move(item));
  for (const auto& [name, value] : expr.named) arguments.named.emplace_back(name, eval(*value));
  if (!expr.star_star) return arguments;
  const Value rest = eval(*expr.star_star);
  if (!rest.dict()) fail("an argument after ** must be a mapping, not {}", rest.type_name());
  for (const auto& [key, value] : rest.dict()->entries) {
    if (!key.text()) fail("keywords must be strings");
    arguments.named.emplace_back(key.text()->view(), value);
  }
  return arguments;
}

Value Machine::eval_call(const Expr& expr) {
  const Expr& callee = *expr.args[0];
  if (callee.kind == Kind::kAttribute) {  // a method is called without being made a value first
    const Value self = eval(*callee.args[0]);
    const Method method = find_method(self, callee.text);
    const Value function = method ? Value() : attribute(self, callee.text);
    Arguments arguments = eval_arguments(expr, 1);
    step(expr.line);
    return method ? method(*this, self, arguments) : call(function, arguments);
  }
  const Value function = eval(callee);
  Arguments arguments = eval_arguments(expr, 1);
  step(expr.line);
  return call(function, arguments);
}

Value Machine::eval_chain(const Expr& expr, const Value& body) {
  if (expr.kind != Kind::kFilter) return body;
  const Value input = eval_chain(*expr.args[0], body);
  Arguments arguments = eval_arguments(expr, 1);
  return filter(expr.text, expr.filter, input, arguments);
}

namespace {

Value loop_attribute(const std::shared_ptr<Loop>& loop, const std::string& name) {
  if (name == "index0") return loop->index0;
  if (name == "index") return loop->index0 + 1;
  if (name == "first") return loop->index0 == 0;
  if (name == "last") return loop->peek() == nullptr;
  if (name == "length") return loop->length();
  if (name == "revindex") return loop->length() - loop->index0;
  if (name == "revindex0") return loop->length() - loop->index0 - 1;
  if (name == "depth") return int64_t{1};
  if (name == "depth0") return int64_t{0};
  if (name == "previtem") return loop->index0 == 0 ? Value::undefined("there is no previous item") : loop->previous;
  if (name == "nextitem") return loop->peek() ? *loop->peek() : Value::undefined("there is no next item");
  if (name == "cycle")
    return Callable{name, loop->depth, [loop](Machine&, Arguments& arguments) {
                      if (arguments.positional.empty()) fail("no items for cycling given");
                      return arguments.positional[static_cast<size_t>(loop->index0) % arguments.positional.size()];
                    }};
  if (name == "changed")
    return Callable{name, loop->depth, [loop](Machine& m, Arguments& arguments) -> Value {
                      const Value now = m.list(arguments.positional, List::Flavor::kTuple);
                      const bool changed = !loop->last_changed || !equal(*loop->last_changed, now);
                      loop->depth = std::max(loop->depth, now.depth());
                      if (loop->source) loop->last_changed = now;
                      return changed;
                    }};
  return Value::undefined(fmt::format("'loop' has no attribute '{}'", name));
}

}  // namespace

Value Machine::attribute(const Value& object, const std::string& name) {
  need_defined(object);
  if (const Method method = find_method(object, name))
    return Callable{name, object.depth(), [method, object](Machine& machine, Arguments& arguments) {
                      return method(machine, object, arguments);
                    }};
  if (Namespace* ns = object.name_space())
    if (const Value* value = ns->find(name)) return *value;
  if (object.loop()) return loop_attribute(object.shared_loop(), name);
  if (const Dict* d = object.dict())
    if (const Value* value = d->find(std::string_view(name))) return *value;
  if (name.starts_with("__")) fail("access to attribute '{}' of '{}' object is unsafe", name, object.type_name());
  return Value::undefined(fmt::format("'{}' object has no attribute '{}'", object.type_name(), name));
}

Value Machine::item(const Value& object, const Value& key) {
  need_defined(object);
  if (const Dict* d = object.dict())
    if (const Value* value = d->find(key)) return *value;
  int64_t index = 0;
  const bool* flag = key.get<bool>();
  if (const int64_t* i = key.get<int64_t>(); i || flag) {
    index = i ? *i : *flag;
    const List* l = object.list();
    if (l && (l->flavor == List::Flavor::kList || l->flavor == List::Flavor::kTuple)) {
      const int64_t size = static_cast<int64_t>(l->items.size());
      if (index < 0) index += size;
      if (index >= 0 && index < size) return l->items[index];
    } else if (object.text() && index != INT64_MAX) {
      const Value from = index, to = index == -1 ? Value(None{}) : Value(index + 1);
      Value character = slice(*this, object, &from, &to, nullptr);
      if (character.text()->size() > 0) return character;
    }
    return Value::undefined(fmt::format("'{}' object has no item {}", object.type_name(), index));
  }
  if (const Text* name = key.text()) return attribute(object, std::string(name->view()));
  return Value::undefined(fmt::format("'{}' object has no such item", object.type_name()));
}

bool Machine::contains(const Value& container, const Value& member) {
  if (const Text* t = container.text()) {
    if (!member.text()) fail("'in <string>' requires string as left operand, not {}", member.type_name());
    charge(t->size() / 8);
    return t->view().find(member.text()->view()) != std::string_view::npos;
  }
  if (const Dict* d = container.dict()) {
    check_key(member);
    return d->find(member) != nullptr;
  }
  const auto among = [&](const std::vector<Value>& items) {
    charge(items.size() * 8);
    return std::any_of(items.begin(), items.end(), [&](const Value& item) { return equal(item, member); });
  };
  if (const List* l = container.list()) return among(l->items);
  if (container.iterator() || container.is_undefined()) return among(items_of(container));
  fail("argument of type '{}' is not iterable", container.type_name());
}

}  // namespace lathe::jinja
