#include "engine/speculation.h"

#include <algorithm>
#include <cmath>

namespace lathe {

namespace {

constexpr double kForget = 0.98;  // of a pass, when the next one is measured: about 50 count
constexpr double kOwnWeight = 1.0 / 12, kAllWeight = 1.0 / 200;
constexpr double kMargin = 1.1;         // a gain smaller than a tenth isn't worth the risk
constexpr int kProbeEvery = 32;         // choices
constexpr int kProbeSteps = 8;          // verifications of a probe
constexpr double kFollowShare = 0.025;  // of a step: what following may cost
constexpr double kUnknownSlope = 0.1;   // of a pass of one row: what a row more costs until that is measured

}  // namespace

void PassCost::measured(double rows, double seconds) {
  // One pass in a hundred is interrupted: what is far above the line counts as twice the line.
  if (known()) seconds = std::min(seconds, 2 * std::max(this->seconds(rows), 1e-9));
  for (double* sum : {&weight_, &rows_, &seconds_, &rows_squared_, &product_}) *sum *= kForget;
  weight_ += 1, rows_ += rows, seconds_ += seconds, rows_squared_ += rows * rows, product_ += rows * seconds;
}

double PassCost::slope() const {
  if (weight_ == 0) return 0;
  const double mean = rows_ / weight_, variance = rows_squared_ / weight_ - mean * mean;
  const double guess = kUnknownSlope * seconds_ / std::max(rows_, 1.0);
  if (variance < 0.05) return guess;
  const double slope = (product_ / weight_ - mean * seconds_ / weight_) / variance;
  // Neither free nor dearer than a pass of its own.
  return std::clamp(slope, 0.0, seconds_ / std::max(rows_, 1.0));
}

double PassCost::base() const { return weight_ == 0 ? 0 : (seconds_ - slope() * rows_) / weight_; }

Acceptance SpeculationControl::fresh() {
  Acceptance a;
  a.rate = rate_;
  a.probe = begun_++ % kProbeEvery == 0;
  return a;
}

int SpeculationControl::depth(const Acceptance& a, int sequences) const {
  if (most_ == 0) return 0;
  // The first passes are there to be measured.
  if (!decode_.known() || !draft_.known()) return std::min(most_, 2);
  const double n = std::max(sequences, 1);
  const double worth = decode_.seconds(n) / n;
  const double cost = kMargin * (decode_.slope() + draft_.seconds(n) / n);
  int depth = 0;
  for (double chance = a.rate; depth < most_ && chance * worth > cost; chance *= a.rate) ++depth;
  return depth == 0 && a.probe && a.verified < kProbeSteps ? 1 : depth;
}

bool SpeculationControl::worth_following(int sequences) const {
  const double n = std::max(sequences, 1);
  return most_ > 0 && decode_.known() && draft_.seconds(n) <= kFollowShare * decode_.seconds(n);
}

void SpeculationControl::verified(Acceptance& a, int drafts, int right) {
  if (drafts == 0) return;
  ++a.verified, a.drafted += drafts, a.accepted += right;
  for (int i = 0; i < std::min(right + 1, drafts); ++i) {
    const double was_right = i < right ? 1 : 0;
    a.rate += kOwnWeight * (was_right - a.rate);
    rate_ += kAllWeight * (was_right - rate_);
  }
}

}  // namespace lathe
