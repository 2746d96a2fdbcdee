#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "text/grammar/grammar.h"

namespace lathe {

// Compiled grammars by source, the least lately used thrown out beyond a number of bytes. Compiles on threads of its
// own; who asks for a source that is being compiled waits for that. Safe to use from several threads.
class GrammarCache {
 public:
  using Compiled = Result<std::shared_ptr<const Grammar>>;
  struct Counts {
    int64_t hits = 0, compiled = 0, failed = 0;
    int64_t bytes = 0, entries = 0;
  };

  // The tokenizer outlives the cache.
  explicit GrammarCache(const Tokenizer& tokenizer, GrammarLimits limits = {}, int64_t bytes = int64_t{256} << 20,
                        int threads = 2);
  ~GrammarCache();  // whoever still waits gets an error

  Compiled get(const GrammarSource& source);  // waits; errors aren't kept
  // Calls `done` once: at once if it is here, from a thread of the cache if not.
  void request(const GrammarSource& source, std::function<void(const Compiled&)> done);
  Counts counts() const;

 private:
  using Done = std::function<void(const Compiled&)>;
  struct Entry {
    std::shared_ptr<const Grammar> grammar;  // null while it is being compiled
    std::vector<Done> waiting;
    std::list<const GrammarSource*>::iterator use;  // of those that are here
  };

  void work();
  void evict();

  const Tokenizer& tokenizer_;
  const GrammarLimits limits_;
  const int64_t most_bytes_;
  const std::shared_ptr<const TokenTrie> trie_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<GrammarSource, Entry> entries_;
  std::list<const GrammarSource*> uses_;  // latest first; keys of entries_
  std::deque<const GrammarSource*> todo_;
  Counts counts_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lathe
