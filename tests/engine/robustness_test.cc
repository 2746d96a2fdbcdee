// What breaks in one request ends that request; what breaks in the device ends the service, in words. And what is
// drawn has the distribution that the logits say.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "engine/service.h"
#include "image/processor_config.h"
#include "testing/served.h"
#include "testing/serving_model.h"

namespace lathe {
namespace {

using testing::Client;
using testing::Served;
using testing::ServingModel;

using Runs = std::vector<Run>;  // a test has a member of that name

// Passes that go wrong where a test says so.
class WatchedExecutor final : public Executor {
 public:
  using Change = std::function<Status(WatchedExecutor&, const Runs&, glm5_next::StepOutput&)>;
  static ServiceParts parts(Change change) {
    ServiceParts parts;
    parts.executor = [change](const glm5_next::Config& config, const Checkpoint& checkpoint, Device& device,
                              ThreadPool& pool, Communicator* comm,
                              const ExecutorOptions& options) -> Result<std::unique_ptr<Executor>> {
      std::unique_ptr<WatchedExecutor> e(new WatchedExecutor(device, pool, comm));
      e->change_ = change;
      LATHE_RETURN_IF_ERROR(e->load(config, checkpoint, options));
      return std::unique_ptr<Executor>(std::move(e));
    };
    return parts;
  }
  Result<glm5_next::StepOutput> run(const Runs& runs, StepObserver* observer, Rows features) override {
    LATHE_ASSIGN(glm5_next::StepOutput out, Executor::run(runs, observer, features));
    LATHE_RETURN_IF_ERROR(change_(*this, runs, out));
    return out;
  }
  // Logit rows of the i-th run of the last pass.
  Rows logits_of(size_t i, const glm5_next::StepOutput& out) const {
    int64_t row = 0;
    const Batch& batch = last_batch();
    for (size_t b = 0; b < batch.order.size(); row += batch.logits_by_sequence[b++])
      if (batch.order[b] == static_cast<int>(i)) return out.logits.slice(row, batch.logits_by_sequence[b]);
    return {};
  }

