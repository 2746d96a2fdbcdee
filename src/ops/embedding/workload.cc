#include "ops/workload.h"

#include "ops/embedding/embedding.h"

namespace lathe {

namespace {

struct Shape {
  int rows, vocab, hidden, copies, features;
  bool bench;
};

// Every fifth row is padding, every third a feature, where there are features.
EmbeddingArgs make_args(CaseBuilder& b, const Shape& s, DType table, DType out) {
  std::vector<int32_t> token(s.rows), feature(s.rows, -1);
  for (int i = 0; i < s.rows; ++i) {
    token[i] = s.features && i % 5 == 4 ? -1 : b.below(s.vocab);
    if (s.features && i % 3 == 1) feature[i] = b.below(s.features);
  }
  EmbeddingArgs args{.token = b.ints(token), .table = b.weight(s.vocab, s.hidden, table, 0.5), .copies = s.copies};
  if (s.features) args.feature = b.ints(feature), args.features = b.rows(s.features, s.hidden, out, 0.7);
  args.out = b.empty_rows(s.rows, int64_t{s.copies} * s.hidden, out);
  return args;
}

Case<EmbeddingArgs> embedding_case(const Shape& s, DType table, DType out) {
  const CaseInfo info{
      .name = fmt::format("rows{}_w{}x{}_{}_{}", s.rows, s.hidden, s.copies, dtype_name(table), dtype_name(out)),
      .bytes = int64_t{s.rows} * s.hidden * (dtype_bytes(table) + s.copies * dtype_bytes(out)) + s.rows * 4,
      .flop = 0,
      .traffic = Traffic::kCopy,
      .tolerance = 0,
      .bench = s.bench};
  return {info, [=](CaseBuilder& b) { return make_args(b, s, table, out); }};
}

}  // namespace

AnyOp embedding_workload() {
  std::vector<Case<EmbeddingArgs>> cases;
  for (auto [table, out] :
       {std::pair{DType::kF32, DType::kF32}, {DType::kBF16, DType::kBF16}, {DType::kBF16, DType::kF32}})
    for (const Shape& s : {Shape{1, 5, 7, 1, 0, false}, {13, 37, 65, 4, 3, false}, {2048, 32768, 1024, 4, 0, true}})
      cases.push_back(embedding_case(s, table, out));
  return any_op(kEmbedding, std::move(cases), rows_alone<EmbeddingArgs>);
}

}  // namespace lathe
