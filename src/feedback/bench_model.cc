#include "feedback/bench_model.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "engine/executor.h"
#include "feedback/ceilings.h"
#include "feedback/model_work.h"
#include "feedback/op_times.h"
#include "feedback/spread.h"
#include "model/glm5_next/synth.h"
#include "ops/registry.h"

namespace lathe {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUpSteps = 3;
constexpr int kCeilingSamples = 5;
constexpr int64_t kLargestCeilingSet = int64_t{2} << 30;
constexpr const char* kProductOps[] = {"linear", "mlp", "moe", "lm_head"};

struct PassTime {
  double us = 0, products_us = 0;
};

class ModelBench {
 public:
  static Result<std::unique_ptr<ModelBench>> create(const ModelBenchOptions& options);
  Status run(const ModelBenchProgress& progress);
  std::vector<NumberRow> take_rows() { return std::move(rows_); }

 private:
  explicit ModelBench(const ModelBenchOptions& options) : options_(options), pool_(options.threads) {}

  std::vector<int32_t> random_tokens(int count);
  void fill_pages();
  Result<double> timed_pass(SequenceId sequence, int tokens);
  Status prefill();
  Status decode(int context);
  void split_by_layer(int context, int steps);
  void split_by_operator(const std::string& name, int passes);
  NumberRow& add_row(const std::string& name, const std::vector<double>& us);
  void decode_roof(NumberRow& row, int context);
  double products_us() const;  // so far, in operators that are matrix products
  double products_us_at_peak(int rows, int logit_rows);

  ModelBenchOptions options_;
  ThreadPool pool_;
  std::unique_ptr<Device> device_ = make_cpu_device();
  std::optional<glm5_next::Config> config_;
  std::optional<Checkpoint> checkpoint_;
  std::unique_ptr<CeilingBench> ceilings_;
  OpTimes times_;
  std::unique_ptr<Executor> executor_;
  ModelWork work_;
  std::mt19937 random_{1};
  std::vector<NumberRow> rows_;
};

Result<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) return not_found("{}: can't be read", path);
  return text.str();
}

Result<std::unique_ptr<ModelBench>> ModelBench::create(const ModelBenchOptions& options) {
  std::unique_ptr<ModelBench> b(new ModelBench(options));
  LATHE_ASSIGN(const std::string text, read_text(options.config));
  LATHE_ASSIGN(b->config_, glm5_next::Config::parse(text, options.config));
  LATHE_ASSIGN(b->checkpoint_, glm5_next::synthesise_in_memory(*b->config_, options.format, 0, b->pool_));

  ExecutorOptions executor{
      .dtype = b->config_->text.dtype, .slots = 1, .observer = &b->times_, .probes = options.probes.get()};
  LATHE_RETURN_IF_ERROR(add_choices(options.variants, executor.choices));
  const int longest =
      std::max(*std::max_element(options.contexts.begin(), options.contexts.end()), options.prefill_tokens);
  const int page_tokens = page_tokens_for(std::max(1, b->config_->text.kpool));
  executor.pages = (longest + kWarmUpSteps + options.decode_steps) / page_tokens + 2;
  LATHE_ASSIGN(b->executor_, Executor::create(*b->config_, *b->checkpoint_, *b->device_, b->pool_, nullptr, executor));
  b->work_ = model_work(b->executor_->tower());
  LATHE_ASSIGN(b->ceilings_,
               CeilingBench::create(std::clamp(b->work_.weight_bytes, int64_t{64} << 20, kLargestCeilingSet)));
  b->fill_pages();
  return b;
}

std::vector<int32_t> ModelBench::random_tokens(int count) {
  std::vector<int32_t> tokens(count);
  for (int32_t& t : tokens) t = std::uniform_int_distribution<int32_t>(0, config_->text.vocab - 1)(random_);
  return tokens;
}

