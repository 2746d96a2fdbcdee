#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/service.h"

namespace lathe::serve {

// Counters and histograms of the server itself; the engine's own come from Service::stats(). Any thread.
class Metrics {
 public:
  // labels: `route="/v1/models",code="200"` or "".
  void count(const std::string& name, const std::string& labels = "", double by = 1);
  void observe(const std::string& name, double seconds);

  std::vector<Metric> counters() const;
  std::vector<Histogram> histograms() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, double> counters_;
  std::map<std::string, Histogram> histograms_;
};

// Names, with what they tell; the documents and the HELP lines come from it.
struct MetricName {
  const char *name, *type, *meaning;
};
const std::vector<MetricName>& metric_names();

// Prometheus' text format, everything with the prefix lathe_ and the labels `common`. `vllm`: also under the names that
// existing dashboards know.
std::string prometheus_text(const std::vector<Metric>& metrics, const std::vector<Histogram>& histograms,
                            const std::string& common, bool vllm);

std::string quoted_label(std::string_view value);

}  // namespace lathe::serve
