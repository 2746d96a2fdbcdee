// Shadow verification: what was given rightly is clean, a token that the model would not have given is found.
#include "engine/audit.h"

#include <gtest/gtest.h>

#include <thread>

#include "engine/service.h"
#include "testing/served.h"
#include "testing/serving_model.h"

namespace lathe {
namespace {

using testing::ServingModel;

struct Notes final : Auditor {
  void found(const AuditFinding& f) override { findings.push_back(f); }
  void clean(const std::string& id, int) override { clean_ids.push_back(id); }
  std::vector<AuditFinding> findings;
  std::vector<std::string> clean_ids;
};

class Audit : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = glm5_next::Config::read(model_.path()).value();
    checkpoint_ = std::make_unique<Checkpoint>(Checkpoint::open(model_.path()).value());
    executor_ = Executor::create(config_, *checkpoint_, *device_, pool_, nullptr,
                                 {.dtype = DType::kF32, .slots = 2, .pages = 16})
                    .value();
  }
  // The greedy continuation, token by token.
  std::vector<int32_t> answered(int prompt, int tokens) {
    std::vector<int32_t> ids;
    for (int i = 0; i < prompt; ++i) ids.push_back(i * 31 % 256);
    Sampler sampler(config_.text.vocab);
    const SequenceId id = executor_->memory().open().value();
    std::vector<int32_t> feed = ids;
    for (int i = 0; i < tokens; ++i) {
      const auto out =
          executor_->run({{.sequence = id, .tokens = feed, .features = {}, .in_ring = false, .logits_of_last = 1}});
      const DrawRow row{.logit_row = 0, .position = static_cast<int32_t>(ids.size())};
      feed = {sampler.draw(*executor_, out->logits, {&row, 1}).value()[0].token};
      ids.push_back(feed[0]);
    }
    executor_->memory().close(id);
    return ids;
  }
  void replay(const std::vector<int32_t>& tokens, int prompt) {
    ShadowAudit audit(*executor_, {.tokens_per_minute = 60'000, .auditor = &notes_});
    const SteadyTime start{};
    audit.offer({.id = "early", .tokens = tokens, .prompt = prompt}, start);
    EXPECT_FALSE(audit.has_work()) << "no time has passed: there is no allowance yet";
    audit.offer({.id = "a", .tokens = tokens, .prompt = prompt}, start + std::chrono::seconds(10));
    while (audit.has_work()) ASSERT_TRUE(audit.work().is_ok());
    EXPECT_EQ(executor_->memory().free_slots(), 2);
    EXPECT_EQ(executor_->memory().free_pages(), 16);
  }

  const ServingModel model_;
  std::unique_ptr<Device> device_ = make_cpu_device();
  ThreadPool pool_{1};
  glm5_next::Config config_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<Executor> executor_;
  Notes notes_;
};

TEST_F(Audit, WhatWasGivenRightlyIsClean) {
  replay(answered(150, 20), 150);
  EXPECT_TRUE(notes_.findings.empty());
  EXPECT_EQ(notes_.clean_ids, std::vector<std::string>{"a"});
}

TEST_F(Audit, AWrongTokenIsFoundWithItsPlace) {
  std::vector<int32_t> tokens = answered(150, 20);
  tokens[161] = (tokens[161] + 97) % 256;
  replay(tokens, 150);
  ASSERT_EQ(notes_.findings.size(), 1u);
  EXPECT_EQ(notes_.findings[0].position, 161);
  EXPECT_EQ(notes_.findings[0].chosen, tokens[161]);
  EXPECT_GT(notes_.findings[0].below, 0.5f);
  EXPECT_EQ(notes_.findings[0].layer, -1) << "both variants compute the same: the cause was elsewhere";
}

TEST_F(Audit, TheServiceOffersItsAnswers) {
  Notes notes;
  ServiceOptions o;
  o.engine.model = model_.path(), o.engine.threads = 1, o.engine.dtype = "f32";
  o.max_running = 2, o.cache_tokens = 1024, o.drafts = 0,
  o.audit = {.tokens_per_minute = 60'000'000, .auditor = &notes};
  {
    const auto service = Service::start(o).value();
    testing::Client client(*service);
    for (int i = 0; i < 4; ++i) {
      Request r;
      r.id = fmt::format("r{}", i), r.prompt.assign(40, 7 + i), r.max_tokens = 12;
      client.run(std::move(r));
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
  }
  EXPECT_TRUE(notes.findings.empty());
  EXPECT_FALSE(notes.clean_ids.empty());
}

TEST_F(Audit, TheShareOfAnswersIsDrawn) {
  ShadowAudit none(*executor_, {.tokens_per_minute = 60'000, .share = 0, .auditor = &notes_});
  const SteadyTime start = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i)
    none.offer({.id = "a", .tokens = {1, 2, 3}, .prompt = 2}, start + std::chrono::seconds(i));
  EXPECT_FALSE(none.has_work());
  int taken = 0;
  for (int i = 0; i < 400; ++i) {
    ShadowAudit half(*executor_, {.tokens_per_minute = 60'000, .share = 0.5, .auditor = &notes_});
    half.offer({.id = "a", .tokens = {1, 2, 3}, .prompt = 2}, start);
    half.offer({.id = "a", .tokens = {1, 2, 3}, .prompt = 2}, start + std::chrono::seconds(1));
    taken += half.has_work();
  }
  // Both offers are drawn for by themselves: the first sets the clock, the second finds an allowance.
  EXPECT_GT(taken, 40);
  EXPECT_LT(taken, 360);
}

}  // namespace
}  // namespace lathe
