// The pass: runs of the plan through the model, rows drawn, what was drawn taken by the choices, events told.
#include <algorithm>

#include "engine/step_loop.h"

namespace lathe {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(SteadyTime a, SteadyTime b) { return std::chrono::duration<double>(b - a).count(); }

}  // namespace

Run StepLoop::run_of(const PlannedRun& p) const {
  const Choice& c = *p.choice;
  const auto known = c.tokens().begin() + p.before;
  Run run{.sequence = c.sequence,
          .tokens = {known, known + (p.rows - p.drafts)},
          .features = {},
          .in_ring = p.in_ring,
          .logits_of_last = p.logits};
  run.tokens.insert(run.tokens.end(), c.drafts.begin(), c.drafts.begin() + p.drafts);
  return run;
}

// Feature rows that these runs need, from the requests' own, one after another in one buffer; runs point into it.
Result<Rows> StepLoop::gather_features(std::vector<Run>& runs) {
  int64_t rows = 0;
  Rows of;  // what they look like
  for (size_t i = 0; i < runs.size(); ++i) {
    const PictureFeatures& pictures = plan_[i].choice->owner->pictures;
    if (pictures.row_of_token.empty()) continue;
    const std::vector<int32_t>& all = pictures.row_of_token[0];
    of = pictures.rows;
    runs[i].features.assign(runs[i].tokens.size(), -1);
    for (size_t t = 0; t < runs[i].tokens.size() && plan_[i].before + t < all.size(); ++t)
      if (all[plan_[i].before + t] >= 0) runs[i].features[t] = static_cast<int32_t>(rows++);
  }
  if (rows == 0) {
    for (Run& r : runs) r.features.clear();
    return Rows{};
  }
  const int64_t row_bytes = of.width * dtype_bytes(of.dtype);
  if (features_.bytes() < rows * row_bytes) {
    LATHE_ASSIGN(features_, DeviceBuffer::allocate(executor_.device(), rows * row_bytes));
  }
  const Rows gathered{.data = features_.as(), .dtype = of.dtype, .rows = rows, .width = of.width, .stride = of.width};
  for (size_t i = 0; i < runs.size(); ++i)
    for (size_t t = 0; t < runs[i].features.size(); ++t)
      if (const int32_t to = runs[i].features[t]; to >= 0) {
        const PictureFeatures& pictures = plan_[i].choice->owner->pictures;
        executor_.device().copy(gathered.at(to), pictures.rows.at(pictures.row_of_token[0][plan_[i].before + t]),
                                row_bytes);
      }
  return gathered;
}

Status StepLoop::pass() {
  if (options_.strict) split_off_twins();
  std::vector<Run> runs;
  runs.reserve(plan_.size());
  now_.batch_rows = prompt_rows_ = 0;
  bool prefills = false;
  for (const PlannedRun& p : plan_) {
    runs.push_back(run_of(p));
    now_.batch_rows += p.rows;
    if (p.choice->output_tokens() == 0) prefills = true, prompt_rows_ += p.rows;
  }
  now_.batch.add(now_.batch_rows);
  LATHE_ASSIGN(const Rows features, gather_features(runs));
  const SteadyTime begin = Clock::now();
  LATHE_ASSIGN(const glm5_next::StepOutput out, executor_.run(runs, options_.step_observer, features));
  Result<std::span<const Drawn>> sampled = [&] {
    const ProbeSpan probe(probes_, "draw");
    list_draws();
    return sampler_.draw(executor_, out.logits, draws_);
  }();
  LATHE_ASSIGN(const std::span<const Drawn> drawn, std::move(sampled));
  if (drafting_ && !prefills) speculation_.decode_pass(now_.batch_rows, seconds_between(begin, Clock::now()));
  for (PlannedRun& p : plan_) {
    p.kept = p.rows;
    guard(*p.choice->owner, [&] { take(p, drawn); });
    LATHE_RETURN_IF_ERROR(settle(p));
  }
  if (drafting_) LATHE_RETURN_IF_ERROR(draft());
  if (cache_) keep();
  fork_choices();
  LATHE_RETURN_IF_ERROR(retire());
  emit();
  return Status::ok();
}

