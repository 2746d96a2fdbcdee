#pragma once

#include <chrono>
#include <cstdint>

#include "base/status.h"

namespace lathe {

// What one compilation may use. Whoever builds something says what it takes; once the budget is spent, builders return
// early with whatever they have, and the compilation ends with status().
class Budget {
 public:
  Budget(double seconds, int64_t bytes)
      : seconds_(seconds), end_(Clock::now() + std::chrono::duration<double>(seconds)), most_(bytes), left_(bytes) {}

  bool spend(int64_t bytes) {
    left_ -= bytes;
    if (++calls_ % 1024 == 0 && Clock::now() > end_) late_ = true;
    return !spent();
  }
  void give_back(int64_t bytes) { left_ += bytes; }
  bool spent() const { return left_ < 0 || late_; }
  Status status() const {
    if (left_ < 0) return invalid("compiling needs more than {} MiB; ask for a simpler grammar", most_ >> 20);
    if (late_) return invalid("compiling takes more than {} s; ask for a simpler grammar", seconds_);
    return Status::ok();
  }

 private:
  using Clock = std::chrono::steady_clock;
  double seconds_;
  std::chrono::time_point<Clock, std::chrono::duration<double>> end_;
  int64_t most_, left_;
  int64_t calls_ = 0;
  bool late_ = false;
};

}  // namespace lathe
