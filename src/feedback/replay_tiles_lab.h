#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

// The stage of the kernel lab: one replay step of KDA for many heads, each with a state [V, K] of its own and a full
// ring of records, on one thread. What tiles, divisions and decays cost is decided by the options alone; results are
// the same but for rounding.
namespace lathe {

struct ReplayTilesOptions {
  // The published start: four tiles of V, each of which normalises the token, takes its gates and decays the records.
  int v_tiles = 4;
  // Normalisation, sigmoids and a record's decay divide; else they multiply by a reciprocal or by exp(-G).
  bool divide = true;
  // Records hold their keys as they came, and each step decays them; else they are stored decayed, k·exp(-G).
  bool decay_records = true;

  std::string name() const;
  bool operator==(const ReplayTilesOptions&) const = default;
};

// What a step does for one head.
struct ReplayTilesWork {
  int64_t exponentials = 0, divisions = 0, products = 0;  // products: multiplications
  int64_t bytes = 0;                                      // read and written once each
};
ReplayTilesWork replay_tiles_work(const ReplayTilesOptions& options);

class ReplayTilesLab {
 public:
  static constexpr int kDim = 128, kRecords = 16;

  // Seeded states, rings and tokens of `heads` heads.
  ReplayTilesLab(int heads, uint64_t seed);

  // One step of every head; o [heads, V]. Returns nanoseconds of this thread's processor time.
  int64_t step(const ReplayTilesOptions& options, std::vector<float>& o);
  // The same head by head from the definition, in doubles.
  std::vector<double> oracle() const;
  // The same head again and again: its data stays in the nearest cache.
  int64_t step_one_head(const ReplayTilesOptions& options, int times, std::vector<float>& o);
  // Reads all states and nothing else: what their bytes alone cost this thread.
  int64_t read_states(float& sum) const;
  int64_t state_bytes() const { return static_cast<int64_t>(state_.size() * sizeof(float)); }

 private:
  struct Head;
  Head head(int h);

  int heads_;
  std::vector<float> state_;                                 // [heads, V, K]
  std::vector<float> key_, gate_, d_, decayed_key_;          // [heads, records, K or V]
  std::vector<float> q_, k_, v_, forget_, beta_, out_gate_;  // raw token: [heads, K or V]
  std::vector<float> new_key_, new_d_;                       // the record that a step writes
};

}  // namespace lathe
