#include "ops/sample/sample.h"

#include "ops/sample/variants.h"

namespace lathe {

namespace {

Status check(const SampleArgs& a) {
  if (a.vocab < 1 || a.logits.width < a.vocab)
    return invalid("vocab ({}) must be between 1 and the logits' width ({})", a.vocab, a.logits.width);
  if (a.logits.dtype != DType::kF32) return invalid("logits must be f32, not {}", dtype_name(a.logits.dtype));
  if (a.settings.count < a.logits.rows || a.position.count < a.logits.rows || a.token.count < a.logits.rows)
    return invalid("settings, position and token need {} entries", a.logits.rows);
  return Status::ok();
}

constexpr Variant<SampleArgs> kVariants[] = {
    {"avx512", avx512::sample_applies, avx512::sample},
    {"avx2", avx2::sample_applies, avx2::sample},
    {"portable", portable::sample_applies, portable::sample},
    {"reference", always, reference::sample},
};

}  // namespace

const Op<SampleArgs> kSample{"sample", kVariants, check};

Status sample(OpContext& ctx, const SampleArgs& args) { return run(ctx, kSample, args); }

}  // namespace lathe
