// The service end to end on a synthesised model: what comes out is what plain decoding gives, streams are whole, and
// whatever happens to a request, its memory comes back.
#include "engine/service.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <regex>
#include <thread>

#include "lathe/logits.h"
#include "testing/served.h"
#include "testing/serving_model.h"

namespace lathe {
namespace {

using testing::Client;
using testing::Served;
using testing::ServingModel;

class ServiceTest : public ::testing::Test {
 protected:
  static const ServingModel& model() {
    static const ServingModel m;
    return m;
  }
  static ServiceOptions options() { return testing::small_service(model(), /*drafts=*/0); }
  void start(const ServiceOptions& o) {
    auto service = Service::start(o);
    ASSERT_TRUE(service.is_ok()) << service.status().message();
    service_ = std::move(service).value();
  }
  static Request request(const std::string& id, int prompt, int tokens) {
    return testing::request_of(id, prompt, tokens, /*ids=*/256);
  }
  double metric(const std::string& name, const std::string& labels = "") {
    double sum = 0;
    bool found = false;
    for (const Metric& m : service_->stats().metrics)
      if (m.name == name && m.labels.find(labels) != std::string::npos) sum += m.value, found = true;
    EXPECT_TRUE(found) << "no metric " << name;
    return sum;
  }
  // Nothing is taken any more, once the cache is empty.
  void expect_no_leaks() {
    service_->flush_cache();
    for (int i = 0; i < 400 && metric("pages", R"(state="used")") + metric("recurrent_slots", R"(state="used")") > 0;
         ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(metric("pages", R"(state="used")"), 0);
    EXPECT_EQ(metric("recurrent_slots", R"(state="used")"), 0);
    EXPECT_EQ(metric("requests_running") + metric("requests_waiting"), 0);
  }
  // The likeliest tokens after a prompt, by teacher-forced logits.
  static std::vector<int32_t> greedy(const std::vector<int32_t>& prompt, int tokens) {
    std::vector<int32_t> ids = prompt, out;
    for (int i = 0; i < tokens; ++i) {
      LogitsOptions o{.model = model().path(), .dtype = "f32"};
      const auto logits = compute_logits(o, {ids}).value();
      const float* last = logits[0].logits.data() + (logits[0].rows - 1) * logits[0].vocab;
      ids.push_back(static_cast<int32_t>(std::max_element(last, last + logits[0].vocab) - last));
      out.push_back(ids.back());
    }
    return out;
  }

  std::unique_ptr<Service> service_;
};

TEST_F(ServiceTest, AloneAndTogetherGiveTheSameText) {
  start(options());
  Client client(*service_);
  std::vector<std::vector<int32_t>> alone;
  for (int i = 0; i < 9; ++i) {
    const Served s = client.run(request("alone" + std::to_string(i), 5 + 23 * i, 12));
    ASSERT_FALSE(s.failure) << s.message;
    EXPECT_EQ(s.outputs[0].tokens.size(), 12u);
    EXPECT_EQ(s.outputs[0].finish, FinishReason::kLength);
    EXPECT_EQ(s.usage.completion_tokens, 12);
    EXPECT_EQ(s.usage.prompt_tokens, 5 + 23 * i);
    EXPECT_EQ(service_->tokenizer().decode(s.outputs[0].ids(), true), s.outputs[0].text);
    alone.push_back(s.outputs[0].ids());
  }
  EXPECT_EQ(alone[2], greedy(request("", 5 + 23 * 2, 12).prompt, 12));
  for (int i = 0; i < 9; ++i) client.submit(request("together" + std::to_string(i), 5 + 23 * i, 12));
  for (int i = 0; i < 9; ++i) EXPECT_EQ(client.wait("together" + std::to_string(i)).outputs[0].ids(), alone[i]) << i;
  EXPECT_EQ(client.disorder(), 0);
  expect_no_leaks();
}

TEST_F(ServiceTest, ChoicesDrawApartAndTheFirstIsThatOfOneAlone) {
  start(options());
  Client client(*service_);
  Request r = request("one", 70, 10);
  r.sampling = {.temperature = 1, .seed = 5};
  const Served one = client.run(r);
  r.id = "three", r.n = 3;
  const Served three = client.run(r);
  EXPECT_EQ(three.outputs[0].ids(), one.outputs[0].ids());
  EXPECT_NE(three.outputs[1].ids(), three.outputs[0].ids());
  EXPECT_EQ(three.usage.completion_tokens, 30);
  r.id = "second", r.n = 1, r.sampling.seed = 6;
  EXPECT_EQ(client.run(r).outputs[0].ids(), three.outputs[1].ids());
  expect_no_leaks();
}

TEST_F(ServiceTest, DraftsChangeNoToken) {
  std::vector<std::vector<int32_t>> plain;
  for (const int drafts : {0, 1, 3}) {
    for (const bool strict : {false, true}) {
      ServiceOptions o = options();
      o.drafts = drafts, o.strict = strict;
      start(o);
      Client client(*service_);
      for (int i = 0; i < 6; ++i) {
        Request r = request("r" + std::to_string(i), 9 + 31 * i, 30);
        if (i % 2) r.sampling = {.temperature = 1, .seed = static_cast<uint64_t>(i)};
        if (i == 3) r.presence_penalty = 1, r.frequency_penalty = 0.5f;
        if (i == 4) r.stop = {"e", "a"}, r.min_tokens = 5;
        client.submit(std::move(r));
      }
      for (int i = 0; i < 6; ++i) {
        const std::vector<int32_t> ids = client.wait("r" + std::to_string(i)).outputs[0].ids();
        if (drafts == 0 && !strict)
          plain.push_back(ids);
        else
          EXPECT_EQ(ids, plain[i]) << i << " drafts " << drafts << " strict " << strict;
      }
      EXPECT_EQ(metric("spec_draft_tokens_total") > 0, drafts > 0);
      expect_no_leaks();
    }
  }
}

TEST_F(ServiceTest, ASharedBeginningComesFromTheCache) {
  ServiceOptions o = options();
  o.checkpoint_interval = 64, o.checkpoint_least = 8;
  start(o);
  Client client(*service_);
  const Served cold = client.run(request("cold", 320, 8));
  EXPECT_EQ(cold.usage.cached_tokens, 0);
  const Served warm = client.run(request("warm", 320, 8));
  EXPECT_GT(warm.usage.cached_tokens, 0);
  EXPECT_EQ(warm.outputs[0].ids(), cold.outputs[0].ids());
  // The next turn goes on from where the last one ended.
  Request next = request("next", 320, 8);
  for (const int32_t id : cold.outputs[0].ids()) next.prompt.push_back(id);
  next.prompt.push_back(7);
  const Served turn = client.run(next);
  EXPECT_GE(turn.usage.cached_tokens, 320);
  // Another salt shares nothing.
  Request salted = request("salted", 320, 8);
  salted.cache_salt = "other";
  EXPECT_EQ(client.run(salted).usage.cached_tokens, 0);
  EXPECT_GT(metric("prefix_hits_total"), 0);
  expect_no_leaks();
}

TEST_F(ServiceTest, CancellationInEveryPhaseEndsTheStreamAndFreesAll) {
  ServiceOptions o = options();
  o.max_running = 1, o.step_tokens = 8;
  start(o);
  Client client(*service_);
  client.submit(request("running", 20, 400));
  client.submit(request("queued", 20, 400));
  EXPECT_TRUE(service_->cancel("queued"));
  EXPECT_EQ(client.wait("queued").failure, Failure::kCancelled);
  while (client.tokens_of("running") < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(service_->cancel("running"));
  const Served s = client.wait("running");
  EXPECT_EQ(s.failure, Failure::kCancelled);
  EXPECT_LT(s.outputs[0].tokens.size(), 400u);
  client.submit(request("prefilling", 1500, 4));
  while (metric("requests_running") == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(service_->cancel("prefilling"));
  EXPECT_EQ(client.wait("prefilling").failure, Failure::kCancelled);
  // Its end is told a moment before it is out of the books.
  for (int i = 0; i < 400 && service_->cancel("prefilling"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(service_->cancel("prefilling"));
  EXPECT_EQ(client.disorder(), 0);
  expect_no_leaks();
}

TEST_F(ServiceTest, ADeadlineEndsWhatIsQueuedAndWhatRuns) {
  ServiceOptions o = options();
  o.max_running = 1;
  start(o);
  Client client(*service_);
  Request a = request("a", 10, 2000);
  a.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(150);
  Request b = request("b", 10, 5);
  b.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
  client.submit(a), client.submit(b);
  EXPECT_EQ(client.wait("a").failure, Failure::kDeadline);
  EXPECT_EQ(client.wait("b").failure, Failure::kDeadline);
  expect_no_leaks();
}

TEST_F(ServiceTest, PressureOnPagesPreemptsAndChangesNothing) {
  ServiceOptions o = options();
  o.cache_tokens = 640, o.max_running = 4;
  std::vector<std::vector<int32_t>> alone;
  for (const bool together : {false, true}) {
    start(o);
    Client client(*service_);
    for (int i = 0; i < 6; ++i) {
      Request r = request("r" + std::to_string(i), 100 + i, 120);
      r.priority = i % 3;
      client.submit(std::move(r));
      if (!together) alone.push_back(client.wait("r" + std::to_string(i)).outputs[0].ids());
    }
    for (int i = 0; together && i < 6; ++i) {
      const Served s = client.wait("r" + std::to_string(i));
      ASSERT_FALSE(s.failure) << s.message;
      EXPECT_EQ(s.outputs[0].ids(), alone[i]) << i;
    }
    EXPECT_TRUE(!together || metric("requests_preempted_total") > 0);
    expect_no_leaks();
  }
}

TEST_F(ServiceTest, LogprobsAreThoseOfTeacherForcedLogits) {
  start(options());
  Client client(*service_);
  Request r = request("r", 90, 6);
  r.logprobs = 3, r.prompt_logprobs = 2;
  const Served s = client.run(r);
  ASSERT_EQ(s.prompt_logprobs.size(), 90u);
  EXPECT_FALSE(s.prompt_logprobs[0].logprob);
  std::vector<int32_t> ids = r.prompt;
  for (const OutputToken& t : s.outputs[0].tokens) ids.push_back(t.token);
  const auto logits = compute_logits({.model = model().path(), .dtype = "f32"}, {ids}).value();
  for (size_t t = 1; t < ids.size(); ++t) {
    const OutputToken& token = t < 90 ? s.prompt_logprobs[t] : s.outputs[0].tokens[t - 90];
    const float* row = logits[0].logits.data() + static_cast<int64_t>(t - 1) * logits[0].vocab;
    const float top = *std::max_element(row, row + logits[0].vocab);
    double sum = 0;
    for (int64_t v = 0; v < logits[0].vocab; ++v) sum += std::exp(double{row[v]} - top);
    ASSERT_EQ(token.token, ids[t]) << t;
    EXPECT_NEAR(*token.logprob, row[ids[t]] - top - std::log(sum), 2e-4) << t;
    EXPECT_EQ(token.best.size(), t < 90 ? 2u : 3u);
    EXPECT_NEAR(token.best[0].logprob, -std::log(sum), 2e-4) << t;
  }
  expect_no_leaks();
}

TEST_F(ServiceTest, MinTokensHoldsEndsOffAndStopTokensEnd) {
  start(options());
  Client client(*service_);
  Request r = request("free", 40, 20);
  const std::vector<int32_t> free = client.run(r).outputs[0].ids();
  r.id = "stopped", r.stop_tokens = {free[6]};
  const size_t first = std::find(free.begin(), free.end(), free[6]) - free.begin();
  const Served stopped = client.run(r);
  EXPECT_EQ(stopped.outputs[0].ids(), std::vector<int32_t>(free.begin(), free.begin() + static_cast<int>(first)));
  EXPECT_EQ(stopped.outputs[0].finish, FinishReason::kStop);
  EXPECT_EQ(stopped.usage.completion_tokens, static_cast<int>(first) + 1);
  r.id = "later", r.min_tokens = 15;
  const Served later = client.run(r);
  EXPECT_GE(later.outputs[0].tokens.size(), 15u);
  for (size_t i = 0; i < 15; ++i) EXPECT_NE(later.outputs[0].tokens[i].token, free[6]);
}

TEST_F(ServiceTest, GrammarsHoldWithDraftsForksAndAfterReasoning) {
  std::vector<std::string> plain;
  for (const int drafts : {0, 3}) {
    ServiceOptions o = options();
    o.drafts = drafts;
    start(o);
    Client client(*service_);
    GrammarSource source;
    source.kind = GrammarSource::Kind::kRegex, source.text = "[ab]{6,12}(x|yy)";
    const auto grammar = Grammar::compile(source, service_->tokenizer());
    ASSERT_TRUE(grammar.is_ok()) << grammar.status().message();
    for (int i = 0; i < 4; ++i) {
      Request r = request("r" + std::to_string(i), 11 + 40 * i, 40);
      r.grammar = *grammar, r.n = 1 + i % 2, r.ignore_eos = false;
      if (i > 1) r.sampling = {.temperature = 1, .seed = static_cast<uint64_t>(i)};
      if (i == 3) r.min_tokens = 9;
      client.submit(std::move(r));
    }
    // Thinks aloud first; the grammar begins where that ends.
    Request thinking = request("thinking", 20, 60);
    thinking.prompt.push_back(ServingModel::kThink);
    thinking.grammar = *grammar, thinking.grammar_after_reasoning = true, thinking.ignore_eos = false;
    thinking.logit_bias = {{ServingModel::kThinkEnd, 4}}, thinking.sampling = {.temperature = 1, .seed = 4};
    client.submit(std::move(thinking));

    const std::regex whole("[ab]{6,12}(x|yy)");
    std::vector<std::string> texts;
    for (int i = 0; i < 4; ++i)
      for (const Served::Output& out : client.wait("r" + std::to_string(i)).outputs) {
        EXPECT_TRUE(std::regex_match(out.text, whole)) << out.text;
        EXPECT_EQ(out.finish, FinishReason::kStop);
        texts.push_back(out.text);
      }
    const Served s = client.wait("thinking");
    const std::string text = s.outputs[0].text, mark = "</think>";
    ASSERT_NE(text.find(mark), std::string::npos) << text;
    EXPECT_TRUE(std::regex_match(text.substr(text.find(mark) + mark.size()), whole)) << text;
    EXPECT_EQ(s.usage.reasoning_tokens + static_cast<int>(text.size() - text.find(mark) - mark.size()),
              s.usage.completion_tokens);
    texts.push_back(text);
    if (drafts == 0)
      plain = texts;
    else
      EXPECT_EQ(texts, plain);
    expect_no_leaks();
  }
}

TEST_F(ServiceTest, RefusalsAndDrainAreSaid) {
  ServiceOptions o = options();
  o.max_running = 1, o.max_queue = 2;
  start(o);
  Client client(*service_);
  client.submit(request("a", 10, 1800));
  while (metric("requests_running") == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  client.submit(request("b", 10, 1800)), client.submit(request("c", 10, 1800)), client.submit(request("d", 10, 1800));
  EXPECT_EQ(client.wait("d").refusal->why, Refusal::Why::kQueueFull);
  client.submit(request("long", 5000, 3));
  EXPECT_EQ(client.wait("long").refusal->why, Refusal::Why::kTooLong);
  EXPECT_EQ(service_->submit(request("a", 10, 3), [](RequestEvent&&) {})->why, Refusal::Why::kDuplicateId);
  service_->drain(0.01);
  EXPECT_TRUE(service_->draining());
  for (const char* id : {"a", "b", "c"}) EXPECT_EQ(client.wait(id).failure, Failure::kDraining) << id;
  client.submit(request("e", 10, 3));
  EXPECT_EQ(client.wait("e").refusal->why, Refusal::Why::kDraining);
  service_->undrain();
  EXPECT_FALSE(client.run(request("f", 10, 3)).failure);
  expect_no_leaks();
}

}  // namespace
}  // namespace lathe