// `strict`: a state that drafts have gone through can't go back, and a ring has other bits. So the sequence is forked
// first; if some draft was wrong the twin takes its place, and the accepted tokens are simply fed with the next pass.
void StepLoop::split_off_twins() {
  for (PlannedRun& p : plan_) {
    if (p.drafts == 0) continue;
    const Result<SequenceId> twin = memory_.fork(p.choice->sequence);
    if (twin.is_ok() && memory_.reserve(p.choice->sequence, p.before + p.rows).is_ok()) {
      p.twin = *twin;
      continue;
    }
    if (twin.is_ok()) memory_.close(*twin);
    p.rows -= p.drafts, p.logits -= p.drafts, p.drafts = 0;
    p.choice->drafts.clear();
  }
}

// Memory after what was drawn: rows of wrong drafts go.
Status StepLoop::settle(PlannedRun& p) {
  Choice& c = *p.choice;
  if (p.twin >= 0) {
    const SequenceId twin = std::exchange(p.twin, -1);
    const bool whole = c.sequence < 0 || p.kept == p.rows;
    memory_.close(whole ? twin : std::exchange(c.sequence, twin));
    if (!whole) p.rows = p.kept = 0;
    return Status::ok();
  }
  if (c.owner->over || p.kept == p.rows) return Status::ok();
  return executor_.accept(c.sequence, p.rows, p.kept);
}

// The MTP block follows every run whose choice may draft again, and drafts for those that decode.
Status StepLoop::draft() {
  const ProbeSpan probe(probes_, "draft");
  std::vector<DraftRequest> requests;
  std::vector<Choice*> choices;
  draft_store_.clear(), ahead_.clear();
  for (const PlannedRun& p : plan_)
    if (request_draft(p, requests)) choices.push_back(p.choice);
  int decoding = 0, longest = 0;
  for (const DraftRequest& r : requests) decoding += r.wanted > 0, longest = std::max(longest, r.wanted);
  const bool prefills = static_cast<int>(requests.size()) != decoding;
  const SteadyTime begin = Clock::now();
  try {
    LATHE_RETURN_IF_ERROR(drafter_.draft(requests));
  } catch (const std::exception& e) {
    // Drafts are a guess: without them the pass is as good. Whose grammar broke will show where it is drawn from.
    fmt::print(stderr, "drafts: {}\n", e.what());
    return Status::ok();
  }
  if (!prefills && decoding > 0) speculation_.draft_pass(decoding, seconds_between(begin, Clock::now()) / longest);
  for (size_t i = 0; i < requests.size(); ++i) choices[i]->drafts = std::move(requests[i].drafts);
  return Status::ok();
}

bool StepLoop::request_draft(const PlannedRun& p, std::vector<DraftRequest>& requests) {
  const Choice& c = *p.choice;
  if (c.owner->over || p.kept == 0 || (c.finish() && !cache_)) return false;
  DraftRequest r{.sequence = c.sequence, .before = p.before};
  const auto from = c.tokens().begin() + p.before;
  const bool next_known = c.length() > p.before + p.kept;
  r.tokens.assign(from, from + p.kept + (next_known ? 1 : 0));
  if (c.output_tokens() > 0 && next_known && p.draws && !c.finish()) {
    const Request& q = c.owner->request;
    const int left = std::min(q.max_tokens - c.output_tokens(), max_context_ - c.length()) - 1;
    r.wanted = std::clamp(speculation_.depth(c.acceptance, static_cast<int>(running_.size())), 0, std::max(left, 0));
    if (r.wanted == 0 && left > 0 && !speculation_.worth_following(static_cast<int>(running_.size()))) return false;
    r.ahead = &ahead_.emplace_back(c, draft_store_);
  }
  requests.push_back(std::move(r));
  return true;
}

void StepLoop::set_pauses() {
  for (Choice* c : running_)
    if (c->output_tokens() == 0 && c->keys.length() > 0)
      c->pause = cache_->next_checkpoint(c->keys, memory_.position(c->sequence));
}

// Checkpoints: where a prefill paused for one, and where prompts end.
void StepLoop::keep() {
  for (const PlannedRun& p : plan_) {
    Choice& c = *p.choice;
    if (c.owner->over || c.sequence < 0 || c.keys.length() == 0) continue;
    const int position = memory_.position(c.sequence);
    const bool prompt_ends = position == c.owner->usage.prompt_tokens && p.before < position;
    if ((position == c.pause || prompt_ends) && memory_.ring_is_empty(c.sequence) && position <= c.keys.length())
      cache_->keep(c.sequence, c.keys, /*take_over=*/false);
    c.pause = 0;
  }
}

