// Depth follows what pays: simulated costs and acceptance, and what it then costs over plain decoding.
#include "engine/speculation.h"

#include <gtest/gtest.h>

#include <random>

namespace lathe {
namespace {

struct Machine {
  double pass = 10e-3, row = 0.1e-3;  // of the text tower
  double draft = 0.3e-3, draft_row = 0.02e-3;
};

struct Outcome {
  double seconds_a_token = 0, plain = 0, depth = 0;
  double gain() const { return plain / seconds_a_token; }
};

// `choices` one after another, `together` at once, each of `tokens` tokens whose drafts are right with `chance`.
Outcome simulate(const Machine& m, double chance, int choices, int tokens, int together) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> uniform(0, 1);
  SpeculationControl control(3);
  Outcome o;
  double seconds = 0, made = 0, steps = 0;
  for (int c = 0; c < choices; ++c) {
    Acceptance a = control.fresh();
    for (int t = 0; t < tokens;) {
      const int depth = control.depth(a, together);
      const int rows = together * (1 + depth);
      const double pass = m.pass + m.row * rows;
      control.decode_pass(rows, pass);
      seconds += pass;
      if (depth > 0) {
        const double draft = m.draft + m.draft_row * together;
        control.draft_pass(together, draft);
        seconds += depth * draft;
      }
      int right = 0;
      while (right < depth && uniform(random) < chance) ++right;
      control.verified(a, depth, right);
      t += right + 1, made += (right + 1) * together, o.depth += depth, ++steps;
    }
  }
  o.seconds_a_token = seconds / made, o.plain = (m.pass + m.row * together) / together, o.depth /= steps;
  return o;
}

TEST(Speculation, GoodDraftsAreUsedInFull) {
  const Outcome o = simulate({}, 0.9, 20, 200, 1);
  EXPECT_GT(o.depth, 2.5);
  EXPECT_GT(o.gain(), 2.0);
}

TEST(Speculation, WrongDraftsCostAtMostThreePercent) {
  for (const double chance : {0.0, 0.05, 0.2})
    for (const int together : {1, 8, 64})
      for (const double draft : {0.3e-3, 3e-3}) {
        Machine m;
        m.draft = draft;
        const Outcome o = simulate(m, chance, 64, 200, together);
        EXPECT_GT(o.gain(), 0.97) << chance << " " << together << " " << draft;
      }
}

TEST(Speculation, RowsThatCostLikeTokensAreNotSpentOnDrafts) {
  // Each row costs what it costs alone: nothing can be won.
  const Outcome o = simulate({.pass = 0.1e-3, .row = 2e-3}, 0.6, 64, 200, 8);
  EXPECT_LT(o.depth, 0.2);
  EXPECT_GT(o.gain(), 0.97);
}

TEST(Speculation, DraftsThatBecomeGoodAreNoticed) {
  SpeculationControl control(3);
  Acceptance bad = control.fresh();
  for (int i = 0; i < 2000; ++i) {
    control.decode_pass(1 + i % 3, 10e-3), control.draft_pass(1, 3e-3);
    control.verified(bad, 2, 0);
  }
  int drafted = 0;
  for (int c = 0; c < 640; ++c) {
    Acceptance a = control.fresh();
    for (int t = 0; t < 20; ++t) {
      const int depth = control.depth(a, 1);
      control.verified(a, depth, depth);  // from now on all are right
      drafted += c >= 320 && depth > 0;
    }
  }
  EXPECT_GT(drafted, 320 * 20 * 9 / 10);
}

}  // namespace
}  // namespace lathe
