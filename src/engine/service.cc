#include "engine/service.h"

#include <algorithm>
#include <thread>

#include "base/json_reader.h"
#include "engine/capacity.h"
#include "engine/generation_defaults.h"
#include "engine/intake.h"
#include "engine/run_settings.h"
#include "engine/step_loop.h"
#include "ops/kda_replay/kda_replay.h"
#include "ops/registry.h"

namespace lathe {

namespace {

constexpr int kDefaultContext = 131072;

// Everything that a running service owns, in the order in which it depends on one another.
class LocalService final : public Service {
 public:
  LocalService(ServiceOptions options, glm5_next::Config config, Tokenizer tokenizer, Checkpoint checkpoint,
               std::unique_ptr<Device> device, int threads)
      : options_(std::move(options)),
        config_(std::move(config)),
        tokenizer_(std::move(tokenizer)),
        checkpoint_(std::move(checkpoint)),
        device_(std::move(device)),
        pool_(threads) {}
  ~LocalService() override {
    if (!thread_.joinable()) return;
    intake_->stop();
    thread_.join();
  }

  Status load();

  const Tokenizer& tokenizer() const override { return tokenizer_; }
  const ChatTemplate* chat_template() const override { return chat_ ? &*chat_ : nullptr; }
  const glm5_next::Config& config() const override { return config_; }
  const ServiceOptions& options() const override { return options_; }
  SampleSettings default_sampling() const override { return defaults_; }
  int max_context() const override { return max_context_; }
  Result<std::vector<int32_t>> expand(std::vector<int32_t> ids, const Media& media) const override;

  std::optional<Refusal> would_refuse(int64_t prompt_tokens, int choices) const override {
    return intake_->would_refuse(prompt_tokens, choices);
  }
  std::optional<Refusal> submit(Request request, EventSink sink) override {
    return intake_->submit(std::move(request), std::move(sink));
  }
  bool cancel(const std::string& id) override { return intake_->cancel(id); }
  ServiceStats stats() const override {
    EngineNumbers numbers = loop_->numbers();
    numbers.refused = intake_->refused();
    return numbers.named();
  }
  double stalled_seconds() const override { return loop_->stalled_seconds(); }
  bool failed() const override { return intake_->failed(); }
  bool draining() const override { return intake_->draining(); }
  void drain(double seconds) override {
    intake_->set_draining(true);
    intake_->wait_until_idle(seconds);
  }
  void undrain() override { intake_->set_draining(false); }
  void flush_cache() override { intake_->flush_cache(); }

 private:
  Status settle_context();
  Result<ExecutorOptions> executor_options() const;
  Status make_executor();
  Status make_cache();
  Status make_pictures();

