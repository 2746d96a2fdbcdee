#pragma once

#include <algorithm>
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

enum class Traffic { kRead, kUpdate, kCopy };  // which measured ceiling a case's bytes are held against
enum class Precision { kFp32, kBf16, kInt8 };  // which measured peak its arithmetic is held against

struct CaseInfo {
  std::string name;   // such as rows32_h8_bf16
  int64_t bytes = 0;  // counted from the contract, not from what a variant moves
  int64_t flop = 0;
  Traffic traffic = Traffic::kRead;
  Precision precision = Precision::kFp32;
  double tolerance = 0;  // on RMS(err)/RMS(reference) of each output, from the operator's contract
  double open_ties = 0;  // share of the integers of an output that may differ, where the contract leaves ties open
  bool bench = false;    // real size: timed by bench; verify runs the small ones (and these with --long)
};

// Builds inputs in device memory from a seed: the same seed gives the same bytes, in the same places. A guard band
// follows every piece; it and fresh outputs keep what was in memory before.
class CaseBuilder {
 public:
  // kPlacesAlone: the same places and the same later draws, but values aren't made. For a process whose inputs another
  // one has written; its device must ignore uploads.
  enum class Content { kValues, kPlacesAlone };

  CaseBuilder(Device& device, Arena& memory, uint64_t seed, Content content = Content::kValues)
      : device_(device), memory_(memory), state_(seed * 2 + 1), content_(content) {}

  double uniform();  // [0, 1)
  double normal();
  int below(int n);  // [0, n)

  // Values from N(mean, spread²).
  Rows rows(int64_t rows, int64_t width, DType dtype, double spread = 1, double mean = 0);
  Weight weight(int64_t out, int64_t in, DType dtype, double spread);  // kI8: 1 x in scales; kE4M3: 128 x 128 blocks
  Array<const float> vector(int64_t count, double spread, double mean = 0);
  Array<const int32_t> ints(const std::vector<int32_t>& values);
  Pool pool(int64_t items, int64_t item_size, DType dtype, double spread);
  Rows empty_rows(int64_t rows, int64_t width, DType dtype);
  template <class T>
  Array<T> empty(int64_t count) {
    return {take<T>(count), count};
  }

 private:
  // 256: four vectors of the widest kind, so that a tail that isn't masked lands in it.
  static constexpr int64_t kGuardBytes = 256;

  template <class T>
  T* take(int64_t count) {
    T* p = memory_.take<T>(count);
    memory_.take(kGuardBytes);
    return p;
  }
  uint64_t next();
  bool skips(int64_t draws);  // true where values aren't made: the draws are passed over
  void upload_floats(void* to, const std::vector<float>& values, DType dtype);

  Device& device_;
  Arena& memory_;
  uint64_t state_;
  Content content_;
};

// Rows of a call whose rows stand alone: those of its first Rows output, or else of its first Rows input.
int64_t row_count(const std::vector<FieldView>& fields);

// An operator's case with memory: built, ready to run.
class AnyCase {
 public:
  virtual ~AnyCase() = default;
  virtual bool applies(int variant) const = 0;
  virtual Status run(OpContext& ctx, int variant) = 0;
  virtual std::vector<FieldView> fields() const = 0;
  std::vector<FieldView> outputs() const;  // the fields that an operator writes
  // The same call on a copy of its memory, `bytes` further on.
  virtual std::unique_ptr<AnyCase> moved(int64_t bytes) const = 0;
  // The same call for rows [begin, begin + count) alone; only where rows_stand_alone.
  virtual std::unique_ptr<AnyCase> part(int64_t begin, int64_t count) const = 0;
};

// An operator, its Args type erased.
struct AnyOp {
  const char* name;
  std::vector<std::string> variants;
  std::vector<bool> company_free;
  std::vector<CaseInfo> cases;
  std::function<std::unique_ptr<AnyCase>(int case_index, CaseBuilder&)> build;
  bool rows_stand_alone = false;
};

// The same call for rows [begin, begin + count) alone. An operator has this if its rows stand alone; verify then
// compares the bits of a row in company and without.
template <class Args>
using PartOf = Args (*)(Args, int64_t begin, int64_t count);

