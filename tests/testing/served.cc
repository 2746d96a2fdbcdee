#include "testing/served.h"

namespace lathe::testing {

void Client::submit(Request request) {
  const std::string id = request.id;
  {
    std::lock_guard lock(mutex_);
    served_[id].outputs.resize(request.n);
    ++open_;
  }
  const auto refusal = service_.submit(std::move(request), [this, id](RequestEvent&& e) { take(id, std::move(e)); });
  if (!refusal) return;
  std::lock_guard lock(mutex_);
  served_[id].refusal = refusal, ++served_[id].ends, --open_;
}

void Client::take(const std::string& id, RequestEvent&& event) {
  std::lock_guard lock(mutex_);
  Served& s = served_[id];
  using Kind = RequestEvent::Kind;
  disorder_ +=
      s.ends > 0 || (event.kind == Kind::kStarted ? s.starts > 0 : event.kind != Kind::kFailed && s.starts == 0);
  ++s.events;
  s.usage = event.usage;
  if (event.kind == Kind::kStarted) ++s.starts, s.prompt_logprobs = std::move(event.prompt_logprobs);
  for (OutputPiece& p : event.pieces) {
    Served::Output& out = s.outputs[p.choice];
    disorder_ += out.finish.has_value();
    out.text += p.text;
    out.tokens.insert(out.tokens.end(), p.tokens.begin(), p.tokens.end());
    out.finish = p.finish, out.stopped_by = p.stopped_by;
  }
  if (event.kind == Kind::kFailed) s.failure = event.failure, s.message = event.message;
  if (event.kind != Kind::kDone && event.kind != Kind::kFailed) return;
  ++s.ends, --open_;
  ended_.notify_all();
}

Served Client::wait(const std::string& id) {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return served_[id].ends > 0; });
  Served s = std::move(served_[id]);
  served_[id] = {};
  served_[id].ends = 1;
  return s;
}

void Client::wait_all() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return open_ == 0; });
}

bool Client::ended(const std::string& id) const {
  std::lock_guard lock(mutex_);
  const auto at = served_.find(id);
  return at != served_.end() && at->second.ends > 0;
}

int Client::disorder() const {
  std::lock_guard lock(mutex_);
  return disorder_;
}

size_t Client::tokens_of(const std::string& id) const {
  std::lock_guard lock(mutex_);
  size_t count = 0;
  if (const auto at = served_.find(id); at != served_.end())
    for (const Served::Output& o : at->second.outputs) count += o.tokens.size();
  return count;
}

}  // namespace lathe::testing
