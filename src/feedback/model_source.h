#pragma once

#include "feedback/compare_arms.h"
#include "feedback/measurement_source.h"

namespace lathe {

// Lives of a whole engine: a fresh process loads a model, answers some prompts, and the supervisor times what arrives.
// Strata: ttft, from asking to the first token; tpot, between tokens. Microseconds, medians over the prompts of a life.
//
// Settings of an arm: threads, dtype, and OPERATOR=VARIANT.
class ModelSource final : public MeasurementSource {
 public:
  static Result<std::unique_ptr<ModelSource>> create(const std::string& model, const CompareArm& a, const CompareArm& b,
                                                     int threads);
  const std::vector<std::string>& strata() const override { return strata_; }
  Result<Life> live(Arm arm) override;

 private:
  ModelSource() = default;
  std::vector<std::string> command_[2];
  std::vector<std::string> strata_ = {"ttft", "tpot"};
  int lives_ = 0;
};

}  // namespace lathe
