#pragma once

#include <vector>

#include "ops/workload.h"

// Sequences of a case with paged memory: which rows, at which positions, in which slots and pages.

namespace lathe {

struct CaseSequence {
  int past = 0, rows = 1;
  bool padding = false;  // slot -1
};

struct PagedCase {
  Array<const int32_t> slot, table;
  Ragged rows;  // new rows, which are the query rows, too
  int64_t table_stride = 0, total_rows = 0, num_pages = 0;
};

// Pages and slots in shuffled order. With `shared_pages`, full pages of the past come out of one set of that many, as
// if the sequences had prefixes in common; a page that new rows write is always a sequence's own.
PagedCase paged_case(CaseBuilder& b, const std::vector<CaseSequence>& sequences, int page_tokens,
                     int64_t shared_pages = 0);

}  // namespace lathe
