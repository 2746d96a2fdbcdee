// Checks and times the KDA kernels for sm_90a: kda [decode|prefill|...]. Every figure is printed with its error against
// doubles, its roof and the fraction of it reached. Outputs are poisoned before a check; decode runs from cold L2
// (states are rotated through at least four times its size) in a captured graph; times are medians of replays.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>

#include "kda_problem.cuh"
#include "ops/kda_decode/kda_decode_sm90.cuh"
#include "ops/kda_replay/kda_replay_sm90.cuh"

namespace lathe::bench {

namespace {

constexpr double kBytesPerMicrosecond = 4.8e6;
constexpr int64_t kColdBytes = int64_t{4} * 60 << 20;

void in_parallel(int64_t tasks, const std::function<void(int64_t)>& f) {
  std::atomic<int64_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back([&] {
      for (int64_t t; (t = next++) < tasks;) f(t);
    });
  for (auto& t : threads) t.join();
}

// Median microseconds of one of `launches` launches, captured as one graph.
double time_graph(int launches, int replays, const std::function<void(int, cudaStream_t)>& launch) {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "stream");
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  for (int i = 0; i < launches; ++i) launch(i, stream);
  check(cudaStreamEndCapture(stream, &graph), "end of capture");
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event"), check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int i = 0; i < replays + 3; ++i) {
    check(cudaEventRecord(begin, stream), "record");
    check(cudaGraphLaunch(exec, stream), "graph");
    check(cudaEventRecord(end, stream), "record");
    check(cudaEventSynchronize(end), "replay");
    float ms;
    check(cudaEventElapsedTime(&ms, begin, end), "elapsed");
    if (i >= 3) times.push_back(ms * 1000 / static_cast<float>(launches));
  }
  std::sort(times.begin(), times.end());
  cudaGraphExecDestroy(exec), cudaGraphDestroy(graph), cudaEventDestroy(begin), cudaEventDestroy(end);
  cudaStreamDestroy(stream);
  return times[times.size() / 2];
}

void report(const std::string& shape, double us, double bytes, const std::string& more = "") {
  const double roof = bytes / kBytesPerMicrosecond;
  std::printf("%-34s %9.2f us  roof %8.2f us  %.3f of roof  %s\n", shape.c_str(), us, roof, roof / us, more.c_str());
  std::fflush(stdout);
}

struct Errors {
  Error y, state;
  int wrong_rings = 0, unwritten = 0;
  std::string text() const {
    char out[160];
    std::snprintf(out, sizeof out, "error y %.2e state %.2e%s%s", y.ratio(), state.ratio(),
                  wrong_rings ? "  WRONG RINGS" : "", unwritten ? "  UNWRITTEN OUTPUTS" : "");
    return out;
  }
};