template <class Args>
struct Case {
  CaseInfo info;
  std::function<Args(CaseBuilder&)> build;
};

// Visitor that narrows Args of `rows` rows to [begin, begin + count).
class RowPart {
 public:
  RowPart(int64_t rows, int64_t begin, int64_t count) : rows_(rows), begin_(begin), count_(count) {}
  template <class Field>
  void operator()(const char*, Field& field, Role role) {
    narrow(field, role);
  }

 private:
  void narrow(Rows& r, Role) {
    if (r.rows == rows_) r = r.slice(begin_, count_);
  }
  // Inputs by row are ids, positions and settings; float vectors and lists of weights belong to the layer. An output
  // may have several elements a row.
  template <class T>
  void narrow(Array<T>& a, Role role) {
    using Item = std::remove_const_t<T>;
    constexpr bool of_layer = std::is_same_v<Item, float> || requires(Item t, RowPart& part) { t.visit(part); };
    if (role == Role::kIn && (of_layer || a.count != rows_)) return;
    const int64_t per_row = a.count / rows_;
    a = {a.data + begin_ * per_row, count_ * per_row};
  }
  template <class T>
  void narrow(T&, Role) {}

  int64_t rows_, begin_, count_;
};

// PartOf for most operators: row r of every Rows argument with as many rows as the output, and element r of every array
// of ids or settings, belong together and to no other row.
template <class Args>
Args rows_alone(Args args, int64_t begin, int64_t count) {
  FieldList list;
  args.visit(list);
  args.visit(RowPart(row_count(list.views), begin, count));
  return args;
}

template <class Args>
class TypedCase final : public AnyCase {
 public:
  TypedCase(const Op<Args>& op, Args args, PartOf<Args> part) : op_(op), args_(args), part_(part) {}
  bool applies(int variant) const override { return op_.variants[variant].applies(args_); }
  Status run(OpContext& ctx, int variant) override {
    if (Status s = op_.check(args_); !s.is_ok()) return s.within(op_.name);
    Choices choice;
    LATHE_RETURN_IF_ERROR(choice.add(fmt::format("{}={}", op_.name, op_.variants[variant].name)));
    OpContext chosen = ctx;
    chosen.choices = &choice;
    return lathe::run(chosen, op_, args_);
  }
  std::vector<FieldView> fields() const override {
    FieldList list;
    Args args = args_;
    args.visit(list);
    return list.views;
  }
  std::unique_ptr<AnyCase> moved(int64_t bytes) const override {
    auto map = std::make_shared<AddressMap<Shift>>(Shift{bytes});
    Args args = args_;
    args.visit(*map);
    auto copy = std::make_unique<TypedCase>(op_, args, part_);
    copy->kept_ = map;
    return copy;
  }
  std::unique_ptr<AnyCase> part(int64_t begin, int64_t count) const override {
    return std::make_unique<TypedCase>(op_, part_(args_, begin, count), part_);
  }

 private:
  struct Shift {
    int64_t bytes;
    template <class T>
    T* operator()(T* p) const {
      return p ? reinterpret_cast<T*>(reinterpret_cast<intptr_t>(p) + bytes) : nullptr;
    }
  };

  Op<Args> op_;
  Args args_;
  PartOf<Args> part_;
  std::shared_ptr<void> kept_;  // lists in host memory that args_ points to
};

template <class Args>
AnyOp any_op(const Op<Args>& op, std::vector<Case<Args>> cases, PartOf<Args> part = nullptr) {
  AnyOp any{.name = op.name,
            .variants = {},
            .company_free = {},
            .cases = {},
            .build = {},
            .rows_stand_alone = part != nullptr};
  for (const Variant<Args>& v : op.variants) any.variants.push_back(v.name), any.company_free.push_back(v.company_free);
  for (const Case<Args>& c : cases) any.cases.push_back(c.info);
  any.build = [op, part, cases = std::move(cases)](int i, CaseBuilder& b) -> std::unique_ptr<AnyCase> {
    return std::make_unique<TypedCase<Args>>(op, cases[i].build(b), part);
  };
  return any;
}

}  // namespace lathe
