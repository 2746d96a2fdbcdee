#include "model/glm5_next/text_tower.h"

#include "model/collectives.h"
#include "model/glm5_next/feed_forward.h"
#include "model/glm5_next/kda_mixer.h"
#include "model/glm5_next/sparse_mixer.h"
#include "ops/add/add.h"
#include "ops/embedding/embedding.h"
#include "ops/hc_boundary/hc_boundary.h"
#include "ops/hc_head/hc_head.h"
#include "ops/kda_replay/kda_replay.h"
#include "ops/linear/linear.h"
#include "ops/lm_head/lm_head.h"
#include "ops/norm/norm.h"

namespace lathe::glm5_next {

// One pass over one batch: what the layers hand on to one another.
class ForwardPass {
 public:
  ForwardPass(const TextTower& tower, const Step& step)
      : tower_(tower), c_(tower.config_), w_(tower.weights_), step_(step), op_(step.op), n_(step.batch.rows) {
    op_.scratch = step.op.scratch;
    const int64_t s = c_.hc_copies;
    streams_ = rows(n_, s * c_.hidden);
    u_ = rows(n_, c_.hidden);
    y_ = step.activations.rows(n_, c_.hidden, DType::kF32);  // it meets the streams in fp32 anyway: one rounding less
    post_ = floats(n_ * s);
    comb_ = floats(n_ * s * s);
    selection_.width = c_.index_top_k + c_.kpool - 1;
    selection_.selected = {step.activations.take<int32_t>(n_ * selection_.width), n_ * selection_.width};
    selection_.count = {step.activations.take<int32_t>(n_), n_};
  }

  Result<StepOutput> run() {
    LATHE_RETURN_IF_ERROR(embed(streams_, c_.hc_copies));
    for (int l = 0; l < static_cast<int>(c_.layers.size()); ++l) LATHE_RETURN_IF_ERROR(layer(l, l == 0));
    return head();
  }

  Status layer_alone(int l, const Rows& in, const Rows& out) {
    op_.device->copy(streams_.data, in.data, n_ * streams_.width * dtype_bytes(streams_.dtype));
    for (int before = 0; before < l; ++before) count_layer(before);
    LATHE_RETURN_IF_ERROR(layer(l, true));
    return leave(out, u_);
  }

  Result<StepOutput> mtp(const Rows& previous) {
    const MtpWeights& w = *w_.mtp;
    const Rows x = y_, sub = rows(n_, c_.hidden), joined = rows(n_, 2 * int64_t{c_.hidden});
    op_.address.layer = static_cast<int>(c_.layers.size());
    const Rows e = joined.columns(0, c_.hidden), h = joined.columns(c_.hidden, c_.hidden);
    LATHE_RETURN_IF_ERROR(embed(u_, 1));
    LATHE_RETURN_IF_ERROR(rms(u_, w.embedding_norm, e));
    LATHE_RETURN_IF_ERROR(rms(previous, w.hidden_norm, h));
    LATHE_RETURN_IF_ERROR(linear(op_, {joined, {{w.join, {}, x}}}));
    LATHE_RETURN_IF_ERROR(rms(x, w.input_norm, u_));
    LATHE_RETURN_IF_ERROR(sparse_mixer(step_, op_, c_, w.sparse, c_.sparse_layers(), u_, selection_, sub));
    LATHE_RETURN_IF_ERROR(add(op_, {x, sub, x}));
    LATHE_RETURN_IF_ERROR(rms(x, w.post_norm, u_));
    LATHE_RETURN_IF_ERROR(feed_forward(step_, op_, c_, w.feed_forward, op_.address.layer, u_, sub));
    LATHE_RETURN_IF_ERROR(add(op_, {x, sub, x}));
    LATHE_RETURN_IF_ERROR(rms(x, w.head_norm, u_));
    return logits(u_);
  }

 private:
  Rows rows(int64_t count, int64_t width) { return step_.activations.rows(count, width, tower_.dtype_); }
  Array<float> floats(int64_t count) { return {step_.activations.take<float>(count), count}; }
  Status rms(const Rows& x, Array<const float> weight, const Rows& y) {
    return norm(op_, {.x = x, .weight = weight, .bias = {}, .y = y, .eps = c_.rms_eps});
  }

  Status embed(const Rows& out, int copies) {
    return embedding(op_, {.token = step_.batch.token,
                           .feature = step_.batch.feature,
                           .table = w_.embedding,
                           .features = step_.features,
                           .out = out,
                           .copies = copies});
  }

