#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/loop.h"
#include "text/jinja/scope.h"
#include "text/jinja/template.h"

namespace lathe::jinja {

// Runs one template once. Whatever it does is counted, and stopped at the limits.
class Machine {
 public:
  Machine(const Ast& ast, const Limits& limits, std::time_t now) : ast_(ast), limits_(limits), now_(now) {}
  ~Machine();
  Machine(const Machine&) = delete;

  Text run(const std::vector<std::pair<std::string, Value>>& variables);
  int line() const { return line_; }  // of what runs, or ran last
  std::time_t now() const { return now_; }

  // -- what filters, tests and methods need
  // Counts bytes that are about to be made or looked through.
  void charge(size_t bytes);
  Value list(std::vector<Value> items, List::Flavor flavor = List::Flavor::kList);
  Value iterator(const std::function<void(std::vector<Value>&)>& fill);
  Value dict(Dict dict);
  Value name_space(Namespace attributes);
  Value text(TextBuilder& builder);
  Value text(std::string bytes, Origin origin);

  // What a for over the value goes through: items, keys, characters. Fails for what can't be gone through.
  std::vector<Value> items_of(const Value& value);
  Value attribute(const Value& object, const std::string& name);  // object.name
  Value item(const Value& object, const Value& key);              // object[key]
  Value call(const Value& callee, Arguments& arguments);
  Value filter(const std::string& name, const FilterEntry* entry, const Value& input, Arguments& arguments);
  bool test(const std::string& name, const TestEntry* entry, const Value& subject, Arguments& arguments);
  std::shared_ptr<const Text> str(const Value& value);         // str(), "" for undefined
  bool contains(const Value& container, const Value& member);  // member in container

 private:
  enum class Flow { kNext, kBreak, kContinue };
  // One level of C++ recursion.
  struct Deeper {
    explicit Deeper(Machine& m) : machine(m) {
      if (machine.depth_ >= machine.limits_.depth)
        fail("expressions, blocks and macro calls go deeper than {} levels", machine.depth_);
      ++machine.depth_;
    }
    ~Deeper() { --machine.depth_; }
    Machine& machine;
  };

  struct Closing;

  void step(int line);
  Flow run_body(const Body& body, TextBuilder& out);
  Flow run_stmt(const Stmt& stmt, TextBuilder& out);
  Flow run_if(const Stmt& stmt, TextBuilder& out);
  Flow run_for(const Stmt& stmt, TextBuilder& out);
  Flow run_inner(const Body& body, TextBuilder& out);  // in a scope of its own
  void run_with(const Stmt& stmt, TextBuilder& out);
  Value run_captured(const Body& body);
  void define_macro(const Stmt& stmt);
  Value call_macro(const Macro& macro, const std::shared_ptr<Scope>& home, Arguments& arguments);
  void assign(const Target& target, Value value);
  void print(const Value& value, TextBuilder& out);

  Value eval(const Expr& expr);
  Value eval_name(const Expr& expr);
  Value eval_call(const Expr& expr);
  Value eval_slice(const Expr& expr);
  Value eval_dict(const Expr& expr);
  Value eval_concat(const Expr& expr);
  bool eval_compare(const Expr& expr);
  Value eval_chain(const Expr& expr, const Value& body);
  std::vector<Value> eval_all(const Expr& expr);
  Arguments eval_arguments(const Expr& expr, size_t first);

  const Ast& ast_;
  const Limits limits_;
  const std::time_t now_;
  std::shared_ptr<Scope> scope_;
  int line_ = 0, depth_ = 0;
  int64_t steps_ = 0, built_ = 0, printed_ = 0;
  // Only macros and namespaces can refer to one another in a circle; these are cut open in the end.
  std::vector<std::shared_ptr<Scope>> captured_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

}  // namespace lathe::jinja
