#pragma once

#include "ops/moe/moe.h"

// Which experts a row goes to, and which rows an expert gets.

namespace lathe {

// From a row's logits [expert_count]: top_k ascending ids and their weights. `values`: scratch, [2·expert_count +
// groups].
void choose_experts(const MoeArgs& args, const float* logits, float* values, int32_t* expert, float* weight);
inline int64_t choose_scratch(const MoeArgs& args) { return int64_t{2} * args.expert_count + args.groups; }

// The rows of this rank's experts, expert by expert; an expert's rows ascend.
struct RowsByExpert {
  int64_t* begin;  // [experts.count + 1]: expert e has shares [begin[e], begin[e + 1])
  int32_t* row;    // [shares]
  float* weight;   // [shares]
  int64_t shares() const { return begin[experts]; }
  int64_t experts;
};

// begin, row and weight have room for all; expert and weight are [rows, top_k].
void sort_by_expert(const MoeArgs& args, int64_t rows, const int32_t* expert, const float* weight, RowsByExpert& to);

}  // namespace lathe