 private:
  using Executor::Executor;
  Change change_;
};

class Robustness : public ::testing::Test {
 protected:
  static const ServingModel& model() {
    static const ServingModel m;
    return m;
  }
  static ServiceOptions options() { return testing::small_service(model(), /*drafts=*/2); }
  static Request request(const std::string& id, int prompt, int tokens) {
    return testing::request_of(id, prompt, tokens, /*ids=*/100);
  }
  static double metric(const Service& service, const std::string& name, const std::string& labels = "") {
    double sum = 0;
    for (const Metric& m : service.stats().metrics)
      if (m.name == name && m.labels.find(labels) != std::string::npos) sum += m.value;
    return sum;
  }
  static void expect_no_leaks(Service& service) {
    service.flush_cache();
    auto used = [&] {
      return metric(service, "pages", R"(state="used")") + metric(service, "recurrent_slots", R"(state="used")") +
             metric(service, "requests_running") + metric(service, "requests_waiting");
    };
    for (int i = 0; i < 400 && used() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(used(), 0);
  }
};

// Waits for the end of a request whose sink throws: nobody else tells.
struct ThrowingSink {
  std::atomic<int> events{0};
  int throws_at = 0;
  EventSink sink() {
    return [this](RequestEvent&&) {
      if (++events > throws_at) throw std::runtime_error("the output stream is broken");
    };
  }
};

TEST_F(Robustness, AThrowingOutputStreamEndsItsRequestOnly) {
  const auto service = Service::start(options()).value();
  Client client(*service);
  const std::vector<int32_t> alone = client.run(request("alone", 50, 60)).outputs[0].ids();
  for (const int at : {0, 1, 5}) {
    ThrowingSink broken{.throws_at = at};
    const std::string good = fmt::format("good{}", at);
    client.submit(request(good, 50, 60));
    ASSERT_FALSE(service->submit(request("broken", 40, 300), broken.sink()));
    const Served s = client.wait(good);
    EXPECT_FALSE(s.failure) << s.message;
    EXPECT_EQ(s.outputs[0].ids(), alone);
    for (int i = 0; i < 400 && service->cancel("broken"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_LE(broken.events, at + 3) << "nothing is told behind its end";
    expect_no_leaks(*service);
  }
  EXPECT_EQ(metric(*service, "requests_failed_total", R"(why="internal_error")"), 3);
  EXPECT_FALSE(service->failed());
}

TEST_F(Robustness, AGrammarThatThrowsEndsItsRequestOnly) {
  class Foreign final : public Grammar {  // of no tokenizer: a state of it can't be made
    int64_t bytes() const override { return 0; }
  };
  const auto service = Service::start(options()).value();
  Client client(*service);
  Request r = request("foreign", 30, 20);
  r.grammar = std::make_shared<const Foreign>();
  client.submit(request("good", 50, 40));
  const Served s = client.run(r);
  EXPECT_EQ(s.failure, Failure::kInternal);
  EXPECT_NE(s.message.find("could not go on with this request"), std::string::npos) << s.message;
  EXPECT_FALSE(client.wait("good").failure);
  expect_no_leaks(*service);
}

TEST_F(Robustness, NonFiniteLogitsEndTheirRequestOnly) {
  ServiceOptions o = options();
  std::vector<int32_t> alone;
  {
    const auto service = Service::start(o).value();
    alone = Client(*service).run(request("good", 51, 40)).outputs[0].ids();
  }
  o.parts = WatchedExecutor::parts([](WatchedExecutor& e, const Runs& runs, glm5_next::StepOutput& out) {
    for (size_t i = 0; i < runs.size(); ++i) {
      if (e.memory().position(runs[i].sequence) < 64) continue;  // the other one never gets there
      const Rows rows = e.logits_of(i, out);
      for (int64_t r = 0; r < rows.rows; ++r)
        std::fill_n(const_cast<float*>(rows.f32(r)), rows.width, std::numeric_limits<float>::quiet_NaN());
    }
    return Status::ok();
  });
  const auto service = Service::start(o).value();
  Client client(*service);
  client.submit(request("good", 51, 6));
  client.submit(request("sick", 70, 40));
  const Served sick = client.wait("sick");
  EXPECT_EQ(sick.failure, Failure::kNonFinite);
  const Served good = client.wait("good");
  EXPECT_EQ(metric(*service, "nonfinite_logits_total"), 1);  // numbers are shown at the end of a step
  EXPECT_FALSE(good.failure) << good.message;
  EXPECT_EQ(good.outputs[0].ids(), std::vector<int32_t>(alone.begin(), alone.begin() + 6));
  EXPECT_FALSE(service->failed());
  expect_no_leaks(*service);
}

TEST_F(Robustness, ADeviceFaultEndsEveryRequestAndTheService) {
  for (const bool throws : {false, true}) {
    ServiceOptions o = options();
    auto passes = std::make_shared<int>(0);
    o.parts = WatchedExecutor::parts([passes, throws](WatchedExecutor&, const Runs&, auto&) {
      if (++*passes < 20) return Status::ok();
      if (throws) throw std::bad_alloc();
      return internal("the device is gone");
    });
    const auto service = Service::start(o).value();
    Client client(*service);
    for (int i = 0; i < 6; ++i) client.submit(request(fmt::format("r{}", i), 30 + i, 500));
    for (int i = 0; i < 6; ++i) EXPECT_EQ(client.wait(fmt::format("r{}", i)).failure, Failure::kEngine) << i;
    EXPECT_TRUE(service->failed());
    EXPECT_EQ(metric(*service, "engine_faults_total"), 1);
    client.submit(request("late", 5, 5));
    EXPECT_EQ(client.wait("late").refusal->why, Refusal::Why::kFailed);
    EXPECT_EQ(service->would_refuse(5, 1)->why, Refusal::Why::kFailed);
  }
}

TEST_F(Robustness, PicturesAreEncodedBetweenStepsOfOthers) {
  const auto service = Service::start(options()).value();
  const ProcessorConfig processor = ProcessorConfig();
  Client client(*service);
  Request r = request("pictures", 1, 2);
  PixelConfig pixels = processor.image;
  const auto& vision = *service->config().vision;
  pixels.patch = vision.patch, pixels.temporal_patch = vision.temporal_patch, pixels.merge = vision.merge;
  constexpr int kPictures = 6;
  for (int i = 0; i < kPictures; ++i) {
    Picture picture{.width = 56, .height = 56, .rgb = std::vector<uint8_t>(56 * 56 * 3, static_cast<uint8_t>(40 * i))};
    r.media.images.push_back(preprocess_image(picture, pixels).value());
    r.media_keys.push_back(fmt::format("picture-{:016}", i));
    const auto ids = service->expand({ServingModel::kImage}, {.images = {r.media.images.back()}, .clips = {}}).value();
    r.prompt.insert(r.prompt.end(), ids.begin(), ids.end());
  }
  client.submit(request("running", 20, 400));
  while (client.tokens_of("running") < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::atomic<int> steps{0};
  const size_t before = client.tokens_of("running");
  const Served s = client.run(r);
  EXPECT_FALSE(s.failure) << s.message;
  EXPECT_GT(s.usage.image_tokens, kPictures);
  EXPECT_GE(client.tokens_of("running"), before + kPictures - 1) << "a token of the other one between two pictures";
  service->cancel("running"), client.wait("running");
  // Again: all of them come from the cache, and nothing is encoded.
  r.id = "again";
  const auto encodes = [&] {
    for (const Histogram& h : service->stats().histograms)
      if (h.name == "encode_seconds") {
        uint64_t n = 0;
        for (const uint64_t c : h.counts) n += c;
        return n;
      }
    return uint64_t{0};
  };
  EXPECT_EQ(encodes(), 1u);
  const Served again = client.run(r);
  EXPECT_EQ(again.outputs[0].ids(), s.outputs[0].ids());
  expect_no_leaks(*service);
}

// -- distribution

// The upper tail of chi-square, by Wilson and Hilferty's cube root: good to a few per cent where it matters here.
double chi_square_tail(double x, double freedom) {
  const double z = (std::cbrt(x / freedom) - (1 - 2 / (9 * freedom))) / std::sqrt(2 / (9 * freedom));
  return 0.5 * std::erfc(z / std::sqrt(2));
}

class Distribution : public Robustness {
 protected:
  static constexpr int kChoices = 16;

  // Counts of the token at `place` over many draws.
  static std::vector<int> draw(Service& service, int requests, int place, uint64_t seed, double* accepted = nullptr) {
    std::vector<int> counts(ServingModel::kVocab, 0);
    Client client(service);
    for (int i = 0; i < requests; ++i) {
      Request r = request(fmt::format("r{}", i), 24, place + 1);
      r.n = kChoices, r.sampling = {.temperature = 0.7f, .seed = seed + static_cast<uint64_t>(i) * kChoices};
      client.submit(std::move(r));
    }
    for (int i = 0; i < requests; ++i)
      for (const Served::Output& out : client.wait(fmt::format("r{}", i)).outputs) ++counts[out.tokens.at(place).token];
    if (accepted) *accepted = metric(service, "spec_accepted_tokens_total");
    return counts;
  }
  static ServiceOptions wide(int drafts) {
    ServiceOptions o = options();
    o.max_running = 64, o.cache_tokens = 64 * 128, o.step_tokens = 2048, o.drafts = drafts, o.max_queue = 100000;
    o.max_queue_capacities = 1e6, o.max_wait_seconds = 1e6;
    return o;
  }
};

TEST_F(Distribution, DrawsFollowTheSoftmax) {
  const auto service = Service::start(wide(0)).value();
  constexpr int kRequests = 800;
  const std::vector<int> counts = draw(*service, kRequests, 0, 1000);
  Request r = request("all", 24, 1);
  r.logprobs = ServingModel::kVocab;
  std::vector<double> p(ServingModel::kVocab, 0);
  double sum = 0;
  const Served all = Client(*service).run(r);
  for (const TokenLogprob& t : all.outputs[0].tokens[0].best) sum += p[t.token] = std::exp(t.logprob / 0.7);
  const double n = kRequests * kChoices;
  double chi = 0, rest = n, rest_expected = n;
  int bins = 0;
  for (int t = 0; t < ServingModel::kVocab; ++t) {
    const double expected = n * p[t] / sum;
    if (expected < 8) continue;
    chi += (counts[t] - expected) * (counts[t] - expected) / expected;
    rest -= counts[t], rest_expected -= expected;
    ++bins;
  }
  if (rest_expected > 8) chi += (rest - rest_expected) * (rest - rest_expected) / rest_expected, ++bins;
  ASSERT_GT(bins, 8);
  EXPECT_GT(chi_square_tail(chi, bins - 1), 1e-4) << chi << " of " << bins << " bins";
}

// Two samples, one drawn with drafts and one without, from other seeds: the same distribution of a later token.
TEST_F(Distribution, DraftsKeepIt) {
  constexpr int kRequests = 400, kPlace = 3;
  double accepted = 0;
  const auto plain = Service::start(wide(0)).value(), drafting = Service::start(wide(3)).value();
  const std::vector<int> a = draw(*plain, kRequests, kPlace, 1 << 20);
  const std::vector<int> b = draw(*drafting, kRequests, kPlace, 1 << 24, &accepted);
  double chi = 0;
  int bins = 0, rest_a = 0, rest_b = 0;
  auto add = [&](double x, double y) { chi += (x - y) * (x - y) / (x + y), ++bins; };
  for (int t = 0; t < ServingModel::kVocab; ++t) {
    if (a[t] + b[t] < 16)
      rest_a += a[t], rest_b += b[t];
    else
      add(a[t], b[t]);
  }
  if (rest_a + rest_b >= 16) add(rest_a, rest_b);
  ASSERT_GT(bins, 8);
  EXPECT_GT(accepted, 0) << "no draft ever stood: nothing was tested";
  EXPECT_GT(chi_square_tail(chi, bins - 1), 1e-4) << chi << " of " << bins << " bins";
}

}  // namespace
}  // namespace lathe
