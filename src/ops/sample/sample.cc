#include "ops/sample/sample.h"

#include "ops/sample/variants.h"

namespace lathe {

namespace {

Status check(const SampleArgs& a) {
  const int64_t rows = a.rows();
  if (a.vocab < 1 || a.logits.width < a.vocab)
    return invalid("vocab ({}) must be between 1 and the logits' width ({})", a.vocab, a.logits.width);
  if (a.logits.dtype != DType::kF32) return invalid("logits must be f32, not {}", dtype_name(a.logits.dtype));
  if (a.settings.count < rows || a.position.count < rows || (a.logit_row.empty() && a.logits.rows < rows) ||
      (!a.logit_row.empty() && a.logit_row.count < rows))
    return invalid("logit_row, settings and position need {} entries", rows);
  if (!a.edit_start.empty() && (a.edit_start.count < rows + 1 || a.penalties.count < rows))
    return invalid("edit_start needs {} entries, penalties {}", rows + 1, rows);
  if (!a.mask.empty() && (a.mask.count < rows || a.allowed.count % a.mask_words() != 0))
    return invalid("mask needs {} entries, allowed {} words a mask", rows, a.mask_words());
  if (!a.given.empty() && a.given.count < rows) return invalid("given needs {} entries", rows);
  if (!a.best_wanted.empty() &&
      (a.best_wanted.count < rows || a.logprob.count < rows || a.rank.count < rows ||
       a.best_token.count < rows * a.best_width || a.best_logprob.count < rows * a.best_width))
    return invalid("log probabilities need {} entries, and {} of each best", rows, rows * a.best_width);
  return Status::ok();
}

constexpr Variant<SampleArgs> kVariants[] = {
    {"avx512", avx512::sample_applies, avx512::sample},
    {"avx2", avx2::sample_applies, avx2::sample},
    {"portable", portable::sample_applies, portable::sample},
    {"reference", always, reference::sample},
#ifdef LATHE_CUDA
    {"cuda", always, cuda::sample, true, DeviceKind::kCuda},
#endif
};

}  // namespace

const Op<SampleArgs> kSample{"sample", kVariants, check};

Status sample(OpContext& ctx, const SampleArgs& args) { return run(ctx, kSample, args); }

}  // namespace lathe