// -- drawing

void StepLoop::list_draws() {
  draws_.clear();
  store_.clear();
  const Batch& batch = executor_.last_batch();
  int64_t row = 0;
  for (size_t i = 0; i < batch.order.size(); ++i) {
    PlannedRun& p = plan_[batch.order[i]];
    p.first_draw = static_cast<int>(draws_.size());
    guard(*p.choice->owner, [&] { list_draws_of(p, row); });
    if (p.choice->owner->over) draws_.resize(p.first_draw);
    row += batch.logits_by_sequence[i];
  }
}

void StepLoop::list_draws_of(PlannedRun& p, int64_t first_row) {
  const Choice& c = *p.choice;
  const ActiveRequest& r = *c.owner;
  int64_t row = first_row;
  // Tokens of the prompt whose log probabilities are wanted.
  if (p.logits > 1 + p.drafts || (p.logits > 0 && !p.draws))
    for (int t = p.rows - p.logits; t < p.rows - (p.draws ? 1 : 0); ++t) {
      DrawRow& d = draws_.emplace_back();
      d.logit_row = row++, d.position = p.before + t + 1;
      d.given = c.tokens()[d.position], d.best = r.request.prompt_logprobs;
    }
  if (!p.draws) return;
  if (!r.forked) {
    for (const auto& choice : r.choices) {  // all from one row of logits
      DrawRow& d = draws_.emplace_back();
      d.logit_row = row;
      Lookahead(*choice, store_).fill(d);
    }
    return;
  }
  Lookahead ahead(c, store_);
  for (int i = 0; i <= p.drafts; ++i) {
    if (i > 0) ahead.advance(c.drafts[i - 1]);
    DrawRow& d = draws_.emplace_back();
    d.logit_row = row++;
    ahead.fill(d);
  }
}

// -- taking

void StepLoop::take(PlannedRun& p, std::span<const Drawn> drawn) {
  ActiveRequest& r = *p.choice->owner;
  if (r.over) return;
  const Drawn* own = drawn.data() + p.first_draw;
  if (!r.forked) {
    const int prompt_rows = p.logits - (p.draws ? 1 : 0);
    if (r.request.prompt_logprobs >= 0) take_prompt_logprobs(p, {own, static_cast<size_t>(prompt_rows)});
    if (p.draws) begin_output(p, {own + prompt_rows, r.choices.size()});
  } else if (p.draws) {
    p.kept = verify(p, {own, static_cast<size_t>(p.drafts) + 1});
  }
}

// A row from which nothing could be drawn: that request fails, nobody else.
bool StepLoop::refuse_draw(ActiveRequest& r, int draw, const Drawn& drawn) {
  if (drawn.token >= 0) return false;
  if (draws_[draw].dead_end) {
    fail(r, Failure::kGrammarDeadEnd, "the grammar allows no further token");
  } else {
    ++now_.nonfinite;
    fail(r, Failure::kNonFinite, "the model gave no finite logit");
  }
  return true;
}

void StepLoop::take_prompt_logprobs(PlannedRun& p, std::span<const Drawn> drawn) {
  std::vector<OutputToken>& all = p.choice->owner->prompt_logprobs;
  if (all.empty()) all.push_back({.token = p.choice->tokens()[0]});
  for (const Drawn& d : drawn) all.push_back({.token = d.token, .logprob = d.logprob, .best = d.best});
}

// The whole prompt is in memory: the first token of every choice.
void StepLoop::begin_output(PlannedRun& p, std::span<const Drawn> drawn) {
  ActiveRequest& r = *p.choice->owner;
  r.forked = true;
  enter(r, "decode");
  const SteadyTime now = Clock::now();
  now_.prefill.add(seconds_between(*r.admitted, now));
  now_.prompt_tokens += r.usage.prompt_tokens;
  for (size_t i = 0; i < r.choices.size(); ++i) {
    if (refuse_draw(r, p.first_draw + p.logits - 1 + static_cast<int>(i), drawn[i])) return;
    r.choices[i]->take(drawn[i], max_context_);
  }
  if (r.choices.size() > 1) to_fork_.push_back(&r);
}

