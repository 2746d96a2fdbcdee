#pragma once

#include <vector>

#include "ops/sparse_mla/absorbed.h"
#include "ops/sparse_mla/expanded.h"
#include "ops/sparse_mla/form.h"

// Latent attention over a file's Lanes: new latents, then rows of each sequence in the form that suits them.

namespace lathe {
namespace {

// How the form is chosen: by form.h, or always this one. Rows whose sets aren't prefixes are absorbed in any case.
enum class FormChoice { kByWork, kAbsorbed, kExpanded };

template <class P, class W>
class LatentAttention {
 public:
  LatentAttention(OpContext& ctx, const SparseMlaArgs& args, FormChoice choice)
      : ctx_(ctx), a_(args), choice_(choice) {}

  void run() {
    write_latents<P>(ctx_, a_);
    int64_t covered = 0;
    for (int64_t i = 0; i < a_.slot.count; ++i) {
      list_sequence(i);
      covered = std::max<int64_t>(covered, a_.queries.start[i + 1]);
    }
    for (; covered < a_.query.rows; ++covered) zero(covered);
    Absorbed<P, W>(ctx_, a_, absorbed_).run();
  }

 private:
  void zero(int64_t row) const {
    std::fill_n(static_cast<char*>(a_.out.at(row)), a_.out.width * dtype_bytes(a_.out.dtype), 0);
  }

  bool is_prefix(const AttendingRow& r) const {
    return a_.selected[r.row * a_.selected_width + r.count - 1] == r.count - 1;
  }

  void list_sequence(int64_t i) {
    std::vector<AttendingRow> dense;
    MlaProblem problem{0, 0, 0, a_.heads, a_.qk, a_.v, a_.latent_dim};
    for (int64_t row = a_.queries.start[i]; row < a_.queries.start[i + 1]; ++row) {
      const AttendingRow r{row, i, a_.slot[i] < 0 ? 0 : a_.selected_count[row]};
      if (r.count == 0) {
        zero(row);
      } else if (choice_ == FormChoice::kAbsorbed || !is_prefix(r)) {
        absorbed_.push_back(r);
      } else {
        dense.push_back(r);
        problem.rows += 1, problem.attended += r.count, problem.tokens = std::max<int64_t>(problem.tokens, r.count);
      }
    }
    if (dense.empty()) return;
    if (choice_ == FormChoice::kExpanded || choose_form(problem) == MlaForm::kExpanded)
      Expanded<P, W>(ctx_, a_, dense).run();
    else
      absorbed_.insert(absorbed_.end(), dense.begin(), dense.end());
  }

  OpContext& ctx_;
  const SparseMlaArgs& a_;
  const FormChoice choice_;
  std::vector<AttendingRow> absorbed_;
};

inline Status attend(OpContext& ctx, const SparseMlaArgs& a, FormChoice choice) {
  const bool bf16_pages = a.pages.dtype == DType::kBF16, bf16_weight = a.kv_b.dtype == DType::kBF16;
  if (bf16_pages && bf16_weight)
    LatentAttention<bf16, bf16>(ctx, a, choice).run();
  else if (bf16_pages)
    LatentAttention<bf16, float>(ctx, a, choice).run();
  else if (bf16_weight)
    LatentAttention<float, bf16>(ctx, a, choice).run();
  else
    LatentAttention<float, float>(ctx, a, choice).run();
  return Status::ok();
}

}  // namespace
}  // namespace lathe
