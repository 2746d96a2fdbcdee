#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "feedback/random_stream.h"
#include "feedback/verdict.h"

// Where an experiment's numbers come from. The unit is a process life: a fresh process of one arm, summarised to one
// number a stratum (a case, a metric). What decides knows nothing else, so it runs alike on a clock, on a record of an
// earlier run, and on simulated worlds whose truth is known.

namespace lathe {

enum class Arm { kA, kB };

struct Life {
  Arm arm = Arm::kA;
  std::vector<double> values;  // one a stratum, positive, in the source's unit
  // By environment data alone (waiting for a core, throttling), never by the values.
  bool disturbed = false;
  // What ends an experiment: incorrect, invalid or refused, and why.
  struct Trouble {
    Verdict verdict;
    std::string why;
  };
  std::optional<Trouble> trouble;
};

class MeasurementSource {
 public:
  virtual ~MeasurementSource() = default;
  virtual const std::vector<std::string>& strata() const = 0;
  // One fresh process life. An error is one of the harness, not of the arm.
  virtual Result<Life> live(Arm arm) = 0;
};

nlohmann::json to_json(const Life& life);
Result<Life> life_from(const nlohmann::json& j);

// Lives of an earlier run, in their order.
class RecordedSource final : public MeasurementSource {
 public:
  RecordedSource(std::vector<std::string> strata, std::vector<Life> lives)
      : strata_(std::move(strata)), lives_(std::move(lives)) {}
  const std::vector<std::string>& strata() const override { return strata_; }
  Result<Life> live(Arm arm) override;

 private:
  std::vector<std::string> strata_;
  std::vector<Life> lives_;
  size_t next_ = 0;
};

// A world whose truth is known. Deviations are of logarithms.
struct World {
  double process = 0.002;            // of each life, normal
  double drift = 0;                  // over 64 lives, steadily
  double spike_rate = 0, spike = 0;  // share of lives that take longer, and by how much
  double second_place = 0;           // what the second life of a block takes longer
  std::vector<double> effect = {0};  // of B, by stratum
  double noise_of_b = 1;             // B's process deviation against A's
};

class SimulatedSource final : public MeasurementSource {
 public:
  SimulatedSource(World world, uint64_t seed);
  const std::vector<std::string>& strata() const override { return strata_; }
  Result<Life> live(Arm arm) override;

 private:
  World world_;
  RandomStream random_;
  std::vector<std::string> strata_;
  int lives_ = 0;
};

}  // namespace lathe
