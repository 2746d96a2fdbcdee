// Who runs: admission from the queue, order of importance, preemption.
#include <algorithm>

#include "engine/step_loop.h"

namespace lathe {

namespace {

bool matters_more(const Choice* a, const Choice* b) {
  const ActiveRequest &x = *a->owner, &y = *b->owner;
  if (x.request.priority != y.request.priority) return x.request.priority > y.request.priority;
  if (x.submitted != y.submitted) return x.submitted < y.submitted;
  if (x.request.id != y.request.id) return x.request.id < y.request.id;
  return a->index() < b->index();
}

void insert_in_order(std::vector<Choice*>& list, Choice* c) {
  list.insert(std::upper_bound(list.begin(), list.end(), c, matters_more), c);
}

}  // namespace

int StepLoop::pages_for(int tokens) const {
  const int page = memory_.shape().page_tokens;
  return (tokens + page - 1) / page;
}

// Whether `choices` more that come to `tokens` each find room beside what running ones have yet to write of what they
// know. What these will generate isn't counted: preemption takes care of that.
bool StepLoop::fits(int choices, int tokens) {
  int promised = 0;
  for (const Choice* c : running_)
    promised += std::max(0, pages_for(c->length() + 1) - static_cast<int>(memory_.pages(c->sequence).size()));
  return make_room(pages_for(tokens) + choices + promised);
}

// So many free pages, if need be by letting go what the cache holds.
bool StepLoop::make_room(int pages) { return memory_.free_pages() >= pages || (cache_ && cache_->make_room(0, pages)); }

// Slots that running choices have, and that those will need which come with the end of a prompt.
int StepLoop::slots_in_use() const {
  int slots = 0;
  for (const Choice* c : running_) slots += c->owner->forked ? 1 : c->owner->request.n;
  return slots;
}

bool StepLoop::has_room(int choices, int tokens) {
  if (running_.empty()) return true;
  return slots_in_use() + choices <= options_.max_running && fits(choices, tokens);
}

void StepLoop::admit(SteadyTime now) {
  while (admit_parked(now) || admit_waiting(now)) {
  }
}

// The most important parked choice, unless somebody waits who matters more.
bool StepLoop::admit_parked(SteadyTime now) {
  if (parked_.empty()) return false;
  Choice& c = *parked_.front();
  ActiveRequest* const* head = queue_.next(now);
  if (head && !running_.empty() && (*head)->request.priority > c.owner->request.priority) return false;
  if (!has_room(1, c.length() + 1)) return false;
  bool resumed = true;
  guard(*c.owner, [&] { resumed = resume(c); });
  return resumed;
}

bool StepLoop::admit_waiting(SteadyTime now) {
  if (queue_.empty()) return false;
  const bool full = slots_in_use() >= options_.max_running;
  if (full && running_.back()->owner->request.priority >= queue_.highest_priority()) return false;
  ActiveRequest* const* head = queue_.next(now);
  if (!head) return false;
  ActiveRequest& r = **head;
  const bool parked_first = !parked_.empty() && parked_.front()->owner->request.priority >= r.request.priority;
  if (parked_first) return false;
  while (!has_room(r.request.n, r.usage.prompt_tokens))
    if (!preempt_for(r)) return false;
  queue_.dispatched(r.request.user);
  queue_.remove_if([&](const ActiveRequest* q) { return q == &r; });
  start(r, now);
  return true;
}

// A choice of lower priority makes room for a request that waits.
bool StepLoop::preempt_for(const ActiveRequest& waiting) {
  Choice& least = *running_.back();
  if (least.owner->request.priority >= waiting.request.priority) return false;
  park(least);
  return true;
}

void StepLoop::start(ActiveRequest& r, SteadyTime now) {
  r.admitted = now;
  enter(r, "prefill");
  intake_.left_queue(r.usage.prompt_tokens, /*started=*/true);
  queue_.charge(r.request.user, r.usage.prompt_tokens);
  now_.queue_time.add(std::chrono::duration<double>(now - r.submitted).count());
  guard(r, [&] {
    for (int i = 0; i < r.request.n; ++i) {
      r.choices.push_back(std::make_unique<Choice>(r.request, i, tokenizer_, control_));
      r.choices.back()->owner = &r;
    }
    insert_in_order(parked_, r.choices[0].get());
    resume(*r.choices[0]);
  });
}

// From parked to running: what the cache still has of its tokens is resumed, the rest will be fed.
bool StepLoop::resume(Choice& c) {
  Result<SequenceId> id = open(c);
  if (!id.is_ok()) {
    const bool full = id.status().code() == StatusCode::kExhausted;
    if (full && !running_.empty()) return false;
    fail(*c.owner, full ? Failure::kExhausted : Failure::kInternal, id.status().message());
    return true;
  }
  c.sequence = *id;
  if (const Status s = want_pictures(*c.owner, memory_.position(c.sequence)); !s.is_ok()) {
    fail(*c.owner, Failure::kInternal, s.message());
    return true;
  }
  c.acceptance = c.output_tokens() ? c.acceptance : speculation_.fresh();
  std::erase(parked_, &c);
  insert_in_order(running_, &c);
  return true;
}

Result<SequenceId> StepLoop::open(Choice& c) {
  ActiveRequest& r = *c.owner;
  if (!cache_ || (r.request.prompt_logprobs >= 0 && !r.forked)) return memory_.open();
  if (c.keys.length() == 0) {
    LATHE_ASSIGN(std::vector<MediaKey> media,
                 media_keys(r.request.prompt, r.request.media, r.request.media_keys, config_));
    c.keys = cache_->keys(c.tokens(), std::move(media), r.request.cache_salt);
  } else {
    c.keys.append(std::span(c.tokens()).subspan(c.keys.length()));
  }
  for (;;) {
    const PrefixCache::Hit hit = cache_->find(c.keys, c.length() - 1);
    Result<SequenceId> id = cache_->resume(hit);
    if (!id.is_ok()) {
      if (id.status().code() == StatusCode::kCorrupt) continue;  // that node is gone now
      return hit.node < 0 ? id : memory_.open();
    }
    if (r.forked) return id;
    r.usage.cached_tokens = hit.node < 0 ? 0 : hit.position;
    (hit.on_host ? now_.cached_tokens_host : now_.cached_tokens) += r.usage.cached_tokens;
    return id;
  }
}

// Lists the pictures of which memory that ends at `from` lacks rows, and that aren't encoded yet.
Status StepLoop::want_pictures(ActiveRequest& r, int from) {
  if (r.request.media.empty()) return Status::ok();
  if (!pictures_) return invalid("the model takes no pictures");
  PictureFeatures& f = r.pictures;
  if (f.row_of_token.empty()) {
    LATHE_ASSIGN(f, pictures_->place(r.request.media, {r.request.prompt}));
  }
  const std::vector<int32_t>& rows = f.row_of_token[0];
  r.usage.image_tokens = static_cast<int>(std::count_if(rows.begin(), rows.end(), [](int32_t x) { return x >= 0; }));
  auto& list = r.to_encode;  // perhaps some for another choice
  for (size_t t = from; t < rows.size(); ++t) {
    if (rows[t] < 0) continue;
    const auto picture =
        static_cast<size_t>(std::upper_bound(f.first_row.begin(), f.first_row.end(), rows[t]) - f.first_row.begin()) -
        1;
    if (!f.encoded[picture] && std::find(list.begin(), list.end(), picture) == list.end()) list.push_back(picture);
  }
  return Status::ok();
}

// A picture for the most important choice that waits for one. One a step, so that others' tokens come in between.
void StepLoop::encode_one() {
  const auto waits =
      std::find_if(running_.begin(), running_.end(), [](const Choice* c) { return !c->owner->to_encode.empty(); });
  if (waits == running_.end()) return;
  ActiveRequest& r = *(*waits)->owner;
  const SteadyTime begin = std::chrono::steady_clock::now();
  const ProbeSpan probe(probes_, "encode picture");
  guard(r, [&] {
    const Status s = pictures_->encode(r.request.media, r.to_encode.front(), r.pictures);
    if (!s.is_ok()) return fail(r, Failure::kInternal, s.message());
    r.to_encode.pop_front();
    r.encode_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (r.to_encode.empty()) now_.encode.add(r.encode_seconds);
  });
}

// Its memory goes, into the cache if there is one; its tokens stay, and what is lost of them is fed again later. The
// stream goes on where it was.
void StepLoop::park(Choice& c) {
  ++now_.preempted;
  if (const Status s = keep_ended(c); !s.is_ok()) release(c);
  std::erase(running_, &c);
  insert_in_order(parked_, &c);
  for (PlannedRun& p : plan_)
    if (p.choice == &c) p.choice = nullptr;
}

// -- pages

// Pages for what the plan will write. Under pressure drafts go first, then choices that matter less, last the choice
// itself: it waits, or fails if nobody else is there to make room.
void StepLoop::reserve() {
  for (PlannedRun& p : plan_)
    while (p.choice && !reserve(p)) {
      Choice* victim = running_.back();
      if (victim != p.choice || running_.size() > 1) {
        park(*victim);
        continue;
      }
      fail(*p.choice->owner, Failure::kExhausted, "the memory of the server is too small for this request");
      p.choice = nullptr;
    }
  std::erase_if(plan_, [](const PlannedRun& p) { return !p.choice || p.choice->owner->over; });
}

bool StepLoop::reserve(PlannedRun& p) {
  if (p.choice->owner->over) return true;
  // The MTP block drafts beyond the rows of the pass.
  const int ahead = drafting_ && p.choice->output_tokens() + (p.draws ? 1 : 0) > 0 ? options_.drafts + 1 : 0;
  if (memory_.reserve(p.choice->sequence, p.before + p.rows + ahead).is_ok()) return true;
  if (p.drafts == 0) return make_room(memory_.free_pages() + 1) && reserve(p);
  p.rows -= p.drafts, p.logits -= p.drafts, p.drafts = 0;
  p.choice->drafts.clear();
  return reserve(p);
}

// -- forks

// The prompt of these requests is in memory: every choice goes on with a sequence of its own. One without room waits,
// and is computed again.
void StepLoop::fork_choices() {
  for (ActiveRequest* r : to_fork_) {
    if (r->over) continue;
    for (size_t i = 1; i < r->choices.size(); ++i) {
      Choice& c = *r->choices[i];
      if (c.finish()) continue;
      c.keys = r->choices[0]->keys;
      c.acceptance = speculation_.fresh();
      Result<SequenceId> id = memory_.fork(r->choices[0]->sequence);
      if (id.is_ok()) {
        c.sequence = *id;
        // The last row's next token is this choice's own.
        memory_.set_mtp_rows(*id, std::min(memory_.mtp_rows(*id), r->usage.prompt_tokens - 1));
        insert_in_order(running_, &c);
      } else {
        insert_in_order(parked_, &c);
      }
    }
  }
  to_fork_.clear();
}

Status StepLoop::retire() {
  for (Choice* c : running_)
    if (c->finish()) LATHE_RETURN_IF_ERROR(keep_ended(*c));
  std::erase_if(running_, [](const Choice* c) { return c->finish().has_value(); });
  return Status::ok();
}

// A choice gives its memory away: the cache takes it over for whoever goes on from here.
Status StepLoop::keep_ended(Choice& c) {
  if (c.sequence < 0) return Status::ok();
  c.drafts.clear();
  const int position = memory_.position(c.sequence);
  if (!cache_ || c.keys.length() == 0 || position == 0) return release(c), Status::ok();
  LATHE_RETURN_IF_ERROR(executor_.fold({c.sequence}));
  if (position > c.keys.length())
    c.keys.append(std::span(c.tokens()).subspan(c.keys.length(), position - c.keys.length()));
  cache_->keep(std::exchange(c.sequence, -1), c.keys, /*take_over=*/true);
  return Status::ok();
}

}  // namespace lathe
