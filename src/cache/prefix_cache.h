#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/frozen_block.h"
#include "cache/host_tier.h"
#include "cache/prefix_keys.h"
#include "cache/sequence_memory.h"

// What past requests left in memory, found again by what a new prompt begins with.
namespace lathe {

struct PrefixCacheOptions {
  int interval = 1024;     // tokens between checkpoints of a long prompt
  int least = 128;         // no checkpoint nearer than this to the one before: short prompts pay nothing
  int64_t host_bytes = 0;  // host tier; 0: off
  bool drafts = false;     // resumed sequences will draft: only memory with all its MTP rows is kept
  std::string model;       // enters every key: which weights made the memory
  std::optional<PrefixHasher::Secret> secret;  // absent: drawn
};

struct PrefixCacheStats {
  uint64_t queries = 0, hits = 0, hits_on_host = 0;
  uint64_t hit_tokens = 0, hit_tokens_on_host = 0;
  // Beginnings that others had, too, but at whose end a kind of memory could not go on: no states had been kept there;
  // or (by sequences not kept) MTP rows were missing.
  uint64_t vetoes_state = 0, vetoes_mtp = 0;
  uint64_t kept = 0, dropped = 0;
  uint64_t saves = 0, loads = 0, load_failures = 0;
  double load_seconds = 0;
  int on_device = 0, on_host = 0, on_both = 0;  // nodes, now
  int64_t host_bytes = 0;
};

// A tree of frozen sequences. A node is a position at which every kind of memory can resume (a slot with KDA states,
// convolution inputs, open pools and hidden row, and all pages up to there, MTP's included), so a hit can't forget a
// kind: it is a fork of the node's sequence. Nodes move to the host tier and back, or are dropped, with all their kinds
// or not at all, the least recently used first and leaves before their parents; but before these go nodes that were
// kept because of an interval and that nobody has used yet. One thread, the step loop, calls it.
//
// Nodes are found by keys of complete blocks (a block is a page), and of the node's position inside the block that
// follows; the tree is the nesting of beginnings. Each node holds all that it needs, so any may go without another.
class PrefixCache {
 public:
  struct Hit {
    int node = -1;
    int position = 0;
    bool on_host = false;
    int known = 0;          // this many first tokens, in whole blocks, others had, too
    std::vector<int> path;  // nodes that are beginnings of this one
  };

  static Result<std::unique_ptr<PrefixCache>> create(SequenceMemory& memory, Device& device,
                                                     const PrefixCacheOptions& options);
  ~PrefixCache();

  PrefixKeys keys(std::vector<int32_t> tokens, std::vector<MediaKey> media = {}, std::string_view salt = {}) const;

  // The longest beginning, of at most `limit` tokens, at which a sequence can go on.
  Hit find(const PrefixKeys& keys, int limit) const;
  // A sequence that goes on from the hit, or an empty one if there is none; a node on the host is loaded first.
  // exhausted: no slot or pages, even after eviction, or the node is gone meanwhile: find again, later; corrupt: the
  // node on the host was damaged and is dropped: find again. Then no sequence has changed.
  Result<SequenceId> resume(const Hit& hit);
  // Where a prefill at `position` should pause so that keep() can be called there: the next multiple of the interval,
  // or the place where this prompt leaves a path that others went; at most keys' length. The interval is doubled as
  // long as one prompt would take more than 8 checkpoints, or a quarter of all slots for them.
  int next_checkpoint(const PrefixKeys& keys, int position) const;
  // Keeps the sequence's present position (its ring must be folded, its MTP rows filled): by a copy, or, when the
  // sequence has ended, by taking it over: pages change hands, only its slot is copied into a smaller one. `keys` hold
  // at least the tokens in memory. Too near to another node, or no room: nothing is kept, and a taken-over one is
  // closed.
  void keep(SequenceId id, const PrefixKeys& keys, bool take_over);
  // Frees pages by moving or dropping nodes, least recently used first; false, and nothing is lost, if there is too
  // little to free. Slots of running sequences are never held by the cache: false if fewer than `slots` are free.
  bool make_room(int slots, int pages);
  void clear();

  PrefixCacheStats stats() const;

 private:
  struct Node {
    PrefixKey key;
    int position = 0;
    std::vector<PrefixKey> blocks;  // keys of the beginnings of 0, 1, ... complete blocks
    FrozenBlock block;              // on the device
    std::optional<HostImage> image;
    uint64_t used = 0;
    bool spare = false;  // kept because of an interval; nobody has used it
  };
  // Behind a number of complete blocks: nodes there and beyond, and those that end before the next block does.
  struct Junction {
    int nodes = 0;
    std::map<int, int> ends;  // offset -> nodes
  };
  struct Path {
    std::vector<int> nodes;  // by position
    int known = 0;
  };

  PrefixCache(SequenceMemory& memory, Device& device, const PrefixCacheOptions& options);
  Path walk(const PrefixKeys& keys, int limit) const;
  int stride(int length) const;
  bool worth_keeping(const Path& path, int position) const;
  void touch(const std::vector<int>& nodes);
  Node& add(const PrefixKeys& keys, int position);
  void erase(int node);
  bool free_checkpoint();
  void leave_device(int node);
  bool save(Node& node);
  Status load(int node);
  Status load_pinned(Node& node);
  int coldest(bool (*eligible)(const Node&)) const;

  SequenceMemory& memory_;
  PrefixCacheOptions options_;
  std::shared_ptr<const PrefixHasher> hasher_;
  HostTier tier_;
  std::unordered_map<int, Node> nodes_;
  std::unordered_map<PrefixKey, int, PrefixKeyHash> by_key_;
  std::unordered_map<PrefixKey, Junction, PrefixKeyHash> junctions_;
  int next_node_ = 0;
  int pinned_ = -1;  // a node that making room must not touch
  uint64_t clock_ = 0;
  PrefixCacheStats stats_;
};

}  // namespace lathe
