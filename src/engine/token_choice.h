#pragma once

#include <vector>

#include "engine/executor.h"
#include "ops/sample/sample.h"

namespace lathe {

// Draws a token for every row of logits by ops/sample. Keeps its device buffers from call to call.
class TokenChoice {
 public:
  explicit TokenChoice(int vocab) : vocab_(vocab) {}
  // settings and positions (of the tokens that are drawn): one a row. Waits for the device.
  Result<std::vector<int32_t>> choose(Executor& executor, const Rows& logits,
                                      const std::vector<SampleSettings>& settings,
                                      const std::vector<int32_t>& positions);

 private:
  int vocab_;
  DeviceBuffer settings_, positions_, tokens_;
};

}  // namespace lathe
