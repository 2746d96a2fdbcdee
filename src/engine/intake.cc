#include "engine/intake.h"

#include <algorithm>
#include <chrono>

namespace lathe {

std::optional<Refusal> Intake::submit(Request request, EventSink sink) {
  std::optional<Refusal> refusal;
  {
    std::lock_guard lock(mutex_);
    refusal = try_submit(request, sink);
    if (refusal) ++refused_[static_cast<int>(refusal->why)];
  }
  if (!refusal) news_came_.notify_one();
  return refusal;
}

std::optional<Refusal> Intake::closed() const {
  if (failed_) return Refusal{Refusal::Why::kFailed, "the engine has failed"};
  if (draining_ || news_.stop) return Refusal{Refusal::Why::kDraining, "the server is shutting down"};
  return std::nullopt;
}

std::optional<Refusal> Intake::would_refuse(int64_t prompt_tokens, int choices) const {
  std::lock_guard lock(mutex_);
  if (auto refusal = closed()) return refusal;
  return refuse(prompt_tokens, choices, load(), limits_);
}

std::optional<Refusal> Intake::try_submit(Request& request, EventSink& sink) {
  if (auto refusal = closed()) return refusal;
  if (in_flight_.contains(request.id))
    return Refusal{Refusal::Why::kDuplicateId, fmt::format("a request named '{}' is in flight", request.id)};
  if (auto refusal = refuse(std::ssize(request.prompt), request.n, load(), limits_)) return refusal;
  in_flight_.insert(request.id);
  ++load_.queued_requests;
  load_.queued_tokens += static_cast<int64_t>(request.prompt.size());
  news_.fresh.push_back({std::move(request), std::move(sink), std::chrono::steady_clock::now()});
  return std::nullopt;
}

std::array<uint64_t, Intake::kWhys> Intake::refused() const {
  std::lock_guard lock(mutex_);
  return refused_;
}

bool Intake::cancel(const std::string& id) {
  {
    std::lock_guard lock(mutex_);
    if (!in_flight_.contains(id)) return false;
    news_.cancelled.push_back(id);
  }
  news_came_.notify_one();
  return true;
}

void Intake::flush_cache() {
  std::lock_guard lock(mutex_);
  news_.flush_cache = true;
  news_came_.notify_one();
}

void Intake::set_draining(bool draining) {
  std::lock_guard lock(mutex_);
  draining_ = draining;
}

bool Intake::draining() const {
  std::lock_guard lock(mutex_);
  return draining_;
}

bool Intake::failed() const {
  std::lock_guard lock(mutex_);
  return failed_;
}

void Intake::wait_until_idle(double seconds) {
  std::unique_lock lock(mutex_);
  const auto idle = [&] { return in_flight_.empty(); };
  if (idle_.wait_for(lock, std::chrono::duration<double>(seconds), idle)) return;
  news_.fail_all = true;
  news_came_.notify_one();
  idle_.wait(lock, idle);
}

void Intake::stop() {
  std::lock_guard lock(mutex_);
  news_.stop = true;
  news_came_.notify_one();
}

Intake::News Intake::take() {
  std::lock_guard lock(mutex_);
  News news = std::move(news_);
  news_ = {};
  news_.stop = news.stop;
  return news;
}

void Intake::wait(std::optional<SteadyTime> until) {
  std::unique_lock lock(mutex_);
  const auto ready = [&] { return any_news(); };
  if (until)
    news_came_.wait_until(lock, *until, ready);
  else
    news_came_.wait(lock, ready);
}

void Intake::left_queue(int64_t prompt_tokens, bool started) {
  std::lock_guard lock(mutex_);
  --load_.queued_requests;
  load_.queued_tokens -= prompt_tokens;
  if (!started) return;
  constexpr double kWeight = 0.1;
  const SteadyTime now = std::chrono::steady_clock::now();
  if (last_start_) {
    const double gap = std::chrono::duration<double>(now - *last_start_).count();
    double& mean = load_.seconds_a_start;
    mean += (mean > 0 ? kWeight : 1) * (gap - mean);
  }
  last_start_ = load_.queued_requests > 0 ? std::optional(now) : std::nullopt;
}

// As of now: if nobody has started for longer than usual, that is what is to be expected.
AdmissionLoad Intake::load() const {
  AdmissionLoad load = load_;
  if (last_start_)
    load.seconds_a_start = std::max(
        load.seconds_a_start, std::chrono::duration<double>(std::chrono::steady_clock::now() - *last_start_).count());
  return load;
}

void Intake::ended(const std::string& id) {
  std::lock_guard lock(mutex_);
  in_flight_.erase(id);
  if (in_flight_.empty()) idle_.notify_all();
}

void Intake::set_rate(double tokens_per_second) {
  std::lock_guard lock(mutex_);
  load_.tokens_per_second = tokens_per_second;
}

void Intake::set_failed() {
  std::lock_guard lock(mutex_);
  failed_ = true;
}

int Intake::waiting() const {
  std::lock_guard lock(mutex_);
  return load_.queued_requests;
}

}  // namespace lathe
