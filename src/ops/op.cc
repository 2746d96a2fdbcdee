#include "ops/op.h"

namespace lathe {

Status Choices::add(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == text.size())
    return invalid("--variant {}: expected OPERATOR=VARIANT, such as kda_decode=reference", text);
  by_op_[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  return Status::ok();
}

const std::string* Choices::find(std::string_view op) const {
  auto it = by_op_.find(op);
  if (it == by_op_.end()) it = by_op_.find("*");
  return it == by_op_.end() ? nullptr : &it->second;
}

namespace {

// The queue thread's own device, pool and scratch.
struct SimQueueResources {
  std::unique_ptr<Device> device = make_cpu_device();
  ThreadPool pool{1};
  Arena scratch = Arena::create(*device, int64_t{64} << 30).value();
};

}  // namespace

OpContext sim_queue_context(const OpContext& caller) {
  thread_local SimQueueResources resources;
  OpContext ctx = caller;
  ctx.device = resources.device.get();
  ctx.pool = &resources.pool;
  ctx.scratch = &resources.scratch;
  return ctx;
}

}  // namespace lathe
