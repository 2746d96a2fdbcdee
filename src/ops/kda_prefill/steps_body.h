// The source of steps.h for any vector type: included by steps_<isa>.cc after the lanes. Everything is local to the
// including file, since the linker must never hand out code of one instruction set for another.

#include "ops/kda_prefill/steps_activate.h"
#include "ops/kda_prefill/steps_chunk.h"
#include "ops/kda_prefill/steps_state.h"
#include "ops/kda_prefill/steps_tokens.h"

namespace lathe {
namespace {

constexpr KdaSteps kSteps = {
    .columns = kColumns,
    .taps = taps,
    .activate = activate,
    .gated_norm = gated_norm,
    .vectors = vectors,
    .decode = decode,
    .tokens = tokens,
    .chunk = make_chunk<false>,
    .advance = advance_block<false>,
    .chunk_tf32 = make_chunk<true>,
    .advance_tf32 = advance_block<true>,
    .load_block = load_block,
    .store_block = store_block,
    .join = join,
    .products = products,
    .fold = fold,
    .combine = combine,
    .exponential = exponentials,
};

}  // namespace
}  // namespace lathe
