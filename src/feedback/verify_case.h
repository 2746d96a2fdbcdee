#pragma once

#include "feedback/case_memory.h"
#include "feedback/footprint.h"
#include "feedback/verify.h"

namespace lathe {

// What the checks of one operator run in; made once, used for every case.
class VerifyBench {
 public:
  static Result<std::unique_ptr<VerifyBench>> create(const VerifyOptions& options);

  // All checks of one case and seed go into `report`. An error is one of the harness, not of the operator.
  Status check(const AnyOp& op, int case_index, uint64_t seed, VerifyReport& report);

 private:
  struct Run {
    Status status;
    Image image;
  };
  struct Subject;  // one case and seed, built, with its images and the oracle's result

  VerifyBench(const VerifyOptions& options, std::unique_ptr<Device> device, CaseMemory memory, Arena scratch)
      : options_(options),
        device_(std::move(device)),
        memory_(std::move(memory)),
        scratch_(std::move(scratch)),
        many_(std::max(2, options.threads)) {}

  Result<Run> run(AnyCase& built, const Image& before, int variant, ThreadPool& pool, uint8_t scratch_poison);
  Result<Image> oracle(const AnyOp& op, int case_index, uint64_t seed);
  Status check_variant(const Subject& s, int variant, VerifyReport& report);
  Status check_relations(const Subject& s, int variant, const Image& first, VerifyReport& report);
  Status check_parts(const Subject& s, int variant, const Image& whole, VerifyReport& report);
  Status check_sequences(const Subject& s, int variant, const Image& whole, VerifyReport& report);
  Status check_plants(const Subject& s, VerifyReport& report);
  NumberRow against_oracle(const Subject& s, int variant, const Image& result, VerifyReport& report);
  std::string first_difference(const Subject& s, const Image& a, const Image& b) const;

  VerifyOptions options_;
  std::unique_ptr<Device> device_;
  CaseMemory memory_;
  Arena scratch_;
  ThreadPool one_{1}, many_;
};

}  // namespace lathe