// Row i of a verification is drawn like any token; a draft stands if it is what was drawn. So the text is that of plain
// decoding, draw by draw. Returns how many of the run's rows count.
int StepLoop::verify(PlannedRun& p, std::span<const Drawn> drawn) {
  Choice& c = *p.choice;
  const std::vector<int32_t> drafts = std::move(c.drafts);
  c.drafts.clear();
  int right = 0;
  for (;; ++right) {
    const Drawn& d = drawn[right];
    if (refuse_draw(*c.owner, p.first_draw + right, d)) break;
    c.take(d, max_context_);
    if (c.finish() || right == p.drafts || drafts[right] != d.token) break;
  }
  if (p.drafts > 0) {
    now_.draft_tokens += p.drafts, now_.accepted_tokens += right;
    now_.accept_length.add(right + 1);
    speculation_.verified(c.acceptance, p.drafts, right);
  }
  return p.rows - p.drafts + right;
}

// -- telling

void StepLoop::emit() {
  const ProbeSpan probe(probes_, "emit");
  for (const PlannedRun& p : plan_)
    if (ActiveRequest& r = *p.choice->owner; !r.over && r.forked) guard(r, [&] { tell(r); });
}

void StepLoop::tell(ActiveRequest& r) {
  const SteadyTime now = Clock::now();
  RequestEvent event;
  int tokens = 0, reasoning = 0;
  bool done = true;
  for (const auto& c : r.choices) {
    OutputPiece piece;
    if (c->take_piece(piece)) event.pieces.push_back(std::move(piece));
    watch(*c);
    tokens += c->output_tokens(), reasoning += c->reasoning_tokens(), done &= c->finish().has_value();
  }
  const int fresh = tokens - r.usage.completion_tokens;
  now_.generation_tokens += fresh;
  queue_.charge(r.request.user, fresh);
  r.usage.completion_tokens = tokens, r.usage.reasoning_tokens = reasoning;
  event.usage = r.usage;
  if (!r.first_token) {
    r.first_token = now;
    now_.first_token.add(seconds_between(r.submitted, now));
  } else if (fresh > 0) {
    now_.inter_token.add(seconds_between(*r.last_token, now));
  }
  if (fresh > 0) r.last_token = now;
  if (!r.started) {
    r.started = true;
    r.sink({.kind = RequestEvent::Kind::kStarted,
            .pieces = {},
            .prompt_logprobs = std::move(r.prompt_logprobs),
            .usage = r.usage});
  }
  if (!event.pieces.empty()) r.sink(std::move(event));
  if (!done) return;
  for (const auto& c : r.choices) now_.zero_accept_requests += c->acceptance.drafted > 0 && c->acceptance.accepted == 0;
  for (const auto& c : r.choices) ++(*c->finish() == FinishReason::kStop ? now_.finished_stop : now_.finished_length);
  now_.latency.add(seconds_between(r.submitted, now));
  if (tokens > static_cast<int>(r.choices.size()))
    now_.per_output_token.add(seconds_between(*r.first_token, now) * static_cast<double>(r.choices.size()) / tokens);
  offer_to_audit(r);
  r.sink({.kind = RequestEvent::Kind::kDone, .pieces = {}, .prompt_logprobs = {}, .usage = r.usage});
  leave(r);
}

void StepLoop::watch(Choice& c) {
  switch (c.monitor.look(c.output(), c.replacements())) {
    case OutputMonitor::Finding::kNone:
      return;
    case OutputMonitor::Finding::kLoop:
      ++now_.loops;
      return;
    case OutputMonitor::Finding::kGarbled:
      ++now_.garbled;
      return;
  }
}

void StepLoop::offer_to_audit(const ActiveRequest& r) {
  const Request& q = r.request;
  const bool edited = q.presence_penalty != 0 || q.frequency_penalty != 0 || q.repetition_penalty != 1 ||
                      !q.logit_bias.empty() || q.grammar || q.min_tokens > 0;
  if (options_.audit.tokens_per_minute == 0 || edited || !q.media.empty()) return;
  audit_.offer({.id = q.id,
                .tokens = r.choices[0]->tokens(),
                .prompt = r.usage.prompt_tokens,
                .temperature = q.sampling.temperature},
               Clock::now());
}

}  // namespace lathe
