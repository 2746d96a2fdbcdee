#include "engine/step_loop.h"

#include <algorithm>
#include <exception>

namespace lathe {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(SteadyTime a, SteadyTime b) { return std::chrono::duration<double>(b - a).count(); }

int64_t nanoseconds(SteadyTime t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
}

ControlTokens control_tokens(const glm5_next::Config& config, const Tokenizer& tokenizer) {
  ControlTokens c{.ends = {config.eos.begin(), config.eos.end()}};
  c.think_begin = tokenizer.vocabulary().find_added("<think>");
  c.think_end = tokenizer.vocabulary().find_added("</think>");
  if (c.think_begin < 0 || c.think_end < 0) c.think_begin = c.think_end = -1;
  return c;
}

}  // namespace

StepLoop::StepLoop(const StepLoopParts& p)
    : options_(p.options),
      config_(p.config),
      tokenizer_(p.tokenizer),
      executor_(p.executor),
      memory_(p.executor.memory()),
      cache_(p.cache),
      pictures_(p.pictures),
      intake_(p.intake),
      max_context_(p.max_context),
      control_(control_tokens(p.config, p.tokenizer)),
      sampler_(p.config.text.vocab),
      drafting_(p.options.drafts > 0 && p.config.text.mtp_layers > 0),
      speculation_(drafting_ ? p.options.drafts : 0),
      drafter_(p.executor),
      audit_(p.executor, p.options.audit),
      probes_(p.options.engine.probes.get()) {
  constexpr int64_t kPromptLogitBytes = int64_t{64} << 20;
  limits_.rows = options_.step_tokens;
  limits_.ring = memory_.shape().replay_length > 0;
  limits_.catch_up = 1 + options_.drafts;
  store_.mask_words = draft_store_.mask_words = sampler_.mask_words();
  limits_.prompt_logit_rows =
      static_cast<int>(std::clamp<int64_t>(kPromptLogitBytes / (8 * int64_t{config_.text.vocab}), 16, 2048));
  now_.pages = memory_.free_pages(), now_.slots = memory_.free_slots();
  publish();
}

void StepLoop::run() {
  while (!stopping_) {
    const SteadyTime begin = Clock::now();
    busy_since_ = nanoseconds(begin);
    const bool worked = step();
    publish();
    report(begin);
    if (worked || stopping_ || audit()) continue;
    busy_since_ = 0;
    intake_.wait(deadlines_.empty() ? std::nullopt : std::optional(deadlines_.begin()->first));
  }
  busy_since_ = 0;
}

void StepLoop::report(SteadyTime begin) {
  if (options_.on_step && report_.rows > 0) {
    report_.seconds = seconds_between(begin, Clock::now());
    options_.on_step(report_);
  }
  report_ = {};
}

bool StepLoop::step() {
  const SteadyTime begin = Clock::now();
  {
    const ProbeSpan probe(probes_, "take requests");
    take_news();
    expire(begin);
    admit(begin);
  }
  encode_one();
  if (!running_.empty()) {
    if (cache_) set_pauses();
    plan_ = plan_step(running_, memory_, limits_);
    reserve();
  }
  const bool work = !plan_.empty();
  if (work) {
    report_.choices = static_cast<int>(plan_.size());
    if (const Status s = guarded_pass(); !s.is_ok()) {
      ++now_.faults;
      intake_.set_failed();
      publish();  // who is told of the fault finds it counted
      fail_all(Failure::kEngine, "the engine has failed");
      fmt::print(stderr, "engine: {}\n", s.message());
    }
    ++now_.steps;
    report_.rows = now_.batch_rows, report_.prefills = prompt_rows_ > 0;
    const double seconds = seconds_between(begin, Clock::now());
    now_.step.add(seconds);
    measure_rate(seconds);
  }
  plan_.clear();
  ended_.clear();
  return work || !running_.empty() || !parked_.empty() || !queue_.empty();
}

// What is thrown past the guards of requests is a fault of the engine.
Status StepLoop::guarded_pass() {
  try {
    return pass();
  } catch (const std::exception& e) {
    return internal("{}", e.what());
  }
}

void StepLoop::broke(ActiveRequest& r, const std::exception& e) {
  fmt::print(stderr, "request {}: {}\n", r.request.id, e.what());
  fail(r, Failure::kInternal, "the server could not go on with this request");
}

// Prompt tokens a second, over the last hundred steps that had any.
void StepLoop::measure_rate(double seconds) {
  if (prompt_rows_ == 0) return;
  constexpr double kForget = 0.99;
  rate_rows_ = rate_rows_ * kForget + prompt_rows_;
  rate_seconds_ = rate_seconds_ * kForget + seconds;
  intake_.set_rate(rate_rows_ / rate_seconds_);
}

// A piece of shadow verification, when nobody waits; false if there is none.
bool StepLoop::audit() {
  if (!audit_.has_work()) return false;
  if (const Status s = audit_.work(); !s.is_ok()) fmt::print(stderr, "audit: {}\n", s.message());
  now_.audited_tokens = audit_.tokens(), now_.audit_findings = audit_.findings();
  return true;
}

