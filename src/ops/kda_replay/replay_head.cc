#include "ops/kda_replay/replay_head.h"

#include <algorithm>

#include "ops/row_floats.h"

namespace lathe {

namespace {

// Below this running log gate a pre-decayed key could leave fp32 (kda_replay.h).
constexpr float kFloor = -80;

float* zeros(Arena& arena, int64_t count) {
  float* p = arena.take<float>(count);
  std::fill_n(p, count, 0.0f);
  return p;
}

}  // namespace

KdaReplayHead::KdaReplayHead(const KdaSteps& steps, const KdaReplayArgs& args, Arena& arena)
    : work(steps, args.layer, args.length, arena), args_(args), sizes_(work.sizes) {
  const int64_t length = args.length, keys = length * sizes_.kp, values = length * sizes_.vp;
  keys_ = zeros(arena, keys), scaled_ = zeros(arena, keys), gates_ = zeros(arena, keys);
  d_ = zeros(arena, values);
  running_ = zeros(arena, keys), decayed_ = zeros(arena, 2 * keys), products_ = zeros(arena, 2 * values);
  weights_ = zeros(arena, 2 * length), row_ = zeros(arena, std::max(sizes_.kp, sizes_.vp));
  for (int64_t i = 0; i < 2 * length; ++i)
    inputs_.push_back(decayed_ + i * sizes_.kp), outputs_.push_back(products_ + i * sizes_.vp);
}

void KdaReplayHead::flush(int64_t slot, int head) {
  take(slot, head, args_.cursor[slot]);
  fold();
}

void KdaReplayHead::step(int head, const KdaRun& run) {
  const int rows = static_cast<int>(run.end - run.begin);
  work.take_head(head);
  work.activate(args_.in, args_.memory, run, run.begin, rows);
  for (int r = 0; r < rows; ++r)
    push_kda_head(args_.in, args_.memory, args_.layer, head, run.begin + r, run.slot, run.past + r);
  step_tokens(run.slot, head, run.past, rows);
  store_kda_rows(work, args_.in, args_.y, run.begin, rows, products_);
}

void KdaReplayHead::step_tokens(int64_t slot, int head, int64_t past, int rows) {
  const int committed = past == 0 ? 0 : args_.cursor[slot];
  take(slot, head, committed);
  if (past == 0) std::fill_n(state_, int64_t{sizes_.v} * sizes_.k, 0.0f);
  if (replay_base(committed, rows, args_.length) < committed) {
    fold();
    records_ = 0;
  }
  if (accumulate_gates(rows) && records_ > 0) {
    fold();
    forget_records();
    accumulate_gates(rows);
  }
  multiply_state(rows);
  for (int r = 0; r < rows; ++r) run_row(r);
}

// The committed records of a head, in fp32.
void KdaReplayHead::take(int64_t slot, int head, int committed) {
  slot_ = slot, head_ = head, records_ = committed;
  state_ = args_.memory.state.f32(slot) + int64_t{head} * sizes_.v * sizes_.k;
  deep_ = false;
  for (int j = 0; j < committed; ++j) {
    read_floats(at(args_.ring_key, j, sizes_.k), args_.ring_key.dtype, sizes_.k, keys_ + int64_t{j} * sizes_.kp);
    read_floats(at(args_.ring_d, j, sizes_.v), args_.ring_d.dtype, sizes_.v, d_ + int64_t{j} * sizes_.vp);
    read_gate(j);
  }
}

void KdaReplayHead::read_gate(int j) {
  if (args_.layer.bound < 0 && j + 1 < records_) return;  // only the last one counts: none is deep
  float* gate = gates_ + int64_t{j} * sizes_.kp;
  read_floats(at(args_.ring_gate, j, sizes_.k), DType::kF32, sizes_.k, gate);
  deep_ |= is_deep(gate);
}

bool KdaReplayHead::is_deep(const float* gate) const {
  return args_.layer.bound == 0 && *std::min_element(gate, gate + sizes_.k) < kFloor;
}

void* KdaReplayHead::at(const Pool& pool, int j, int width) const {
  return static_cast<char*>(pool.at(slot_)) + (int64_t{head_} * args_.length + j) * width * dtype_bytes(pool.dtype);
}

// Keys of the records as they stand under running log gate G: key·exp(G), a deep record's by its difference.
const float* KdaReplayHead::scaled_keys(const float* G, const float* exp_G) {
  for (int j = 0; j < records_; ++j) {
    const float *key = keys_ + int64_t{j} * sizes_.kp, *gate = gates_ + int64_t{j} * sizes_.kp, *decay = exp_G;
    if (deep_) {
      for (int i = 0; i < sizes_.k; ++i) row_[i] = G[i] - std::min(gate[i] - kFloor, 0.0f);
      work.steps.exponential(row_, row_, sizes_.kp);
      decay = row_;
    }
    for (int i = 0; i < sizes_.kp; ++i) scaled_[int64_t{j} * sizes_.kp + i] = key[i] * decay[i];
  }
  return scaled_;
}

// S0 <- the state after all records.
void KdaReplayHead::fold() {
  if (records_ == 0) return;
  const float* G = gates_ + int64_t{records_ - 1} * sizes_.kp;
  float* decay = decayed_;
  work.steps.exponential(G, decay, sizes_.kp);
  work.steps.fold(sizes_, state_, decay, d_, scaled_keys(G, decay), records_);
}

void KdaReplayHead::forget_records() {
  std::fill_n(keys_, int64_t{records_} * sizes_.kp, 0.0f);
  std::fill_n(gates_, int64_t{records_} * sizes_.kp, 0.0f);
  std::fill_n(d_, int64_t{records_} * sizes_.vp, 0.0f);
  for (int j = 0; j < records_; ++j) store_record(j);
  deep_ = false;
}

void KdaReplayHead::store_record(int j) const {
  write_floats(at(args_.ring_key, j, sizes_.k), args_.ring_key.dtype, sizes_.k, keys_ + int64_t{j} * sizes_.kp);
  write_floats(at(args_.ring_d, j, sizes_.v), args_.ring_d.dtype, sizes_.v, d_ + int64_t{j} * sizes_.vp);
  write_floats(at(args_.ring_gate, j, sizes_.k), DType::kF32, sizes_.k, gates_ + int64_t{j} * sizes_.kp);
}

// Running log gates of this step's rows; true if the last one is deep.
bool KdaReplayHead::accumulate_gates(int rows) {
  for (int r = 0; r < rows; ++r) {
    const float* before = r          ? running_ + int64_t{r - 1} * sizes_.kp
                          : records_ ? gates_ + int64_t{records_ - 1} * sizes_.kp
                                     : nullptr;
    const float* g = work.block.g + int64_t{r} * sizes_.kp;
    float* G = running_ + int64_t{r} * sizes_.kp;
    for (int i = 0; i < sizes_.kp; ++i) G[i] = (before ? before[i] : 0) + g[i];
  }
  return is_deep(running_ + int64_t{rows - 1} * sizes_.kp);
}

// S0·(exp(G)·k) and S0·(exp(G)·q) of every row.
void KdaReplayHead::multiply_state(int rows) {
  for (int r = 0; r < rows; ++r) {
    float *x = decayed_ + int64_t{2 * r} * sizes_.kp, *y = x + sizes_.kp;
    const float *k = work.block.k + int64_t{r} * sizes_.kp, *q = work.block.q + int64_t{r} * sizes_.kp;
    work.steps.exponential(running_ + int64_t{r} * sizes_.kp, y, sizes_.kp);
    for (int i = 0; i < sizes_.kp; ++i) x[i] = y[i] * k[i], y[i] *= q[i];
  }
  work.steps.products(sizes_, state_, inputs_.data(), 2 * rows, outputs_.data());
}

// Row r becomes record `records_`; its o takes the place of row r in products_.
void KdaReplayHead::run_row(int r) {
  const int64_t kp = sizes_.kp, vp = sizes_.vp;
  const float *G = running_ + r * kp, *k = work.block.k + r * kp, *q = work.block.q + r * kp,
              *v = work.block.v + r * vp;
  float *seen = outputs_[2 * r], *out = outputs_[2 * r + 1];
  if (records_ > 0) {
    const float* vectors[2] = {inputs_[2 * r], inputs_[2 * r + 1]};
    const float* keys = keys_;
    if (deep_) vectors[0] = k, vectors[1] = q, keys = scaled_keys(G, nullptr);
    float* weights[2] = {weights_, weights_ + args_.length};
    work.steps.products({sizes_.kp, records_, sizes_.kp, records_}, keys, vectors, 2, weights);
    work.steps.combine(sizes_, d_, records_, weights[0], weights[1], seen, out);
  }
  float *key = keys_ + records_ * kp, *d = d_ + records_ * vp, *gate = gates_ + records_ * kp;
  float kq = 0;
  for (int i = 0; i < sizes_.k; ++i) kq += k[i] * q[i];
  for (int j = 0; j < sizes_.v; ++j) d[j] = work.block.b[r] * (v[j] - seen[j]);
  for (int j = 0; j < sizes_.v; ++j) products_[r * vp + j] = out[j] + d[j] * kq;
  for (int i = 0; i < sizes_.k; ++i) row_[i] = -std::max(G[i], kFloor);
  work.steps.exponential(row_, row_, sizes_.kp);
  for (int i = 0; i < sizes_.k; ++i) key[i] = k[i] * row_[i], gate[i] = G[i];
  store_record(records_);
  read_back(records_++);
  deep_ |= is_deep(gate);
}
// Later rows see a record as the ring keeps it, whether or not they come in the same step.
void KdaReplayHead::read_back(int j) {
  read_floats(at(args_.ring_key, j, sizes_.k), args_.ring_key.dtype, sizes_.k, keys_ + int64_t{j} * sizes_.kp);
  read_floats(at(args_.ring_d, j, sizes_.v), args_.ring_d.dtype, sizes_.v, d_ + int64_t{j} * sizes_.vp);
}

}  // namespace lathe
