#include "engine/greedy_batch.h"

#include <algorithm>
#include <deque>

#include "engine/mtp_drafter.h"

namespace lathe {

namespace {

// A sequence in flight. Tokens up to position() are in memory; `pending` are known but not yet fed.
struct Flight {
  int job = -1, end = -1;  // end -1: the beginning of a job with several ends
  SequenceId id = -1;
  std::vector<int32_t> pending;  // prompt tokens to come, or the last chosen token
  bool prefilling = true;
  std::vector<int32_t> drafts;  // after pending, while decoding
  int run = -1, fed = 0;        // in the pass under way
};

class GreedyBatch {
 public:
  GreedyBatch(Executor& executor, const std::vector<GreedyJob>& jobs, const GreedyOptions& options)
      : executor_(executor),
        memory_(executor.memory()),
        jobs_(jobs),
        options_(options),
        choice_(executor.tower().config().vocab),
        drafter_(executor),
        all_slots_(memory_.free_slots()),
        all_pages_(memory_.free_pages()) {}

  Result<std::vector<std::vector<GreedyAnswer>>> run() {
    for (size_t j = 0; j < jobs_.size(); ++j) {
      answers_.emplace_back(jobs_[j].ends.size());
      all_ += static_cast<int>(jobs_[j].ends.size());
      waiting_.push_back(static_cast<int>(j));
    }
    while (done_ < all_) {
      LATHE_RETURN_IF_ERROR(admit());
      LATHE_RETURN_IF_ERROR(pass());
      if (options_.progress) options_.progress(done_, all_);
    }
    return std::move(answers_);
  }

 private:
  bool speculative() const { return options_.drafts > 0; }

  // Whole jobs only, with all that they will need, so that no job waits for its own forks.
  Status admit() {
    while (!waiting_.empty()) {
      const GreedyJob& job = jobs_[waiting_.front()];
      const int slots = slots_of(job), pages = pages_of(job);
      if (taken_slots_ + slots > all_slots_ || taken_pages_ + pages > all_pages_) {
        if (!flights_.empty()) return Status::ok();
        return exhausted("a job of {} ends after {} tokens needs {} slots and {} pages; there are {} and {}",
                         job.ends.size(), job.beginning.size(), slots, pages, all_slots_, all_pages_);
      }
      taken_slots_ += slots, taken_pages_ += pages;
      const int ends = static_cast<int>(job.ends.size());
      Flight f{.job = waiting_.front(), .end = ends > 1 ? -1 : 0, .id = -1, .pending = job.beginning, .drafts = {}};
      if (ends == 1) f.pending.insert(f.pending.end(), job.ends[0].begin(), job.ends[0].end());
      LATHE_ASSIGN(f.id, memory_.open());
      flights_.push_back(std::move(f));
      waiting_.pop_front();
    }
    return Status::ok();
  }

  // One an end, and one for a shared beginning.
  static int slots_of(const GreedyJob& job) { return job.ends.size() > 1 ? static_cast<int>(job.ends.size()) + 1 : 1; }

  int pages_of(const GreedyJob& job) const {
    const int page = memory_.shape().page_tokens;
    int pages = static_cast<int>(job.beginning.size()) / page + 1;
    for (const auto& end : job.ends)
      pages += (static_cast<int>(end.size()) + job.max_tokens + options_.drafts) / page + 2;
    return pages;
  }

  Status pass() {
    std::vector<Run> runs;
    std::vector<int> order;  // flights in this pass
    int rows = 0;
    const PictureFeatures* pictures = nullptr;
    for (bool prefilling : {false, true})  // decode first: it is short and somebody waits for it
      for (int i = 0; i < static_cast<int>(flights_.size()); ++i) {
        Flight& f = flights_[i];
        if (f.prefilling != prefilling) continue;
        const int room = options_.step_rows - rows;
        if (prefilling && (room <= 0 || !same_pictures(f, pictures))) continue;
        runs.push_back(prefilling ? prefill_run(f, room, pictures) : decode_run(f));
        f.run = static_cast<int>(runs.size()) - 1, f.fed = static_cast<int>(runs.back().tokens.size());
        rows += f.fed;
        order.push_back(i);
      }
    for (const Run& r : runs)
      LATHE_RETURN_IF_ERROR(memory_.reserve(
          r.sequence, memory_.position(r.sequence) + static_cast<int>(r.tokens.size()) + options_.drafts + 1));
    std::vector<int> position_before;
    for (const Run& r : runs) position_before.push_back(memory_.position(r.sequence));
    LATHE_ASSIGN(const glm5_next::StepOutput out,
                 executor_.run(runs, options_.observer, pictures ? pictures->rows : Rows{}));
    LATHE_RETURN_IF_ERROR(read_output(runs, position_before, out));
    for (int i : order)
      LATHE_RETURN_IF_ERROR(take_result(flights_[i], runs[flights_[i].run], position_before[flights_[i].run]));
    if (speculative()) LATHE_RETURN_IF_ERROR(draft(order, runs, position_before));
    LATHE_RETURN_IF_ERROR(fork_beginnings());
    retire();
    return Status::ok();
  }

