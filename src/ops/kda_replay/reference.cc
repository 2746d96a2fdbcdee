#include <algorithm>
#include <cmath>

#include "ops/element.h"
#include "ops/kda_prefill/oracle.h"
#include "ops/kda_replay/variants.h"

namespace lathe::reference {

namespace {

// Below this running log gate a pre-decayed key could leave fp32. A record that lies lower stores its key decayed by
// e^80 only; `excess` is what is missing.
constexpr double kFloor = -80;

struct Record {
  std::vector<double> key, d, gate;  // as stored: pre-decayed key [K], d [V], running log gate [K]
  double excess(size_t i) const { return std::min(gate[i] - kFloor, 0.0); }
};

// One head of one slot: its checkpoint and its records.
class Head {
 public:
  Head(const KdaReplayArgs& args, int64_t slot, int head)
      : args_(args), slot_(slot), head_(head), k_(args.layer.k), v_(args.layer.v), S_(k_ * v_) {
    for (size_t i = 0; i < S_.size(); ++i) S_[i] = load(args.memory.state, slot, head * S_.size() + i);
  }

  Record record(int j) const {
    Record r{std::vector<double>(k_), std::vector<double>(v_), std::vector<double>(k_)};
    for (size_t i = 0; i < k_; ++i) r.key[i] = load(args_.ring_key, slot_, at(j) * k_ + i);
    for (size_t i = 0; i < v_; ++i) r.d[i] = load(args_.ring_d, slot_, at(j) * v_ + i);
    for (size_t i = 0; i < k_; ++i) r.gate[i] = load(args_.ring_gate, slot_, at(j) * k_ + i);
    return r;
  }

  // Running log gate after `count` records.
  std::vector<double> gate_after(int count) const { return count ? record(count - 1).gate : std::vector<double>(k_); }

  // The state `count` records and a decay of G later: (S0 + sum_j d_j·key_jᵀ)·Diag(exp(G)).
  std::vector<double> state_after(int count, const std::vector<double>& G) const {
    std::vector<double> S = S_;
    for (size_t at = 0; at < S.size(); ++at) S[at] *= std::exp(G[at % k_]);
    for (int n = 0; n < count; ++n) {
      const Record r = record(n);
      for (size_t j = 0; j < v_; ++j)
        for (size_t i = 0; i < k_; ++i) S[j * k_ + i] += r.d[j] * r.key[i] * std::exp(G[i] - r.excess(i));
    }
    return S;
  }

  void fold(int count) {
    S_ = state_after(count, gate_after(count));
    for (size_t i = 0; i < S_.size(); ++i) store(args_.memory.state, slot_, head_ * S_.size() + i, S_[i]);
  }

  void store_record(int j, const Record& r) {
    for (size_t i = 0; i < k_; ++i) store(args_.ring_key, slot_, at(j) * k_ + i, r.key[i]);
    for (size_t i = 0; i < v_; ++i) store(args_.ring_d, slot_, at(j) * v_ + i, r.d[i]);
    for (size_t i = 0; i < k_; ++i) store(args_.ring_gate, slot_, at(j) * k_ + i, r.gate[i]);
  }

  // Output of the token that becomes record j.
  std::vector<double> step(int j, const KdaToken& t) {
    std::vector<double> G = gate_after(j);
    for (size_t i = 0; i < k_; ++i) G[i] += t.g[i];
    const std::vector<double> decayed = state_after(j, G);
    Record r{std::vector<double>(k_), std::vector<double>(v_), G};
    for (size_t i = 0; i < k_; ++i) r.key[i] = t.k[i] * std::exp(-std::max(G[i], kFloor));
    double kq = 0;
    for (size_t i = 0; i < k_; ++i) kq += t.k[i] * t.q[i];
    std::vector<double> o(v_);
    for (size_t n = 0; n < v_; ++n) {
      double seen = 0;
      for (size_t i = 0; i < k_; ++i) seen += decayed[n * k_ + i] * t.k[i], o[n] += decayed[n * k_ + i] * t.q[i];
      r.d[n] = t.b * (t.v[n] - seen);
      o[n] += r.d[n] * kq;
    }
    store_record(j, r);
    return o;
  }

 private:
  int64_t at(int j) const { return int64_t{head_} * args_.length + j; }

  const KdaReplayArgs& args_;
  int64_t slot_, head_;
  size_t k_, v_;
  std::vector<double> S_;
};

void run_head(const KdaReplayArgs& args, int64_t slot, int h, int committed, int32_t begin,
              const std::vector<KdaToken>& tokens) {
  const KdaLayer& layer = args.layer;
  const int rows = static_cast<int>(tokens.size()), base = replay_base(committed, rows, args.length);
  Head head(args, slot, h);
  if (base < committed) head.fold(committed);

  std::vector<double> G = head.gate_after(base);  // after the last row
  for (const KdaToken& t : tokens)
    for (int i = 0; i < layer.k; ++i) G[i] += t.g[i];
  if (layer.bound == 0 && base > 0 && *std::min_element(G.begin(), G.end()) < kFloor) {
    head.fold(base);
    const Record neutral{std::vector<double>(layer.k), std::vector<double>(layer.v), std::vector<double>(layer.k)};
    for (int j = 0; j < base; ++j) head.store_record(j, neutral);
  }
  for (int r = 0; r < rows; ++r) kda_store_output(head.step(base + r, tokens[r]), args.in, layer, begin + r, h, args.y);
}

void run_sequence(const KdaReplayArgs& args, int64_t sequence) {
  const KdaLayer& layer = args.layer;
  const int64_t slot = args.slot[sequence];
  const int32_t begin = args.runs.start[sequence], end = args.runs.start[sequence + 1], past = args.runs.past[sequence];
  LATHE_CHECK(end - begin <= args.length);
  if (past == 0)
    for (int64_t i = 0; i < args.memory.state.item_size; ++i) store(args.memory.state, slot, i, 0.0);
  std::vector<std::vector<KdaToken>> tokens(layer.heads);
  for (int32_t row = begin; row < end; ++row) {
    const int64_t position = past + row - begin;
    for (int h = 0; h < layer.heads; ++h)
      tokens[h].push_back(kda_token(args.in, layer, row, h, args.memory, slot, position));
    kda_push(args.in, row, args.memory, slot, position);
  }
  for (int h = 0; h < layer.heads; ++h) run_head(args, slot, h, past == 0 ? 0 : args.cursor[slot], begin, tokens[h]);
}

}  // namespace

Status kda_replay(OpContext&, const KdaReplayArgs& args) {
  for (int64_t s = 0; s < args.slot.count; ++s) {
    const int64_t slot = args.slot[s];
    if (args.flush) {
      for (int h = 0; slot >= 0 && h < args.layer.heads; ++h)
        if (args.cursor[slot]) Head(args, slot, h).fold(args.cursor[slot]);
      continue;
    }
    const int32_t begin = args.runs.start[s], end = args.runs.start[s + 1];
    if (slot < 0)
      kda_zero_rows(args.y, begin, end);
    else if (begin < end)
      run_sequence(args, s);
  }
  return Status::ok();
}

}  // namespace lathe::reference
