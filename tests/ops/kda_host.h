#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/cpu_features.h"
#include "ops/host.h"
#include "ops/kda_decode/kda_decode.h"
#include "ops/kda_prefill/kda_prefill.h"
#include "ops/kda_replay/kda_replay.h"
#include "ops/kda_scan/kda_scan.h"
#include "testing/golden.h"

// A KDA layer with the raw rows of one sequence, and the paths that may run it.
namespace lathe::testing {

struct KdaTestSizes {
  int heads = 2, k = 16, v = 24, width = 4;
  float bound = -5;
  int ring = 3;
  DType dtype = DType::kF32;
  int64_t channels() const { return int64_t{heads} * (2 * k + v); }
};

// What a path leaves behind, as floats.
struct KdaOutcome {
  std::vector<float> y, state;
};

class KdaSequence {
 public:
  KdaSequence(Host& host, KdaTestSizes sizes, int64_t tokens, unsigned seed = 1, bool retain = true)
      : host_(host), sizes(sizes), tokens(tokens) {
    random_.seed(seed);
    const int64_t keys = int64_t{sizes.heads} * sizes.k, values = int64_t{sizes.heads} * sizes.v;
    layer.conv_weight = host.vector(normal(sizes.channels() * sizes.width, 0.5));
    layer.a_log = host.vector(normal(sizes.heads, 0.2));
    layer.dt_bias = host.vector(retain ? normal(keys, 5, -8.5) : normal(keys, 1));
    layer.norm_weight = host.vector(normal(sizes.v, 0.2, 1));
    layer.heads = sizes.heads, layer.k = sizes.k, layer.v = sizes.v, layer.width = sizes.width,
    layer.bound = sizes.bound;
    in.qkv = rows(sizes.channels());
    in.forget = rows(keys);
    in.beta = rows(sizes.heads);
    in.gate = rows(values);
  }

  std::vector<float> normal(int64_t count, double spread, double mean = 0) {
    std::normal_distribution<float> d(static_cast<float>(mean), static_cast<float>(spread));
    std::vector<float> x(count);
    for (float& f : x) f = d(random_);
    return x;
  }

  // Fresh memory, full of what a slot's last owner left.
  KdaMemory memory(int64_t slots = 3) {
    KdaMemory m{.ring = sizes.ring};
    const Rows state =
        host_.rows(slots, int64_t{sizes.heads} * sizes.v * sizes.k, normal(slots * sizes.heads * sizes.v * sizes.k, 1));
    const int64_t history = sizes.ring * sizes.channels();  // none where the convolution is one row wide
    const Rows conv = history ? host_.rows(slots, history, normal(slots * history, 1), sizes.dtype)
                              : host_.empty(slots, 0, sizes.dtype);
    m.state = {.data = state.data, .dtype = DType::kF32, .items = slots, .item_size = state.width};
    m.conv = {.data = conv.data, .dtype = sizes.dtype, .items = slots, .item_size = conv.width};
    return m;
  }

  KdaRows slice(int64_t begin, int64_t count) const {
    return {in.qkv.slice(begin, count), in.forget.slice(begin, count), in.beta.slice(begin, count),
            in.gate.slice(begin, count)};
  }
  Rows fresh_y(int64_t count) { return host_.empty(count, int64_t{sizes.heads} * sizes.v, sizes.dtype); }

  // Rows [begin, end) in one call of kda_prefill, at their positions.
  void prefill(OpContext ctx, const KdaMemory& m, int64_t begin, int64_t end, const Rows& y, int32_t slot = 1) {
    KdaPrefillArgs args{
        .in = slice(begin, end - begin),
        .layer = layer,
        .runs = {host_.ints({0, static_cast<int32_t>(end - begin)}), host_.ints({static_cast<int32_t>(begin)})},
        .slot = host_.ints({slot}),
        .memory = m,
        .y = y.slice(begin, end - begin)};
    expect_ok(kda_prefill(ctx, args));
  }
  void decode(OpContext ctx, const KdaMemory& m, int64_t position, const Rows& y, int32_t slot = 1) {
    KdaDecodeArgs args{.in = slice(position, 1),
                       .layer = layer,
                       .past = host_.ints({static_cast<int32_t>(position)}),
                       .slot = host_.ints({slot}),
                       .memory = m,
                       .y = y.slice(position, 1)};
    expect_ok(kda_decode(ctx, args));
  }

  // The whole sequence, cut before the given positions.
  KdaOutcome prefilled(OpContext ctx, std::vector<int64_t> cuts = {}) {
    const KdaMemory m = memory();
    const Rows y = fresh_y(tokens);
    cuts.push_back(tokens);
    int64_t begin = 0;
    for (int64_t cut : cuts) prefill(ctx, m, begin, cut, y), begin = cut;
    return outcome(m, y);
  }
  KdaOutcome decoded(OpContext ctx) {
    const KdaMemory m = memory();
    const Rows y = fresh_y(tokens);
    for (int64_t t = 0; t < tokens; ++t) decode(ctx, m, t, y);
    return outcome(m, y);
  }

