#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

// Every cut of the model over ranks, declared once: the loader slices by it, the text tower asks it what runs cut, and
// verify checks each cut against the uncut result.
namespace lathe {

enum class Parallel {
  kNone,
  kTensor,   // tp: KDA by head, LM head by vocabulary
  kExpert,   // ep: routed experts by id
  kContext,  // cp: new tokens of a prefill by segment; every rank holds all weights and ends with all sequence memory
};

struct Partition {
  Parallel kind = Parallel::kNone;
  int size = 1, rank = 0;

  // "tp=2", "ep=4", "cp=2"; rank 0.
  static Result<Partition> parse(std::string_view text);
  bool is(Parallel k) const { return kind == k && size > 1; }

  // This rank's part of `count` equal units (heads, experts, vocabulary rows).
  struct Range {
    int64_t begin, count;
  };
  Range share(int64_t count) const {
    const int64_t begin = count * rank / size, end = count * (rank + 1) / size;
    return {begin, end - begin};
  }
};

enum class CutAxis { kOut, kIn };  // rows or columns of a matrix; a vector counts as kOut

// A tensor that is sliced, by the end of its name. unit: what may not be split apart.
enum class CutUnit { kHead, kVocabRow };
struct TensorCut {
  std::string_view tensor;
  Parallel by;
  CutAxis axis;
  CutUnit unit;
  std::string_view mixer;  // "kda": only inside KDA layers (sparse layers use some of the same names)
};

inline constexpr TensorCut kTensorCuts[] = {
    {"q_proj.weight", Parallel::kTensor, CutAxis::kOut, CutUnit::kHead, "kda"},
    {"k_proj.weight", Parallel::kTensor, CutAxis::kOut, CutUnit::kHead, "kda"},
    {"v_proj.weight", Parallel::kTensor, CutAxis::kOut, CutUnit::kHead, "kda"},
    {"q_conv1d.weight", Parallel::kTensor, CutAxis::kOut, CutUnit::kHead, "kda"},
    {"k_conv1d.weight", Parallel::kTensor, CutAxis::kOut, CutUnit::kHead, "kda"},
    {"v_conv1d.weight", Parallel::kTensor, CutAxis::kOut, CutUnit::kHead, "kda"},
    {"f_b_proj.weight", Parallel::kTensor, CutAxis::kOut, CutUnit::kHead, "kda"},
    {"g_b_proj.weight", Parallel::kTensor, CutAxis::kOut, CutUnit::kHead, "kda"},
    {"b_proj.weight", Parallel::kTensor, CutAxis::kOut, CutUnit::kHead, "kda"},
    {"dt_bias", Parallel::kTensor, CutAxis::kOut, CutUnit::kHead, "kda"},
    {"A_log", Parallel::kTensor, CutAxis::kOut, CutUnit::kHead, "kda"},
    {"o_proj.weight", Parallel::kTensor, CutAxis::kIn, CutUnit::kHead, "kda"},
    {"lm_head.weight", Parallel::kTensor, CutAxis::kOut, CutUnit::kVocabRow, ""},
};

// What runs cut, and what joins it again. The result equals the uncut one: bit for bit, or within the tolerance of
// another order of sums.
struct OperatorCut {
  std::string_view op;
  Parallel by;
  std::string_view join;
  bool bit_equal;
};

inline constexpr OperatorCut kOperatorCuts[] = {
    {"kda_prefill", Parallel::kTensor, "o_proj: sum over ranks, fp32, rank order", false},
    {"kda_decode", Parallel::kTensor, "o_proj: sum over ranks, fp32, rank order", false},
    {"kda_replay", Parallel::kTensor, "o_proj: sum over ranks, fp32, rank order", false},
    {"lm_head", Parallel::kTensor, "logits gathered by vocabulary", true},
    {"moe", Parallel::kExpert, "routed sums over ranks, fp32, rank order", false},
    {"kda_scan", Parallel::kContext, "affine chain over segments", false},
    {"index_select", Parallel::kContext, "keys and gates gathered, queries local", true},
    {"sparse_mla", Parallel::kContext, "latents gathered, queries local", true},
};

// The cut of a tensor under `partition`, or nullptr: whole on every rank. `mixer` is "kda" or "sparse".
const TensorCut* find_cut(std::string_view tensor, std::string_view mixer, const Partition& partition);

}  // namespace lathe
