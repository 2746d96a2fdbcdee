#include "ops/mlp/mlp.h"

#include "ops/linear/operands.h"
#include "ops/mlp/variants.h"

namespace lathe {

Status check_mlp_weights(const MlpWeights& w, int64_t hidden, int64_t out, const char* name) {
  const int64_t inner = w.gate.out;
  for (Status s : {check_weight(w.gate, hidden, "gate"), check_weight(w.up, hidden, "up"),
                   check_weight(w.down, inner, "down"), check_bias(w.gate_bias, inner, "gate_bias"),
                   check_bias(w.up_bias, inner, "up_bias"), check_bias(w.down_bias, out, "down_bias")})
    if (!s.is_ok()) return s.within(name);
  if (w.up.out != inner) return invalid("{}: gate has {} outputs, up {}", name, inner, w.up.out);
  if (w.down.out != out) return invalid("{}: down has {} outputs, y is {} wide", name, w.down.out, out);
  return Status::ok();
}

namespace {

Status check(const MlpArgs& args) {
  LATHE_RETURN_IF_ERROR(check_result(args.x, args.x.rows, args.x.width, "x"));
  LATHE_RETURN_IF_ERROR(check_result(args.y, args.x.rows, args.y.width, "y"));
  return check_mlp_weights(args.w, args.x.width, args.y.width, "weights");
}

constexpr Variant<MlpArgs> kVariants[] = {
    {"avx512", avx512::mlp_applies, avx512::mlp},
    {"avx2", avx2::mlp_applies, avx2::mlp},
    {"portable", always, portable::mlp},
    {"reference", always, reference::mlp},
#ifdef LATHE_CUDA
    {"cuda", always, cuda::mlp, false, DeviceKind::kCuda},
#endif
};

}  // namespace

const Op<MlpArgs> kMlp{"mlp", kVariants, check};

Status mlp(OpContext& ctx, const MlpArgs& args) { return run(ctx, kMlp, args); }

}  // namespace lathe
