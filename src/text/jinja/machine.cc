#include "text/jinja/machine.h"

#include <algorithm>

#include "text/jinja/filter.h"
#include "text/jinja/global.h"
#include "text/jinja/python_text.h"
#include "text/jinja/test.h"
#include "text/utf8.h"

namespace lathe::jinja {

namespace {
// Lists within lists: enough for any message, few enough to walk through by recursion.
constexpr int kMaxValueDepth = 200;
// What a list costs per item and a namespace as a whole, in bytes built.
constexpr size_t kItemBytes = 32;
}  // namespace

// Ends a loop however it is left: a template may have kept `loop`, even within itself.
struct Machine::Closing {
  ~Closing() {
    loop.source = nullptr;
    loop.last_changed.reset();
  }
  Loop& loop;
};

Machine::~Machine() {
  for (const auto& scope : captured_) scope->clear();
  for (const auto& ns : namespaces_) ns->attributes.clear();
}

void Machine::step(int line) {
  line_ = line;
  if (++steps_ > limits_.steps) fail("stopped after {} steps", limits_.steps);
}

void Machine::charge(size_t bytes) {
  built_ += static_cast<int64_t>(std::min<size_t>(bytes, INT64_MAX / 2));
  if (built_ > limits_.built_bytes) fail("stopped after building {} bytes of text and lists", limits_.built_bytes);
}

Value Machine::list(std::vector<Value> items, List::Flavor flavor) {
  charge(kItemBytes * (items.size() + 1));
  List made{std::move(items), flavor};
  for (const Value& item : made.items) made.depth = std::max(made.depth, item.depth() + 1);
  if (made.depth > kMaxValueDepth) fail("lists and mappings are nested deeper than {} levels", kMaxValueDepth);
  return made;
}

Value Machine::iterator(const std::function<void(std::vector<Value>&)>& fill) {
  Iterator made;
  try {
    fill(made.items);
  } catch (const Failure& failure) {
    made.failure = failure.message;
  }
  charge(kItemBytes * (made.items.size() + 1));
  for (const Value& item : made.items) made.depth = std::max(made.depth, item.depth() + 1);
  if (made.depth > kMaxValueDepth) fail("lists and mappings are nested deeper than {} levels", kMaxValueDepth);
  return made;
}

Value Machine::dict(Dict dict) {
  charge(2 * kItemBytes * (dict.entries.size() + 1));
  if (dict.depth > kMaxValueDepth) fail("lists and mappings are nested deeper than {} levels", kMaxValueDepth);
  return dict;
}

Value Machine::name_space(Namespace attributes) {
  charge(kItemBytes * (attributes.attributes.size() + 4));
  namespaces_.push_back(std::make_shared<Namespace>(std::move(attributes)));
  return namespaces_.back();
}

Value Machine::text(TextBuilder& builder) { return builder.take(); }

Value Machine::text(std::string bytes, Origin origin) {
  charge(bytes.size());
  return Value(std::move(bytes), origin);
}

Text Machine::run(const std::vector<std::pair<std::string, Value>>& variables) {
  auto outer = std::make_shared<Scope>(nullptr);
  for (size_t i = 0; i < ast_.names.size(); ++i) {
    if (Value global = find_global(ast_.names[i]); !global.is_undefined())
      outer->set(static_cast<Name>(i), std::move(global));
    for (const auto& [name, value] : variables)
      if (name == ast_.names[i]) outer->set(static_cast<Name>(i), value);
  }
  scope_ = std::make_shared<Scope>(outer);
  TextBuilder out;
  run_body(ast_.body, out);
  return out.take();
}

Machine::Flow Machine::run_body(const Body& body, TextBuilder& out) {
  const Deeper deeper(*this);
  for (const auto& stmt : body)
    if (const Flow flow = run_stmt(*stmt, out); flow != Flow::kNext) return flow;
  return Flow::kNext;
}

Machine::Flow Machine::run_stmt(const Stmt& stmt, TextBuilder& out) {
  step(stmt.line);
  switch (stmt.kind) {
    case Stmt::Kind::kData:
      print(stmt.data, out);
      break;
    case Stmt::Kind::kPrint:
      print(eval(*stmt.exprs[0]), out);
      break;
    case Stmt::Kind::kIf:
      return run_if(stmt, out);
    case Stmt::Kind::kFor:
      return run_for(stmt, out);
    case Stmt::Kind::kSet:
      assign(stmt.targets[0], eval(*stmt.exprs[0]));
      break;
    case Stmt::Kind::kSetBlock: {
      Value body = run_captured(stmt.bodies[0]);
      assign(stmt.targets[0], stmt.chain ? eval_chain(*stmt.chain, body) : std::move(body));
      break;
    }
    case Stmt::Kind::kMacro:
      define_macro(stmt);
      break;
    case Stmt::Kind::kWith:
      run_with(stmt, out);
      break;
    case Stmt::Kind::kFilterBlock:
      print(eval_chain(*stmt.chain, run_captured(stmt.bodies[0])), out);
      break;
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
    case Stmt::Kind::kScope:
      return run_inner(stmt.bodies[0], out);
  }
  return Flow::kNext;
}

void Machine::print(const Value& value, TextBuilder& out) {
  const std::shared_ptr<const Text> text = str(value);
  charge(text->size());
  printed_ += static_cast<int64_t>(text->size());
  if (printed_ > limits_.output_bytes) fail("stopped after printing {} bytes", limits_.output_bytes);
  out.append(*text);
}

Machine::Flow Machine::run_if(const Stmt& stmt, TextBuilder& out) {
  for (size_t i = 0; i < stmt.exprs.size(); ++i)
    if (eval(*stmt.exprs[i]).truthy()) return run_body(stmt.bodies[i], out);
  return stmt.bodies.size() > stmt.exprs.size() ? run_body(stmt.bodies.back(), out) : Flow::kNext;
}

Machine::Flow Machine::run_inner(const Body& body, TextBuilder& out) {
  scope_ = std::make_shared<Scope>(scope_);
  const Flow flow = run_body(body, out);
  scope_ = scope_->parent();
  return flow;
}

Machine::Flow Machine::run_for(const Stmt& stmt, TextBuilder& out) {
  const std::shared_ptr<Scope> outer = scope_;
  auto loop = std::make_shared<Loop>();
  const Closing closing{*loop};
  auto items = std::make_shared<std::vector<Value>>(items_of(eval(*stmt.exprs[0])));
  for (const Value& item : *items) loop->depth = std::max(loop->depth, item.depth() + 1);
  const Expr* filter = stmt.exprs.size() > 1 ? stmt.exprs[1].get() : nullptr;
  loop->source = [this, items, filter, outer, &stmt, at = size_t{0}]() mutable -> std::optional<Value> {
    while (at < items->size()) {
      Value item = (*items)[at++];
      if (!filter) return item;
      const std::shared_ptr<Scope> inside = std::exchange(scope_, std::make_shared<Scope>(outer));
      assign(stmt.targets[0], item);
      const bool kept = eval(*filter).truthy();
      scope_ = inside;
      if (kept) return item;
    }
    return std::nullopt;
  };
  bool any = false;  // as in Jinja, a turn counts for the else only if it runs to its end
  for (Flow flow = Flow::kNext; flow != Flow::kBreak;) {
    std::optional<Value> item = loop->next();
    if (!item) break;
    step(stmt.line);
    scope_ = std::make_shared<Scope>(outer);
    scope_->set(stmt.loop, loop);
    assign(stmt.targets[0], std::move(*item));
    flow = run_body(stmt.bodies[0], out);
    any = any || flow == Flow::kNext;
  }
  scope_ = outer;
  return !any && stmt.bodies.size() > 1 ? run_inner(stmt.bodies[1], out) : Flow::kNext;
}

void Machine::run_with(const Stmt& stmt, TextBuilder& out) {
  std::vector<Value> values;
  for (const auto& expr : stmt.exprs) values.push_back(eval(*expr));
  scope_ = std::make_shared<Scope>(scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(stmt.targets[i], std::move(values[i]));
  run_body(stmt.bodies[0], out);
  scope_ = scope_->parent();
}

Value Machine::run_captured(const Body& body) {
  TextBuilder out;
  run_inner(body, out);
  return text(out);
}

void Machine::define_macro(const Stmt& stmt) {
  for (std::shared_ptr<Scope> s = scope_; s; s = s->parent()) {
    if (!captured_.empty() && captured_.back() == s) break;
    captured_.push_back(s);
  }
  charge(4096);
  scope_->set(stmt.name, Callable{stmt.macro->name, 0,
                                  [macro = stmt.macro, home = scope_](Machine& machine, Arguments& arguments) {
                                    return machine.call_macro(*macro, home, arguments);
                                  }});
}

Value Machine::call_macro(const Macro& macro, const std::shared_ptr<Scope>& home, Arguments& arguments) {
  const Deeper deeper(*this);
  const std::shared_ptr<Scope> caller = std::exchange(scope_, std::make_shared<Scope>(home));
  const int line = line_;
  const size_t count = macro.parameters.size(), given = arguments.positional.size();
  if (given > count && macro.varargs < 0)
    fail("macro '{}' takes no more than {} arguments, {} were given", macro.name, count, given);
  for (size_t i = 0; i < count; ++i) {
    const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& n) { return n.first == macro.parameter_names[i]; });
    if (i < given) {
      scope_->set(macro.parameters[i], std::move(arguments.positional[i]));
    } else if (named != arguments.named.end()) {
      scope_->set(macro.parameters[i], std::move(named->second));
      arguments.named.erase(named);
    } else if (const size_t first_default = count - macro.defaults.size(); i >= first_default) {
      scope_->set(macro.parameters[i], eval(*macro.defaults[i - first_default]));
    } else {
      scope_->set(macro.parameters[i],
                  Value::undefined(fmt::format("parameter '{}' was not provided", macro.parameter_names[i])));
    }
  }
  if (!arguments.named.empty() && macro.kwargs < 0)
    fail("macro '{}' takes no keyword argument '{}'", macro.name, arguments.named[0].first);
  if (macro.kwargs >= 0) {
    Dict rest;
    for (auto& [name, value] : arguments.named) rest.set(text(name, Origin::kTemplate), std::move(value));
    scope_->set(macro.kwargs, dict(std::move(rest)));
  }
  if (macro.varargs >= 0) {
    std::vector<Value> rest(arguments.positional.begin() + std::min(count, given), arguments.positional.end());
    scope_->set(macro.varargs, list(std::move(rest), List::Flavor::kTuple));
  }
  TextBuilder out;
  run_body(macro.body, out);
  scope_ = caller;
  line_ = line;
  return text(out);
}