// Random rows in every page, so that a context needn't be computed, and its memory is real.
void ModelBench::fill_pages() {
  std::vector<float> values(1 << 18);
  for (float& v : values) v = std::normal_distribution<float>()(random_);
  std::vector<bf16> narrow(values.size());
  std::transform(values.begin(), values.end(), narrow.begin(), [](float x) { return to_bf16(x); });
  const auto fill = [&](const Pool& pool) {
    const char* from = pool.dtype == DType::kF32 ? reinterpret_cast<const char*>(values.data())
                                                 : reinterpret_cast<const char*>(narrow.data());
    const int64_t block = static_cast<int64_t>(values.size()) * dtype_bytes(pool.dtype),
                  all = pool.items * pool.item_size * dtype_bytes(pool.dtype);
    for (int64_t at = 0; at < all; at += block)
      std::memcpy(static_cast<char*>(pool.data) + at, from, std::min(block, all - at));
  };
  const SequenceMemory& memory = executor_->memory();
  for (int l = 0; l < memory.shape().sparse_layers(); ++l) {
    fill(memory.latent_pages(l));
    if (memory.shape().has_index[l]) fill(memory.index_pages(l));
  }
}

Result<double> ModelBench::timed_pass(SequenceId sequence, int tokens) {
  const std::vector<Run> runs = {{.sequence = sequence, .tokens = random_tokens(tokens), .logits_of_last = 1}};
  const auto begin = Clock::now();
  LATHE_RETURN_IF_ERROR(executor_->run(runs).status());
  LATHE_RETURN_IF_ERROR(device_->synchronize());
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

NumberRow& ModelBench::add_row(const std::string& name, const std::vector<double>& us) {
  rows_.push_back({.op = "model",
                   .variant = glm5_next::weight_format_name(options_.format),
                   .case_name = name,
                   .device = "cpu",
                   .median_us = spread_of(us).median});
  return rows_.back();
}

double ModelBench::products_us() const {
  double us = 0;
  for (const char* op : kProductOps) us += times_.op_us(op);
  return us;
}

double ModelBench::products_us_at_peak(int rows, int logit_rows) {
  double seconds = 0;
  const auto spend = [&](Precision precision, double flop) {
    if (flop > 0) seconds += flop / ceilings_->dot_peak(pool_, precision, 4 * kCeilingSamples).rate.median;
  };
  spend(Precision::kFp32, work_.row.fp32 * rows + work_.logit_row.fp32 * logit_rows);
  spend(Precision::kBf16, work_.row.bf16 * rows + work_.logit_row.bf16 * logit_rows);
  spend(Precision::kInt8, work_.row.int8 * rows + work_.logit_row.int8 * logit_rows);
  return seconds * 1e6;
}

void ModelBench::split_by_operator(const std::string& name, int passes) {
  for (const auto& [op, us] : times_.by_variant())
    rows_.push_back({.op = op.first,
                     .variant = op.second,
                     .case_name = name + "/share",
                     .device = "cpu",
                     .median_us = us / passes});
}

Status ModelBench::prefill() {
  const int tokens = options_.prefill_tokens;
  std::vector<double> whole, products, at_peak;
  for (int i = 0; i <= options_.prefills; ++i) {
    at_peak.push_back(products_us_at_peak(tokens, 1));
    LATHE_ASSIGN(const SequenceId sequence, executor_->memory().open());
    if (i <= 1) times_.clear();  // the first pass only warms up
    const double before = products_us();
    LATHE_ASSIGN(const double us, timed_pass(sequence, tokens));
    executor_->memory().close(sequence);
    if (i == 0) continue;
    whole.push_back(us);
    products.push_back(products_us() - before);
  }
  const std::string name = fmt::format("prefill_{}", tokens);
  const double flop = work_.row.all() * tokens + work_.logit_row.all(), roof = spread_of(at_peak).median;
  NumberRow& pass = add_row(name, whole);
  pass.flop = flop, pass.roof_us = roof, pass.tokens_per_s = tokens / *pass.median_us * 1e6;
  NumberRow& part = add_row(name + "_products", products);
  part.flop = flop, part.roof_us = roof;
  split_by_operator(name, options_.prefills);
  return Status::ok();
}

// Reads at the bandwidth of a working set as large as what a token reads, states at that of updates.
void ModelBench::decode_roof(NumberRow& row, int context) {
  const int64_t reads = work_.weight_bytes + work_.context_bytes(context), updates = work_.state_update_bytes;
  row.bytes = static_cast<double>(reads + updates);
  const Rate read = ceilings_->bandwidth(pool_, Traffic::kRead, std::min(reads, ceilings_->bytes()), kCeilingSamples);
  double us = static_cast<double>(reads) / read.median * 1e6;
  if (updates > 0)
    us += static_cast<double>(updates) /
          ceilings_->bandwidth(pool_, Traffic::kUpdate, std::min(reads, ceilings_->bytes()), kCeilingSamples).median *
          1e6;
  row.roof_us = row.roof_us ? (*row.roof_us + us) / 2 : us;
}

void ModelBench::split_by_layer(int context, int steps) {
  const auto& layers = config_->text.layers;
  const auto per_token = [&](const std::string& name, glm5_next::MixerKind kind, auto&& layer_us) {
    double us = 0;
    int count = 0;
    for (int l = 0; l < static_cast<int>(layers.size()); ++l)
      if (layers[l].mixer == kind) us += layer_us(l), ++count;
    if (count > 0) add_row(fmt::format("ctx{}/{}", context, name), {us / count / steps});
  };
  const auto whole = [&](int l) { return times_.layer_us(l); };
  per_token("kda_layer", glm5_next::MixerKind::kKda, whole);
  per_token("sparse_layer", glm5_next::MixerKind::kSparse, whole);
  per_token("kda_decode", glm5_next::MixerKind::kKda, [&](int l) { return times_.op_us("kda_decode", l); });
  for (const char* op : {"index_select", "sparse_mla"})
    per_token(op, glm5_next::MixerKind::kSparse, [&](int l) { return times_.op_us(op, l); });
}

Status ModelBench::decode(int context) {
  SequenceMemory& memory = executor_->memory();
  LATHE_ASSIGN(const SequenceId sequence, memory.open());
  LATHE_RETURN_IF_ERROR(timed_pass(sequence, config_->text.kpool + 1).status());  // real states and open rows
  LATHE_RETURN_IF_ERROR(memory.reserve(sequence, context));
  memory.advance(sequence, context - memory.position(sequence));
  NumberRow roof;
  decode_roof(roof, context);
  std::vector<double> us;
  for (int step = 0; step < kWarmUpSteps + options_.decode_steps; ++step) {
    if (step == kWarmUpSteps) times_.clear();
    LATHE_ASSIGN(const double one, timed_pass(sequence, 1));
    if (step >= kWarmUpSteps) us.push_back(one);
  }
  decode_roof(roof, context);
  memory.close(sequence);
  NumberRow& row = add_row(fmt::format("decode_ctx{}", context), us);
  row.bytes = roof.bytes, row.roof_us = roof.roof_us, row.tokens_per_s = 1e6 / *row.median_us;
  split_by_layer(context, options_.decode_steps);
  if (context == options_.contexts.front())
    split_by_operator(fmt::format("decode_ctx{}", context), options_.decode_steps);
  return Status::ok();
}

Status ModelBench::run(const ModelBenchProgress& progress) {
  for (int context : options_.contexts) {
    if (progress) progress(fmt::format("decode at context {}", context));
    LATHE_RETURN_IF_ERROR(decode(context));
  }
  if (progress) progress(fmt::format("prefill of {} tokens", options_.prefill_tokens));
  return prefill();
}

}  // namespace

