#include "feedback/kda_forms.h"

#include <algorithm>

#include "ops/kda_replay/replay_head.h"
#include "ops/kda_scan/span_map.h"

namespace lathe {

namespace {

constexpr int kDim = kKdaTokenDim, kCells = kDim * kDim, kRecords = 16;

// Sizes are all that the steps below activation want of a layer.
KdaLayer one_head() {
  KdaLayer layer;
  layer.heads = 1, layer.k = kDim, layer.v = kDim, layer.width = 1, layer.bound = -5;
  return layer;
}
const KdaLayer kLayer = one_head();

void fill_block(const KdaTokens& tokens, int n, const KdaBlock& block) {
  std::copy_n(tokens.q.data(), n * kDim, block.q);
  std::copy_n(tokens.k.data(), n * kDim, block.k);
  std::copy_n(tokens.g.data(), n * kDim, block.g);
  std::copy_n(tokens.v.data(), n * kDim, block.v);
  std::copy_n(tokens.b.data(), n, block.b);
}

class Decode final : public KdaRunningForm {
 public:
  explicit Decode(Arena& arena) : work_(kda_steps(), kLayer, kKdaChunk, arena), o_(kKdaChunk * kDim), state_(kCells) {}
  const char* name() const override { return "decode"; }
  const float* step(const KdaTokens& tokens, int n) override {
    fill_block(tokens, n, work_.block);
    work_.decay_tokens(n);
    for (int t = 0; t < n; ++t)
      work_.steps.decode(work_.sizes, state_.data(), work_.block.k + t * kDim, work_.vectors[t],
                         work_.block.v + t * kDim, work_.block.b[t], &o_[t * kDim]);
    return o_.data();
  }
  void read_state(float* state) override { std::copy(state_.begin(), state_.end(), state); }

 private:
  KdaHeadWork work_;
  std::vector<float> o_, state_;
};

void read_tile(const KdaHeadRun& run, const float* tile, float* state) {
  const KdaHeadWork& work = run.work;
  for (int b = 0; b < work.blocks(); ++b)
    work.steps.store_block(work.sizes, tile + b * work.block_floats(), b * work.steps.columns, state);
}
const float* advance_tile(KdaHeadRun& run, float* tile) {
  for (int b = 0; b < run.work.blocks(); ++b) run.advance(b, tile + b * run.work.block_floats(), run.o());
  return run.o();
}

class Prefill final : public KdaRunningForm {
 public:
  Prefill(const char* name, KdaForm form, Arena& arena)
      : name_(name), run_(kda_steps(), form, kLayer, arena), tile_(kCells) {}
  const char* name() const override { return name_; }
  const float* step(const KdaTokens& tokens, int n) override {
    fill_block(tokens, n, run_.work.block);
    run_.prepare(n);
    return advance_tile(run_, tile_.data());
  }
  void read_state(float* state) override { read_tile(run_, tile_.data(), state); }

 private:
  const char* name_;
  KdaHeadRun run_;
  std::vector<float> tile_;
};

// Token by token; a ring is full, and folded, every kRecords.
class Replay final : public KdaRunningForm {
 public:
  explicit Replay(Arena& arena) : state_(kCells), key_(kRecords * kDim), d_(key_), gate_(key_), o_(kKdaChunk * kDim) {
    args_.layer = kLayer;
    args_.cursor = {&cursor_, 1};
    args_.memory.state = pool(state_);
    args_.ring_key = pool(key_), args_.ring_d = pool(d_), args_.ring_gate = pool(gate_);
    args_.length = kRecords;
    head_ = std::make_unique<KdaReplayHead>(kda_steps(), args_, arena);
  }
  const char* name() const override { return "replay"; }
  const float* step(const KdaTokens& tokens, int n) override {
    KdaTokens one(1);
    for (int t = 0; t < n; ++t, ++position_) {
      const auto take = [&](const std::vector<float>& all, std::vector<float>& row) {
        std::copy_n(&all[t * kDim], kDim, row.begin());
      };
      take(tokens.q, one.q), take(tokens.k, one.k), take(tokens.g, one.g), take(tokens.v, one.v);
      one.b[0] = tokens.b[t];
      fill_block(one, 1, head_->work.block);
      head_->step_tokens(0, 0, position_, 1);
      cursor_ = replay_base(cursor_, 1, kRecords) + 1;
      std::copy_n(head_->o(), kDim, &o_[t * kDim]);
    }
    return o_.data();
  }
  void read_state(float* state) override {
    const std::vector<float> before = state_;
    head_->flush(0, 0);
    std::copy(state_.begin(), state_.end(), state);
    state_ = before;
  }

