#include "feedback/comparison.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <numeric>

namespace lathe {

namespace {

constexpr double kPower = 0.8;
// Rank tests need a little more than sums where values are normal.
constexpr double kRankEfficiency = 3 / std::numbers::pi;
// Checks of order and steadiness: they don't spend the claim's error, they only hold a verdict back.
constexpr double kSideLevel = 0.01;
constexpr double kMuchNoisier = 2;
constexpr double kMostRemoved = 0.25;
constexpr int kUnequalRemoval = 3;

using Values = std::vector<double>;

struct Block {
  bool a_first = true;
  Values a, b;  // logarithms, by stratum
};

Values logs(const Life& life) {
  Values out;
  for (double v : life.values) out.push_back(std::log(v));
  return out;
}

double robust_deviation(const Values& differences) {
  Values apart;
  for (size_t i = 0; i < differences.size(); ++i)
    for (size_t j = 0; j < i; ++j) apart.push_back(std::fabs(differences[i] - differences[j]));
  return apart.empty() ? 0 : median(apart) / (normal_quantile(0.75) * std::numbers::sqrt2);
}

double detectable_effect(double deviation, const ComparisonPlan& plan) {
  const Look& last = plan.looks.back();
  return (normal_quantile(1 - last.level / 2) + normal_quantile(kPower)) * deviation /
         std::sqrt(last.blocks * kRankEfficiency);
}

// The steady change from first to last, by the median of all slopes.
double drift(const Values& values) {
  Values slopes;
  for (size_t i = 0; i < values.size(); ++i)
    for (size_t j = 0; j < i; ++j) slopes.push_back((values[i] - values[j]) / static_cast<double>(i - j));
  return slopes.empty() ? 0 : median(slopes) * static_cast<double>(values.size() - 1);
}

class Experiment {
 public:
  Experiment(MeasurementSource& source, const ComparisonPlan& plan, const ComparisonProgress& progress)
      : source_(source), plan_(plan), progress_(progress), order_(plan.seed), weights_(plan.weights) {
    if (weights_.empty()) weights_.assign(source.strata().size(), 1);
    const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
    for (double& w : weights_) w /= sum;
  }

  Result<Comparison> run() {
    LATHE_ASSIGN(bool goes_on, calibrate());
    for (size_t look = 0; goes_on && look < plan_.looks.size(); ++look) {
      LATHE_ASSIGN(goes_on, fill_blocks(plan_.looks[look].blocks));
      if (goes_on) goes_on = !decide(look);
    }
    return std::move(out_);
  }

 private:
  // False: the experiment has ended, and why stands in out_.
  Result<bool> life(Arm arm, const std::string& what) {
    if (progress_)
      progress_(static_cast<int>(out_.lives.size()), 2 * (plan_.calibration_blocks + plan_.looks.back().blocks), what);
    LATHE_ASSIGN(Life one, source_.live(arm));
    if (!one.trouble && one.values.size() != source_.strata().size())
      return internal("a process life gave {} values for {} strata", one.values.size(), source_.strata().size());
    for (size_t s = 0; !one.trouble && s < one.values.size(); ++s)
      if (!(one.values[s] > 0) || !std::isfinite(one.values[s]))
        one.trouble =
            Life::Trouble{Verdict::kInvalid, fmt::format("{} came out as {}", source_.strata()[s], one.values[s])};
    out_.lives.push_back(one);
    if (!one.trouble) return true;
    end(one.trouble->verdict, fmt::format("{}: {}", arm == Arm::kA ? "A" : "B", one.trouble->why));
    return false;
  }

  void end(Verdict verdict, const std::string& reason) {
    out_.verdict = verdict;
    out_.reasons.push_back(reason);
    if (verdict == Verdict::kIncorrect || verdict == Verdict::kRefused) out_.effect = {}, out_.strata.clear();
  }

