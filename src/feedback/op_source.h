#pragma once

#include "feedback/op_trial.h"

namespace lathe {

// One arm of a comparison of operators: who runs it, and how.
struct OpArm {
  std::vector<std::string> command;  // of the candidate: BINARY op-server
  std::string build_id;
  std::string variant;  // "": the candidate's default
  int threads = 1;
};

// Lives of operator servers; a stratum is a case, its value the median microseconds of a call.
class OpSource final : public MeasurementSource {
 public:
  // The cases that both arms take, as far as `seconds` allow: one life of all of them may take so long. Where they
  // don't allow any of `cases`, the largest of `otherwise` that they allow. What was left out stands in left_out().
  static Result<std::unique_ptr<OpSource>> create(const AnyOp& op, const std::vector<int>& cases,
                                                  const std::vector<int>& otherwise, OpArm a, OpArm b, double seconds,
                                                  uint64_t secret);

  const std::vector<std::string>& strata() const override { return strata_; }
  Result<Life> live(Arm arm) override;

  const std::vector<std::string>& left_out() const { return left_out_; }
  const std::vector<std::unique_ptr<OpTrial>>& trials() const { return trials_; }
  // As the arms' servers told them; known after the first life.
  const std::string& variant_of(Arm arm) const { return arm == Arm::kA ? a_.variant : b_.variant; }
  // What already ended it, before the first life.
  const std::optional<Life::Trouble>& trouble() const { return trouble_; }

 private:
  OpSource(OpArm a, OpArm b, double seconds) : a_(std::move(a)), b_(std::move(b)), left_(seconds) {}
  // False: an arm is in trouble, and that is the end.
  Result<bool> try_case(const AnyOp& op, int index, uint64_t secret);

  OpArm a_, b_;
  std::vector<std::unique_ptr<OpTrial>> trials_;
  std::vector<std::string> strata_, left_out_;
  std::optional<Life::Trouble> trouble_;
  double left_;  // seconds of a life that are not spoken for
  int lives_ = 0;
};

}  // namespace lathe
