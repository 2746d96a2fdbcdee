#include "feedback/op_times.h"

namespace lathe {

void OpTimes::begin(const char*, const char*, int64_t, Address) { begun_ = std::chrono::steady_clock::now(); }

void OpTimes::end(const char* op, const char* variant, Address address) {
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begun_;
  us_[{op, variant, address.layer}] += took.count();
}

double OpTimes::layer_us(int layer) const {
  double sum = 0;
  for (const auto& [key, us] : us_)
    if (layer == kAllLayers || std::get<2>(key) == layer) sum += us;
  return sum;
}

double OpTimes::op_us(std::string_view op, int layer) const {
  double sum = 0;
  for (const auto& [key, us] : us_)
    if (std::get<0>(key) == op && (layer == kAllLayers || std::get<2>(key) == layer)) sum += us;
  return sum;
}

std::map<std::pair<std::string, std::string>, double> OpTimes::by_variant() const {
  std::map<std::pair<std::string, std::string>, double> sums;
  for (const auto& [key, us] : us_) sums[{std::get<0>(key), std::get<1>(key)}] += us;
  return sums;
}

}  // namespace lathe
