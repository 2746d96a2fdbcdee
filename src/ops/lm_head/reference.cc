#include "ops/element.h"
#include "ops/linear/oracle.h"
#include "ops/lm_head/variants.h"

namespace lathe::reference {

Status lm_head(OpContext&, const LmHeadArgs& args) {
  for (int64_t i = 0; i < args.row.count; ++i) {
    const std::vector<double> logits = product(met_by(args.w, args.hidden, args.row[i]), args.w, {});
    for (int64_t o = 0; o < args.w.out; ++o) store(args.logits, i, o, rounded(logits[o], args.hidden.dtype));
  }
  return Status::ok();
}

}  // namespace lathe::reference
