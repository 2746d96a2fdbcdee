// Checks and times the KDA kernels for sm_90a: kda [decode|prefill|...]. Every figure is printed with its error against
// doubles, its roof and the fraction of it reached. Outputs are poisoned before a check; decode runs from cold L2 (states
// are rotated through at least four times its size) in a captured graph; times are medians of replays.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>

#include "kda_problem.cuh"
#include "ops/kda_decode/kda_decode_sm90.h"

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
          const bf16 want = end - 1 - back >= begin ? p.qkv.host[(end - 1 - back) * channels + channel] : conv_before[cell];
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
      c.qkv += r * c.qkv_stride, c.forget += r * c.forget_stride, c.beta += r * c.beta_stride, c.gate += r * c.gate_stride;
      c.y += r * c.y_stride;
      check(sm90::launch_kda_decode(c, p.d_past.data + r, p.d_slot.data + r, 1, sm90::KdaState::kF32, nullptr), "decode");
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
  std::printf(", again: %s\n", std::memcmp(first.data(), p.y.host.data(), first.size() * 2) ? "DIFFERENT BITS" : "same bits");
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
  if (what == "prefill") lathe::bench::prefill();
}
