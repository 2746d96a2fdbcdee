#include "ops/sample/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "ops/host.h"

namespace lathe {

namespace {

using testing::Host;

std::vector<std::string> variants(const SampleArgs& args) {
  std::vector<std::string> names;
  for (const Variant<SampleArgs>& v : kSample.variants)
    if (v.applies(args)) names.push_back(v.name);
  return names;
}

// Draws at positions 0, 1, 2, ... from one row of logits.
struct Draws {
  Host host;
  std::vector<SampleSettings> settings;
  SampleArgs args;

  Draws(const std::vector<float>& logits, SampleSettings s, int count, int vocab = 0) : settings(count, s) {
    std::vector<float> all;
    std::vector<int32_t> position(count);
    for (int i = 0; i < count; ++i) all.insert(all.end(), logits.begin(), logits.end()), position[i] = i;
    args.logits = host.rows(count, static_cast<int64_t>(logits.size()), all);
    args.position = host.ints(position);
    args.token = {host.memory.take<int32_t>(count), count};
    args.vocab = vocab ? vocab : static_cast<int>(logits.size());
  }
  std::vector<int32_t> run(const std::string& variant) {
    args.settings = {settings.data(), args.logits.rows};
    OpContext ctx = host.with("sample=" + variant);
    LATHE_CHECK(sample(ctx, args).is_ok());
    return {args.token.data, args.token.data + args.token.count};
  }
};

int32_t drawn_once(const std::vector<float>& logits, SampleSettings s, int vocab = 0) {
  Draws d(logits, s, 1, vocab);
  const int32_t first = d.run("reference")[0];
  for (const std::string& name : variants(d.args)) EXPECT_EQ(d.run(name)[0], first) << name;
  return first;
}

TEST(Sample, GreedyTakesTheGreatestAndTheLowerIdOfEquals) {
  const float nan = std::nanf(""), inf = INFINITY;
  EXPECT_EQ(drawn_once({1, 3, 2, 3}, {}), 1);
  EXPECT_EQ(drawn_once({nan, -5, nan, -4}, {}), 3);
  EXPECT_EQ(drawn_once({1, 2, 9}, {}, 2), 1);  // padding of the matrix
  EXPECT_EQ(drawn_once({nan, -inf, nan}, {}), -1);
  EXPECT_EQ(drawn_once({nan, -inf, nan}, {.temperature = 1}), -1);
  EXPECT_EQ(drawn_once({-inf, -7, -inf}, {.temperature = 1}), 1);
  EXPECT_EQ(drawn_once({-0.0f, 0.0f}, {}), 0);
}

// Settings at the ends of their ranges, on rows with ties, gaps and extremes: every variant draws what the oracle
// draws.
TEST(Sample, OddSettingsAndRowsDrawWhatTheOracleDraws) {
  const float inf = INFINITY, nan = std::nanf("");
  std::vector<float> flat(300, 1.5f), steep(300), holes(300, -inf);
  for (int i = 0; i < 300; ++i) steep[i] = -0.7f * static_cast<float>((i * 7) % 300);
  for (int i = 3; i < 300; i += 11) holes[i] = std::sin(static_cast<float>(i)) * 40, holes[i - 1] = nan;
  std::vector<SampleSettings> all;
  for (float temperature : {1e-40f, 0.01f, 1.0f, 30.0f, 1e30f})
    for (float top_p : {0.0f, 1e-6f, 0.3f, 0.999f, 1.0f})
      for (float min_p : {0.0f, 1e-9f, 0.2f, 1.0f, 2.0f})
        for (int32_t top_k : {0, 1, 7, 1000})
          all.push_back({.temperature = temperature, .top_p = top_p, .min_p = min_p, .top_k = top_k, .seed = 99});
  for (const std::vector<float>& logits :
       {flat, steep, holes, std::vector<float>{3e38f, -3e38f, 0}, std::vector<float>{2}}) {
    Draws d(logits, {}, static_cast<int>(all.size()));
    d.settings = all;
    const std::vector<int32_t> expected = d.run("reference");
    for (const std::string& name : variants(d.args)) {
      const std::vector<int32_t> drawn = d.run(name);
      for (size_t i = 0; i < all.size(); ++i)
        ASSERT_EQ(drawn[i], expected[i]) << name << " temperature " << all[i].temperature << " top_p " << all[i].top_p
                                         << " min_p " << all[i].min_p << " top_k " << all[i].top_k << " of "
                                         << logits.size();
    }
  }
}

// Pearson's chi-square of 8,000 draws against the distribution that the contract states.
void expect_distribution(const std::vector<float>& logits, SampleSettings s, std::vector<double> p) {
  constexpr int kDraws = 8000;
  double sum = 0;
  for (double x : p) sum += x;
  s.seed = 12345;
  Draws d(logits, s, kDraws);
  for (const std::string& name : variants(d.args)) {
    std::vector<int> seen(p.size());
    for (int32_t id : d.run(name)) ++seen[id];
    double chi = 0;
    int kinds = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      const double expected = p[i] / sum * kDraws;
      if (expected > 0) {
        chi += (seen[i] - expected) * (seen[i] - expected) / expected;
        ++kinds;
      } else {
        EXPECT_EQ(seen[i], 0) << name << " id " << i;
      }
    }
    // Mean kinds - 1, variance twice that: five deviations and some for the skew.
    EXPECT_LT(chi, kinds - 1 + 6 * std::sqrt(2.0 * kinds)) << name;
    if (kinds > 1) {
      EXPECT_GT(chi, 0) << name;
    }
  }
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  for (float x : logits) p.push_back(std::exp(x / temperature));
  return p;
}

const std::vector<float> kLogits = {0.3f, 2.0f, -1.0f, 1.2f, 2.0f, 0.0f, -3.0f, 1.0f};

TEST(Sample, DrawsFollowTheSoftmax) {
  expect_distribution(kLogits, {.temperature = 1}, softmax(kLogits, 1));
  expect_distribution(kLogits, {.temperature = 2.5f}, softmax(kLogits, 2.5));
}

TEST(Sample, TopKLeavesTheGreatest) {
  std::vector<double> p = softmax(kLogits, 1);
  for (int i : {0, 2, 5, 6, 7}) p[i] = 0;
  expect_distribution(kLogits, {.temperature = 1, .top_k = 3}, p);
}

TEST(Sample, TopPLeavesTheSmallestSetThatReachesIt) {
  // Shares: 0.313 twice (ids 1, 4), 0.141, 0.115, 0.057, ...: 0.75 takes three, 0.85 takes four.
  std::vector<double> p = softmax(kLogits, 1);
  for (int i : {0, 2, 5, 6, 7}) p[i] = 0;
  expect_distribution(kLogits, {.temperature = 1, .top_p = 0.75f}, p);
  p[7] = std::exp(1.0);
  expect_distribution(kLogits, {.temperature = 1, .top_p = 0.85f}, p);
}

TEST(Sample, MinPIsRelativeToTheGreatest) {
  std::vector<double> p = softmax(kLogits, 1);
  for (double& x : p)
    if (x < 0.4 * std::exp(2.0)) x = 0;
  expect_distribution(kLogits, {.temperature = 1, .min_p = 0.4f}, p);
}

TEST(Sample, ADrawDependsOnSeedAndPositionAlone) {
  std::vector<float> logits(1000);
  for (int i = 0; i < 1000; ++i) logits[i] = std::sin(static_cast<float>(i));
  Draws d(logits, {.temperature = 1, .top_p = 0.9f, .seed = 7}, 64);
  for (const std::string& name : variants(d.args)) {
    const std::vector<int32_t> first = d.run(name);
    EXPECT_EQ(d.run(name), first) << name;
    EXPECT_GT(std::set<int32_t>(first.begin(), first.end()).size(), 20u) << name;  // positions differ
    SampleArgs alone = d.args;
    alone.logits = d.args.logits.slice(9, 1);
    alone.settings = {d.args.settings.data + 9, 1}, alone.position = {d.args.position.data + 9, 1};
    alone.token = {d.args.token.data, 1};
    OpContext ctx = d.host.with("sample=" + name);
    ASSERT_TRUE(sample(ctx, alone).is_ok());
    EXPECT_EQ(d.args.token[0], first[9]) << name;
    Draws other(logits, {.temperature = 1, .top_p = 0.9f, .seed = 8}, 64);
    EXPECT_NE(other.run(name), first) << name;
  }
}

}  // namespace

}  // namespace lathe
