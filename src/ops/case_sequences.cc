#include "ops/case_sequences.h"

#include <algorithm>
#include <numeric>

namespace lathe {

namespace {

std::vector<int32_t> shuffled(CaseBuilder& b, int64_t count) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  for (int64_t i = count; i > 1; --i) std::swap(ids[i - 1], ids[b.below(static_cast<int>(i))]);
  return ids;
}

}  // namespace

PagedCase paged_case(CaseBuilder& b, const std::vector<CaseSequence>& sequences, int page_tokens,
                     int64_t shared_pages) {
  PagedCase c;
  for (const CaseSequence& s : sequences) {
    const int64_t pages = (s.past + s.rows + page_tokens - 1) / page_tokens;
    c.table_stride = std::max(c.table_stride, pages);
    c.num_pages += shared_pages ? pages - s.past / page_tokens : pages;
  }
  const std::vector<int32_t> own = shuffled(b, c.num_pages),
                             slots = shuffled(b, static_cast<int64_t>(sequences.size()) + 1);
  std::vector<int32_t> start{0}, past, slot, table(sequences.size() * c.table_stride, -1);
  int64_t next = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const CaseSequence& s = sequences[i];
    for (int64_t p = 0; p * page_tokens < s.past + s.rows; ++p) {
      const bool shared = shared_pages && (p + 1) * page_tokens <= s.past;
      table[i * c.table_stride + p] =
          shared ? static_cast<int32_t>(c.num_pages) + b.below(static_cast<int>(shared_pages)) : own[next++];
    }
    start.push_back(start.back() + s.rows);
    past.push_back(s.past);
    slot.push_back(s.padding ? -1 : slots[i]);
  }
  c.num_pages += shared_pages;
  c.total_rows = start.back();
  c.slot = b.ints(slot), c.table = b.ints(table);
  c.rows = {b.ints(start), b.ints(past)};
  return c;
}

}  // namespace lathe
