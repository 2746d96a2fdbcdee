#include <algorithm>

#include "ops/case_sequences.h"
#include "ops/sparse_mla/sparse_mla.h"

namespace lathe {

namespace {

struct Shape {
  int heads, qk, v, latent, page_tokens;
  int set;        // tokens a row may attend to: all of its past where that is no more
  int group = 4;  // they come in aligned groups of this many, as pools do
  bool some_empty = false;
};

int set_size(const Shape& s, int position) { return std::min(position + 1, s.set); }

// Ascending positions <= t: everything, or random groups and the row's own last tokens.
std::vector<int32_t> random_set(CaseBuilder& b, const Shape& s, int t) {
  std::vector<int32_t> set;
  if (s.some_empty && t % 3 == 0) return set;
  const int count = set_size(s, t);
  if (count == t + 1) {
    for (int p = 0; p <= t; ++p) set.push_back(p);
    return set;
  }
  const int tail = (t + 1) % s.group, groups = (t + 1) / s.group, wanted = (count - tail) / s.group;
  for (int g = 0, taken = 0; g < groups; ++g)  // selection sampling: each set of groups is as likely
    if (b.uniform() * (groups - g) < wanted - taken) {
      for (int j = 0; j < s.group; ++j) set.push_back(g * s.group + j);
      ++taken;
    }
  for (int p = t + 1 - tail; p <= t; ++p) set.push_back(p);
  return set;
}

SparseMlaArgs build(CaseBuilder& b, const Shape& s, const std::vector<CaseSequence>& sequences, DType rows, DType pages,
                    DType weight, int64_t shared) {
  const PagedCase c = paged_case(b, sequences, s.page_tokens, shared);
  SparseMlaArgs a;
  a.heads = s.heads, a.qk = s.qk, a.v = s.v, a.latent_dim = s.latent, a.page_tokens = s.page_tokens;
  a.latent = b.rows(c.total_rows, s.latent, rows);
  a.latent_norm = b.vector(s.latent, 0.2, 1);
  a.query = b.rows(c.total_rows, int64_t{s.heads} * s.qk, rows);
  a.fresh = a.queries = c.rows;
  a.kv_b = b.weight(int64_t{s.heads} * (s.qk + s.v), s.latent, weight, 1 / std::sqrt(static_cast<double>(s.latent)));
  a.slot = c.slot, a.table = c.table, a.table_stride = c.table_stride;
  a.pages = b.pool(c.num_pages, int64_t{s.page_tokens} * s.latent, pages, 1);
  a.selected_width = s.set;
  std::vector<int32_t> selected(c.total_rows * s.set, -1), count(c.total_rows);
  int64_t row = 0;
  for (const CaseSequence& q : sequences)
    for (int t = q.past; t < q.past + q.rows; ++t, ++row) {
      const std::vector<int32_t> set = random_set(b, s, t);
      std::copy(set.begin(), set.end(), selected.begin() + row * s.set);
      count[row] = static_cast<int32_t>(set.size());
    }
  a.selected = b.ints(selected), a.selected_count = b.ints(count);
  a.out = b.empty_rows(c.total_rows, int64_t{s.heads} * s.v, rows);
  return a;
}

Case<SparseMlaArgs> make_case(const std::string& name, Shape s, std::vector<CaseSequence> sequences, DType rows,
                              DType pages, DType weight, bool bench, int64_t shared = 0) {
  const int64_t r = dtype_bytes(rows), p = dtype_bytes(pages), kv = int64_t{s.heads} * (s.qk + s.v) * s.latent;
  int64_t bytes = kv * dtype_bytes(weight), absorbed = 0, expanded = 0, total = 0;
  for (const CaseSequence& q : sequences) {
    int64_t attended = 0;
    for (int t = q.past; t < q.past + q.rows; ++t) attended += set_size(s, t);
    total += q.rows;
    // Latents: each row's set, but no more than the sequence has.
    bytes += std::min<int64_t>(attended, q.past + q.rows) * s.latent * p + attended * 4;
    absorbed += attended * 4 * s.heads * s.latent + q.rows * 2 * kv;
    expanded += attended * 2 * s.heads * (s.qk + s.v) + int64_t{q.past + q.rows} * 2 * kv;
  }
  bytes += total * (s.latent * (r + p) + s.heads * (s.qk + s.v) * r);
  return {{.name = fmt::format("{}_{}{}", name, dtype_name(rows),
                               rows == pages ? "" : fmt::format("_pages_{}", dtype_name(pages))),
           .bytes = bytes,
           .flop = std::min(absorbed, expanded),
           .traffic = Traffic::kRead,
           .precision = rows == DType::kBF16 && pages == DType::kBF16 && weight == DType::kBF16 ? Precision::kBf16
                                                                                                : Precision::kFp32,
           .tolerance = pages == DType::kF32 && rows == DType::kF32 ? 5e-6 : 5e-3,
           .bench = bench},
          [=](CaseBuilder& b) { return build(b, s, sequences, rows, pages, weight, shared); }};
}

SparseMlaArgs sequences_of(SparseMlaArgs a, SequencePart& part) {
  a.fresh = a.queries = part.cut(a.fresh);  // in every case the new rows are the query rows
  a.latent = part.of(a.latent), a.query = part.of(a.query), a.out = part.of(a.out);
  a.slot = part.by_sequence(a.slot), a.table = part.by_sequence(a.table, a.table_stride);
  a.selected = part.by_row(a.selected, a.selected_width), a.selected_count = part.by_row(a.selected_count);
  return a;
}

}  // namespace

AnyOp sparse_mla_workload() {
  std::vector<Case<SparseMlaArgs>> cases;
  for (DType t : {DType::kF32, DType::kBF16}) {
    auto add = [&](const char* name, Shape s, std::vector<CaseSequence> q, DType pages, DType weight) {
      cases.push_back(make_case(name, s, std::move(q), t, pages, weight, false));
    };
    add("prefill", {4, 24, 16, 32, 16, 64}, {{0, 75}}, t, t);
    add("ragged", {3, 20, 28, 48, 8, 13}, {{0, 5}, {37, 9}, {0, 0}, {50, 3, true}, {12, 1}, {40, 1}}, t, t);
    add("odd", {5, 33, 7, 37, 12, 21, 3}, {{0, 9}, {20, 7}, {31, 1}}, t, t);
    add("empty_sets", {2, 16, 16, 64, 4, 9, 4, true}, {{0, 12}, {30, 2}}, t, t);
    add("decode", {8, 64, 48, 128, 64, 259}, {{300, 1}, {601, 1}, {5, 1}, {1022, 1}}, t, t);
    add("long_prefill", {2, 32, 32, 64, 64, 515}, {{0, 300}, {100, 130}}, t, t);
  }
  cases.push_back(make_case("bf16_weight", {4, 24, 40, 32, 16, 40}, {{0, 70}, {90, 2}}, DType::kF32, DType::kF32,
                            DType::kBF16, false));
  cases.push_back(
      make_case("mixed", {4, 24, 40, 32, 16, 40}, {{0, 70}, {90, 2}}, DType::kF32, DType::kBF16, DType::kBF16, false));
  cases.push_back(
      make_case("mixed", {4, 24, 40, 32, 16, 40}, {{0, 70}, {90, 2}}, DType::kBF16, DType::kF32, DType::kF32, false));
  const Shape real{8, 256, 256, 512, 64, 2051};
  const DType b = DType::kBF16;
  for (int context : {4096, 131072})
    for (int rows : {1, 8, 32})
      cases.push_back(make_case(fmt::format("decode_rows{}_context{}", rows, context), real,
                                std::vector<CaseSequence>(rows, {context - 1, 1}), b, b, b, true, context / 64));
  cases.push_back(make_case("prefill2048", real, {{0, 2048}}, b, b, b, true));
  cases.push_back(make_case("prefill512_past14336", real, {{14336, 512}}, b, b, b, true));
  return any_op<SparseMlaArgs>(kSparseMla, std::move(cases), nullptr, sequences_of);
}

}  // namespace lathe
