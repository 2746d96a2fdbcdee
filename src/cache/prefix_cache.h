#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cache/sequence_memory.h"

// What past requests left in memory, found again by what a new prompt begins with.
namespace lathe {

// 128-bit keyed hashes of a prompt's beginnings: over tokens, identities of pictures, salt and model. at(p) names the
// first p tokens.
class PrefixKeys;

struct PrefixCacheOptions {
  int interval = 1024;     // tokens between checkpoints of a long prompt
  int least = 128;         // no checkpoint nearer than this to the one before: short prompts pay nothing
  int64_t host_bytes = 0;  // host tier; 0: off
};

// A tree of frozen sequences. A node is a position at which every kind of memory can resume (a slot with KDA states,
// convolution inputs, open pools and hidden row, and all pages up to there, MTP's included), so a hit can't forget a
// kind: it is a fork of the node's sequence. Nodes move to the host tier and back, or are dropped, with all their kinds
// or not at all, leaves before their parents. One thread, the step loop, calls it.
class PrefixCache {
 public:
  struct Hit {
    int node = -1;
    int position = 0;
    bool on_host = false;
  };

  static Result<std::unique_ptr<PrefixCache>> create(SequenceMemory& memory, Device& device,
                                                     const PrefixCacheOptions& options);

  // The longest beginning, of at most `limit` tokens, at which a sequence can go on.
  Hit find(const PrefixKeys& keys, int limit) const;
  // A sequence that goes on from the hit; a node on the host is loaded first. exhausted: no slot or pages, even after
  // eviction; nothing has changed.
  Result<SequenceId> resume(const Hit& hit);
  // Where a prefill at `position` should pause so that keep() can be called there: the next multiple of the interval,
  // or the place where this prompt leaves a path that others went; at most keys' length.
  int next_checkpoint(const PrefixKeys& keys, int position) const;
  // Keeps the sequence's present position (its ring must be folded): by a copy, or, when the sequence has ended, by
  // taking it over without one. Too near to another node, or no room: nothing is kept, and a taken-over one is closed.
  void keep(SequenceId id, const PrefixKeys& keys, bool take_over);
  // Frees slots and pages by moving or dropping nodes, least recently used first; false if there is too little to free.
  bool make_room(int slots, int pages);
  void clear();
};

}  // namespace lathe
