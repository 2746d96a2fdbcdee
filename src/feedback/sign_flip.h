#pragma once

#include <vector>

// Is the centre of paired differences zero? The exact sign-flip test. Which arm of a block runs first is drawn by coin,
// so if A and B are alike a difference is as likely as its negative: flipping signs gives all the results that chance
// could have given, and p is the share of them that are as extreme as ours. Drift doesn't harm it.
//
// The statistic is the sum of signed ranks (Wilcoxon), because one wild block then counts no more than the largest of
// n. It also lets all 2^n flips be counted at once, for any n, where sums of the values themselves would have to be
// drawn at random beyond 20 blocks; and test, interval and estimate are three views of one thing, the averages of all
// pairs.

namespace lathe {

struct ConfidenceInterval {
  double low, high;  // may be infinite: too few differences for the level
  bool contains(double x) const { return low <= x && x <= high; }
  bool inside(double margin) const { return -margin < low && high < margin; }
};

// Two-sided; a difference of 0 speaks for neither side. 1 for no differences.
double sign_flip_p(const std::vector<double>& differences);

// The shifts that the test at `level` doesn't reject.
ConfidenceInterval sign_flip_interval(const std::vector<double>& differences, double level);

// Hodges-Lehmann: the median of the averages of all pairs. 0 for none.
double hodges_lehmann(const std::vector<double>& differences);

// The smallest level that n differences can ever reach, 2 of 2^n flips.
double smallest_level(int differences);

// Two independent groups: is one above the other? Rank sums, normal approximation with ties: for checks of spread and
// order that need no exact level. 1 where a group has fewer than 3.
double rank_sum_p(const std::vector<double>& a, const std::vector<double>& b);

double normal_quantile(double probability);
double median(std::vector<double> values);  // must not be empty

}  // namespace lathe
