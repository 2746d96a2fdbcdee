#include "text/jinja/global.h"

#include <array>

#include "text/jinja/machine.h"
#include "text/jinja/parameters.h"

namespace lathe::jinja {

namespace {

// The sandbox's bound, too.
constexpr int64_t kMaxRange = 100'000;

Value range(Machine& m, Arguments& arguments) {
  const Parameters p("range", arguments, {"start", "stop", "step"}, 1);
  const bool one = p.get(1) == nullptr;
  const int64_t begin = one ? 0 : p.integer(0, 0), end = p.integer(one ? 0 : 1, 0), step = p.integer(2, 1);
  if (step == 0) fail("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<int64_t>(items.size()) >= kMaxRange) fail("range too big: the maximum is {} items", kMaxRange);
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return m.list(std::move(items));
}

// Pairs of a mapping or of keyword arguments.
std::vector<std::pair<Value, Value>> pairs(Machine& m, const char* function, Arguments& arguments) {
  if (arguments.positional.size() > 1) fail("{}() takes at most one argument without a name", function);
  std::vector<std::pair<Value, Value>> out;
  for (const Value& source : arguments.positional) {
    if (const Dict* d = source.dict()) {
      out = d->entries;
      continue;
    }
    for (const Value& item : m.items_of(source)) {
      const std::vector<Value> pair = m.items_of(item);
      if (pair.size() != 2) fail("{}() needs a mapping or pairs", function);
      out.emplace_back(pair[0], pair[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) out.emplace_back(m.text(name, Origin::kTemplate), value);
  return out;
}

Value dict(Machine& m, Arguments& arguments) {
  Dict made;
  for (auto& [k, v] : pairs(m, "dict", arguments)) {
    check_key(k);
    made.set(std::move(k), std::move(v));
  }
  return m.dict(std::move(made));
}

Value name_space(Machine& m, Arguments& arguments) {
  Namespace made;
  for (auto& [k, v] : pairs(m, "namespace", arguments)) made.set(m.str(k)->view(), std::move(v));
  return m.name_space(std::move(made));
}

Value raise_exception(Machine& m, Arguments& arguments) {
  const Parameters p("raise_exception", arguments, {"message"}, 1);
  fail("{}", m.str(*p.get(0))->view());
}

Value strftime_now(Machine& m, Arguments& arguments) {
  const Parameters p("strftime_now", arguments, {"format"}, 1);
  const std::string format(p.text(0).view());
  const std::time_t now = m.now();
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 1024> buffer;
  const size_t n = std::strftime(buffer.data(), buffer.size(), format.c_str(), &local);
  if (n == 0 && !format.empty()) fail("strftime_now(): the format is too long");
  return m.text(std::string(buffer.data(), n), p.text(0).origin());
}

}  // namespace

Value find_global(const std::string& name) {
  using Function = Value (*)(Machine&, Arguments&);
  constexpr std::pair<const char*, Function> kFunctions[] = {{"range", range},
                                                             {"dict", dict},
                                                             {"namespace", name_space},
                                                             {"raise_exception", raise_exception},
                                                             {"strftime_now", strftime_now}};
  for (const auto& [n, function] : kFunctions)
    if (name == n) return Callable{name, 0, function};
  return {};
}

}  // namespace lathe::jinja
