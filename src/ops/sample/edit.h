#pragma once

#include "ops/sample/sample.h"

namespace lathe {

// A logit after the penalties and the bias of its token: fp32, in this order.
inline float edited(float logit, const LogitEdit& edit, const Penalties& p) {
  if (edit.seen) logit = logit > 0 ? logit / p.repetition : logit * p.repetition;
  if (edit.count > 0) logit = logit - p.frequency * static_cast<float>(edit.count) - p.presence;
  return logit + edit.bias;
}

}  // namespace lathe
