#include "ops/case_sequences.h"
#include "ops/index_select/index_select.h"

namespace lathe {

namespace {

struct Shape {
  int heads, dim, kpool, top_k, page_tokens;
  bool tail = true;
  int ring = 0;  // 0: kpool
};

IndexSelectArgs build(CaseBuilder& b, const Shape& s, const std::vector<CaseSequence>& sequences, DType rows,
                      DType pages) {
  const PagedCase c = paged_case(b, sequences, s.page_tokens);
  IndexSelectArgs a;
  a.heads = s.heads, a.dim = s.dim, a.kpool = s.kpool, a.top_k = s.top_k, a.page_tokens = s.page_tokens,
  a.tail = s.tail;
  a.ring = s.ring ? s.ring : s.kpool;
  a.key = b.rows(c.total_rows, s.dim, rows, 2, 0.5);
  a.gate = b.rows(c.total_rows, s.dim, rows);
  a.key_norm_weight = b.vector(s.dim, 0.2, 1);
  a.key_norm_bias = b.vector(s.dim, 0.2);
  a.ape = b.vector(int64_t{s.kpool} * s.dim, 0.5);
  a.query = b.rows(c.total_rows, int64_t{s.heads} * s.dim, rows);
  a.head_weight = b.rows(c.total_rows, s.heads, rows);
  a.fresh = a.queries = c.rows;
  a.slot = c.slot, a.table = c.table, a.table_stride = c.table_stride;
  a.pages = b.pool(c.num_pages, int64_t{s.page_tokens} / s.kpool * s.dim, pages, 1);
  a.open = b.pool(c.slot.count + 1, int64_t{a.ring} * 2 * s.dim, pages, 1);
  a.selected = b.empty<int32_t>(c.total_rows * a.width());
  a.selected_count = b.empty<int32_t>(c.total_rows);
  return a;
}

Case<IndexSelectArgs> make_case(const char* name, Shape s, std::vector<CaseSequence> sequences, DType rows, DType pages,
                                bool bench) {
  const int64_t r = dtype_bytes(rows), p = dtype_bytes(pages);
  int64_t bytes = 0, flop = 0;
  for (const CaseSequence& q : sequences)
    for (int64_t t = q.past, scored = 0; t < q.past + q.rows; ++t) {
      const int64_t pools = (t + 1) / s.kpool;
      const bool all = pools <= s.top_k / s.kpool;
      // key, gate, query and head weights in; the kept row and its pool's share out; the set
      bytes +=
          (2 * s.dim + s.heads * s.dim + s.heads) * r + (2 * s.dim + s.dim / s.kpool) * p + 4 * (s.top_k + s.kpool);
      if (all) continue;
      bytes += (pools - scored) * s.dim * p;  // a sequence's pools are read once a call
      scored = pools;
      flop += pools * (2 * s.heads * s.dim + 3 * s.heads);
    }
  return {{.name = fmt::format("{}_{}{}", name, dtype_name(rows),
                               rows == pages ? "" : fmt::format("_pages_{}", dtype_name(pages))),
           .bytes = bytes,
           .flop = flop,
           .traffic = Traffic::kRead,
           .precision = rows == DType::kBF16 && pages == DType::kBF16 ? Precision::kBf16 : Precision::kFp32,
           .tolerance = pages == DType::kF32 ? 3e-6 : 5e-3,
           .bench = bench},
          [=](CaseBuilder& b) { return build(b, s, sequences, rows, pages); }};
}

IndexSelectArgs sequences_of(IndexSelectArgs a, SequencePart& part) {
  a.fresh = a.queries = part.cut(a.fresh);  // in every case the new rows are the query rows
  a.key = part.of(a.key), a.gate = part.of(a.gate);
  a.query = part.of(a.query), a.head_weight = part.of(a.head_weight);
  a.slot = part.by_sequence(a.slot), a.table = part.by_sequence(a.table, a.table_stride);
  a.selected = part.by_row(a.selected, a.width()), a.selected_count = part.by_row(a.selected_count);
  return a;
}

}  // namespace

AnyOp index_select_workload() {
  std::vector<Case<IndexSelectArgs>> cases;
  for (DType t : {DType::kF32, DType::kBF16}) {
    auto add = [&](const char* name, Shape s, std::vector<CaseSequence> q, DType pages) {
      cases.push_back(make_case(name, s, std::move(q), t, pages, false));
    };
    add("prefill", {16, 16, 4, 32, 16}, {{0, 75}}, t);
    add("ragged", {3, 24, 4, 8, 8}, {{0, 5}, {37, 9}, {0, 0}, {50, 3, true}, {12, 1}, {41, 1}, {42, 1}, {43, 1}}, t);
    add("no_tail", {5, 33, 4, 12, 12, false}, {{0, 3}, {20, 7}, {31, 1}}, t);
    add("pools_of_1", {2, 16, 1, 7, 4}, {{0, 12}, {30, 1}}, t);
    add("pools_of_2", {20, 40, 2, 10, 6, true, 5}, {{9, 11}, {64, 1}}, t);
    add("pools_of_16", {32, 128, 16, 32, 64, true, 32}, {{0, 70}, {200, 20}}, t);
    add("decode", {16, 128, 4, 64, 64}, {{300, 1}, {601, 1}, {5, 1}, {1022, 1}}, t);
  }
  cases.push_back(make_case("mixed", {4, 32, 4, 16, 16}, {{0, 30}, {90, 2}}, DType::kF32, DType::kBF16, false));
  cases.push_back(make_case("mixed", {4, 32, 4, 16, 16}, {{0, 30}, {90, 2}}, DType::kBF16, DType::kF32, false));
  const Shape real{16, 128, 4, 2048, 64};
  for (int context : {4096, 131072})
    for (int rows : {1, 8, 32})
      cases.push_back(make_case(fmt::format("decode_rows{}_context{}", rows, context).c_str(), real,
                                std::vector<CaseSequence>(rows, {context - 1, 1}), DType::kBF16, DType::kBF16, true));
  cases.push_back(make_case("prefill2048", real, {{0, 2048}}, DType::kBF16, DType::kBF16, true));
  cases.push_back(make_case("prefill2048_past14336", real, {{14336, 2048}}, DType::kBF16, DType::kBF16, true));
  return any_op<IndexSelectArgs>(kIndexSelect, std::move(cases), nullptr, sequences_of);
}

}  // namespace lathe
