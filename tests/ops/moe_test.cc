#include "ops/moe/moe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/checkpoint.h"

namespace lathe {

namespace {

using testing::floats;
using testing::Host;
using testing::ints;
using testing::rms_ratio;
using testing::weight;

// Experts that answer nothing, for tests of the routing alone.
struct Silent {
  Silent(Host& host, int experts, int hidden) {
    const MlpWeights w{.gate = weight(host, 1, hidden, std::vector<float>(hidden)),
                       .up = weight(host, 1, hidden, std::vector<float>(hidden)),
                       .down = weight(host, hidden, 1, std::vector<float>(hidden))};
    list.assign(experts, w);
  }
  std::vector<MlpWeights> list;
};

MoeArgs routing(Host& host, const Silent& experts, Rows x, Weight router, const std::vector<float>& bias, int top_k) {
  return {.x = x,
          .router = router,
          .bias = host.vector(bias),
          .experts = {experts.list.data(), static_cast<int64_t>(experts.list.size())},
          .y = host.empty(x.rows, x.width, DType::kF32),
          .chosen = {host.memory.take<int32_t>(x.rows * top_k), x.rows * top_k},
          .chosen_weight = {host.memory.take<float>(x.rows * top_k), x.rows * top_k},
          .expert_count = static_cast<int>(experts.list.size()),
          .top_k = top_k};
}

std::vector<int> chosen(const MoeArgs& args) { return {args.chosen.data, args.chosen.data + args.chosen.count}; }

template <class Test>
void for_each_variant(const MoeArgs& args, Host& host, Test test) {
  for (const Variant<MoeArgs>& v : kMoe.variants)
    if (v.applies(args)) {
      OpContext ctx = host.with(std::string("moe=") + v.name);
      const Status s = moe(ctx, args);
      ASSERT_TRUE(s.is_ok()) << s.message();
      test(v.name);
    }
}

void expect_golden_routing(const std::string& tag, int top_k, int groups, int top_groups, float scale) {
  LATHE_GOLDEN(file, "golden/ops_basic.safetensors");
  Host host;
  const Silent experts(host, 8, 64);
  MoeArgs args = routing(host, experts, host.rows(33, 64, floats(file, tag + ".x")),
                         weight(host, file, tag + ".weight"), floats(file, tag + ".bias"), top_k);
  args.groups = groups, args.top_groups = top_groups, args.routed_scale = scale;
  const std::vector<int> ids = ints(file, tag + ".topk_ids");
  const std::vector<float> weights = floats(file, tag + ".topk_weights");
  for_each_variant(args, host, [&](const char* name) {
    for (int r = 0; r < 33; ++r) {
      std::vector<std::pair<int, float>> golden;
      for (int j = 0; j < top_k; ++j) golden.emplace_back(ids[r * top_k + j], weights[r * top_k + j]);
      std::sort(golden.begin(), golden.end());
      for (int j = 0; j < top_k; ++j) {
        EXPECT_EQ(args.chosen[r * top_k + j], golden[j].first) << name << " row " << r;
        EXPECT_NEAR(args.chosen_weight[r * top_k + j], golden[j].second, 2e-6) << name << " row " << r;
      }
    }
  });
}

TEST(Moe, RoutesAsTheReferenceModel) { expect_golden_routing("router", 3, 1, 1, 2.5f); }

TEST(Moe, RoutesInGroupsAsTheReferenceModel) { expect_golden_routing("router_grouped", 2, 4, 2, 1.5f); }

struct GoldenMoe {
  GoldenMoe(Host& host, const Safetensors& file) {
    for (int e = 0; e < 8; ++e) {
      const Weight both = weight(host, file, "moe.p.experts.gate_up_proj", e);
      experts.push_back({.gate = both.slice(0, 32),
                         .up = both.slice(32, 32),
                         .down = weight(host, file, "moe.p.experts.down_proj", e)});
    }
    shared.push_back({.gate = weight(host, file, "moe.p.shared_experts.gate_proj.weight"),
                      .up = weight(host, file, "moe.p.shared_experts.up_proj.weight"),
                      .down = weight(host, file, "moe.p.shared_experts.down_proj.weight")});
    args = {.x = host.rows(17, 64, floats(file, "moe.x")),
            .router = weight(host, file, "moe.p.gate.weight"),
            .bias = host.vector(floats(file, "moe.p.gate.e_score_correction_bias")),
            .experts = {experts.data(), 8},
            .shared = {shared.data(), 1},
            .y = host.empty(17, 64, DType::kF32),
            .expert_count = 8,
            .top_k = 3,
            .routed_scale = 2.5f,
            .limit = 0.8f};
  }
  std::vector<MlpWeights> experts, shared;
  MoeArgs args;
};

TEST(Moe, CombinesAsTheReferenceModel) {
  LATHE_GOLDEN(file, "golden/ops_basic.safetensors");
  Host host;
  GoldenMoe golden(host, file);
  for_each_variant(golden.args, host, [&](const char* name) {
    EXPECT_LE(rms_ratio(Host::values(golden.args.y), floats(file, "moe.y")), 5e-6) << name;
  });
  golden.args.shared = {};
  for_each_variant(golden.args, host, [&](const char* name) {
    EXPECT_LE(rms_ratio(Host::values(golden.args.y), floats(file, "moe.routed_y")), 5e-6) << name;
  });
}

TEST(Moe, ExpertsCutOverRanksEqualExpertsInOnePlace) {
  LATHE_GOLDEN(file, "golden/ops_basic.safetensors");
  const std::vector<float> whole = floats(file, "moe.y");
  for (const Variant<MoeArgs>& v : kMoe.variants) {
    const Status s = run_ranks(2, [&](Communicator& comm) {
      Host host(1);
      GoldenMoe golden(host, file);
      if (!v.applies(golden.args)) return Status::ok();
      golden.args.first_expert = comm.rank() * 4;
      golden.args.experts = {golden.experts.data() + comm.rank() * 4, 4};
      OpContext ctx = host.with(std::string("moe=") + v.name);
      ctx.comm = &comm;
      LATHE_RETURN_IF_ERROR(moe(ctx, golden.args));
      EXPECT_LE(rms_ratio(Host::values(golden.args.y), whole), 5e-6) << v.name;
      return Status::ok();
    });
    EXPECT_TRUE(s.is_ok()) << s.message();
  }
}

TEST(Moe, TiesGoToTheLowerIdAndNaNIsChosenLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  Host host;
  const Silent experts(host, 20, 1);
  MoeArgs args = routing(host, experts, host.rows(1, 1, {0}), weight(host, 20, 1, std::vector<float>(20)),
                         {0, 1, nan, 1, 1, -inf, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2}, 5);
  for_each_variant(args, host,
                   [&](const char* name) { EXPECT_EQ(chosen(args), (std::vector{1, 3, 4, 6, 19})) << name; });
  args = routing(host, experts, host.rows(1, 1, {nan}), weight(host, 20, 1, std::vector<float>(20, 1)),
                 std::vector<float>(20), 3);
  for_each_variant(args, host, [&](const char* name) { EXPECT_EQ(chosen(args), (std::vector{0, 1, 2})) << name; });
  args = routing(host, experts, host.rows(1, 1, {0}), weight(host, 20, 1, std::vector<float>(20)),
                 std::vector<float>(20, nan), 20);
  std::vector<int> everybody(20);
  for (int i = 0; i < 20; ++i) everybody[i] = i;
  for_each_variant(args, host, [&](const char* name) { EXPECT_EQ(chosen(args), everybody) << name; });
}

TEST(Moe, ExpertsOfDifferentWidthsOrFormsAreRefused) {
  Host host;
  Silent experts(host, 4, 8);
  const auto complaint = [&] {
    const MoeArgs args = routing(host, experts, host.rows(2, 8, std::vector<float>(16)),
                                 weight(host, 4, 8, std::vector<float>(32)), std::vector<float>(4), 2);
    OpContext ctx = host.ctx;
    return moe(ctx, args).message();
  };
  EXPECT_EQ(complaint(), "");
  const MlpWeights narrow = experts.list[2];
  experts.list[2] = {.gate = weight(host, 3, 8, std::vector<float>(24)),
                     .up = weight(host, 3, 8, std::vector<float>(24)),
                     .down = weight(host, 8, 3, std::vector<float>(24))};
  EXPECT_EQ(complaint(), "moe: expert 2 has an inner width of 3, expert 0 of 1: all must share one");
  experts.list[2] = narrow;
  experts.list[3].down = weight(host, 8, 1, std::vector<float>(8), DType::kBF16);
  EXPECT_EQ(complaint(), "moe: expert 3's down is plain bf16, expert 0's plain f32: all must share one form");
}

}  // namespace

}  // namespace lathe
