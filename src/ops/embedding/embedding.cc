#include "ops/embedding/embedding.h"

#include "ops/embedding/variants.h"

namespace lathe {

namespace {

bool is_float_row(DType t) { return t == DType::kF32 || t == DType::kBF16; }

Status check(const EmbeddingArgs& args) {
  const int64_t hidden = args.table.in;
  if (args.copies < 1) return invalid("copies is {}, must be 1 or more", args.copies);
  if (!is_float_row(args.out.dtype)) return invalid("out must be f32 or bf16, not {}", dtype_name(args.out.dtype));
  if (!is_float_row(args.table.dtype) && args.table.dtype != DType::kF16)
    return invalid("table must be f32, bf16 or f16, not {}", dtype_name(args.table.dtype));
  if (args.out.rows != args.token.count || args.out.width != args.copies * hidden)
    return invalid("out is [{}, {}]; {} tokens and {} copies of {} want [{}, {}]", args.out.rows, args.out.width,
                   args.token.count, args.copies, hidden, args.token.count, args.copies * hidden);
  if (!args.feature.empty() && args.feature.count != args.token.count)
    return invalid("{} feature indices for {} tokens", args.feature.count, args.token.count);
  if (!args.features.empty() && (args.features.width != hidden || !is_float_row(args.features.dtype)))
    return invalid("features are {} rows of {}, the table's of {}", dtype_name(args.features.dtype),
                   args.features.width, hidden);
  return Status::ok();
}

constexpr Variant<EmbeddingArgs> kVariants[] = {
    {"portable", always, portable::embedding},
    {"reference", always, reference::embedding},
#ifdef LATHE_CUDA
    {"cuda", always, cuda::embedding, true, DeviceKind::kCuda},
#endif
};

}  // namespace

const Op<EmbeddingArgs> kEmbedding{"embedding", kVariants, check};

Status embedding(OpContext& ctx, const EmbeddingArgs& args) { return run(ctx, kEmbedding, args); }

}  // namespace lathe