  // One pass holds pictures of one job at a time: they are one block of feature rows.
  bool same_pictures(const Flight& f, const PictureFeatures*& pictures) const {
    const PictureFeatures* own = jobs_[f.job].pictures.get();
    if (!own || memory_.position(f.id) >= static_cast<int>(jobs_[f.job].beginning.size())) return true;
    if (pictures && pictures != own) return false;
    pictures = own;
    return true;
  }

  Run prefill_run(const Flight& f, int room, const PictureFeatures* pictures) const {
    const int take = std::min(room, static_cast<int>(f.pending.size())), position = memory_.position(f.id);
    Run run{.sequence = f.id, .tokens = {f.pending.begin(), f.pending.begin() + take}, .features = {}};
    const bool last = take == static_cast<int>(f.pending.size());
    run.logits_of_last = last && f.end >= 0 ? 1 : 0;
    if (const PictureFeatures* own = jobs_[f.job].pictures.get();
        own && own == pictures && !own->row_of_token.empty()) {
      run.features.assign(take, -1);
      const std::vector<int32_t>& rows = own->row_of_token[0];
      for (int t = 0; t < take && position + t < static_cast<int>(rows.size()); ++t)
        run.features[t] = rows[position + t];
    }
    return run;
  }

  Run decode_run(const Flight& f) const {
    Run run{.sequence = f.id, .tokens = f.pending, .features = {}, .in_ring = speculative()};
    run.tokens.insert(run.tokens.end(), f.drafts.begin(), f.drafts.end());
    run.logits_of_last = -1;
    return run;
  }

  // Choices of all logit rows of the pass, by run.
  Status read_output(const std::vector<Run>& runs, const std::vector<int>& position_before,
                     const glm5_next::StepOutput& out) {
    const Batch& batch = executor_.last_batch();
    std::vector<int32_t> positions;
    for (size_t i = 0; i < batch.order.size(); ++i) {
      const int run = batch.order[i], rows = batch.total_rows[i], wanted = batch.logits_by_sequence[i];
      for (int t = rows - wanted; t < rows; ++t) positions.push_back(position_before[run] + t + 1);
    }
    LATHE_ASSIGN(const std::vector<int32_t> chosen,
                 choice_.choose(executor_, out.logits, std::vector<SampleSettings>(positions.size()), positions));
    chosen_.assign(runs.size(), {});
    int64_t logit_row = 0;
    for (size_t i = 0; i < batch.order.size(); ++i) {
      const int64_t wanted = batch.logits_by_sequence[i];
      chosen_[batch.order[i]] = {chosen.begin() + logit_row, chosen.begin() + logit_row + wanted};
      logit_row += wanted;
    }
    return Status::ok();
  }

  // What the pass means for one flight: more prompt to come, or new tokens.
  Status take_result(Flight& f, const Run& run, int before) {
    const std::vector<int32_t>& chosen = chosen_[f.run];
    if (f.prefilling) {
      f.pending.erase(f.pending.begin(), f.pending.begin() + f.fed);
      if (!f.pending.empty() || f.end < 0) return Status::ok();
      f.prefilling = false;
      f.pending = {chosen[0]};
      emit(f, {chosen.begin(), chosen.begin() + 1}, false);
      return Status::ok();
    }
    size_t right = 0;  // drafts that the model would have chosen itself
    while (right < f.drafts.size() && f.drafts[right] == chosen[right]) ++right;
    if (run.in_ring) LATHE_RETURN_IF_ERROR(executor_.accept(f.id, f.fed, static_cast<int>(right) + 1));
    LATHE_CHECK(memory_.position(f.id) == before + static_cast<int>(right) + 1);
    f.fed = static_cast<int>(right) + 1;
    f.pending = {chosen[right]};
    emit(f, {chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(right) + 1}, true);
    return Status::ok();
  }