  // Replay steps of up to `rows` rows each, all accepted; folded at the end.
  KdaOutcome replayed(OpContext ctx, int length, int rows) {
    const int ring = sizes.ring;
    sizes.ring = std::max(ring, sizes.width - 1 + rows);
    KdaReplayArgs args = replay_args(length, DType::kF32);
    const Rows y = fresh_y(tokens);
    for (int64_t t = 0; t < tokens; t += rows)
      replay_step(ctx, args, t, std::min<int64_t>(tokens, t + rows), y),
          advance(args, static_cast<int>(std::min<int64_t>(rows, tokens - t)));
    flush(ctx, args);
    sizes.ring = ring;
    return outcome(args.memory, y);
  }
  // Slot 1 of three, its cursor at 0, rings full of rubbish.
  KdaReplayArgs replay_args(int length, DType ring) {
    KdaReplayArgs args{.layer = layer, .slot = host_.ints({1}), .cursor = host_.ints({0, 0, 0}), .memory = memory()};
    args.ring_key = pool(3, int64_t{sizes.heads} * length * sizes.k, ring);
    args.ring_d = pool(3, int64_t{sizes.heads} * length * sizes.v, ring);
    args.ring_gate = pool(3, int64_t{sizes.heads} * length * sizes.k, DType::kF32);
    args.length = length;
    return args;
  }
  void replay_step(OpContext ctx, KdaReplayArgs& args, int64_t begin, int64_t end, const Rows& y) {
    args.in = slice(begin, end - begin);
    args.runs = {host_.ints({0, static_cast<int32_t>(end - begin)}), host_.ints({static_cast<int32_t>(begin)})};
    args.y = y.slice(begin, end - begin);
    args.flush = false;
    expect_ok(kda_replay(ctx, args));
    rows_ = static_cast<int>(end - begin);
  }
  // As the executor does after a step: the first `accepted` of its rows count.
  void advance(KdaReplayArgs& args, int accepted) const {
    auto& cursor = const_cast<int32_t&>(args.cursor[1]);
    cursor = replay_base(cursor, rows_, args.length) + accepted;
  }
  void flush(OpContext ctx, KdaReplayArgs& args) const {
    args.in = slice(0, 0);
    args.runs = {};
    args.y = args.y.slice(0, 0);
    args.flush = true;
    expect_ok(kda_replay(ctx, args));
    const_cast<int32_t&>(args.cursor[1]) = 0;
  }

  KdaOutcome scanned(OpContext ctx, int segments) {
    const KdaMemory m = memory();
    const Rows y = fresh_y(tokens);
    scan(ctx, m, 0, tokens, 0, segments, y);
    return outcome(m, y);
  }
  // Rows [begin, end) as this rank's, or all ranks', of a call that began at position `before`.
  void scan(OpContext ctx, const KdaMemory& m, int64_t begin, int64_t end, int64_t before, int segments, const Rows& y,
            int32_t slot = 1) {
    KdaScanArgs args{
        .in = slice(begin, end - begin),
        .layer = layer,
        .runs = {host_.ints({0, static_cast<int32_t>(end - begin)}), host_.ints({static_cast<int32_t>(begin)})},
        .before = host_.ints({static_cast<int32_t>(before)}),
        .slot = host_.ints({slot}),
        .memory = m,
        .segments = segments,
        .y = y.slice(begin, end - begin)};
    expect_ok(kda_scan(ctx, args));
  }

  Pool pool(int64_t items, int64_t size, DType dtype) {
    return {.data = host_.rows(items, size, normal(items * size, 1), dtype).data,
            .dtype = dtype,
            .items = items,
            .item_size = size};
  }

  // The state and ring of a slot as floats.
  std::vector<float> slot_contents(const KdaMemory& m, int64_t slot) const {
    std::vector<float> all(m.state.item_size + m.conv.item_size);
    read_floats(m.state.at(slot), m.state.dtype, m.state.item_size, all.data());
    read_floats(m.conv.at(slot), m.conv.dtype, m.conv.item_size, all.data() + m.state.item_size);
    return all;
  }

  KdaOutcome outcome(const KdaMemory& m, const Rows& y, int64_t slot = 1) {
    const float* state = m.state.f32(slot);
    return {Host::values(y), {state, state + m.state.item_size}};
  }

  static void expect_ok(const Status& s) { EXPECT_TRUE(s.is_ok()) << s.message(); }

  Host& host_;
  KdaTestSizes sizes;
  int64_t tokens;
  KdaLayer layer;
  KdaRows in;

 private:
  Rows rows(int64_t width) { return host_.rows(tokens, width, normal(tokens * width, 1), sizes.dtype); }
  std::mt19937 random_;
  int rows_ = 0;  // of the last replay step
};

// Those that this machine can run.
template <class Args>
std::vector<std::string> variant_names(const Op<Args>& op) {
  std::vector<std::string> names;
  for (const Variant<Args>& v : op.variants) {
    const std::string name = v.name;  // avx2, chunked_avx2, ...
    if (name.ends_with("avx512") && !cpu_features().avx512) continue;
    if (name.ends_with("avx2") && !cpu_features().avx2) continue;
    names.push_back(name);
  }
  return names;
}

}  // namespace lathe::testing
