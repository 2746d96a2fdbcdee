#include "feedback/serve_load.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "image/processor_config.h"

namespace lathe {

namespace {

using Clock = std::chrono::steady_clock;

double us_between(SteadyTime a, SteadyTime b) { return std::chrono::duration<double, std::micro>(b - a).count(); }

}  // namespace

// -- the client

void LoadClient::send(Request request, SteadyTime due) {
  size_t index;
  {
    std::lock_guard lock(mutex_);
    index = times_.size();
    times_.push_back({.due = due, .submitted = Clock::now(), .gap_us = {}, .usage = {}});
    ++in_flight_;
    // Never one that another client has used: its end is told a moment before its name is free.
    static std::atomic<uint64_t> sent{0};
    request.id = fmt::format("load-{}", sent++);
  }
  const auto refusal =
      service_.submit(std::move(request), [this, index](RequestEvent&& event) { receive(index, event); });
  if (!refusal) return;
  std::lock_guard lock(mutex_);
  times_[index].done = times_[index].refused = true;
  --in_flight_;
}

void LoadClient::receive(size_t index, const RequestEvent& event) {
  const SteadyTime now = Clock::now();
  std::lock_guard lock(mutex_);
  ServedTimes& t = times_[index];
  const int fresh = event.usage.completion_tokens - t.tokens;
  if (fresh > 0) {
    if (t.tokens == 0)
      t.first = now;
    else
      t.gap_us.push_back(us_between(t.last, now));
    t.last = now, t.tokens += fresh;
  }
  t.usage = event.usage;
  if (event.kind != RequestEvent::Kind::kDone && event.kind != RequestEvent::Kind::kFailed) return;
  t.done = true, t.failed = event.kind == RequestEvent::Kind::kFailed;
  --in_flight_;
  ended_.notify_all();
}

void LoadClient::wait_until(int in_flight) {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return in_flight_ <= in_flight; });
}

std::vector<ServedTimes> LoadClient::take() {
  wait_until(0);
  std::lock_guard lock(mutex_);
  return std::exchange(times_, {});
}

// -- the source

LoadSource::LoadSource(Service& service, const LoadShape& shape)
    : service_(service), shape_(shape), random_(shape.seed) {
  std::uniform_int_distribution<int32_t> token(0, service_.config().text.vocab - 1);
  const int shared = static_cast<int>(shape_.input * shape_.shared);
  for (int i = 0; i < shared; ++i) beginning_.push_back(token(random_));
}

Result<Request> LoadSource::next() {
  Request r;
  const glm5_next::Config& c = service_.config();
  // Not those ids that mean a picture.
  const std::vector<int32_t> special = {c.image_token, c.video_token, c.image_start,
                                        c.image_end,   c.video_start, c.video_end};
  std::uniform_int_distribution<int32_t> token(0, c.text.vocab - 1);
  auto plain = [&](int32_t t) { return std::find(special.begin(), special.end(), t) == special.end() ? t : 0; };
  for (const int32_t t : beginning_) r.prompt.push_back(plain(t));
  if (std::uniform_real_distribution<double>()(random_) < shape_.pictures) LATHE_RETURN_IF_ERROR(add_picture(r));
  while (static_cast<int>(r.prompt.size()) < shape_.input) r.prompt.push_back(plain(token(random_)));
  r.max_tokens = shape_.output, r.ignore_eos = true;
  r.sampling = service_.default_sampling();
  r.sampling.seed = shape_.seed + made_++;
  return r;
}

// Noise, so that no two are the same.
Status LoadSource::add_picture(Request& request) {
  if (!service_.config().vision) return invalid("the model takes no pictures");
  LATHE_ASSIGN(const ProcessorConfig processor, ProcessorConfig::read(service_.options().engine.model));
  constexpr int kSide = 112;
  Picture picture{.width = kSide, .height = kSide, .rgb = std::vector<uint8_t>(int64_t{kSide} * kSide * 3)};
  for (uint8_t& x : picture.rgb) x = static_cast<uint8_t>(random_());
  LATHE_ASSIGN(Patches patches, preprocess_image(picture, processor.image));
  request.media.images.push_back(std::move(patches));
  request.media_keys.push_back(fmt::format("noise-{:016x}-{:016x}", shape_.seed, made_));
  const glm5_next::Config& c = service_.config();
  LATHE_ASSIGN(const std::vector<int32_t> expanded,
               service_.expand({c.image_start, c.image_token, c.image_end}, request.media));
  request.prompt.insert(request.prompt.end(), expanded.begin(), expanded.end());
  return Status::ok();
}

// -- the load

Result<LoadResult> run_load(Service& service, const LoadShape& shape, const LoadPlan& plan,
                            const std::function<void(int done)>& progress) {
  LoadSource source(service, shape);
  std::vector<Request> requests;
  for (int i = 0; i < plan.requests; ++i) {
    LATHE_ASSIGN(Request r, source.next());
    requests.push_back(std::move(r));
  }
  LoadClient client(service);
  std::mt19937_64 random(shape.seed + 1);
  std::exponential_distribution<double> wait(std::max(plan.per_second, 1e-9));
  const SteadyTime begin = Clock::now();
  double due = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (progress) progress(static_cast<int>(i));
    SteadyTime when = Clock::now();
    if (plan.per_second > 0) {
      due += wait(random);
      when = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(due));
      std::this_thread::sleep_until(when);
    } else {
      client.wait_until(plan.concurrency - 1);
      when = Clock::now();
    }
    client.send(std::move(requests[i]), when);
  }
  LoadResult result{.times = client.take()};
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return result;
}

}  // namespace lathe
