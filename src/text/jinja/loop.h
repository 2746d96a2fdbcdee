#pragma once

#include <deque>
#include <functional>
#include <optional>

#include "text/jinja/value.h"

namespace lathe::jinja {

// What `loop` stands for in the body of a for. Items come one at a time, because a filtered for looks at an item only
// when it is about to be used; who asks for the length makes all of them come.
struct Loop {
  std::function<std::optional<Value>()> source;  // the next item, or nothing; empty once the for has ended
  std::deque<Value> ahead;                       // that had to come early
  int64_t index0 = -1;
  int depth = 1;  // of nesting of what it goes through
  Value previous, current;
  std::optional<Value> last_changed;  // what changed() was asked about last

  std::optional<Value> next();  // moves on
  const Value* peek();          // the item after this one, or null
  int64_t length();
};

}  // namespace lathe::jinja