  ServiceOptions options_;
  glm5_next::Config config_;
  Tokenizer tokenizer_;
  std::optional<ChatTemplate> chat_;
  SampleSettings defaults_;
  Checkpoint checkpoint_;
  std::unique_ptr<Device> device_;
  ThreadPool pool_;
  int max_context_ = 0;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<PrefixCache> cache_;
  std::unique_ptr<PictureEncoder> pictures_;  // null: the model takes none
  std::unique_ptr<Intake> intake_;
  std::unique_ptr<StepLoop> loop_;
  std::thread thread_;
};

Result<std::vector<int32_t>> LocalService::expand(std::vector<int32_t> ids, const Media& media) const {
  if (media.empty()) return ids;
  const std::vector<Grid> grids = media.image_grids();
  const std::vector<VideoSpan> spans = media.spans();
  auto encode = [this](std::string_view text) { return tokenizer_.encode(text).value(); };
  return expand_placeholders(ids, media_tokens(config_), grids, spans, config_.vision->merge, encode);
}

Status LocalService::settle_context() {
  const int limit = config_.text.max_positions, asked = options_.engine.max_context;
  if (asked < 0 || asked > limit) return invalid("max_context {}: {} allows 1 to {}", asked, config_.file, limit);
  max_context_ = asked ? asked : std::min(limit, kDefaultContext);
  return Status::ok();
}

Result<ExecutorOptions> LocalService::executor_options() const {
  ExecutorOptions eo;
  LATHE_ASSIGN(eo.dtype, activation_dtype(options_.engine.dtype, config_.text));
  LATHE_RETURN_IF_ERROR(add_choices(options_.engine.variants, eo.choices));
  if (options_.strict)
    LATHE_RETURN_IF_ERROR(add_choices({"kda_prefill=sequential", "sparse_mla=absorbed"}, eo.choices));
  eo.probes = options_.engine.probes.get();
  const bool drafts = options_.drafts > 0 && config_.text.mtp_layers > 0;
  eo.replay_length = drafts && !options_.strict ? ring_length(config_.text.gate_bound) : 0;
  eo.max_draft = drafts ? options_.drafts : 0;
  eo.observer = options_.op_observer;
  return eo;
}

Status LocalService::make_executor() {
  LATHE_ASSIGN(ExecutorOptions eo, executor_options());
  const int64_t card = device_->free_bytes(), free = (card ? card : allocatable_bytes()) - checkpoint_.bytes();
  glm5_next::TextWeights shape_only;
  if (config_.text.mtp_layers > 0) shape_only.mtp.emplace();
  const MemoryShape shape = glm5_next::TextTower(config_.text, std::move(shape_only), eo.partition, eo.dtype)
                                .memory_shape(eo.replay_length, eo.max_draft);
  LATHE_ASSIGN(const Capacity capacity, plan_capacity(options_, shape, max_context_, free));
  eo.slots = capacity.slots, eo.pages = capacity.pages, eo.checkpoints = capacity.checkpoints;
  LATHE_ASSIGN(executor_, options_.parts.executor(config_, checkpoint_, *device_, pool_, nullptr, eo));
  const int64_t tokens = int64_t{capacity.pages - 2} * shape.page_tokens;
  max_context_ = static_cast<int>(std::min<int64_t>(max_context_, tokens - eo.max_draft - 1));
  return Status::ok();
}

Status LocalService::make_cache() {
  PrefixCacheOptions o{.interval = options_.checkpoint_interval, .host_bytes = options_.host_tier_bytes};
  o.least = options_.checkpoint_least;
  o.drafts = executor_->memory().shape().max_draft > 0;
  o.model = options_.engine.model;
  LATHE_ASSIGN(cache_, PrefixCache::create(executor_->memory(), *device_, o));
  return Status::ok();
}

Status LocalService::make_pictures() {
  if (!config_.vision) return Status::ok();
  LATHE_ASSIGN(pictures_, PictureEncoder::create(config_, checkpoint_, *executor_));
  return Status::ok();
}

Status LocalService::load() {
  LATHE_ASSIGN(defaults_, read_generation_defaults(options_.engine.model));
  if (ChatTemplate::exists(options_.engine.model)) {
    LATHE_ASSIGN(ChatTemplate chat, ChatTemplate::load(options_.engine.model));
    chat_ = std::move(chat);
  }
  if (options_.max_running < 1) return invalid("max_running {}: must be at least 1", options_.max_running);
  constexpr int kMostDrafts = 7;  // twice so many rows and one more must fit into the replay ring
  if (options_.drafts < 0 || options_.drafts > kMostDrafts)
    return invalid("drafts {}: must be 0 to {}", options_.drafts, kMostDrafts);
  // A gate that may forget faster leaves the ring fewer records: fewer drafts, at last none.
  if (!options_.strict) options_.drafts = std::min(options_.drafts, (ring_length(config_.text.gate_bound) - 1) / 2);
  if (options_.step_tokens < options_.max_running)
    return invalid("step_tokens {}: must be at least max_running, {}", options_.step_tokens, options_.max_running);
  LATHE_RETURN_IF_ERROR(settle_context());
  LATHE_RETURN_IF_ERROR(make_executor());
  LATHE_RETURN_IF_ERROR(make_cache());
  LATHE_RETURN_IF_ERROR(make_pictures());
  const SequenceMemory& memory = executor_->memory();
  const int64_t capacity = int64_t{memory.pages()} * memory.shape().page_tokens;
  intake_ = std::make_unique<Intake>(AdmissionLimits{.max_queue = options_.max_queue,
                                                     .max_queued_tokens = static_cast<int64_t>(
                                                         options_.max_queue_capacities * static_cast<double>(capacity)),
                                                     .max_wait_seconds = options_.max_wait_seconds,
                                                     .max_context = max_context_,
                                                     .max_choices = options_.max_running},
                                     options_.engine.probes.get());
  loop_ = std::make_unique<StepLoop>(
      StepLoopParts{options_, config_, tokenizer_, *executor_, cache_.get(), pictures_.get(), *intake_, max_context_});
  thread_ = std::thread([this] { loop_->run(); });
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<Service>> Service::start(const ServiceOptions& options) {
  LATHE_ASSIGN(glm5_next::Config config, glm5_next::Config::read(options.engine.model));
  LATHE_ASSIGN(Tokenizer tokenizer, Tokenizer::load(options.engine.model));
  LATHE_ASSIGN(Checkpoint checkpoint, Checkpoint::open(options.engine.model));
  LATHE_ASSIGN(std::unique_ptr<Device> device, options.parts.device(options.engine.device));
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  auto service =
      std::make_unique<LocalService>(options, std::move(config), std::move(tokenizer), std::move(checkpoint),
                                     std::move(device), options.engine.threads > 0 ? options.engine.threads : cores);
  LATHE_RETURN_IF_ERROR(service->load());
  return std::unique_ptr<Service>(std::move(service));
}

}  // namespace lathe
