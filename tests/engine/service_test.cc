// The service end to end on a synthesised model: what comes out is what plain decoding gives, streams are whole, and
// whatever happens to a request, its memory comes back.
#include "engine/service.h"

#include <gtest/gtest.h>

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
  static ServiceOptions options() {
    ServiceOptions o;
    o.engine.model = model().path(), o.engine.threads = 2, o.engine.dtype = "f32";
    o.max_running = 4, o.cache_tokens = 2048, o.step_tokens = 64, o.drafts = 0;
    return o;
  }
  static Request request(const std::string& id, int prompt, int tokens) {
    Request r;
    r.id = id, r.max_tokens = tokens, r.ignore_eos = true;
    for (int i = 0; i < prompt; ++i) r.prompt.push_back((i * 37 + prompt) % 256);
    return r;
  }
  static double metric(Service& s, const std::string& name, const std::string& labels = "") {
    for (const Metric& m : s.stats().metrics)
      if (m.name == name && m.labels == labels) return m.value;
    ADD_FAILURE() << "no metric " << name;
    return -1;
  }
};

TEST_F(ServiceTest, AloneAndTogetherGiveTheSameText) {
  auto service = Service::start(options());
  ASSERT_TRUE(service.is_ok()) << service.status().message();
  Client client(**service);
  std::vector<std::vector<int32_t>> alone;
  for (int i = 0; i < 9; ++i) {
    const Served s = client.run(request("alone" + std::to_string(i), 5 + 23 * i, 12));
    ASSERT_FALSE(s.failure) << s.message;
    EXPECT_EQ(s.outputs[0].tokens.size(), 12u);
    EXPECT_EQ(s.outputs[0].finish, FinishReason::kLength);
    EXPECT_EQ(s.usage.completion_tokens, 12);
    EXPECT_EQ(s.usage.prompt_tokens, 5 + 23 * i);
    EXPECT_EQ((*service)->tokenizer().decode(s.outputs[0].ids(), true), s.outputs[0].text);
    alone.push_back(s.outputs[0].ids());
  }
  for (int i = 0; i < 9; ++i) client.submit(request("together" + std::to_string(i), 5 + 23 * i, 12));
  for (int i = 0; i < 9; ++i) EXPECT_EQ(client.wait("together" + std::to_string(i)).outputs[0].ids(), alone[i]) << i;
  EXPECT_EQ(client.disorder(), 0);
}

}  // namespace
}  // namespace lathe