// -- who comes, who goes

void StepLoop::take_news() {
  Intake::News news = intake_.take();
  if (news.flush_cache && cache_) cache_->clear();
  for (Intake::Submission& s : news.fresh) accept(std::move(s));
  for (const std::string& id : news.cancelled) cancel(id, Failure::kCancelled, "cancelled");
  if (news.fail_all || news.stop) fail_all(Failure::kDraining, "the server is shutting down");
  stopping_ = news.stop;
}

// In a trace a request is one thing after another, each from here to the next; null: it is over.
void StepLoop::enter(ActiveRequest& r, const char* phase) {
  if (!probes_) return;
  if (r.phase) probes_->event(ProbeKind::kAsyncEnd, r.phase, nullptr, r.serial);
  r.phase = phase;
  if (phase) probes_->event(ProbeKind::kAsyncBegin, phase, nullptr, r.serial);
}

void StepLoop::accept(Intake::Submission s) {
  auto r = std::make_unique<ActiveRequest>();
  r->serial = accepted_++;
  enter(*r, "queued");
  r->request = std::move(s.request), r->sink = std::move(s.sink), r->submitted = s.when;
  const Request& q = r->request;
  r->usage.prompt_tokens = static_cast<int>(q.prompt.size());
  if (q.deadline) deadlines_.emplace(*q.deadline, q.id);
  queue_.push(r.get(), q.user, q.priority, r->submitted);
  active_[q.id] = std::move(r);
}

EngineNumbers::Phase StepLoop::phase(const ActiveRequest& r) const {
  return !r.admitted ? EngineNumbers::kQueued : !r.forked ? EngineNumbers::kPrefill : EngineNumbers::kDecode;
}

void StepLoop::cancel(const std::string& id, Failure why, const char* message) {
  const auto at = active_.find(id);
  if (at == active_.end()) return;
  ++(why == Failure::kDeadline ? now_.expired : now_.cancelled)[phase(*at->second)];
  fail(*at->second, why, message);
}

void StepLoop::expire(SteadyTime now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const std::string id = deadlines_.begin()->second;
    deadlines_.erase(deadlines_.begin());
    cancel(id, Failure::kDeadline, "the deadline has passed");
  }
}

void StepLoop::fail_all(Failure why, const std::string& message) {
  while (!active_.empty()) fail(*active_.begin()->second, why, message);
}

void StepLoop::fail(ActiveRequest& r, Failure why, const std::string& message) {
  if (r.over) return;
  ++now_.failed[static_cast<int>(why)];
  RequestEvent event{.kind = RequestEvent::Kind::kFailed, .pieces = {}, .prompt_logprobs = {}, .usage = r.usage};
  event.failure = why, event.message = message;
  try {
    r.sink(std::move(event));
  } catch (const std::exception& e) {
    fmt::print(stderr, "request {}: its end could not be told: {}\n", r.request.id, e.what());
  }
  leave(r);
}

// Nothing of the request stays in memory or in a list. It lives until the step is over.
void StepLoop::leave(ActiveRequest& r) {
  r.over = true;
  enter(r, nullptr);
  if (!r.admitted) {
    queue_.remove_if([&](const ActiveRequest* q) { return q == &r; });
    intake_.left_queue(r.usage.prompt_tokens, /*started=*/false);
  }
  for (auto& c : r.choices) release(*c);
  for (auto* list : {&running_, &parked_}) std::erase_if(*list, [&](const Choice* c) { return c->owner == &r; });
  if (r.request.deadline) {
    const auto [begin, end] = deadlines_.equal_range(*r.request.deadline);
    const auto at = std::find_if(begin, end, [&](const auto& d) { return d.second == r.request.id; });
    if (at != end) deadlines_.erase(at);
  }
  intake_.ended(r.request.id);
  const auto at = active_.find(r.request.id);
  ended_.push_back(std::move(at->second));
  active_.erase(at);
}

void StepLoop::release(Choice& c) {
  if (c.sequence >= 0) memory_.close(c.sequence);
  c.sequence = -1;
  c.drafts.clear();
}

// -- what others see

void StepLoop::publish() {
  now_.running = static_cast<int>(running_.size()), now_.parked = static_cast<int>(parked_.size());
  now_.waiting = queue_.size();
  now_.free_pages = memory_.free_pages(), now_.free_slots = memory_.free_slots();
  now_.draft_acceptance = speculation_.rate();
  if (cache_) now_.cache = cache_->stats();
  std::lock_guard lock(numbers_mutex_);
  published_ = now_;
}

EngineNumbers StepLoop::numbers() const {
  std::lock_guard lock(numbers_mutex_);
  return published_;
}

double StepLoop::stalled_seconds() const {
  const int64_t since = busy_since_;
  return since ? static_cast<double>(nanoseconds(Clock::now()) - since) * 1e-9 : 0;
}

}  // namespace lathe