void Machine::assign(const Target& target, Value value) {
  if (!target.parts.empty()) {
    std::vector<Value> items = items_of(value);
    if (items.size() != target.parts.size()) fail("{} values for {} names", items.size(), target.parts.size());
    for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], std::move(items[i]));
  } else if (target.attribute.empty()) {
    scope_->set(target.name, std::move(value));
  } else {
    const Value* ns = scope_->find(target.name);
    if (!ns || !ns->name_space())
      fail("can't set '{}' on '{}', which is no namespace", target.attribute, ast_.names[target.name]);
    charge(kItemBytes);
    ns->name_space()->set(target.attribute, std::move(value));
  }
}

std::vector<Value> Machine::items_of(const Value& value) {
  std::vector<Value> items;
  if (const List* l = value.list()) {
    items = l->items;
  } else if (const Dict* d = value.dict()) {
    for (const auto& [k, v] : d->entries) items.push_back(k);
  } else if (const Text* t = value.text()) {
    charge(t->size() * kItemBytes);
    for (size_t at = 0; at < t->size();) {
      const size_t bytes = utf8_step(t->view(), at).bytes;
      TextBuilder character;
      character.append(*t, at, bytes);
      items.push_back(text(character));
      at += bytes;
    }
  } else if (Iterator* i = value.iterator()) {
    if (!i->failure.empty()) fail("{}", i->failure);
    items.assign(i->items.begin() + i->next, i->items.end());
    i->next = i->items.size();
  } else if (!value.is_undefined()) {
    fail("'{}' object is not iterable", value.type_name());
  }
  charge(items.size() * kItemBytes);
  return items;
}

std::shared_ptr<const Text> Machine::str(const Value& value) {
  if (value.text()) return value.shared_text();
  TextBuilder out;
  append_str(*this, value, out);
  return std::make_shared<const Text>(out.take());
}

Value Machine::filter(const std::string& name, const FilterEntry* entry, const Value& input, Arguments& arguments) {
  if (!entry) fail("there is no filter '{}'", name);
  return entry->apply(*this, input, arguments);
}

bool Machine::test(const std::string& name, const TestEntry* entry, const Value& subject, Arguments& arguments) {
  if (!entry) fail("there is no test '{}'", name);
  if (arguments.positional.size() + arguments.named.size() != entry->arguments)
    fail("the test '{}' takes {} arguments, {} were given", name, entry->arguments,
         arguments.positional.size() + arguments.named.size());
  return entry->holds(*this, subject, arguments);
}

Value Machine::call(const Value& callee, Arguments& arguments) {
  need_defined(callee);
  const Callable* callable = callee.callable();
  if (!callable) fail("'{}' object is not callable", callee.type_name());
  return callable->call(*this, arguments);
}

}  // namespace lathe::jinja