// Compares what a call left in device memory with the oracle, for the heads listed; inputs as fetched before the call.
Errors compare(Problem& p, const std::vector<int>& heads) {
  std::vector<bf16> conv_before = p.conv.host;
  std::vector<float> state(p.state.count);
  std::vector<bf16> conv(p.conv.count), y(p.y.count);
  check(cudaMemcpy(state.data(), p.state.data, p.state.count * 4, cudaMemcpyDeviceToHost), "state");
  check(cudaMemcpy(conv.data(), p.conv.data, p.conv.count * 2, cudaMemcpyDeviceToHost), "conv");
  check(cudaMemcpy(y.data(), p.y.data, p.y.count * 2, cudaMemcpyDeviceToHost), "y");
  const int64_t size = Problem::kSize, channels = 3 * size * p.heads;
  const auto count = static_cast<int64_t>(heads.size());
  std::vector<Errors> parts(p.sequences() * count);
  in_parallel(p.sequences() * count, [&](int64_t task) {
    const int sequence = static_cast<int>(task / count), head = heads[task % count], slot = p.slots[sequence];
    Errors& e = parts[task];
    if (slot < 0) {
      for (int64_t row = p.start[sequence]; row < p.start[sequence + 1]; ++row)
        for (int i = 0; i < size; ++i) e.unwritten += !(number(y[(row * p.heads + head) * size + i]) == 0);
      return;
    }
    Oracle oracle(p, sequence, head);
    const int64_t begin = p.start[sequence], end = p.start[sequence + 1];
    for (int64_t row = begin; row < end; ++row) {
      const std::vector<double> want = oracle.step();
      for (int i = 0; i < size; ++i) {
        const double got = number(y[(row * p.heads + head) * size + i]);
        e.unwritten += !std::isfinite(got);
        e.y.add(got, want[i]);
      }
    }
    const int64_t at = (slot * int64_t{p.heads} + head) * size * size;
    if (begin < end)
      for (int64_t i = 0; i < size * size; ++i) e.state.add(state[at + i], oracle.S[i]);
    for (int r = 0; r < p.ring; ++r) {
      const int64_t last = p.past[sequence] + end - begin - 1, back = ((last - r) % p.ring + p.ring) % p.ring;
      for (int part = 0; part < 3; ++part)
        for (int i = 0; i < size; ++i) {
          const int64_t channel = (int64_t{part} * p.heads + head) * size + i;
          const int64_t cell = (slot * int64_t{p.ring} + r) * channels + channel;
          const bf16 want =
              end - 1 - back >= begin ? p.qkv.host[(end - 1 - back) * channels + channel] : conv_before[cell];
          e.wrong_rings += number(conv[cell]) != number(want);
        }
    }
  });
  Errors all;
  for (const Errors& e : parts) {
    all.y.error += e.y.error, all.y.reference += e.y.reference;
    all.state.error += e.state.error, all.state.reference += e.state.reference;
    all.wrong_rings += e.wrong_rings, all.unwritten += e.unwritten;
  }
  return all;
}

std::vector<int> every_head(int heads) {
  std::vector<int> all(heads);
  for (int i = 0; i < heads; ++i) all[i] = i;
  return all;
}

// ---- decode

void decode() {
  for (Gates gates : {Gates::kForget, Gates::kRetain}) {
    std::vector<int> ones(37, 1);
    std::vector<int32_t> past;
    for (int i = 0; i < 37; ++i) past.push_back(i % 7 * i);
    Problem p(8, ones, past, gates, 5, 4);
    p.fetch_inputs();
    p.restore_memory();
    check(sm90::launch_kda_decode(p.call(), p.d_past.data, p.d_slot.data, 37, sm90::KdaState::kF32, nullptr), "decode");
    check(cudaDeviceSynchronize(), "decode");
    std::printf("decode rows 37 heads 8 %s: %s\n", name(gates), compare(p, every_head(8)).text().c_str());
    // A row alone gives the same bits as in company.
    p.y.fetch();
    const auto together = p.y.host;
    p.restore_memory();
    for (int r = 0; r < 37; ++r) {
      sm90::KdaCall c = p.call();
      c.qkv += r * c.qkv_stride, c.forget += r * c.forget_stride, c.beta += r * c.beta_stride,
          c.gate += r * c.gate_stride;
      c.y += r * c.y_stride;
      check(sm90::launch_kda_decode(c, p.d_past.data + r, p.d_slot.data + r, 1, sm90::KdaState::kF32, nullptr),
            "decode");
    }
    p.y.fetch();
    std::printf("decode rows alone: %s\n",
                std::memcmp(together.data(), p.y.host.data(), together.size() * 2) ? "DIFFERENT BITS" : "same bits");
  }
  for (sm90::KdaState state : {sm90::KdaState::kF32, sm90::KdaState::kBF16})
    for (auto [rows, heads] : {std::pair{1, 8}, {1, 64}, {8, 64}, {32, 64}, {128, 64}, {256, 64}}) {
      const int64_t state_bytes = state == sm90::KdaState::kF32 ? 65536 : 32768;
      const int sets = static_cast<int>(std::max<int64_t>(1, kColdBytes / (rows * heads * state_bytes) + 1));
      Problem p(heads, std::vector<int>(rows * sets, 1), std::vector<int32_t>(rows * sets, 4096), Gates::kForget);
      const double us = time_graph(std::max(sets, 4), 15, [&](int i, cudaStream_t stream) {
        const int r = i % sets * rows;
        sm90::KdaCall c = p.call();
        c.qkv += r * c.qkv_stride, c.forget += r * c.forget_stride, c.beta += r * c.beta_stride;
        c.gate += r * c.gate_stride, c.y += r * c.y_stride;
        check(sm90::launch_kda_decode(c, p.d_past.data + r, p.d_slot.data + r, rows, state, stream), "decode");
      });
      report("decode B " + std::to_string(rows) + " H " + std::to_string(heads) +
                 (state == sm90::KdaState::kF32 ? " f32" : " bf16 state"),
             us, double(rows) * heads * (2.0 * static_cast<double>(state_bytes) + 6146));
    }
}