  Result<bool> calibrate() {
    std::vector<Values> by_stratum(source_.strata().size());
    Values all, second_longer;
    for (int block = 0; block < plan_.calibration_blocks; ++block) {
      Values pair[2];
      for (Values& values : pair) {
        LATHE_ASSIGN(const bool fine, life(Arm::kA, "A against itself"));
        if (!fine) return false;
        values = logs(out_.lives.back());
        all.push_back(weighed(values));
      }
      for (size_t s = 0; s < by_stratum.size(); ++s) by_stratum[s].push_back(pair[1][s] - pair[0][s]);
      second_longer.push_back(weighed(pair[1]) - weighed(pair[0]));
    }
    for (const Values& d : by_stratum) stratum_detectable_.push_back(detectable_effect(robust_deviation(d), plan_));
    out_.noise = {plan_.calibration_blocks, robust_deviation(second_longer), drift(all), hodges_lehmann(second_longer),
                  0};
    out_.noise.detectable = detectable_effect(out_.noise.deviation, plan_);
    return true;
  }

  double weighed(const Values& values) const {
    return std::inner_product(values.begin(), values.end(), weights_.begin(), 0.0);
  }

  Result<bool> fill_blocks(int wanted) {
    while (static_cast<int>(blocks_.size()) < wanted) {
      Block block{.a_first = order_.coin(), .a = {}, .b = {}};
      bool disturbed = false;
      for (int place = 0; place < 2; ++place) {
        const Arm arm = (place == 0) == block.a_first ? Arm::kA : Arm::kB;
        LATHE_ASSIGN(const bool fine, life(arm, fmt::format("block {}", blocks_.size() + 1)));
        if (!fine) return false;
        const Life& one = out_.lives.back();
        (arm == Arm::kA ? block.a : block.b) = logs(one);
        removed_by_[arm == Arm::kA ? 0 : 1] += one.disturbed;
        disturbed |= one.disturbed;
      }
      if (!disturbed)
        blocks_.push_back(std::move(block));
      else if (++out_.removed_blocks > kMostRemoved * wanted ||
               std::abs(removed_by_[0] - removed_by_[1]) >= kUnequalRemoval) {
        end(Verdict::kInvalid, fmt::format("{} blocks were disturbed from outside ({} lives of A, {} of B)",
                                           out_.removed_blocks, removed_by_[0], removed_by_[1]));
        return false;
      }
    }
    out_.blocks = static_cast<int>(blocks_.size());
    return true;
  }

  Values differences(int stratum) const {  // -1: all by weight
    Values d;
    for (const Block& block : blocks_)
      d.push_back(stratum < 0 ? weighed(block.b) - weighed(block.a) : block.b[stratum] - block.a[stratum]);
    return d;
  }

  // One claim: outside zero and large enough to be claimed; inside the margin; or neither yet.
  Verdict judge(const Effect& effect, double level, double detectable) const {
    const double size = std::fabs(effect.estimate);
    if (effect.p <= level && size >= plan_.smallest_effect && size >= detectable)
      return (effect.estimate < 0) == (plan_.better == Better::kLower) ? Verdict::kImproved : Verdict::kRegressed;
    return effect.interval.inside(std::log1p(plan_.smallest_effect)) ? Verdict::kEquivalent : Verdict::kInconclusive;
  }

  void judge_strata(double level) {
    const int count = static_cast<int>(source_.strata().size());
    out_.strata.clear();
    std::vector<int> by_p(count);
    std::iota(by_p.begin(), by_p.end(), 0);
    for (int s = 0; s < count; ++s) {
      const Values d = differences(s);
      Values a, b;
      for (const Block& block : blocks_) a.push_back(block.a[s]), b.push_back(block.b[s]);
      out_.strata.push_back({.name = source_.strata()[s],
                             .effect = {hodges_lehmann(d), sign_flip_interval(d, level / count), sign_flip_p(d)},
                             .detectable = stratum_detectable_[s],
                             .median_a = std::exp(median(a)),
                             .median_b = std::exp(median(b))});
    }
    std::sort(by_p.begin(), by_p.end(),
              [&](int x, int y) { return out_.strata[x].effect.p < out_.strata[y].effect.p; });
    double least = 0;
    for (int i = 0; i < count; ++i) {
      StratumResult& s = out_.strata[by_p[i]];
      s.effect.p = least = std::max(least, std::min(1.0, s.effect.p * (count - i)));
      s.verdict = judge(s.effect, level, s.detectable);
    }
  }

