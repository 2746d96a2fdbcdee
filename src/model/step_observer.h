#pragma once

#include "base/view.h"

namespace lathe {

// Watches a forward pass from inside, without changing it. Views are device memory that is valid in queue order only
// until the next call: copy what is to be kept (Device::to_host). Under context parallelism rows are this rank's.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // Layer `layer`'s caches are written (enqueued).
  virtual void layer_done(int /*layer*/) {}
  // Residual streams after a layer, [rows, copies·hidden].
  virtual void streams(int /*layer*/, const Rows& /*rows*/) {}
  // Token sets that a layer's indexer chose, before anything attends to them: [rows·width] and [rows]. On a device that
  // shares host memory an experiment may put other sets in their place.
  virtual void selection(int /*layer*/, Array<int32_t> /*selected*/, Array<int32_t> /*count*/, int /*width*/) {}
  // Routed experts: [rows·top_k] each.
  virtual void routing(int /*layer*/, Array<int32_t> /*chosen*/, Array<float> /*weight*/) {}
};

}  // namespace lathe
