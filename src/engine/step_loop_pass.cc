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
  std::vector<Run> runs;
  runs.reserve(plan_.size());
  now_.batch_rows = 0;
  for (const PlannedRun& p : plan_) runs.push_back(run_of(p)), now_.batch_rows += p.rows;
  now_.batch.add(now_.batch_rows);
  LATHE_ASSIGN(const Rows features, gather_features(runs));
  LATHE_ASSIGN(const glm5_next::StepOutput out, executor_.run(runs, nullptr, features));
  list_draws();
  LATHE_ASSIGN(const std::span<const Drawn> drawn, sampler_.draw(executor_, out.logits, draws_));
  for (PlannedRun& p : plan_) LATHE_RETURN_IF_ERROR(take(p, drawn));
  fork_choices();
  emit();
  retire();
  return Status::ok();
}

// -- drawing

void StepLoop::list_draws() {
  draws_.clear();
  store_.clear();
  const Batch& batch = executor_.last_batch();
  int64_t row = 0;
  for (size_t i = 0; i < batch.order.size(); ++i) {
    list_draws_of(plan_[batch.order[i]], row);
    row += batch.logits_by_sequence[i];
  }
}

void StepLoop::list_draws_of(PlannedRun& p, int64_t first_row) {
  const Choice& c = *p.choice;
  const ActiveRequest& r = *c.owner;
  p.first_draw = static_cast<int>(draws_.size());
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

Status StepLoop::take(PlannedRun& p, std::span<const Drawn> drawn) {
  ActiveRequest& r = *p.choice->owner;
  if (r.over || p.first_draw < 0) return Status::ok();
  const Drawn* own = drawn.data() + p.first_draw;
  if (!r.forked) {
    const int prompt_rows = p.logits - (p.draws ? 1 : 0);
    if (r.request.prompt_logprobs >= 0) take_prompt_logprobs(p, {own, static_cast<size_t>(prompt_rows)});
    if (p.draws) begin_output(p, {own + prompt_rows, r.choices.size()});
    return Status::ok();
  }
  if (!p.draws) return Status::ok();
  const int kept = verify(p, {own, static_cast<size_t>(p.drafts) + 1});
  if (r.over || kept == p.rows) return Status::ok();
  return executor_.accept(p.choice->sequence, p.rows, kept);
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
  const SteadyTime now = Clock::now();
  now_.prefill.add(seconds_between(*r.admitted, now));
  now_.prompt_tokens += r.usage.prompt_tokens;
  for (size_t i = 0; i < r.choices.size(); ++i) {
    if (drawn[i].token < 0) {
      ++now_.nonfinite;
      return fail(r, Failure::kNonFinite, "the model gave no finite logit");
    }
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
    if (d.token < 0) {
      ++now_.nonfinite;
      fail(*c.owner, Failure::kNonFinite, "the model gave no finite logit");
      break;
    }
    c.take(d, max_context_);
    if (c.finish() || right == p.drafts || drafts[right] != d.token) break;
  }
  if (p.drafts > 0) {
    now_.draft_tokens += p.drafts, now_.accepted_tokens += right;
    now_.accept_length.add(right + 1);
  }
  return p.rows - p.drafts + right;
}

// -- telling

void StepLoop::emit() {
  for (const PlannedRun& p : plan_)
    if (ActiveRequest& r = *p.choice->owner; !r.over && r.forked) tell(r);
}

void StepLoop::tell(ActiveRequest& r) {
  const SteadyTime now = Clock::now();
  RequestEvent event;
  int tokens = 0, reasoning = 0;
  bool done = true;
  for (const auto& c : r.choices) {
    OutputPiece piece;
    if (c->take_piece(piece)) event.pieces.push_back(std::move(piece));
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
  for (const auto& c : r.choices) ++(*c->finish() == FinishReason::kStop ? now_.finished_stop : now_.finished_length);
  now_.latency.add(seconds_between(r.submitted, now));
  if (tokens > static_cast<int>(r.choices.size()))
    now_.per_output_token.add(seconds_between(*r.first_token, now) * static_cast<double>(r.choices.size()) / tokens);
  r.sink({.kind = RequestEvent::Kind::kDone, .pieces = {}, .prompt_logprobs = {}, .usage = r.usage});
  leave(r);
}

}  // namespace lathe