  // What the second place in a block costs, by which arm held it; half the claimed effect is too much.
  bool order_rules() const {
    Values a_first, b_first;
    const Values d = differences(-1);
    for (size_t i = 0; i < d.size(); ++i) (blocks_[i].a_first ? a_first : b_first).push_back(d[i]);
    if (rank_sum_p(a_first, b_first) > kSideLevel) return false;
    return std::fabs(median(a_first) - median(b_first)) / 2 > std::fabs(out_.effect.estimate) / 2;
  }

  // How much less steady B is, if that is beyond chance; 1: it isn't.
  double noisier() const {
    Values spread[2];
    for (int arm = 0; arm < 2; ++arm) {
      Values values;
      for (const Block& block : blocks_) values.push_back(weighed(arm == 0 ? block.a : block.b));
      const double middle = median(values);
      for (double v : values) spread[arm].push_back(std::fabs(v - middle));
    }
    const double a = median(spread[0]), b = median(spread[1]);
    return b > kMuchNoisier * a && rank_sum_p(spread[0], spread[1]) <= kSideLevel ? b / std::max(a, 1e-12) : 1;
  }

  bool any_stratum(Verdict verdict) const {
    return std::any_of(out_.strata.begin(), out_.strata.end(),
                       [&](const StratumResult& s) { return s.verdict == verdict; });
  }

  // A stratum that seems to lie on the other side of the whole, and isn't settled.
  bool one_leans_against() const {
    return std::any_of(out_.strata.begin(), out_.strata.end(), [&](const StratumResult& s) {
      return s.verdict == Verdict::kInconclusive && s.effect.estimate * out_.effect.estimate < 0 &&
             std::fabs(s.effect.estimate) > std::max(plan_.smallest_effect, s.detectable);
    });
  }

  // So noisy that the rest of the blocks can neither bring the interval out of zero nor into the margin, unless the
  // estimate moves by more than one of its standard errors.
  bool hopeless(const Values& d) const {
    const double deviation = robust_deviation(d) / std::sqrt(kRankEfficiency);
    const double error = deviation / std::sqrt(static_cast<double>(d.size()));
    const Look& last = plan_.looks.back();
    const double last_half = normal_quantile(1 - last.level / 2) * deviation / std::sqrt(last.blocks);
    const double size = std::fabs(out_.effect.estimate);
    return size + error < last_half && std::max(0.0, size - error) + last_half > std::log1p(plan_.smallest_effect);
  }

  // True: the experiment ends here.
  bool decide(size_t look) {
    const double level = plan_.looks[look].level;
    const bool last = look + 1 == plan_.looks.size();
    const Values d = differences(-1);
    out_.look = static_cast<int>(look) + 1;
    out_.error_spent += level;
    out_.reasons.clear();
    out_.effect = {hodges_lehmann(d), sign_flip_interval(d, level), sign_flip_p(d)};
    out_.verdict = judge(out_.effect, level, out_.noise.detectable);
    judge_strata(level);
    if (any_stratum(Verdict::kRegressed) && (out_.verdict != Verdict::kRegressed || any_stratum(Verdict::kImproved))) {
      out_.verdict = Verdict::kMixed;
      out_.reasons.push_back("some strata are worse, others are not");
    } else if (const double times = noisier(); out_.verdict == Verdict::kImproved && times > 1) {
      out_.verdict = Verdict::kMixed;
      out_.reasons.push_back(fmt::format("B varies {:.1f} times as much as A", times));
    }
    if (out_.verdict == Verdict::kInconclusive) {
      if (last) out_.reasons.push_back("still undecided at the last look");
      if (!last && !hopeless(d)) return false;
      if (!last) out_.reasons.push_back("the rest of the plan could hardly decide it");
      if (out_.effect.p <= level) out_.reasons.push_back("there is an effect, but smaller than what may be claimed");
      return true;
    }
    if (out_.verdict != Verdict::kEquivalent && order_rules()) {
      if (last) end(Verdict::kInvalid, "which arm ran first matters more than half of the effect");
      return last;
    }
    return last || !one_leans_against();
  }