  // Appends new tokens up to a stop token or a limit; a finished flight loses its sequence in retire().
  void emit(Flight& f, const std::vector<int32_t>& tokens, bool verification) {
    GreedyAnswer& a = answers_[f.job][f.end];
    if (verification) ++a.verification_steps;
    const int limit = executor_.tower().config().max_positions;
    for (int32_t t : tokens) {
      if (verification) ++a.accepted;
      a.stopped = std::find(options_.stop_tokens.begin(), options_.stop_tokens.end(), t) != options_.stop_tokens.end();
      if (!a.stopped) a.tokens.push_back(t);
      if (a.stopped || static_cast<int>(a.tokens.size()) >= jobs_[f.job].max_tokens ||
          memory_.position(f.id) + options_.drafts + 2 >= limit) {
        finished_.push_back(f.id);
        return;
      }
    }
  }

  bool is_finished(const Flight& f) const {
    return std::find(finished_.begin(), finished_.end(), f.id) != finished_.end();
  }

  // The MTP block over the rows that this pass fixed, then drafts. Row t needs the token after it: the last row of a
  // prompt piece waits for the next pass.
  Status draft(const std::vector<int>& order, const std::vector<Run>& runs, const std::vector<int>& position_before) {
    std::vector<DraftRequest> requests;
    std::vector<int> flight_of;
    for (int i : order) {
      Flight& f = flights_[i];
      f.drafts.clear();
      if (is_finished(f)) continue;
      const std::vector<int32_t>& fed = runs[f.run].tokens;
      DraftRequest r{.sequence = f.id,
                     .before = position_before[f.run],
                     .tokens = {fed.begin(), fed.begin() + f.fed},
                     .wanted = f.prefilling ? 0 : options_.drafts,
                     .drafts = {}};
      if (!f.prefilling) r.tokens.push_back(f.pending[0]);
      requests.push_back(std::move(r)), flight_of.push_back(i);
    }
    LATHE_RETURN_IF_ERROR(drafter_.draft(requests));
    for (size_t i = 0; i < requests.size(); ++i) flights_[flight_of[i]].drafts = std::move(requests[i].drafts);
    return Status::ok();
  }

  // A beginning whose prompt is in memory becomes its ends.
  Status fork_beginnings() {
    for (size_t i = 0; i < flights_.size(); ++i) {
      if (flights_[i].end >= 0 || !flights_[i].pending.empty()) continue;
      const Flight beginning = flights_[i];
      const GreedyJob& job = jobs_[beginning.job];
      for (size_t e = 0; e < job.ends.size(); ++e) {
        Flight f{.job = beginning.job, .end = static_cast<int>(e), .id = -1, .pending = job.ends[e], .drafts = {}};
        if (f.pending.empty()) return invalid("an end of a forked job is empty");
        LATHE_ASSIGN(f.id, memory_.fork(beginning.id));
        flights_.push_back(std::move(f));
      }
      memory_.close(beginning.id);
      flights_.erase(flights_.begin() + static_cast<std::ptrdiff_t>(i));
      --i;
    }
    return Status::ok();
  }

  void retire() {
    for (SequenceId id : finished_) {
      auto it = std::find_if(flights_.begin(), flights_.end(), [&](const Flight& f) { return f.id == id; });
      const int job = it->job;
      memory_.close(id);
      flights_.erase(it);
      ++done_;
      if (std::none_of(flights_.begin(), flights_.end(), [&](const Flight& f) { return f.job == job; }))
        taken_slots_ -= slots_of(jobs_[job]), taken_pages_ -= pages_of(jobs_[job]);
    }
    finished_.clear();
  }

  Executor& executor_;
  SequenceMemory& memory_;
  const std::vector<GreedyJob>& jobs_;
  const GreedyOptions& options_;
  TokenChoice choice_;
  MtpDrafter drafter_;
  std::deque<int> waiting_;
  std::vector<Flight> flights_;
  std::vector<SequenceId> finished_;
  std::vector<std::vector<GreedyAnswer>> answers_;
  std::vector<std::vector<int32_t>> chosen_;  // by run of the pass
  int done_ = 0, all_ = 0;
  const int all_slots_, all_pages_;        // free when the batch began
  int taken_slots_ = 0, taken_pages_ = 0;  // by admitted jobs, used yet or not
};

}  // namespace

Result<std::vector<std::vector<GreedyAnswer>>> generate_greedy(Executor& executor, const std::vector<GreedyJob>& jobs,
                                                               const GreedyOptions& options) {
  if (options.drafts > 0 && !executor.tower().weights().mtp) return invalid("drafts: the model has no MTP block");
  if (options.drafts < 0 || options.drafts > executor.memory().shape().max_draft)
    return invalid("drafts: {} of at most {}", options.drafts, executor.memory().shape().max_draft);
  for (const GreedyJob& job : jobs)
    for (const auto& end : job.ends)
      if (job.beginning.empty() && end.empty()) return invalid("a prompt is empty");
  return GreedyBatch(executor, jobs, options).run();
}

}  // namespace lathe
