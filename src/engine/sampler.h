#pragma once

#include <span>
#include <vector>

#include "engine/executor.h"
#include "engine/request.h"
#include "ops/sample/sample.h"

namespace lathe {

// A token to be drawn from one row of logits. What it points to lives until draw() returns.
struct DrawRow {
  int64_t logit_row = 0;    // of the pass
  int32_t position = 0;     // of the token that is drawn
  int32_t given = -1;       // not drawn: this token is taken (only its log probability is wanted)
  int best = -1;            // so many best tokens with log probabilities; -1: not even the drawn one's
  SampleSettings settings;  //
  Penalties penalties;
  std::span<const LogitEdit> edits;
  std::span<const uint32_t> allowed;  // bits by token; empty: all
  bool dead_end = false;              // the grammar allows none
};

struct Drawn {
  int32_t token = -1;  // -1: no logit that may be taken is finite
  float logprob = 0;   // of the model's own distribution; as all below, only if wanted
  int rank = 0;
  std::vector<TokenLogprob> best;
};

// Draws tokens by ops/sample. Keeps its buffers from call to call.
class Sampler {
 public:
  explicit Sampler(int vocab) : vocab_(vocab) {}
  // One result a row, valid until the next call. Waits for the device.
  Result<std::span<const Drawn>> draw(Executor& executor, const Rows& logits, std::span<const DrawRow> rows);

  int mask_words() const { return (vocab_ + 31) / 32; }

 private:
  void pack(std::span<const DrawRow> rows);
  Status upload(Device& device);
  Status read(Device& device, std::span<const DrawRow> rows);

  int vocab_;
  // Host images of the operator's arguments, and their place on the device: one block in, one out.
  std::vector<char> in_, out_;
  DeviceBuffer in_on_device_, out_on_device_;
  SampleArgs args_;
  std::vector<Drawn> drawn_;
};

}  // namespace lathe
