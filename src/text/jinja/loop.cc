#include "text/jinja/loop.h"

namespace lathe::jinja {

const Value* Loop::peek() {
  if (ahead.empty() && source)
    if (std::optional<Value> item = source()) ahead.push_back(std::move(*item));
  return ahead.empty() ? nullptr : &ahead.front();
}

std::optional<Value> Loop::next() {
  if (!peek()) return std::nullopt;
  previous = std::exchange(current, std::move(ahead.front()));
  ahead.pop_front();
  ++index0;
  return current;
}

int64_t Loop::length() {
  if (source)
    while (std::optional<Value> item = source()) ahead.push_back(std::move(*item));
  return index0 + 1 + static_cast<int64_t>(ahead.size());
}

}  // namespace lathe::jinja