  MeasurementSource& source_;
  const ComparisonPlan& plan_;
  const ComparisonProgress& progress_;
  RandomStream order_;
  Values weights_;
  Values stratum_detectable_;
  std::vector<Block> blocks_;
  int removed_by_[2] = {0, 0};
  Comparison out_;
};

nlohmann::json number(double x) { return std::isfinite(x) ? nlohmann::json(x) : nlohmann::json(nullptr); }

nlohmann::json effect_json(const Effect& e) {
  return {{"percent", percent(e.estimate)},
          {"low_percent", number(percent(e.interval.low))},
          {"high_percent", number(percent(e.interval.high))},
          {"p", e.p}};
}

}  // namespace

double percent(double log_ratio) { return 100 * std::expm1(log_ratio); }

Result<Comparison> compare(MeasurementSource& source, const ComparisonPlan& plan, const ComparisonProgress& progress) {
  LATHE_RETURN_IF_ERROR(check_plan(plan, static_cast<int>(source.strata().size())));
  return Experiment(source, plan, progress).run();
}

nlohmann::json to_json(const Comparison& c, const ComparisonPlan& plan, const std::vector<std::string>& strata_names) {
  nlohmann::json strata = nlohmann::json::array(), lives = nlohmann::json::array();
  for (const StratumResult& s : c.strata)
    strata.push_back({{"name", s.name},
                      {"verdict", verdict_name(s.verdict)},
                      {"effect", effect_json(s.effect)},
                      {"detectable_percent", percent(s.detectable)},
                      {"median_a", s.median_a},
                      {"median_b", s.median_b}});
  for (const Life& life : c.lives) lives.push_back(to_json(life));
  nlohmann::json j = {{"verdict", verdict_name(c.verdict)},
                      {"words", verdict_words(c.verdict)},
                      {"look", c.look},
                      {"looks", plan.looks.size()},
                      {"blocks", c.blocks},
                      {"removed_blocks", c.removed_blocks},
                      {"error_spent", c.error_spent},
                      {"reasons", c.reasons},
                      {"noise_floor",
                       {{"blocks", c.noise.blocks},
                        {"deviation_percent", percent(c.noise.deviation)},
                        {"drift_percent", percent(c.noise.drift)},
                        {"order_percent", percent(c.noise.order)},
                        {"detectable_percent", percent(c.noise.detectable)}}},
                      {"strata", strata},
                      {"strata_names", strata_names},
                      {"lives", lives},
                      {"plan", sealed_json(plan)},
                      {"plan_digest", plan_digest(plan)},
                      {"seed", plan.seed}};
  j["effect"] = c.look > 0 && c.verdict != Verdict::kIncorrect && c.verdict != Verdict::kRefused
                    ? effect_json(c.effect)
                    : nlohmann::json(nullptr);
  return j;
}

Result<ComparisonRecord> comparison_record(const nlohmann::json& j) {
  ComparisonRecord record;
  try {
    const nlohmann::json& plan = j.at("plan");
    record.plan.looks.clear();
    for (const nlohmann::json& look : plan.at("looks"))
      record.plan.looks.push_back({look.at("blocks"), look.at("level")});
    record.plan.alpha = plan.at("alpha");
    record.plan.smallest_effect = plan.at("smallest_effect");
    record.plan.calibration_blocks = plan.at("calibration_blocks");
    record.plan.better = plan.at("better") == "lower" ? Better::kLower : Better::kHigher;
    record.plan.weights = plan.at("weights").get<Values>();
    record.plan.seed = j.at("seed");
    record.strata = j.at("strata_names").get<std::vector<std::string>>();
    for (const nlohmann::json& life : j.at("lives")) {
      LATHE_ASSIGN(record.lives.emplace_back(), life_from(life));
    }
    if (plan_digest(record.plan) != j.at("plan_digest").get<std::string>())
      return corrupt("the record's plan isn't the one that was sealed: its digest differs");
  } catch (const nlohmann::json::exception& e) {
    return corrupt("a comparison's record: {}", e.what());
  }
  return record;
}

}  // namespace lathe
