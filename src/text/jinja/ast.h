#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

// A parsed template: expressions and statements as plain trees. `depth` is the height of a tree, which parsing bounds,
// so that whatever walks one needs no bound of its own.
namespace lathe::jinja {

struct FilterEntry;
struct TestEntry;

// Names are numbers, in order of their first appearance in the template.
using Name = int;

struct Expr {
  enum class Kind {
    kConst,
    kName,
    kList,
    kTuple,
    kDict,
    kAttribute,
    kItem,
    kSlice,
    kCall,
    kFilter,
    kTest,
    kNot,
    kNegate,
    kPlus,
    kAnd,
    kOr,
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kFloorDivide,
    kModulo,
    kPower,
    kConcat,
    kCompare,
    kConditional,
  };
  enum class Compare : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
  using Ptr = std::unique_ptr<Expr>;

  Kind kind;
  int line = 0;
  int depth = 1;
  Name name = -1;         // kName
  std::string text;       // attribute, filter or test by name
  Value value;            // kConst
  std::vector<Ptr> args;  // operands; null where a slice's bound is left out. kDict: keys and values in turn
  std::vector<std::pair<std::string, Ptr>> named;  // keyword arguments of kCall, kFilter, kTest
  Ptr star, star_star;                             // *args and **kwargs of those
  std::vector<Compare> compares;                   // kCompare: between args
  const FilterEntry* filter = nullptr;             // null: none of that name
  const TestEntry* test = nullptr;
};

// Where an assignment goes: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  Name name = -1;
  std::string attribute;
  std::vector<Target> parts;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct Macro {
  std::string name;
  std::vector<Name> parameters;
  std::vector<std::string> parameter_names;
  std::vector<Expr::Ptr> defaults;  // of the last parameters
  Name varargs = -1, kwargs = -1;   // these names, where the body uses them
  Body body;
};

struct Stmt {
  enum class Kind { kData, kPrint, kIf, kFor, kSet, kSetBlock, kMacro, kWith, kFilterBlock, kBreak, kContinue, kScope };
  Kind kind;
  int line = 0;
  Text data;  // kData
  std::vector<Expr::Ptr>
      exprs;  // kPrint: one; kIf: conditions; kFor: iterable, then filter if any; kSet: one; kWith: values
  std::vector<Body> bodies;     // kIf: one a condition, then the else's if any; kFor: body, else
  std::vector<Target> targets;  // kFor, kSet, kSetBlock: one; kWith: one a value
  Expr::Ptr chain;              // kSetBlock, kFilterBlock: filters, around a kConst that stands for the body
  std::shared_ptr<const Macro> macro;
  Name name = -1;  // kMacro
  Name loop = -1;  // kFor: `loop`
};

struct Ast {
  Body body;
  std::vector<std::string> names;
};

}  // namespace lathe::jinja
