#pragma once

#include <chrono>
#include <map>
#include <string>
#include <tuple>

#include "ops/op.h"

namespace lathe {

// Where the time of passes goes: sums by operator, variant and layer. Calls don't nest.
class OpTimes final : public OpObserver {
 public:
  void begin(const char* op, const char* variant, int64_t rows, Address address) override;
  void end(const char* op, const char* variant, Address address) override;

  void clear() { us_.clear(); }
  // Microseconds of every operator in `layer`, or in all (-2).
  double layer_us(int layer) const;
  double op_us(std::string_view op, int layer = kAllLayers) const;
  // By (operator, variant), over all layers.
  std::map<std::pair<std::string, std::string>, double> by_variant() const;

  static constexpr int kAllLayers = -2;

 private:
  std::chrono::steady_clock::time_point begun_;
  std::map<std::tuple<std::string, std::string, int>, double> us_;
};

}  // namespace lathe
