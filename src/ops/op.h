#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/arena.h"
#include "base/device.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "base/view.h"
#include "comm/communicator.h"
#include "ops/fields.h"

// What every operator has in common: a context to run in, a list of variants, and the door that picks one.

namespace lathe {

// Where in the model a call stands; every number is reported with it. layer -1: not inside a layer.
struct Address {
  int64_t step = -1;
  int layer = -1;
};

// Sees each operator call. All of it comes from the thread that makes the call.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual void begin(const char* op, const char* variant, int64_t rows, Address address) = 0;
  virtual void end(const char* op, const char* variant, Address address) = 0;
  // A tap: what the call has written, valid until the next call. Only for observers that want it.
  virtual bool wants_results() const { return false; }
  virtual void results(const char* /*op*/, Address /*address*/, const std::vector<FieldView>& /*fields*/) {}
};

// Which variant an operator shall use, by operator name; "*" stands for all. A value, so two engines can differ.
class Choices {
 public:
  // "kda_decode=reference" or "*=reference".
  Status add(std::string_view text);
  // nullptr: the operator's default.
  const std::string* find(std::string_view op) const;

 private:
  std::map<std::string, std::string, std::less<>> by_op_;
};

// What a call needs besides its arguments. Passed, never global.
struct OpContext {
  Device* device = nullptr;
  ThreadPool* pool = nullptr;
  Arena* scratch = nullptr;      // host-visible on cpu; a variant takes what it needs inside an ArenaScope
  Communicator* comm = nullptr;  // nullptr: not cut
  const Choices* choices = nullptr;
  OpObserver* observer = nullptr;  // off: one predictable branch
  Address address;
};

template <class Args>
struct Variant {
  const char* name;
  bool (*applies)(const Args&);  // by sizes, dtypes and the machine; must not read device memory
  Status (*run)(OpContext&, const Args&);
  // True if neither neighbours, padding nor the number of rows changes a bit of a row's result.
  bool company_free = true;
};

template <class Args>
bool always(const Args&) {
  return true;
}

// An operator: the first variant that applies is the default; one named "reference" is the oracle and takes any Args.
template <class Args>
struct Op {
  const char* name;
  std::span<const Variant<Args>> variants;
  Status (*check)(const Args&);  // shapes and dtypes that contradict the contract, in words; never reads device memory
};

template <class Args>
Result<const Variant<Args>*> choose(const OpContext& ctx, const Op<Args>& op, const Args& args) {
  std::string_view wanted;
  if (ctx.device->kind() == DeviceKind::kSim)
    wanted = "reference";
  else if (const std::string* choice = ctx.choices ? ctx.choices->find(op.name) : nullptr)
    wanted = *choice;
  for (const Variant<Args>& v : op.variants)
    if (wanted.empty() ? v.applies(args) : wanted == v.name) {
      if (!v.applies(args))
        return invalid("--variant {}={}: this variant can't take these sizes or this machine", op.name, v.name);
      return &v;
    }
  std::string names;
  for (const Variant<Args>& v : op.variants) names += fmt::format("{}{}", names.empty() ? "" : ", ", v.name);
  return invalid("--variant {}={}: no such variant; there are {}", op.name, wanted, names);
}

// Visitor that sends every device address in Args through `map`. Lists of weights lie in host memory: copies of them
// are mapped, and live as long as this object.
template <class Map>
class AddressMap {
 public:
  explicit AddressMap(Map map = {}) : map_(map) {}

  template <class Field>
  void operator()(const char*, Field& field, Role) {
    translate(field);
  }

 private:
  template <class T>
  void translate(Array<T>& a) {
    if constexpr (requires(std::remove_const_t<T> t, AddressMap& s) { t.visit(s); }) {
      auto copy = std::make_shared<std::vector<std::remove_const_t<T>>>(a.data, a.data + a.count);
      for (auto& item : *copy) item.visit(*this);
      a.data = copy->data();
      kept_.push_back(copy);
    } else {
      a.data = map_(a.data);
    }
  }
  void translate(Rows& r) { r.data = map_(r.data), r.scale = map_(r.scale); }
  void translate(Weight& w) { w.data = map_(w.data), w.scale = map_(w.scale); }
  void translate(Pool& p) { p.data = map_(p.data), p.scale = map_(p.scale); }
  void translate(Ragged& r) { translate(r.start), translate(r.past); }

  Map map_;
  std::vector<std::shared_ptr<void>> kept_;
};

// Turns a sim device's addresses into host addresses; the mapped Args are used when the queue gets there.
struct SimAddress {
  template <class T>
  T* operator()(T* p) const {
    return sim_to_host(p);
  }
};
using SimTranslation = AddressMap<SimAddress>;

// Context of a sim device's queue thread, which calls reference variants on host addresses.
OpContext sim_queue_context(const OpContext& caller);

template <class Args>
void tell_begin(const OpContext& ctx, const char* op, const char* variant, Args args) {
  RowCounter counter;
  args.visit(counter);
  ctx.observer->begin(op, variant, counter.rows, ctx.address);
}
template <class Args>
void tell_results(const OpContext& ctx, const char* op, Args args) {
  if (!ctx.observer->wants_results() || !ctx.device->synchronize().is_ok()) return;
  FieldList list;
  args.visit(list);
  std::erase_if(list.views, [](const FieldView& f) { return f.role == Role::kIn; });
  ctx.observer->results(op, ctx.address, list.views);
}

// The door: check, pick, observe, run.
template <class Args>
Status run(OpContext& ctx, const Op<Args>& op, const Args& args) {
  if (Status s = op.check(args); !s.is_ok()) return s.within(op.name);
  LATHE_ASSIGN(const Variant<Args>* variant, choose(ctx, op, args));
  if (ctx.observer) tell_begin(ctx, op.name, variant->name, args);
  Status status;
  if (ctx.device->kind() == DeviceKind::kSim) {
    auto translation = std::make_shared<SimTranslation>();
    Args host = args;
    host.visit(*translation);
    ctx.device->enqueue([caller = ctx, host, variant, translation] {
      OpContext queue = sim_queue_context(caller);
      return variant->run(queue, host);
    });
  } else {
    status = variant->run(ctx, args);
  }
  if (ctx.observer) {
    ctx.observer->end(op.name, variant->name, ctx.address);
    tell_results(ctx, op.name, args);
  }
  return status.is_ok() ? status : status.within(op.name);
}

}  // namespace lathe