  // Ends the sub-layer that wrote y_ (unless none has run yet) and begins the one at `site`: streams_ -> streams_, u_.
  Status boundary(const SiteWeights& site, bool first) {
    return hc_boundary(op_, {.streams = streams_,
                             .y = first ? Rows{} : y_,
                             .post = first ? Array<const float>{} : post_,
                             .comb = first ? Array<const float>{} : comb_,
                             .fn = site.fn,
                             .base = site.base,
                             .scale = site.scale,
                             .norm_weight = site.norm,
                             .streams_out = streams_,
                             .post_out = post_,
                             .comb_out = comb_,
                             .u = u_,
                             .copies = c_.hc_copies,
                             .sinkhorn_iters = c_.hc_iters,
                             .hc_eps = c_.hc_eps,
                             .norm_eps = c_.rms_eps});
  }

  // Ends the last sub-layer: streams to `out`, the normed mean to `h`.
  Status leave(const Rows& out, const Rows& h) {
    return hc_head(op_, {.streams = streams_,
                         .y = y_,
                         .post = post_,
                         .comb = comb_,
                         .norm_weight = w_.final_norm,
                         .streams_out = out,
                         .h = h,
                         .copies = c_.hc_copies,
                         .norm_eps = c_.rms_eps});
  }

  void count_layer(int l) {
    if (c_.layers[l].mixer == MixerKind::kKda)
      ++kda_layer_;
    else
      ++sparse_layer_;
  }

  Status layer(int l, bool first) {
    const LayerWeights& w = w_.layers[l];
    op_.address.layer = l;
    LATHE_RETURN_IF_ERROR(boundary(w.attention_site, first));
    if (!first && step_.observer) step_.observer->streams(l - 1, streams_);
    if (w.kda)
      LATHE_RETURN_IF_ERROR(kda_mixer(step_, op_, *w.kda, tower_.partition_, kda_layer_, u_, y_));
    else
      LATHE_RETURN_IF_ERROR(sparse_mixer(step_, op_, c_, *w.sparse, sparse_layer_, u_, selection_, y_));
    if (step_.observer) step_.observer->layer_done(l);
    count_layer(l);
    LATHE_RETURN_IF_ERROR(boundary(w.feed_forward_site, false));
    return feed_forward(step_, op_, c_, w.feed_forward, l, u_, y_);
  }

  Result<StepOutput> head() {
    op_.address.layer = -1;
    LATHE_RETURN_IF_ERROR(leave(streams_, u_));
    if (step_.observer) step_.observer->streams(static_cast<int>(c_.layers.size()) - 1, streams_);
    return logits(u_);
  }

  Result<StepOutput> logits(const Rows& h) {
    StepOutput out{.hidden = h, .logits = {}};
    const Batch& batch = step_.batch;
    if (batch.cut) {
      out.hidden = rows(batch.all_rows, c_.hidden);
      LATHE_RETURN_IF_ERROR(gather_rows(op_, batch, h, out.hidden));
    }
    LATHE_ASSIGN(out.logits, tower_.logits(op_, out.hidden, batch.logit_row, step_.activations));
    return out;
  }

