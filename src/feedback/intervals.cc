#include "feedback/intervals.h"

#include <algorithm>

namespace lathe {

IntervalSet::IntervalSet(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& i) { return i.end <= i.begin; });
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  for (const Interval& i : intervals) {
    if (!intervals_.empty() && i.begin <= intervals_.back().end)
      intervals_.back().end = std::max(intervals_.back().end, i.end);
    else
      intervals_.push_back(i);
  }
}

int64_t IntervalSet::total() const {
  int64_t sum = 0;
  for (const Interval& i : intervals_) sum += i.length();
  return sum;
}

Interval IntervalSet::hull() const {
  return empty() ? Interval{} : Interval{intervals_.front().begin, intervals_.back().end};
}

bool IntervalSet::contains(int64_t time) const {
  const auto after = std::upper_bound(intervals_.begin(), intervals_.end(), time,
                                      [](int64_t t, const Interval& i) { return t < i.begin; });
  return after != intervals_.begin() && time < std::prev(after)->end;
}

IntervalSet IntervalSet::united(const IntervalSet& other) const {
  std::vector<Interval> all = intervals_;
  all.insert(all.end(), other.intervals_.begin(), other.intervals_.end());
  return IntervalSet(std::move(all));
}

IntervalSet IntervalSet::intersected(const IntervalSet& other) const {
  IntervalSet both;
  for (size_t i = 0, j = 0; i < intervals_.size() && j < other.intervals_.size();) {
    const Interval &a = intervals_[i], &b = other.intervals_[j];
    const Interval common{std::max(a.begin, b.begin), std::min(a.end, b.end)};
    if (common.begin < common.end) both.intervals_.push_back(common);
    a.end < b.end ? ++i : ++j;
  }
  return both;
}

IntervalSet IntervalSet::without(const IntervalSet& other) const {
  IntervalSet rest;
  size_t j = 0;
  for (Interval left : intervals_) {
    while (j < other.intervals_.size() && other.intervals_[j].end <= left.begin) ++j;
    for (size_t k = j; k < other.intervals_.size() && other.intervals_[k].begin < left.end; ++k) {
      if (left.begin < other.intervals_[k].begin) rest.intervals_.push_back({left.begin, other.intervals_[k].begin});
      left.begin = std::min(left.end, other.intervals_[k].end);
    }
    if (left.begin < left.end) rest.intervals_.push_back(left);
  }
  return rest;
}

std::map<std::string, int64_t> overlap_by_category(const std::map<std::string, IntervalSet>& categories,
                                                   Interval window) {
  struct Edge {
    int64_t time;
    int category, step;
  };
  std::vector<Edge> edges;
  std::vector<std::string> names;
  for (const auto& [name, set] : categories) {
    const IntervalSet inside = set.clipped(window);
    for (const Interval& i : inside.intervals()) {
      edges.push_back({i.begin, static_cast<int>(names.size()), 1});
      edges.push_back({i.end, static_cast<int>(names.size()), -1});
    }
    names.push_back(name);
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.time < b.time; });
  std::map<std::string, int64_t> shares;
  std::vector<int> active(names.size(), 0);
  int64_t since = window.begin;
  const auto give = [&](int64_t until) {
    if (until <= since) return;
    std::string key;
    for (size_t c = 0; c < names.size(); ++c)
      if (active[c] > 0) key += (key.empty() ? "" : " + ") + names[c];
    shares[key.empty() ? "idle" : key] += until - since;
    since = until;
  };
  for (const Edge& e : edges) {
    give(e.time);
    active[e.category] += e.step;
  }
  give(window.end);
  return shares;
}

}  // namespace lathe
