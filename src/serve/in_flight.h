#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "serve/generation.h"

namespace lathe::serve {

// Requests that can be cancelled, by their reply's id and by what the client calls them. Any thread.
class InFlight {
 public:
  // From arrival to end. The generation comes when the request has been prepared.
  struct Entry {
    std::string key, request_id, reply_id;
    bool cancelled = false;
    std::weak_ptr<Generation> generation;
  };

  std::shared_ptr<Entry> add(std::string key, std::string request_id);
  // False: it was cancelled in the meantime.
  bool attach(const std::shared_ptr<Entry>& entry, std::string reply_id, const std::shared_ptr<Generation>& generation);
  void remove(const std::shared_ptr<Entry>& entry);
  // Every request of that key with that id; true, too, if such a one has ended a while ago.
  bool cancel(const std::string& key, const std::string& id);
  size_t size() const;

 private:
  static constexpr size_t kRemembered = 4096;
  mutable std::mutex mutex_;
  std::multimap<std::pair<std::string, std::string>, std::shared_ptr<Entry>> by_name_;  // (key, id)
  std::deque<std::pair<std::string, std::string>> ended_;
  void forget(const std::pair<std::string, std::string>& name, const std::shared_ptr<Entry>& entry);
};

}  // namespace lathe::serve
