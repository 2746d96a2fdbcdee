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
bool StepLoop::fits(int choices, int tokens) const {
  int promised = 0;
  for (const Choice* c : running_)
    promised += std::max(0, pages_for(c->length() + 1) - static_cast<int>(memory_.pages(c->sequence).size()));
  return pages_for(tokens) + choices + promised <= memory_.free_pages();
}

// Slots that running choices have, and that those will need which come with the end of a prompt.
int StepLoop::slots_in_use() const {
  int slots = 0;
  for (const Choice* c : running_) slots += c->owner->forked ? 1 : c->owner->request.n;
  return slots;
}

bool StepLoop::has_room(int choices, int tokens) const {
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
  return has_room(1, c.length() + 1) && resume(c);
}

bool StepLoop::admit_waiting(SteadyTime now) {
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
  intake_.left_queue(r.usage.prompt_tokens);
  queue_.charge(r.request.user, r.usage.prompt_tokens);
  now_.queue_time.add(std::chrono::duration<double>(now - r.submitted).count());
  for (int i = 0; i < r.request.n; ++i) {
    r.choices.push_back(std::make_unique<Choice>(r.request, i, tokenizer_, control_));
    r.choices.back()->owner = &r;
  }
  if (!r.request.media.empty()) {
    const SteadyTime begin = std::chrono::steady_clock::now();
    Result<PictureFeatures> pictures =
        encode_media(r.request.media, config_, checkpoint_, executor_, {r.request.prompt});
    if (!pictures.is_ok()) return fail(r, Failure::kEngine, pictures.status().message());
    r.pictures = std::move(pictures).value();
    for (int32_t row : r.pictures.row_of_token[0]) r.usage.image_tokens += row >= 0;
    now_.encode.add(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  insert_in_order(parked_, r.choices[0].get());
  resume(*r.choices[0]);
}

// From parked to running: with an empty memory, all tokens to be fed.
bool StepLoop::resume(Choice& c) {
  Result<SequenceId> id = memory_.open();
  if (!id.is_ok()) return false;
  c.sequence = *id;
  std::erase(parked_, &c);
  insert_in_order(running_, &c);
  return true;
}

// Its memory goes; its tokens stay, and are fed again later. The stream goes on where it was.
void StepLoop::park(Choice& c) {
  ++now_.preempted;
  release(c);
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
  if (memory_.reserve(p.choice->sequence, p.before + p.rows).is_ok()) return true;
  if (p.drafts == 0) return false;
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
      Result<SequenceId> id = memory_.fork(r->choices[0]->sequence);
      if (id.is_ok()) {
        c.sequence = *id;
        insert_in_order(running_, &c);
      } else {
        insert_in_order(parked_, &c);
      }
    }
  }
  to_fork_.clear();
}

void StepLoop::retire() {
  std::erase_if(running_, [&](Choice* c) {
    if (!c->finish()) return false;
    release(*c);
    return true;
  });
}

}  // namespace lathe