  const TextTower& tower_;
  const TextConfig& c_;
  const TextWeights& w_;
  const Step& step_;
  OpContext op_;
  int64_t n_;
  Rows streams_, u_, y_;
  Array<float> post_, comb_;
  Selection selection_;
  int kda_layer_ = 0, sparse_layer_ = 0;
};

Result<StepOutput> TextTower::forward(const Step& step) const { return ForwardPass(*this, step).run(); }

Status TextTower::layer_alone(const Step& step, int layer, const Rows& in, const Rows& out) const {
  return ForwardPass(*this, step).layer_alone(layer, in, out);
}

Result<StepOutput> TextTower::mtp_forward(const Step& step, const Rows& previous) const {
  if (!weights_.mtp) return invalid("the model has no MTP block");
  return ForwardPass(*this, step).mtp(previous);
}

Result<Rows> TextTower::logits(OpContext op, const Rows& hidden, Array<const int32_t> row, Arena& arena) const {
  const Rows all = arena.rows(row.count, config_.vocab, DType::kF32);
  if (row.empty()) return all;
  const bool cut = partition_.is(Parallel::kTensor);
  const Rows mine = cut ? arena.rows(row.count, weights_.lm_head.out, DType::kF32) : all;
  LATHE_RETURN_IF_ERROR(lm_head(op, {hidden, row, weights_.lm_head, mine}));
  if (cut) LATHE_RETURN_IF_ERROR(gather_columns(op, partition_, mine, all));
  return all;
}

Status TextTower::fold(OpContext op, SequenceMemory& memory, const std::vector<SequenceId>& sequences) const {
  std::vector<int32_t> slots;
  for (SequenceId id : sequences)
    if (!memory.ring_is_empty(id)) slots.push_back(memory.slot(id));
  if (slots.empty()) return Status::ok();
  const int64_t count = static_cast<int64_t>(slots.size());
  LATHE_ASSIGN(DeviceBuffer block, DeviceBuffer::allocate(*op.device, (count + count + 1 + count) * 4));
  std::vector<int32_t> values = slots;  // slot | start: no rows | past: unused
  values.resize(3 * count + 1, 0);
  op.device->to_device(block.as(), values.data(), static_cast<int64_t>(values.size()) * 4);
  const int32_t* p = block.as<int32_t>();
  const Array<const int32_t> cursor = memory.upload_cursors();
  int kda_layer = 0;
  for (const LayerWeights& w : weights_.layers) {
    if (!w.kda) continue;
    const KdaLayer& layer = w.kda->layer;
    auto no_rows = [&](int64_t width) {
      return Rows{.data = nullptr, .dtype = dtype_, .rows = 0, .width = width, .stride = width};
    };
    const int64_t k_width = int64_t{layer.heads} * layer.k, v_width = int64_t{layer.heads} * layer.v;
    KdaReplayArgs args{.in = {no_rows(layer.channels()), no_rows(k_width), no_rows(layer.heads), no_rows(v_width)},
                       .layer = layer,
                       .runs = {{p + count, count + 1}, {p + 2 * count + 1, count}},
                       .slot = {p, count},
                       .cursor = cursor,
                       .memory = memory.kda(kda_layer),
                       .ring_key = memory.replay_keys(kda_layer),
                       .ring_d = memory.replay_d(kda_layer),
                       .ring_gate = memory.replay_gates(kda_layer),
                       .length = memory.shape().replay_length,
                       .flush = true,
                       .y = no_rows(v_width)};
    LATHE_RETURN_IF_ERROR(kda_replay(op, args));
    ++kda_layer;
  }
  for (SequenceId id : sequences) memory.folded(id);
  return Status::ok();
}

MemoryShape TextTower::memory_shape(int replay_length, int max_draft) const {
  MemoryShape s;
  s.rows = dtype_;
  s.kpool = config_.kpool;
  s.page_tokens = page_tokens_for(config_.kpool);
  s.max_draft = max_draft;
  s.latent = config_.latent;
  s.index_dim = config_.index_dim;
  for (const LayerConfig& l : config_.layers) {
    if (l.mixer == MixerKind::kSparse)
      s.has_index.push_back(!l.shared_index);
    else
      ++s.kda_layers;
  }
  s.mtp = weights_.mtp.has_value();
  if (s.mtp) s.has_index.push_back(true), s.hidden = config_.hidden;
  s.kda_heads = static_cast<int>(partition_.is(Parallel::kTensor) ? partition_.share(config_.kda_heads).count
                                                                  : config_.kda_heads);
  s.kda_k = s.kda_v = config_.kda_dim;
  s.conv_width = config_.conv_width;
  s.replay_length = replay_length;
  s.replay = dtype_;
  return s;
}

int64_t TextTower::activation_bytes(int64_t rows, int64_t logit_rows) const {
  const TextConfig& c = config_;
  const int64_t b = dtype_bytes(dtype_), s = c.hc_copies;
  const int64_t held = (s + 5) * c.hidden * b + (s + s * s) * 4 + (c.index_top_k + c.kpool) * 4;
  const int64_t kda = (int64_t{c.kda_heads} * c.kda_dim * 6 + c.kda_heads + 2 * c.kda_dim) * b + c.hidden * 4;
  const int64_t sparse = (c.q_rank + 2 * c.latent + int64_t{c.heads} * (c.qk + c.v) + 4 * c.index_dim +
                          int64_t{c.index_heads} * c.index_dim) *
                             b +
                         c.index_heads * 4;
  const int64_t per_row = held + std::max(kda, sparse) + c.top_k * 8;
  constexpr int64_t kAlignmentSlack = 64 * 64;
  return rows * per_row + logit_rows * c.vocab * 8 + kAlignmentSlack;
}

}  // namespace lathe::glm5_next
