#include "feedback/model_work.h"

#include <algorithm>
#include <cmath>

namespace lathe {

namespace {

int64_t bytes_of(const Weight& w) {
  if (w.empty()) return 0;
  const int64_t scales = w.scale ? (w.out + w.block_out - 1) / w.block_out * w.scale_stride * 4 : 0;
  return w.out * w.in * dtype_bytes(w.dtype) + scales;
}

class WorkCounter {
 public:
  WorkCounter(const glm5_next::TextTower& tower) : tower_(tower), config_(tower.config()) {}

  ModelWork count() {
    for (const glm5_next::LayerWeights& layer : tower_.weights().layers) {
      for (const glm5_next::SiteWeights* site : {&layer.attention_site, &layer.feed_forward_site}) boundary(*site);
      if (layer.kda) kda(*layer.kda);
      if (layer.sparse) sparse(*layer.sparse);
      feed_forward(layer.feed_forward);
    }
    const Weight& head = tower_.weights().lm_head;
    read(head);
    add(work_.logit_row, head, 1);
    work_.most_positions = config_.index_top_k;
    return work_;
  }

 private:
  // A weight that a token's pass reads and multiplies; of a list of experts, a share.
  void product(const Weight& w, double share = 1) {
    work_.weight_bytes += static_cast<int64_t>(share * static_cast<double>(bytes_of(w)));
    add(work_.row, w, share);
  }
  void read(const Weight& w) { work_.weight_bytes += bytes_of(w); }
  void add(ProductFlop& flop, const Weight& w, double share) const {
    const double count = 2.0 * share * static_cast<double>(w.out) * static_cast<double>(w.in);
    if (w.is_w8a8() && w.dtype == DType::kI8)
      flop.int8 += count;
    else if (tower_.dtype() == DType::kBF16 && w.dtype != DType::kF32)
      flop.bf16 += count;
    else
      flop.fp32 += count;
  }
  void mlp(const MlpWeights& w, double share = 1) {
    product(w.gate, share), product(w.up, share), product(w.down, share);
  }

  static double flop_of(const Weight& w) { return 2.0 * static_cast<double>(w.out) * static_cast<double>(w.in); }

  // The maps from all streams, and mixing them: out of each, into each.
  void boundary(const glm5_next::SiteWeights& site) {
    read(site.fn);
    const double copies = config_.hc_copies;
    work_.mixing += flop_of(site.fn) + 2 * (copies * copies + 2 * copies) * config_.hidden;
  }
  void kda(const glm5_next::KdaWeights& w) {
    for (const Weight* one : {&w.q, &w.k, &w.v, &w.f_a, &w.f_b, &w.g_a, &w.g_b, &w.b, &w.o}) product(*one);
    const int64_t state = int64_t{w.layer.heads} * w.layer.k * w.layer.v;
    work_.state_update_bytes += 2 * 4 * state;
    constexpr double kPerValue = 7;  // decay, read by the key, write, read by the query
    work_.mixing += kPerValue * static_cast<double>(state);
  }
  void sparse(const glm5_next::SparseWeights& w) {
    for (const Weight* one : {&w.q_a, &w.q_b, &w.kv_a, &w.o}) product(*one);
    read(w.kv_b);                     // multiplied inside sparse_mla, in one of two forms
    work_.mixing += flop_of(w.kv_b);  // queries into latents, and sums of latents into values
    work_.mixing_per_attended += 4.0 * config_.heads * config_.latent;
    const int row_bytes = dtype_bytes(tower_.dtype());
    work_.latent_bytes_per_position += int64_t{config_.latent} * row_bytes;
    if (!w.index) return;
    for (const Weight* one : {&w.index->query, &w.index->key, &w.index->gate, &w.index->head}) product(*one);
    work_.mixing_per_position += 2.0 * config_.index_heads * config_.index_dim / config_.kpool;
    work_.index_bytes_per_position += int64_t{config_.index_dim} * row_bytes / config_.kpool;
  }
  void feed_forward(const glm5_next::FeedForwardWeights& w) {
    if (!w.router.empty()) product(w.router);
    const double share =
        w.experts.empty() ? 0 : static_cast<double>(config_.top_k) / static_cast<double>(w.experts.size());
    for (const MlpWeights& expert : w.experts) {
      mlp(expert, share);
      for (const Weight* one : {&expert.gate, &expert.up, &expert.down}) work_.expert_bytes += bytes_of(*one);
    }
    if (share > 0) work_.expert_share = share;
    for (const MlpWeights& shared : w.shared) mlp(shared);
  }

  const glm5_next::TextTower& tower_;
  const glm5_next::TextConfig& config_;
  ModelWork work_;
};

}  // namespace

ModelWork model_work(const glm5_next::TextTower& tower) { return WorkCounter(tower).count(); }

int64_t ModelWork::weight_bytes_of(int64_t rows) const {
  const double read = 1 - std::pow(1 - expert_share, static_cast<double>(rows));
  return weight_bytes + static_cast<int64_t>((read - expert_share) * static_cast<double>(expert_bytes));
}

double ModelWork::mixing_flop(int64_t context) const {
  return mixing + static_cast<double>(context) * mixing_per_position +
         static_cast<double>(std::min(context, most_positions)) * mixing_per_attended;
}

int64_t ModelWork::context_bytes(int64_t context) const {
  return context * index_bytes_per_position + std::min(context, most_positions) * latent_bytes_per_position;
}

}  // namespace lathe