Result<std::vector<NumberRow>> model_bench_life(const ModelBenchOptions& options, const ModelBenchProgress& progress) {
  if (progress) progress("random weights");
  LATHE_ASSIGN(std::unique_ptr<ModelBench> bench, ModelBench::create(options));
  LATHE_RETURN_IF_ERROR(bench->run(progress));
  return bench->take_rows();
}

std::vector<NumberRow> merge_lives(const std::vector<std::vector<NumberRow>>& lives) {
  std::vector<NumberRow> merged;
  const auto same = [](const NumberRow& a, const NumberRow& b) {
    return a.op == b.op && a.variant == b.variant && a.case_name == b.case_name;
  };
  for (const NumberRow& first : lives.front()) {
    std::vector<double> us, roof_us;
    for (const auto& life : lives)
      for (const NumberRow& row : life)
        if (same(row, first)) {
          us.push_back(*row.median_us);
          if (row.roof_us) roof_us.push_back(*row.roof_us);
        }
    NumberRow row = first;
    const Spread time = spread_of(us);
    row.median_us = time.median, row.spread_us = time.half_iqr;
    if (first.tokens_per_s) row.tokens_per_s = *first.tokens_per_s * *first.median_us / time.median;
    if (!roof_us.empty()) row.roof_us = spread_of(roof_us).median, row.roof_fraction = *row.roof_us / time.median;
    merged.push_back(row);
  }
  return merged;
}

}  // namespace lathe
