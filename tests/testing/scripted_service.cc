#include "testing/scripted_service.h"

#include <algorithm>
#include <chrono>

#include "testing/golden.h"

namespace lathe::testing {

namespace {

const std::string& model_dir() {
  static const std::string dir = source_file("models/demo");
  return dir;
}

}  // namespace

ScriptedService::ScriptedService(Script script)
    : script_(std::move(script)),
      tokenizer_(Tokenizer::load(model_dir()).value()),
      chat_(ChatTemplate::load(model_dir()).value()),
      config_(glm5_next::Config::read(model_dir()).value()),
      random_(script_.seed),
      held_(script_.held) {
  options_.engine.model = model_dir();
  thread_ = std::thread([this] { loop(); });
}

ScriptedService::~ScriptedService() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Result<std::vector<int32_t>> ScriptedService::expand(std::vector<int32_t> ids, const Media& media) const {
  const std::vector<Grid> images = media.image_grids();
  return expand_placeholders(ids, media_tokens(config_), images, media.spans(),
                             config_.vision ? config_.vision->merge : 1,
                             [&](std::string_view text) { return tokenizer_.encode(text).value(); });
}

ScriptedService::Choice ScriptedService::make_choice(const Request& r, const ScriptedReply& reply) const {
  Choice c{.decoder = StreamDecoder(tokenizer_)};
  std::string text = reply.text;
  const std::vector<int32_t> once = tokenizer_.encode(text).value();
  c.tokens = once;
  while (reply.endless && static_cast<int>(c.tokens.size()) < r.max_tokens)
    c.tokens.insert(c.tokens.end(), once.begin(), once.end());
  if (static_cast<int>(c.tokens.size()) > r.max_tokens) {
    c.tokens.resize(static_cast<size_t>(r.max_tokens));
    c.finish = FinishReason::kLength;
  }
  c.text = tokenizer_.decode(c.tokens);
  size_t cut = std::string::npos;
  for (const std::string& s : r.stop)
    if (const size_t at = c.text.find(s); at < cut) cut = at, c.stopped_by = s;
  if (cut == std::string::npos) return c;
  c.finish = FinishReason::kStop;
  c.text.resize(cut + (r.include_stop ? c.stopped_by.size() : 0));
  size_t tokens = 0;  // as many as it takes to say the stop string
  while (tokens < c.tokens.size() &&
         tokenizer_.decode(std::span(c.tokens).first(tokens)).size() < cut + c.stopped_by.size())
    ++tokens;
  c.tokens.resize(tokens);
  return c;
}

ScriptedService::Job ScriptedService::make_job(Request request, EventSink sink) {
  Job job{.request = std::move(request), .sink = std::move(sink)};
  const Request& r = job.request;
  const std::string prompt = tokenizer_.decode(r.prompt);
  const ScriptedReply* best = nullptr;
  size_t best_at = 0;
  for (const ScriptedReply& reply : script_.replies) {
    const size_t at = reply.when.empty() ? 0 : prompt.rfind(reply.when);
    if (at != std::string::npos && (!best || at > best_at)) best = &reply, best_at = at;
  }
  static const ScriptedReply kNothing;
  if (!best) best = &kNothing;
  for (int i = 0; i < r.n; ++i) job.choices.push_back(make_choice(r, *best));
  job.failure = best->failure;
  job.fail_after = best->fail_after;
  job.usage.prompt_tokens = static_cast<int>(r.prompt.size());
  job.usage.cached_tokens = std::min(script_.cached_tokens, job.usage.prompt_tokens);
  job.usage.image_tokens = static_cast<int>(std::count(r.prompt.begin(), r.prompt.end(), config_.image_token));
  return job;
}

std::optional<Refusal> ScriptedService::refusal() const {
  if (draining_) return Refusal{Refusal::Why::kDraining, "draining", 5};
  if (failed_) return Refusal{Refusal::Why::kFailed, "failed", 5};
  if (static_cast<int>(jobs_.size()) >= script_.max_queue) return Refusal{Refusal::Why::kQueueFull, "full", 2};
  return std::nullopt;
}

std::optional<Refusal> ScriptedService::would_refuse(int64_t, int) const {
  const std::lock_guard lock(mutex_);
  return refusal();
}

std::optional<Refusal> ScriptedService::submit(Request request, EventSink sink) {
  const std::lock_guard lock(mutex_);
  seen_.push_back({});
  Request& kept = seen_.back();
  kept.id = request.id, kept.user = request.user, kept.priority = request.priority, kept.prompt = request.prompt;
  kept.media_keys = request.media_keys, kept.cache_salt = request.cache_salt, kept.sampling = request.sampling;
  kept.presence_penalty = request.presence_penalty, kept.frequency_penalty = request.frequency_penalty;
  kept.repetition_penalty = request.repetition_penalty, kept.logit_bias = request.logit_bias, kept.n = request.n;
  kept.max_tokens = request.max_tokens, kept.min_tokens = request.min_tokens, kept.ignore_eos = request.ignore_eos;
  kept.skip_special_tokens = request.skip_special_tokens, kept.stop = request.stop,
  kept.stop_tokens = request.stop_tokens;
  kept.include_stop = request.include_stop, kept.logprobs = request.logprobs,
  kept.prompt_logprobs = request.prompt_logprobs;
  kept.grammar = request.grammar, kept.grammar_after_reasoning = request.grammar_after_reasoning,
  kept.deadline = request.deadline;
  if (auto refused = refusal()) return refused;
  jobs_.push_back(make_job(std::move(request), std::move(sink)));
  changed_.notify_all();
  return std::nullopt;
}

bool ScriptedService::cancel(const std::string& id) {
  const std::lock_guard lock(mutex_);
  for (Job& job : jobs_)
    if (job.request.id == id) {
      job.cancelled = true;
      changed_.notify_all();
      return true;
    }
  return false;
}

ServiceStats ScriptedService::stats() const {
  const std::lock_guard lock(mutex_);
  return {.metrics = {{"requests_running", "", held_ ? 0.0 : static_cast<double>(jobs_.size()), false},
                      {"requests_waiting", "", held_ ? static_cast<double>(jobs_.size()) : 0.0, false},
                      {"pages", "pool=\"latent\",state=\"free\"", 10, false}},
          .histograms = {}};
}

void ScriptedService::fail(Job& job, Failure failure) {
  job.sink({.kind = RequestEvent::Kind::kFailed,
            .pieces = {},
            .prompt_logprobs = {},
            .usage = job.usage,
            .failure = failure,
            .message = "scripted"});
}

bool ScriptedService::step(Job& job) {
  const Request& r = job.request;
  if (job.cancelled) return fail(job, Failure::kCancelled), false;
  if (failed_) return fail(job, Failure::kEngine), false;
  if (r.deadline && std::chrono::steady_clock::now() > *r.deadline) return fail(job, Failure::kDeadline), false;
  if (held_) return true;
  auto token = [&](int32_t id, int best, size_t at) {
    OutputToken t{.token = id, .logprob = std::nullopt, .best = {}};
    if (best < 0) return t;
    t.logprob = -0.125f * static_cast<float>(at % 7);
    for (int i = 0; i < best; ++i)
      t.best.push_back(
          {.token = (id + i) % config_.text.vocab, .logprob = *t.logprob - static_cast<float>(i), .rank = i + 1});
    return t;
  };
  if (!job.started) {
    job.started = true;
    RequestEvent e{.kind = RequestEvent::Kind::kStarted, .pieces = {}, .prompt_logprobs = {}, .usage = job.usage};
    for (size_t i = 0; r.prompt_logprobs >= 0 && i < r.prompt.size(); ++i)
      e.prompt_logprobs.push_back(token(r.prompt[i], i ? r.prompt_logprobs : -1, i));
    job.sink(std::move(e));
    return true;
  }
  if (job.failure && job.usage.completion_tokens >= job.fail_after) return fail(job, *job.failure), false;
  RequestEvent e{.kind = RequestEvent::Kind::kOutput, .pieces = {}, .prompt_logprobs = {}, .usage = {}};
  bool all_done = true;
  for (size_t i = 0; i < job.choices.size(); ++i) {
    Choice& c = job.choices[i];
    if (c.done) continue;
    OutputPiece piece{
        .choice = static_cast<int>(i), .text = "", .tokens = {}, .finish = std::nullopt, .stopped_by = ""};
    const size_t count =
        std::min<size_t>(c.tokens.size() - c.told_tokens, 1 + random_() % static_cast<uint64_t>(script_.most_tokens));
    for (size_t k = 0; k < count; ++k, ++c.told_tokens) {
      piece.tokens.push_back(token(c.tokens[c.told_tokens], r.logprobs, c.told_tokens));
      c.decoded += c.decoder.push(c.tokens[c.told_tokens]).size();
      ++job.usage.completion_tokens;
    }
    c.done = c.told_tokens == c.tokens.size();
    // Whole characters only, and nothing behind the stop string.
    size_t end = c.done ? c.text.size() : std::min(c.decoded, c.text.size());
    // What may yet become a stop string is held back.
    if (!c.done && !c.stopped_by.empty())
      end = std::min(end, c.text.size() - (r.include_stop ? c.stopped_by.size() : 0));
    if (end > c.told_bytes) piece.text = c.text.substr(c.told_bytes, end - c.told_bytes), c.told_bytes = end;
    if (c.done) piece.finish = c.finish, piece.stopped_by = c.stopped_by;
    all_done = all_done && c.done;
    e.pieces.push_back(std::move(piece));
  }
  e.usage = job.usage;
  if (!job.failure || !all_done) job.sink(std::move(e));
  if (!all_done) return true;
  if (job.failure) return fail(job, *job.failure), false;
  job.sink({.kind = RequestEvent::Kind::kDone, .pieces = {}, .prompt_logprobs = {}, .usage = job.usage});
  return false;
}

void ScriptedService::loop() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    for (auto it = jobs_.begin(); it != jobs_.end();) it = step(*it) ? std::next(it) : jobs_.erase(it);
    changed_.notify_all();
    if (jobs_.empty())
      changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    else
      changed_.wait_for(lock, std::chrono::duration<double>(held_ ? 0.002 : script_.step_seconds));
  }
}

void ScriptedService::drain(double seconds) {
  draining_ = true;
  std::unique_lock lock(mutex_);
  const auto until = std::chrono::steady_clock::now() +
                     std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
  changed_.wait_until(lock, until, [this] { return jobs_.empty(); });
  for (Job& job : jobs_) fail(job, Failure::kDraining);
  jobs_.clear();
}

void ScriptedService::release() {
  const std::lock_guard lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

void ScriptedService::fail_engine() {
  failed_ = true;
  changed_.notify_all();
}

int ScriptedService::in_flight() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(jobs_.size());
}

std::vector<Request> ScriptedService::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

}  // namespace lathe::testing