// ---- replay

struct Rings {
  Buffer<bf16> key, d;
  Buffer<float> gate;
  Buffer<int32_t> cursor;

  Rings(int64_t slots, int heads)
      : key(slots * heads * 2048), d(slots * heads * 2048), gate(slots * heads * 2048), cursor(slots) {
    key.poison(), d.poison(), gate.poison();
  }
  sm90::KdaReplay replay(const int32_t* start, const int32_t* past, const int32_t* slot, int sequences,
                         bool flush = false) const {
    return {start, past, slot, cursor.data, sequences, key.data, d.data, gate.data, flush};
  }
};

// Steps through every run of `p`, some rows at a time of which some are accepted, and compares each step's outputs and,
// after a flush, the states. Sequence i joins at step i % 16, so that cursors differ.
void check_replay(const std::string& what, Problem& p, int most_rows) {
  const int n = p.sequences(), heads = p.heads, size = Problem::kSize;
  const int64_t widths[] = {int64_t{3} * size * heads, int64_t{size} * heads, heads, int64_t{size} * heads};
  p.fetch_inputs();
  std::vector<std::vector<double>> want(n * heads);
  std::vector<std::vector<double>> states(n * heads);
  in_parallel(n * heads, [&](int64_t i) {
    Oracle oracle(p, static_cast<int>(i / heads), static_cast<int>(i % heads));
    for (int64_t row = p.start[i / heads]; row < p.start[i / heads + 1]; ++row)
      for (double y : oracle.step()) want[i].push_back(y);
    states[i] = oracle.S;
  });
  Rings rings(n + 1, heads);
  Problem step(heads, std::vector<int>(n, most_rows), std::vector<int32_t>(n, 0), Gates::kForget);
  sm90::KdaCall call = p.call();
  call.qkv = step.qkv.data, call.forget = step.forget.data, call.beta = step.beta.data, call.gate = step.gate.data;
  call.y = step.y.data;
  const Buffer<bf16>*from[] = {&p.qkv, &p.forget, &p.beta, &p.gate},
        *to[] = {&step.qkv, &step.forget, &step.beta, &step.gate};
  std::vector<int32_t> done(n, 0), cursor(n + 1, 0), start(n + 1), past(n);
  Buffer<int32_t> d_start(start), d_past(past);
  rings.cursor.host = cursor;
  Errors errors;
  uint32_t random = 1;
  for (int round = 0, left = n; left; ++round) {
    left = 0;
    for (int i = 0; i < n; ++i) {
      const int rest = p.start[i + 1] - p.start[i] - done[i];
      random = random * 1664525 + 1013904223;
      const int rows = round < i % 16 ? 0 : std::min(rest, 1 + static_cast<int>(random >> 16) % most_rows);
      start[i + 1] = start[i] + rows, past[i] = p.past[i] + done[i];
      for (int part = 0; part < 4 && rows; ++part)
        check(cudaMemcpyAsync(to[part]->data + start[i] * widths[part],
                              from[part]->data + (p.start[i] + done[i]) * widths[part], rows * widths[part] * 2,
                              cudaMemcpyDeviceToDevice),
              "rows");
    }
    d_start.host = start, d_past.host = past;
    d_start.restore(), d_past.restore(), rings.cursor.restore();
    step.y.poison();
    check(sm90::launch_kda_replay(call, rings.replay(d_start.data, d_past.data, p.d_slot.data, n), most_rows == 1,
                                  nullptr),
          "replay");
    step.y.fetch();
    for (int i = 0; i < n; ++i) {
      const int rows = start[i + 1] - start[i];
      if (rows == 0) {
        left += done[i] < p.start[i + 1] - p.start[i];
        continue;
      }
      for (int r = 0; r < rows; ++r)
        for (int h = 0; h < heads; ++h)
          for (int v = 0; v < size; ++v) {
            const double got = number(step.y.host[((start[i] + r) * int64_t{heads} + h) * size + v]);
            errors.unwritten += !std::isfinite(got);
            errors.y.add(got, want[i * heads + h][(done[i] + r) * size + v]);
          }
      random = random * 1664525 + 1013904223;
      const int accepted =
          rows == p.start[i + 1] - p.start[i] - done[i] ? rows : 1 + static_cast<int>(random >> 16) % rows;
      int32_t& c = rings.cursor.host[p.slots[i]];
      if (past[i] == 0) c = 0;
      c = (c + rows > sm90::kReplayLength ? 0 : c) + accepted;
      done[i] += accepted;
      left += done[i] < p.start[i + 1] - p.start[i];
    }
  }
  rings.cursor.restore();
  check(sm90::launch_kda_replay(call, rings.replay(nullptr, nullptr, p.d_slot.data, n, true), most_rows == 1, nullptr),
        "flush");
  std::vector<float> got(p.state.count);
  check(cudaMemcpy(got.data(), p.state.data, p.state.count * 4, cudaMemcpyDeviceToHost), "state");
  for (int i = 0; i < n; ++i)
    for (int h = 0; h < heads; ++h)
      for (int c = 0; c < size * size; ++c)
        errors.state.add(got[(p.slots[i] * int64_t{heads} + h) * size * size + c], states[i * heads + h][c]);
  std::printf("replay %s: %s\n", what.c_str(), errors.text().c_str());
  std::fflush(stdout);
}

