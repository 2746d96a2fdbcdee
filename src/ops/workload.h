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

// One field of a call's arguments: `rows` stretches of `width` elements, `stride` elements apart.
struct FieldView {
  std::string name;
  Role role;
  DType dtype;
  const void* data;
  int64_t rows, width, stride;
  const float* scale;
  int block;           // 0: scale is per row
  bool batch = false;  // a Rows argument: its rows are those of the call

  int64_t elements() const { return rows * width; }
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
  // The same call for sequences [begin, begin + count) alone, and how many there are; only where sequences_stand_alone,
  // and on devices that share the host's memory.
  virtual std::unique_ptr<AnyCase> part_of_sequences(int64_t begin, int64_t count) const = 0;
  virtual int64_t sequences() const = 0;
};

// An operator, its Args type erased.
struct AnyOp {
  const char* name;
  std::vector<std::string> variants;
  std::vector<bool> company_free;
  std::vector<CaseInfo> cases;
  std::function<std::unique_ptr<AnyCase>(int case_index, CaseBuilder&)> build;
  bool rows_stand_alone = false, sequences_stand_alone = false;
};

// The same call for rows [begin, begin + count) alone. An operator has this if its rows stand alone; verify then
// compares the bits of a row in company and without.
template <class Args>
using PartOf = Args (*)(Args, int64_t begin, int64_t count);

// Sequences [begin, begin + count) of a ragged call: `cut` first, which finds their rows, then what belongs to them.
class SequencePart {
 public:
  SequencePart(int64_t begin, int64_t count) : begin_(begin), count_(count) {}

  Ragged cut(const Ragged& runs);
  Rows of(const Rows& r) const { return r.slice(first_row_, rows_); }
  // Of arrays with `each` elements a sequence or a row.
  template <class T>
  Array<T> by_sequence(const Array<T>& a, int64_t each = 1) const {
    return {a.data + begin_ * each, count_ * each};
  }
  template <class T>
  Array<T> by_row(const Array<T>& a, int64_t each = 1) const {
    return {a.data + first_row_ * each, rows_ * each};
  }
  Array<const int32_t> keep(std::vector<int32_t> values);  // as long as the part lives
  int64_t all() const { return all_; }                     // sequences of the whole call
  int64_t first_row() const { return first_row_; }
  int64_t rows() const { return rows_; }
  std::shared_ptr<void> kept() const { return kept_; }

 private:
  int64_t begin_, count_, all_ = 0, first_row_ = 0, rows_ = 0;
  std::shared_ptr<std::vector<std::vector<int32_t>>> kept_ = std::make_shared<std::vector<std::vector<int32_t>>>();
};

// The same call for the sequences of `part` alone: what PartOf is to rows.
template <class Args>
using SequencesOf = Args (*)(Args, SequencePart& part);

template <class Args>
struct Case {
  CaseInfo info;
  std::function<Args(CaseBuilder&)> build;
};

// Lists the fields of Args; of lists in host memory, the fields of every item.
class FieldList {
 public:
  template <class Field>
  void operator()(const char* name, Field& field, Role role) {
    add(name, field, role);
  }
  std::vector<FieldView> views;

 private:
  void add(const char* name, Rows& r, Role role) {
    views.push_back({name, role, r.dtype, r.data, r.rows, r.width, r.stride, r.scale, 0, true});
  }
  void add(const char* name, Pool& p, Role role) {
    views.push_back({name, role, p.dtype, p.data, p.items, p.item_size, p.item_size, p.scale, p.block});
  }
  void add(const char* name, Weight& w, Role role) {
    views.push_back({name, role, w.dtype, w.data, w.out, w.in, w.stride, nullptr, 0});
  }
  void add(const char* name, Ragged& r, Role role) { add(name, r.start, role), add(name, r.past, role); }
  template <class T>
  void add(const char* name, Array<T>& a, Role role) {
    using Item = std::remove_const_t<T>;
    if constexpr (requires(Item t, FieldList& list) { t.visit(list); }) {
      for (Item item : std::span(a.data, a.count)) item.visit(*this);
    } else if constexpr (std::is_same_v<Item, float>) {
      views.push_back({name, role, DType::kF32, a.data, 1, a.count, a.count, nullptr, 0});
    } else if constexpr (std::is_same_v<Item, bf16>) {
      views.push_back({name, role, DType::kBF16, a.data, 1, a.count, a.count, nullptr, 0});
    } else if constexpr (std::is_same_v<Item, int32_t>) {
      views.push_back({name, role, DType::kI32, a.data, 1, a.count, a.count, nullptr, 0});
    } else {  // records: as bytes
      const int64_t bytes = a.count * static_cast<int64_t>(sizeof(Item));
      views.push_back({name, role, DType::kU8, a.data, 1, bytes, bytes, nullptr, 0});
    }
  }
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
  TypedCase(const Op<Args>& op, Args args, PartOf<Args> part, SequencesOf<Args> sequences)
      : op_(op), args_(args), part_(part), sequences_(sequences) {}
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
    auto copy = std::make_unique<TypedCase>(op_, args, part_, sequences_);
    copy->kept_ = map;
    return copy;
  }
  std::unique_ptr<AnyCase> part(int64_t begin, int64_t count) const override {
    return std::make_unique<TypedCase>(op_, part_(args_, begin, count), part_, sequences_);
  }
  std::unique_ptr<AnyCase> part_of_sequences(int64_t begin, int64_t count) const override {
    SequencePart part(begin, count);
    auto alone = std::make_unique<TypedCase>(op_, sequences_(args_, part), part_, sequences_);
    alone->kept_ = part.kept();
    return alone;
  }
  int64_t sequences() const override {
    SequencePart none(0, 0);
    sequences_(args_, none);
    return none.all();
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
  SequencesOf<Args> sequences_;
  std::shared_ptr<void> kept_;  // lists in host memory that args_ points to
};

template <class Args>
AnyOp any_op(const Op<Args>& op, std::vector<Case<Args>> cases, PartOf<Args> part = nullptr,
             SequencesOf<Args> sequences = nullptr) {
  AnyOp any{.name = op.name,
            .variants = {},
            .company_free = {},
            .cases = {},
            .build = {},
            .rows_stand_alone = part != nullptr,
            .sequences_stand_alone = sequences != nullptr};
  for (const Variant<Args>& v : op.variants) any.variants.push_back(v.name), any.company_free.push_back(v.company_free);
  for (const Case<Args>& c : cases) any.cases.push_back(c.info);
  any.build = [op, part, sequences, cases = std::move(cases)](int i, CaseBuilder& b) -> std::unique_ptr<AnyCase> {
    return std::make_unique<TypedCase<Args>>(op, cases[i].build(b), part, sequences);
  };
  return any;
}

}  // namespace lathe
