#include "text/grammar/grammar_cache.h"

#include <future>

#include "text/grammar/token_trie.h"

namespace lathe {

GrammarCache::GrammarCache(const Tokenizer& tokenizer, GrammarLimits limits, int64_t bytes, int threads)
    : tokenizer_(tokenizer),
      limits_(limits),
      most_bytes_(bytes),
      trie_(std::make_shared<const TokenTrie>(tokenizer.vocabulary())) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

GrammarCache::~GrammarCache() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& t : threads_) t.join();
  for (auto& [source, entry] : entries_)
    for (const Done& done : entry.waiting) done(unavailable("the server is stopping"));
}

GrammarCache::Compiled GrammarCache::get(const GrammarSource& source) {
  const auto promise = std::make_shared<std::promise<Compiled>>();  // the other thread may leave it after this one
  std::future<Compiled> compiled = promise->get_future();
  request(source, [promise](const Compiled& c) { promise->set_value(c); });
  return compiled.get();
}

void GrammarCache::request(const GrammarSource& source, Done done) {
  std::shared_ptr<const Grammar> here;
  {
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = entries_.try_emplace(source);
    Entry& entry = at->second;
    if (entry.grammar) {
      uses_.splice(uses_.begin(), uses_, entry.use);
      ++counts_.hits;
      here = entry.grammar;
    } else {
      entry.waiting.push_back(std::move(done));
      if (is_new) todo_.push_back(&at->first);
    }
  }
  if (here) return done(here);
  wake_.notify_one();
}

void GrammarCache::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || !todo_.empty(); });
    if (stop_) return;
    const GrammarSource* source = todo_.front();
    todo_.pop_front();
    lock.unlock();
    const Compiled compiled = Grammar::compile(*source, tokenizer_, trie_, limits_);
    lock.lock();
    const auto at = entries_.find(*source);
    const std::vector<Done> waiting = std::move(at->second.waiting);
    at->second.waiting.clear();
    if (compiled.is_ok()) {
      ++counts_.compiled;
      at->second.grammar = *compiled;
      uses_.push_front(source);
      at->second.use = uses_.begin();
      evict();
    } else {
      ++counts_.failed;
      entries_.erase(at);
    }
    lock.unlock();
    for (const Done& done : waiting) done(compiled);
    lock.lock();
  }
}

// Grammars grow with use, so they are summed anew. The one that was just made stays.
void GrammarCache::evict() {
  int64_t sum = 0;
  for (const GrammarSource* s : uses_) sum += entries_.at(*s).grammar->bytes();
  while (sum > most_bytes_ && uses_.size() > 1) {
    const auto oldest = entries_.find(*uses_.back());
    sum -= oldest->second.grammar->bytes();
    uses_.pop_back();
    entries_.erase(oldest);
  }
  counts_.bytes = sum;
  counts_.entries = static_cast<int64_t>(uses_.size());
}

GrammarCache::Counts GrammarCache::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace lathe