void replay() {
  for (Gates gates : {Gates::kForget, Gates::kRetain}) {
    std::vector<int32_t> past;
    for (int i = 0; i < 24; ++i) past.push_back(i % 5 * i);
    for (int rows : {1, 8}) {
      Problem p(4, std::vector<int>(24, 70), past, gates, 11);
      check_replay(std::string(name(gates)) + (rows == 1 ? ", one row" : ", 1 to 8 rows, some rejected"), p, rows);
    }
  }
  Problem longer(4, {8192}, {7}, Gates::kRetain, 4);
  check_replay("retain, 8192 steps", longer, 1);
  for (int rows : {8, 32, 64, 128, 256}) {
    const int heads = 64, sets = static_cast<int>(std::max<int64_t>(1, kColdBytes / (rows * heads * 65536) + 1));
    const int all = rows * sets;
    Problem p(heads, std::vector<int>(all, 1), std::vector<int32_t>(all, 4096), Gates::kForget);
    Rings rings(all + 1, heads);
    rings.key = Buffer<bf16>(rings.key.count).normal(0.1), rings.d = Buffer<bf16>(rings.d.count).normal(0.1);
    rings.gate = Buffer<float>(rings.gate.count).normal(0.1, -1);
    std::vector<int32_t> starts;
    for (int i = 0; i <= rows; ++i) starts.push_back(i);
    Buffer<int32_t> start(starts);
    rings.cursor.host.resize(all + 1);
    auto part = [&](int i) {
      const int r = i % sets * rows;
      sm90::KdaCall c = p.call();
      c.qkv += r * c.qkv_stride, c.forget += r * c.forget_stride, c.beta += r * c.beta_stride,
          c.gate += r * c.gate_stride;
      c.y += r * c.y_stride;
      return std::pair{c, r};
    };
    auto time_replay = [&](const std::function<int(int)>& cursor) {
      for (int i = 0; i <= all; ++i) rings.cursor.host[i] = cursor(i);
      rings.cursor.restore();
      return time_graph(std::max(sets, 4), 15, [&](int i, cudaStream_t stream) {
        const auto [c, r] = part(i);
        check(sm90::launch_kda_replay(c, rings.replay(start.data, p.d_past.data + r, p.d_slot.data + r, rows), true,
                                      stream),
              "replay");
      });
    };
    const double step = time_graph(std::max(sets, 4), 15, [&](int i, cudaStream_t stream) {
      const auto [c, r] = part(i);
      check(sm90::launch_kda_decode(c, p.d_past.data + r, p.d_slot.data + r, rows, sm90::KdaState::kF32, stream),
            "decode");
    });
    const double cycle = time_replay([](int slot) { return 1 + slot % 16; }),
                 middle = time_replay([](int) { return 8; }), fold = time_replay([](int) { return 16; });
    char more[160];
    std::snprintf(more, sizeof more, "cursor 8 %.2f us, all fold %.2f us; decode %.2f us: %.3f times", middle, fold,
                  step, step / cycle);
    report("replay cycle B " + std::to_string(rows) + " H 64", cycle,
           double(rows) * heads * (65536 * 1.125 + 8.5 * 512 + 512 + 1024 + 6146), more);
  }
}

