#include "feedback/op_trial.h"

#include <time.h>

#include <algorithm>
#include <cstring>

#include "feedback/bench_life.h"
#include "feedback/footprint.h"
#include "feedback/judge.h"
#include "feedback/sign_flip.h"

namespace lathe {

namespace {

constexpr int64_t kScratchBytes = int64_t{16} << 30, kCaseBytes = int64_t{64} << 30;
constexpr int64_t kCeilingSet = int64_t{64} << 20;
constexpr int kCeilingSamples = 5, kMostWindows = 200;
constexpr int kFewestCalls = 4;  // of a window
constexpr double kSlowCallUs = 250'000;
constexpr int kFirstCalls = 2;  // of the window that shows how long a call takes
constexpr uint64_t kCaseSeed = 1;
// Elements of an input field that change places between two calls of a copy: so many that no earlier result is within
// tolerance, and no more.
int64_t swaps(int64_t elements) {
  return std::max({int64_t{8}, std::min(elements / 64, int64_t{20000}), elements / 2500});
}
constexpr int64_t kGuardBytes = 256;  // behind every piece (CaseBuilder)
// The oracle does about 1e8 operations a second. Dearer samples are checked in thorough lives only.
constexpr double kCheapFlop = 1e7, kDearFlop = 5e7;
// A time below this share of what the best sample of the ceilings allows can't be true.
constexpr double kImpossible = 0.9;
constexpr int kSecondChances = 8;
// Idle workers spin for a while before they sleep.
constexpr double kIdleUs = 1500, kIdleShare = 0.25;
constexpr double kCoreSlack = 1.15, kCoreSlackUs = 3000;
constexpr double kClockSlackUs = 500, kClockShare = 0.5, kWallShare = 1.1;

bool swappable(const FieldView& f) {
  return f.role == Role::kIn && f.batch && f.elements() > 1 && f.dtype != DType::kI32 && f.dtype != DType::kU8;
}

}  // namespace

Result<std::unique_ptr<OpTrial>> OpTrial::create(const AnyOp& op, int case_index, const TrialOptions& options) {
  auto trial = std::unique_ptr<OpTrial>(new OpTrial(op, case_index, options));
  LATHE_RETURN_IF_ERROR(trial->prepare().within(fmt::format("{} {}", op.name, op.cases[case_index].name)));
  return trial;
}

Status OpTrial::prepare() {
  LATHE_ASSIGN(oracle_, CaseMemory::create(*device_, kCaseBytes));
  LATHE_ASSIGN(scratch_, Arena::create(*device_, kScratchBytes));
  built_ = oracle_->build(op_, case_index_, kCaseSeed, 0xff);
  LATHE_ASSIGN(const Image image, oracle_->image());
  fields_ = built_->fields();
  layout_ = layout_digest(fields_, oracle_->base());
  slot_bytes_ = static_cast<int64_t>(image.size());
  rotation_ = options_.rotation_bytes ? options_.rotation_bytes : rotation_bytes();
  slots_ = static_cast<int>(std::clamp(rotation_ / slot_bytes_, int64_t{2}, int64_t{kMostSlots}));
  LATHE_ASSIGN(memory_, SharedMemory::create(slots_ * slot_bytes_));
  pristine_ = image;
  if (!options_.timed) return Status::ok();
  LATHE_ASSIGN(ceilings_, CeilingBench::create(std::max(rotation_, kCeilingSet)));
  roof_ = {ceilings_->bandwidth(pool_, info().traffic, kCeilingSet, kCeilingSamples),
           ceilings_->dot_peak(pool_, info().precision, kCeilingSamples).rate};
  return Status::ok();
}

// Elements of an input change places: each value stays one that the field may hold, and what was computed from it is no
// longer right. Outputs get a pattern that no result has everywhere.
void OpTrial::refresh_slot(int i) {
  char* base = slot(i);
  for (const FieldView& f : fields_) {
    if (f.elements() == 0) continue;
    const int64_t element = dtype_bytes(f.dtype);
    char* data = base + oracle_->offset(f.data);
    if (swappable(f)) {
      for (int64_t n = swaps(f.elements()); n > 0; --n) {
        const auto place = [&] { return data + (secret_.below(f.rows) * f.stride + secret_.below(f.width)) * element; };
        char *a = place(), *b = place();
        std::swap_ranges(a, a + element, b);
      }
    } else if (f.role != Role::kIn) {
      const int poison = static_cast<int>(secret_.next() | 0x80);
      const int64_t end = ((f.rows - 1) * f.stride + f.width) * element;
      if (!f.scale) std::memset(data + end, poison, kGuardBytes);  // scales lie between data and its guard
      for (int64_t r = 0; f.role == Role::kOut && r < f.rows; ++r)
        std::memset(data + r * f.stride * element, poison, f.width * element);
    }
  }
}

Result<OpTrial::Window> OpTrial::window(OpCandidate& candidate, int calls, Sample* sample) {
  std::vector<uint8_t> order(slots_);
  for (int i = 0; i < slots_; ++i) order[i] = static_cast<uint8_t>(i);
  for (int i = slots_ - 1; i > 0; --i) std::swap(order[i], order[secret_.below(i + 1)]);
  order.resize(calls);
  for (uint8_t i : order) refresh_slot(i);
  const int chosen = order[secret_.below(calls)];
  if (sample) sample->before.assign(slot(chosen), slot(chosen) + slot_bytes_);
  if (options_.timed) ceilings_->flush(pool_, std::max(rotation_ - calls * slot_bytes_, rotation_ / 4));
  const double idle = candidate.cpu_us() - idle_since_us_;
  const int threads = candidate.threads();
  LATHE_ASSIGN(const OpCandidate::Done done, candidate.run(order));
  if (sample) sample->after.assign(slot(chosen), slot(chosen) + slot_bytes_);
  idle_since_us_ = done.cpu_total_us;
  return Window{done, calls, idle, threads};
}

Result<Image> OpTrial::expected(const Sample& sample, AnyCase& call, int variant) {
  oracle_->restore(sample.before);
  OpContext ctx{.device = device_.get(), .pool = &pool_, .scratch = &scratch_};
  LATHE_RETURN_IF_ERROR(call.run(ctx, variant));
  scratch_.reset();
  return oracle_->image();
}

// Empty: right, as far as was checked.
std::string OpTrial::fault_of(const Sample& sample, bool thorough, double& error_ratio) {
  if (const std::string stray = Footprint(*oracle_, *built_).stray_write(sample.before, sample.after); !stray.empty())
    return stray;
  int variant =
      static_cast<int>(std::find(op_.variants.begin(), op_.variants.end(), "reference") - op_.variants.begin());
  const int64_t rows = row_count(fields_);
  const double flop = static_cast<double>(std::max<int64_t>(info().flop, info().bytes));
  double tolerance = info().tolerance, ties = info().open_ties;
  std::unique_ptr<AnyCase> part;
  AnyCase* call = built_.get();
  if (flop > (thorough ? kDearFlop : kCheapFlop)) {
    if (op_.rows_stand_alone && flop / static_cast<double>(rows) <= kDearFlop) {
      part = built_->part(secret_.below(rows), 1);
      call = part.get();
    } else if (thorough) {  // our own fastest variant, which verify has judged: both may be off by the tolerance
      for (variant = 0; !built_->applies(variant);) ++variant;
      tolerance *= 2, ties *= 2;
    } else {
      return "";
    }
  }
  const Result<Image> right = expected(sample, *call, variant);
  if (!right.is_ok()) return right.status().message();
  for (const FieldView& f : call->outputs()) {
    if (f.elements() == 0 || (part && f.role != Role::kOut)) continue;
    const Judgement j = judge(oracle_->in_image(f, *right), oracle_->in_image(f, sample.after), tolerance, ties);
    error_ratio = std::max(error_ratio, j.error_ratio);
    if (!j.fault.empty()) return j.fault;
  }
  return "";
}

// Before a result is called impossible the ceilings get another chance: they may have been measured beside others.
void OpTrial::raise_roof(double wall_us) {
  for (int i = 0; i < kSecondChances && wall_us < kImpossible * roof_.fastest_us(info()); ++i) {
    const Rate bandwidth = ceilings_->bandwidth(pool_, info().traffic, kCeilingSet, kCeilingSamples),
               peak = ceilings_->dot_peak(pool_, info().precision, kCeilingSamples).rate;
    roof_.bandwidth.best = std::max(roof_.bandwidth.best, bandwidth.best);
    roof_.peak.best = std::max(roof_.peak.best, peak.best);
  }
}

Result<double> OpTrial::own_seconds(const std::string& variant) {
  const auto named = std::find(op_.variants.begin(), op_.variants.end(), variant);
  int v = static_cast<int>(named - op_.variants.begin());
  if (named == op_.variants.end())
    for (v = 0; !built_->applies(v);) ++v;
  LATHE_ASSIGN(const Image before, oracle_->image());
  OpContext ctx{.device = device_.get(), .pool = &pool_, .scratch = &scratch_};
  const auto cpu_seconds = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  const double begin = cpu_seconds();
  LATHE_RETURN_IF_ERROR(built_->run(ctx, v));
  const double seconds = (cpu_seconds() - begin) / pool_.threads();
  scratch_.reset();
  oracle_->restore(before);
  return seconds;
}

std::optional<Life::Trouble> OpTrial::conduct(const std::vector<Window>& windows, int threads, double wall_us) const {
  if (const double least = roof_.fastest_us(info()); wall_us < kImpossible * least)
    return Life::Trouble{Verdict::kRefused,
                         fmt::format("{:.3g} us a call, but this machine needs {:.3g} us at least for "
                                     "the case's bytes and operations",
                                     wall_us, least)};
  int idle = 0, cores = 0, clocks = 0, most_threads = 0;
  for (const Window& w : windows) {
    most_threads = std::max({most_threads, w.done.threads, w.idle_threads});
    idle += w.idle_cpu_us > kIdleUs + kIdleShare * w.done.wall_us;
    cores += w.done.cpu_us > kCoreSlack * threads * w.done.wall_us + kCoreSlackUs;
    // Against cpu time, which doesn't grow with waiting for a core as our wall time does.
    clocks += w.done.own_us > kWallShare * w.done.wall_us + kClockSlackUs ||
              w.done.own_us < kClockShare * w.done.cpu_us / threads - kClockSlackUs;
  }
  const int half = (static_cast<int>(windows.size()) + 1) / 2;
  if (most_threads > threads)
    return Life::Trouble{Verdict::kRefused,
                         fmt::format("the candidate was seen with {} threads; {} were given", most_threads, threads)};
  if (idle >= half)
    return Life::Trouble{Verdict::kRefused,
                         "the candidate works while nothing is asked of it: before the clock starts, or "
                         "after it has said that it is done"};
  if (cores >= half)
    return Life::Trouble{Verdict::kRefused, fmt::format("the candidate uses more than its {} threads", threads)};
  if (clocks >= half)
    return Life::Trouble{
        Verdict::kRefused,
        fmt::format("the candidate's clock says {:.3g} us for {} calls; its process computed for {:.3g} "
                    "us, and ours says {:.3g} us",
                    windows.back().done.own_us, windows.back().calls, windows.back().done.cpu_us,
                    windows.back().done.wall_us)};
  return std::nullopt;
}

Result<TrialResult> OpTrial::measure(const std::vector<std::string>& command, const std::string& variant, int threads,
                                     const std::string& build_id, bool thorough) {
  TrialResult result;
  const auto trouble = [&](Verdict verdict, const std::string& why) {
    result.trouble = Life::Trouble{verdict, fmt::format("{} {}: {}", op_.name, info().name, why)};
    return result;
  };
  // What an earlier life left in a state must not outlast it: NaN would make every later result look right.
  for (int i = 0; i < slots_; ++i) std::memcpy(slot(i), pristine_.data(), pristine_.size());
  LATHE_ASSIGN(const std::unique_ptr<OpCandidate> candidate, OpCandidate::start(command, *memory_));
  const Result<OpCandidate::Loaded> loaded =
      candidate->load({op_.name, info().name, variant, kCaseSeed, slots_, slot_bytes_, threads});
  if (!loaded.is_ok()) return trouble(Verdict::kInvalid, loaded.status().message());
  result.build_id = loaded->build_id, result.variant = loaded->variant, result.applies = loaded->applies;
  if (!build_id.empty() && loaded->build_id != build_id)
    return trouble(Verdict::kRefused,
                   fmt::format("build {} answers, {} was to be measured", loaded->build_id, build_id));
  if (loaded->layout != layout_)
    return trouble(Verdict::kRefused, "the candidate has other fields or shapes for this case than the trusted build");
  if (!loaded->applies) return result;

  std::vector<Window> windows;
  std::vector<Sample> samples(2);
  const int sampled = 1 + static_cast<int>(secret_.below(options_.fewest_windows));
  double spent = 0;
  int calls = std::min(slots_, kFirstCalls);
  for (int n = 0;; ++n) {
    const bool last = n > options_.fewest_windows && (spent > options_.seconds * 1e6 || n > kMostWindows);
    const Result<Window> w = window(*candidate, calls, n == sampled ? &samples[0] : last ? &samples[1] : nullptr);
    if (!w.is_ok()) return trouble(Verdict::kIncorrect, w.status().message());
    if (last) break;
    if (n == 0) {  // pages and caches of a new process; the candidate can't tell which window counts
      const double window_us = options_.seconds * 1e6 / (options_.fewest_windows + 1);
      // By processor time: a core that others had says nothing of the candidate. Never one call alone, unless calls are
      // so slow: who skips every second one, or copies the first one's result, shows among several only.
      const double call_us = std::max(w->done.cpu_us / threads, 1.0) / calls;
      const int fewest = call_us > kSlowCallUs ? 1 : std::min(slots_, kFewestCalls);
      calls = static_cast<int>(std::clamp(window_us / call_us, 1.0 * fewest, 1.0 * slots_));
      continue;
    }
    windows.push_back(*w);
    result.window_us.push_back(w->done.worked_us / w->calls);
    result.calls += w->calls;
    spent += w->done.worked_us;
  }
  for (const Sample& sample : samples)
    if (const std::string fault = fault_of(sample, thorough, result.error_ratio); !fault.empty())
      return trouble(Verdict::kIncorrect, fault);
  result.median_us = median(result.window_us);
  // The ceilings were measured beside the same neighbours: against them the whole of the clock counts.
  std::vector<double> wall_us;
  for (const Window& w : windows) wall_us.push_back(w.done.wall_us / w.calls);
  result.windows = static_cast<int>(windows.size());
  if (!options_.timed) return result;
  raise_roof(median(wall_us));
  if (const auto misconduct = conduct(windows, threads, median(wall_us)))
    return trouble(misconduct->verdict, misconduct->why);
  return result;
}

}  // namespace lathe
