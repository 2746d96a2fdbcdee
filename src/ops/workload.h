#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/op.h"

// Named cases of an operator: shapes users really run, seeded inputs, and what a case must move and compute. verify and
// bench know operators only through this.

namespace lathe {

enum class Traffic { kRead, kUpdate, kCopy };           // which measured ceiling a case's bytes are held against
enum class Precision { kFp32, kBf16, kInt8 };           // which measured peak its arithmetic is held against

struct CaseInfo {
  std::string name;        // such as rows32_h8_bf16
  int64_t bytes = 0;       // counted from the contract, not from what a variant moves
  int64_t flop = 0;
  Traffic traffic = Traffic::kRead;
  Precision precision = Precision::kFp32;
  double tolerance = 0;    // on RMS(err)/RMS(reference) of each output, from the operator's contract
  bool bench = false;      // real size: timed by bench; verify runs the small ones (and these with --long)
};

// Builds inputs in device memory from a seed: the same seed gives the same bytes.
class CaseBuilder {
 public:
  CaseBuilder(Device& device, Arena& memory, uint64_t seed) : device_(device), memory_(memory), state_(seed * 2 + 1) {}

  double uniform();  // [0, 1)
  double normal();
  int below(int n);  // [0, n)

  // Values from N(mean, spread²).
  Rows rows(int64_t rows, int64_t width, DType dtype, double spread = 1, double mean = 0);
  Weight weight(int64_t out, int64_t in, DType dtype, double spread);  // kI8: 1 x in scales; kE4M3: 128 x 128 blocks
  Array<const float> vector(int64_t count, double spread, double mean = 0);
  Array<const int32_t> ints(const std::vector<int32_t>& values);
  Pool pool(int64_t items, int64_t item_size, DType dtype, double spread);
  Rows empty_rows(int64_t rows, int64_t width, DType dtype) { return memory_.rows(rows, width, dtype); }
  template <class T>
  Array<T> empty(int64_t count) {
    return {memory_.take<T>(count), count};
  }

 private:
  uint64_t next();
  void upload_floats(void* to, const std::vector<float>& values, DType dtype);

  Device& device_;
  Arena& memory_;
  uint64_t state_;
};

// One output of a call, as compare() wants it.
struct OutputView {
  std::string name;
  DType dtype;
  const void* data;
  int64_t rows, width, stride;
  const float* scale;
  int block;  // 0: scale is per row
};

// An operator's case with memory: built, ready to run.
class AnyCase {
 public:
  virtual ~AnyCase() = default;
  virtual bool applies(int variant) const = 0;
  virtual Status run(OpContext& ctx, int variant) = 0;
  virtual std::vector<OutputView> outputs() const = 0;
};

// An operator, its Args type erased.
struct AnyOp {
  const char* name;
  std::vector<std::string> variants;
  std::vector<bool> company_free;
  std::vector<CaseInfo> cases;
  std::function<std::unique_ptr<AnyCase>(int case_index, CaseBuilder&)> build;
};

template <class Args>
struct Case {
  CaseInfo info;
  std::function<Args(CaseBuilder&)> build;
};

// Lists the fields an operator writes.
class OutputList {
 public:
  template <class Field>
  void operator()(const char* name, Field& field, Role role) {
    if (role != Role::kIn) add(name, field);
  }
  std::vector<OutputView> views;

 private:
  void add(const char* name, Rows& r) { views.push_back({name, r.dtype, r.data, r.rows, r.width, r.stride, r.scale, 0}); }
  void add(const char* name, Pool& p) { views.push_back({name, p.dtype, p.data, p.items, p.item_size, p.item_size, p.scale, p.block}); }
  void add(const char* name, Array<float>& a) { views.push_back({name, DType::kF32, a.data, 1, a.count, a.count, nullptr, 0}); }
  void add(const char* name, Array<int32_t>& a) { views.push_back({name, DType::kI32, a.data, 1, a.count, a.count, nullptr, 0}); }
  template <class T>
  void add(const char*, T&) {}
};

template <class Args>
class TypedCase final : public AnyCase {
 public:
  TypedCase(const Op<Args>& op, Args args) : op_(op), args_(args) {}
  bool applies(int variant) const override { return op_.variants[variant].applies(args_); }
  Status run(OpContext& ctx, int variant) override {
    if (Status s = op_.check(args_); !s.is_ok()) return s.within(op_.name);
    Choices choice;
    LATHE_RETURN_IF_ERROR(choice.add(fmt::format("{}={}", op_.name, op_.variants[variant].name)));
    OpContext chosen = ctx;
    chosen.choices = &choice;
    return lathe::run(chosen, op_, args_);
  }
  std::vector<OutputView> outputs() const override {
    OutputList list;
    Args args = args_;
    args.visit(list);
    return list.views;
  }

 private:
  Op<Args> op_;
  Args args_;
};

template <class Args>
AnyOp any_op(const Op<Args>& op, std::vector<Case<Args>> cases) {
  AnyOp any{.name = op.name, .variants = {}, .company_free = {}, .cases = {}, .build = {}};
  for (const Variant<Args>& v : op.variants) any.variants.push_back(v.name), any.company_free.push_back(v.company_free);
  for (const Case<Args>& c : cases) any.cases.push_back(c.info);
  any.build = [op, cases = std::move(cases)](int i, CaseBuilder& b) -> std::unique_ptr<AnyCase> {
    return std::make_unique<TypedCase<Args>>(op, cases[i].build(b));
  };
  return any;
}

}  // namespace lathe