// ---- prefill

void run_prefill(Problem& p, Buffer<char>& workspace, cudaStream_t stream = nullptr) {
  check(sm90::launch_kda_prefill(p.call(), p.runs(), workspace.data, workspace.count, stream), "prefill");
}

void check_prefill(const std::string& name_, Problem& p, const std::vector<int>& heads, int64_t workspace_bytes = 0) {
  Buffer<char> workspace(workspace_bytes ? workspace_bytes
                                         : sm90::kda_prefill_workspace(p.rows(), p.sequences(), p.heads));
  p.fetch_inputs();
  p.restore_memory();
  workspace.poison();
  run_prefill(p, workspace);
  check(cudaDeviceSynchronize(), "prefill");
  std::printf("prefill %s: %s", name_.c_str(), compare(p, heads).text().c_str());
  p.y.fetch();
  const auto first = p.y.host;
  p.restore_memory();
  run_prefill(p, workspace);
  p.y.fetch();
  std::printf(", again: %s\n",
              std::memcmp(first.data(), p.y.host.data(), first.size() * 2) ? "DIFFERENT BITS" : "same bits");
}

void prefill() {
  const std::vector<int> ragged{17, 0, 1, 65, 3, 16, 2, 15, 63, 64, 1025};
  const std::vector<int32_t> past{0, 5, 1, 7, 0, 2, 131, 0, 64, 0, 3};
  for (Gates gates : {Gates::kForget, Gates::kRetain}) {
    Problem p(4, ragged, past, gates, 5, 4);
    check_prefill(std::string("ragged ") + name(gates), p, every_head(4));
    check_prefill(std::string("ragged in slices ") + name(gates), p, every_head(4), 17920 * 4 * 23);
    Problem many(8, std::vector<int>(20, 410), std::vector<int32_t>(20, 0), gates);
    check_prefill(std::string("20 x 410 ") + name(gates), many, {0, 7});
  }
  for (Gates gates : {Gates::kForget, Gates::kRetain}) {
    Problem p(64, {8192}, {0}, gates);
    check_prefill(std::string("8192 H 64 ") + name(gates), p, {0, 13, 63});
  }
  struct Shape {
    std::string name;
    int heads;
    std::vector<int> lengths;
  };
  const std::vector<Shape> shapes{{"N 1 T 8192 H 64", 64, {8192}},
                                  {"20 x 410 H 64", 64, std::vector<int>(20, 410)},
                                  {"N 1 T 8192 H 16", 16, {8192}},
                                  {"N 1 T 65536 H 8", 8, {65536}}};
  for (const Shape& s : shapes) {
    Problem p(s.heads, s.lengths, std::vector<int32_t>(s.lengths.size(), 0), Gates::kRetain);
    const int64_t all = sm90::kda_prefill_workspace(p.rows(), p.sequences(), p.heads);
    for (int64_t bytes : {all, int64_t{24} << 20, int64_t{40} << 20}) {
      Buffer<char> workspace(std::min(bytes, all));
      const double us = time_graph(2, 15, [&](int, cudaStream_t stream) { run_prefill(p, workspace, stream); });
      report("prefill " + s.name, us, double(p.rows()) * p.heads * 1280,
             "workspace " + std::to_string(workspace.count >> 20) + " MiB");
    }
  }
}

}  // namespace

}  // namespace lathe::bench

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "decode") lathe::bench::decode();
  if (what == "replay") lathe::bench::replay();
  if (what == "prefill") lathe::bench::prefill();
}
