#include "serve/in_flight.h"

#include <algorithm>

namespace lathe::serve {

std::shared_ptr<InFlight::Entry> InFlight::add(std::string key, std::string request_id) {
  auto entry = std::make_shared<Entry>(
      Entry{.key = std::move(key), .request_id = std::move(request_id), .reply_id = "", .generation = {}});
  const std::lock_guard lock(mutex_);
  by_name_.emplace(std::pair(entry->key, entry->request_id), entry);
  return entry;
}

bool InFlight::attach(const std::shared_ptr<Entry>& entry, std::string reply_id,
                      const std::shared_ptr<Generation>& generation) {
  const std::lock_guard lock(mutex_);
  entry->reply_id = std::move(reply_id);
  entry->generation = generation;
  by_name_.emplace(std::pair(entry->key, entry->reply_id), entry);
  return !entry->cancelled;
}

void InFlight::forget(const std::pair<std::string, std::string>& name, const std::shared_ptr<Entry>& entry) {
  if (name.second.empty()) return;
  const auto [begin, end] = by_name_.equal_range(name);
  for (auto it = begin; it != end; ++it)
    if (it->second == entry) {
      by_name_.erase(it);
      break;
    }
  ended_.push_back(name);
  if (ended_.size() > kRemembered) ended_.pop_front();
}

void InFlight::remove(const std::shared_ptr<Entry>& entry) {
  const std::lock_guard lock(mutex_);
  forget({entry->key, entry->request_id}, entry);
  forget({entry->key, entry->reply_id}, entry);
}

bool InFlight::cancel(const std::string& key, const std::string& id) {
  std::vector<std::shared_ptr<Generation>> running;
  bool found = false;
  {
    const std::lock_guard lock(mutex_);
    const auto [begin, end] = by_name_.equal_range({key, id});
    for (auto it = begin; it != end; ++it) {
      found = it->second->cancelled = true;
      if (auto g = it->second->generation.lock()) running.push_back(std::move(g));
    }
    found = found || std::find(ended_.begin(), ended_.end(), std::pair(key, id)) != ended_.end();
  }
  for (const auto& g : running) g->cancel();
  return found;
}

size_t InFlight::size() const {
  const std::lock_guard lock(mutex_);
  return by_name_.size();
}

}  // namespace lathe::serve
