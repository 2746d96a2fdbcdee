#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

// Sets of time: the one place where times are added up, because most wrong analyses come from counting twice.
namespace lathe {

// [begin, end) in nanoseconds of one clock.
struct Interval {
  int64_t begin = 0, end = 0;
  int64_t length() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};

// Sorted intervals, none empty, none touching another: so that lengths may be added. A value.
class IntervalSet {
 public:
  IntervalSet() = default;
  // Any intervals, in any order, overlapping or not; empty and inverted ones hold no time.
  explicit IntervalSet(std::vector<Interval> intervals);

  const std::vector<Interval>& intervals() const { return intervals_; }
  bool empty() const { return intervals_.empty(); }
  int64_t total() const;
  // From the first begin to the last end; empty if the set is.
  Interval hull() const;
  bool contains(int64_t time) const;

  IntervalSet united(const IntervalSet& other) const;
  IntervalSet intersected(const IntervalSet& other) const;
  IntervalSet without(const IntervalSet& other) const;
  IntervalSet clipped(Interval window) const { return intersected(IntervalSet({window})); }
  // What of the window isn't in the set: idle time, where the set is busy time.
  IntervalSet gaps(Interval window) const { return IntervalSet({window}).without(*this); }
  int64_t overlap(const IntervalSet& other) const { return intersected(other).total(); }

  bool operator==(const IntervalSet&) const = default;

 private:
  std::vector<Interval> intervals_;
};

// Each moment of the window goes to exactly one set of categories: the key names all that were active then, joined by
// " + ", and "idle" where none was. The values add up to the window.
std::map<std::string, int64_t> overlap_by_category(const std::map<std::string, IntervalSet>& categories,
                                                   Interval window);

}  // namespace lathe
