#pragma once

#include <vector>

#include "ops/kda_prefill/kda_layer.h"

// The steps of every KDA operator in doubles, written to be read: what `reference` variants and the long numerics test
// are made of. Values are rounded to the rows' dtype where kda_layer.h says so.
namespace lathe::reference {

// What the recurrence reads of one token of one head.
struct KdaToken {
  std::vector<double> q, k;  // [K], normalised
  std::vector<double> v;     // [V]
  std::vector<double> g;     // [K], log decay
  double b;
};

double kda_log_gate(double f, double dt_bias, double a_log, double bound);

// x / |x|, |x| = sqrt(sum x² + 1e-6)
void kda_normalise(std::vector<double>& x);

// Row `row` of the batch, which is position `position` of the sequence in `slot`; earlier positions are in the ring.
KdaToken kda_token(const KdaRows& in, const KdaLayer& layer, int64_t row, int head, const KdaMemory& memory,
                   int64_t slot, int64_t position);

// Puts the raw row into the ring, when all heads have read what it displaces.
void kda_push(const KdaRows& in, int64_t row, const KdaMemory& memory, int64_t slot, int64_t position);

// The states of all heads of a slot, [heads][V, K]; zero at position 0.
std::vector<std::vector<double>> kda_load_states(const KdaLayer& layer, const KdaMemory& memory, int64_t slot,
                                                 int64_t position);
void kda_store_states(const std::vector<std::vector<double>>& states, const KdaMemory& memory, int64_t slot);

// S [V, K] to the state after the token; returns o [V].
std::vector<double> kda_step(std::vector<double>& S, const KdaToken& token);

// Rounds o, norms and gates it into y.
void kda_store_output(const std::vector<double>& o, const KdaRows& in, const KdaLayer& layer, int64_t row, int head,
                      const Rows& y);

void kda_zero_rows(const Rows& y, int64_t begin, int64_t end);

}  // namespace lathe::reference
