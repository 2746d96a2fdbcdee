#pragma once

#include <algorithm>
#include <climits>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <unordered_map>

#include "engine/request.h"

namespace lathe {

// Who goes next. The class of a request is its priority, raised by one for every `raise_seconds` it has waited, so that
// nothing starves. In the highest class the user who had the least service goes first, of one user's requests the
// oldest.
template <class Item>
class FairQueue {
 public:
  explicit FairQueue(double raise_seconds = 5) : raise_seconds_(raise_seconds) {}

  void push(Item item, const std::string& user, int priority, SteadyTime since) {
    double& served = served_.try_emplace(user, floor_).first->second;
    served = std::max(served, floor_);  // who was away has no claim on that time
    entries_.push_back({std::move(item), user, priority, since});
    ++by_priority_[priority];
  }
  bool empty() const { return entries_.empty(); }
  int size() const { return static_cast<int>(entries_.size()); }

  // Of those that wait, before waiting raises it.
  int highest_priority() const { return by_priority_.empty() ? INT_MIN : by_priority_.rbegin()->first; }

  // The item that goes next, or null.
  const Item* next(SteadyTime now) const {
    const Entry* best = nullptr;
    for (const Entry& e : entries_)
      if (!best || goes_before(e, *best, now)) best = &e;
    return best ? &best->item : nullptr;
  }
  template <class F>
  void remove_if(F&& f) {
    entries_.remove_if([&](const Entry& e) {
      if (!f(e.item)) return false;
      if (const auto at = by_priority_.find(e.priority); --at->second == 0) by_priority_.erase(at);
      return true;
    });
  }
  template <class F>
  void for_each(F&& f) const {
    for (const Entry& e : entries_) f(e.item);
  }

  // The user's next item begins to be served. From now on nobody new starts with less service than this user had.
  void dispatched(const std::string& user) { floor_ = std::max(floor_, served(user)); }
  // `user` got so much service (rows).
  void charge(const std::string& user, double rows) {
    served_.try_emplace(user, floor_).first->second += rows;
    if (served_.size() > kMostUsers) forget();
  }

 private:
  struct Entry {
    Item item;
    std::string user;
    int priority;
    SteadyTime since;
  };
  static constexpr size_t kMostUsers = 4096;

  double served(const std::string& user) const {
    const auto at = served_.find(user);
    return at == served_.end() ? floor_ : at->second;
  }
  int64_t raised(const Entry& e, SteadyTime now) const {
    return e.priority + static_cast<int64_t>(std::chrono::duration<double>(now - e.since).count() / raise_seconds_);
  }
  bool goes_before(const Entry& a, const Entry& b, SteadyTime now) const {
    const int64_t class_a = raised(a, now), class_b = raised(b, now);
    if (class_a != class_b) return class_a > class_b;
    const double served_a = served(a.user), served_b = served(b.user);
    if (a.user != b.user && served_a != served_b) return served_a < served_b;
    return a.since < b.since;
  }
  // Users without waiting requests are forgotten.
  void forget() {
    std::unordered_map<std::string, double> kept;
    for (const Entry& e : entries_) kept[e.user] = served(e.user);
    served_ = std::move(kept);
  }

  double raise_seconds_;
  std::list<Entry> entries_;
  std::map<int, int> by_priority_;  // how many of each
  std::unordered_map<std::string, double> served_;
  double floor_ = 0;
};

}  // namespace lathe