 private:
  static Pool pool(std::vector<float>& values) {
    return {.data = values.data(), .items = 1, .item_size = static_cast<int64_t>(values.size())};
  }
  std::vector<float> state_, key_, d_, gate_, o_;
  int32_t cursor_ = 0;
  int64_t position_ = 0;
  KdaReplayArgs args_;
  std::unique_ptr<KdaReplayHead> head_;
};

}  // namespace

std::vector<std::unique_ptr<KdaRunningForm>> kda_running_forms(Arena& arena) {
  std::vector<std::unique_ptr<KdaRunningForm>> forms;
  forms.push_back(std::make_unique<Decode>(arena));
  forms.push_back(std::make_unique<Prefill>("sequential", KdaForm::kSequential, arena));
  forms.push_back(std::make_unique<Prefill>("chunked", KdaForm::kChunked, arena));
  forms.push_back(std::make_unique<Replay>(arena));
  return forms;
}

const char* kda_scan_form_name(KdaScanForm form) {
  switch (form) {
    case KdaScanForm::kIncrement:
      return "increment";
    case KdaScanForm::kIncrementTf32:
      return "increment_tf32";
    case KdaScanForm::kProductTf32:
      return "product_tf32";
  }
  return "?";
}

struct KdaScanPass::Parts {
  Parts(KdaScanForm form, int segments, int64_t segment_tokens, Arena& arena)
      : run(kda_steps(), KdaForm::kChunked, kLayer, arena),
        map_run(kda_steps(), form == KdaScanForm::kIncrement ? KdaForm::kChunked : KdaForm::kChunkedTf32, kLayer,
                arena),
        map(map_run, form == KdaScanForm::kProductTf32 ? KdaMapForm::kProduct : KdaMapForm::kIncrement, arena),
        segment_tokens(segment_tokens),
        a(segments, std::vector<float>(kCells)),
        b(a),
        start(segments + 1, std::vector<float>(kCells)),
        tile(kCells) {}

  KdaHeadRun run, map_run;
  KdaSpanMap map;
  int64_t segment_tokens, mapped = 0, stepped = 0;
  std::vector<std::vector<float>> a, b, start;  // map of each segment, B as a tile; state before each, as a tile
  std::vector<float> tile;
};

KdaScanPass::KdaScanPass(KdaScanForm form, int segments, int64_t tokens_per_segment, Arena& arena)
    : form(form), segments(segments), parts_(std::make_unique<Parts>(form, segments, tokens_per_segment, arena)) {}
KdaScanPass::~KdaScanPass() = default;

void KdaScanPass::add_to_map(const KdaTokens& tokens, int n) {
  Parts& p = *parts_;
  if (p.mapped % p.segment_tokens == 0) p.map.clear();
  fill_block(tokens, n, p.map_run.work.block);
  p.map_run.prepare(n);
  p.map.append(p.map_run);
  p.mapped += n;
  if (p.mapped % p.segment_tokens != 0) return;
  const int64_t segment = p.mapped / p.segment_tokens - 1;
  p.map.store_a(p.a[segment].data());
  std::copy_n(p.map.b(), kCells, p.b[segment].data());
  p.start[segment + 1] = p.b[segment];
  apply_kda_map(p.run, p.a[segment].data(), p.start[segment].data(), p.start[segment + 1].data());
}

const float* KdaScanPass::step(const KdaTokens& tokens, int n) {
  Parts& p = *parts_;
  if (p.stepped % p.segment_tokens == 0) p.tile = p.start[p.stepped / p.segment_tokens];
  fill_block(tokens, n, p.run.work.block);
  p.run.prepare(n);
  p.stepped += n;
  return advance_tile(p.run, p.tile.data());
}

void KdaScanPass::read_map(int segment, float* a) const { std::copy_n(parts_->a[segment].data(), kCells, a); }
void KdaScanPass::read_map_b(int segment, float* b) const { read_tile(parts_->run, parts_->b[segment].data(), b); }
void KdaScanPass::read_joined(int segment, float* state) const {
  read_tile(parts_->run, parts_->start[segment].data(), state);
}
void KdaScanPass::read_state(float* state) const { read_tile(parts_->run, parts_->tile.data(), state); }

}  // namespace lathe
