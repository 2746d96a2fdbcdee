#include "feedback/op_server.h"

#include <algorithm>
#include <chrono>

#include "feedback/build_info.h"
#include "ops/registry.h"

namespace lathe {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kScratchBytes = int64_t{16} << 30;
constexpr int kForever = -1;

class OpServer {
 public:
  OpServer(SharedMemory memory, OpBehaviour& behaviour)
      : memory_(std::move(memory)), behaviour_(behaviour), places_(make_shared_device(memory_)) {}

  OpReply answer(const OpRequest& request) {
    OpReply reply;
    set_text(reply.build_id, behaviour_.build_id());
    Status status;
    if (request.version != OpRequest().version)
      status = invalid("the supervisor speaks version {} of the exchange, this build {}", request.version,
                       OpRequest().version);
    else if (request.kind == OpRequest::kLoad)
      status = load(request, reply);
    else
      status = run(request, reply);
    if (!status.is_ok()) reply.code = OpReply::kFailed, set_text(reply.message, status.message());
    return reply;
  }

 private:
  Status load(const OpRequest& request, OpReply& reply) {
    served_ = {};
    const std::string name = get_text(request.op), case_name = get_text(request.case_name),
                      variant = get_text(request.variant);
    const auto ops = all_ops();
    const auto op = std::find_if(ops.begin(), ops.end(), [&](const AnyOp& o) { return name == o.name; });
    if (op == ops.end()) return invalid("this build has no operator '{}'", name);
    const auto info =
        std::find_if(op->cases.begin(), op->cases.end(), [&](const CaseInfo& c) { return c.name == case_name; });
    if (info == op->cases.end()) return invalid("{} has no case '{}' in this build", name, case_name);
    if (request.slots < 1 || request.slots > kMostSlots || request.threads < 1 || request.threads > 1024)
      return invalid("{} slots and {} threads", request.slots, request.threads);
    const int case_index = static_cast<int>(info - op->cases.begin());

    LATHE_ASSIGN(Arena arena, Arena::create(*places_, memory_.bytes()));
    CaseBuilder builder(*places_, arena, request.seed, CaseBuilder::Content::kPlacesAlone);
    std::unique_ptr<AnyCase> built = op->build(case_index, builder);
    if (arena.mark() != request.slot_bytes ||
        request.slots > memory_.bytes() / std::max<int64_t>(1, request.slot_bytes))
      return invalid("{} {} takes {} bytes in this build, {} in the supervisor's", name, case_name, arena.mark(),
                     request.slot_bytes);
    reply.layout = behaviour_.layout(layout_digest(built->fields(), memory_.data()));

    int chosen = -1;
    for (int v = 0; v < static_cast<int>(op->variants.size()) && chosen < 0; ++v)
      if (variant.empty() ? built->applies(v) : variant == op->variants[v]) chosen = v;
    if (chosen < 0) return invalid("{} has no variant '{}' in this build", name, variant);
    if (!built->applies(chosen)) {
      reply.code = OpReply::kDoesNotApply;
      return Status::ok();
    }
    set_text(reply.message, op->variants[chosen]);
    if (!pool_ || pool_->threads() != request.threads) pool_ = std::make_unique<ThreadPool>(request.threads);
    LATHE_ASSIGN(scratch_, Arena::create(*cpu_, kScratchBytes));
    served_ = {.op = &*op,
               .case_index = case_index,
               .variant = chosen,
               .slots = {},
               .slot_bytes = request.slot_bytes,
               .memory = memory_.data(),
               .device = cpu_.get(),
               .pool = pool_.get(),
               .scratch = &scratch_};
    for (int i = 0; i < request.slots; ++i) served_.slots.push_back(built->moved(i * request.slot_bytes));
    return behaviour_.loaded(served_);
  }

  Status run(const OpRequest& request, OpReply& reply) {
    if (served_.slots.empty()) return invalid("asked to run before a case was loaded");
    if (request.count < 1 || request.count > kMostSlots) return invalid("asked to run {} slots", request.count);
    for (int i = 0; i < request.count; ++i)
      if (request.order[i] >= served_.slots.size())
        return invalid("asked to run slot {} of {}", request.order[i], served_.slots.size());
    const auto begin = Clock::now();
    LATHE_RETURN_IF_ERROR(behaviour_.window(served_, request));
    reply.own_ns = behaviour_.told_ns(std::chrono::nanoseconds(Clock::now() - begin).count());
    return Status::ok();
  }

  SharedMemory memory_;
  OpBehaviour& behaviour_;
  std::unique_ptr<Device> places_, cpu_ = make_cpu_device();
  std::unique_ptr<ThreadPool> pool_;
  Arena scratch_;
  ServedCase served_;
};

}  // namespace

Status ServedCase::run(int slot, int64_t begin, int64_t rows) {
  OpContext ctx{.device = device, .pool = pool, .scratch = scratch};
  AnyCase* call = slots[slot].get();
  std::unique_ptr<AnyCase> part;
  if (rows >= 0) {
    if (!op->rows_stand_alone) return invalid("rows of {} don't stand alone", op->name);
    part = call->part(begin, rows);
    call = part.get();
  }
  const Status status = call->run(ctx, variant);
  scratch->reset();
  return status;
}

std::string OpBehaviour::build_id() const { return build_info().build_id; }

Status OpBehaviour::window(ServedCase& served, const OpRequest& request) {
  for (int i = 0; i < request.count; ++i)
    LATHE_RETURN_IF_ERROR(served.run(request.order[i], request.begin, request.rows));
  return Status::ok();
}

Status serve_operators(int socket, SharedMemory memory, OpBehaviour& behaviour) {
  OpServer server(std::move(memory), behaviour);
  for (;;) {
    OpRequest request;
    LATHE_ASSIGN(const bool asked, receive_packet(socket, &request, sizeof request, kForever));
    if (!asked) return Status::ok();
    const OpReply reply = server.answer(request);
    LATHE_ASSIGN(const bool heard, send_packet(socket, &reply, sizeof reply));
    if (!heard) return Status::ok();
  }
}

}  // namespace lathe
