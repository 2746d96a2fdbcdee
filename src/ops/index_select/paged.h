#pragma once

#include <cstdint>

#include "ops/index_select/index_select.h"

// Where things lie: rows of sequences, and pool keys in pages.

namespace lathe {

struct PagedPools {
  const IndexSelectArgs& a;
  const int64_t per_page = a.page_tokens / a.kpool;

  // Offset of pool p's key in `pages`, in values.
  int64_t offset(int64_t sequence, int64_t p) const {
    return a.table[sequence * a.table_stride + p / per_page] * a.pages.item_size + p % per_page * a.dim;
  }
};

// Offsets of pools [first, end) of a sequence, then of the last one for ever. Divides once.
class PoolWalk {
 public:
  PoolWalk(const PagedPools& pools, int64_t sequence, int64_t first, int64_t end)
      : pools_(pools),
        page_(pools.a.table.data + sequence * pools.a.table_stride + first / pools.per_page),
        in_page_(first % pools.per_page),
        left_(end - first) {}

  int64_t next() {
    const int64_t offset = *page_ * pools_.a.pages.item_size + in_page_ * pools_.a.dim;
    if (left_ > 1) {
      --left_;
      if (++in_page_ == pools_.per_page) ++page_, in_page_ = 0;
    }
    return offset;
  }

 private:
  const PagedPools& pools_;
  const int32_t* page_;
  int64_t in_page_, left_;
};

}  // namespace lathe
