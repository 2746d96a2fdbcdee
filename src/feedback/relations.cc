#include "feedback/relations.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "feedback/kda_oracle_state.h"
#include "model/partition.h"

namespace lathe {

namespace {

constexpr double kOtherOrder = 1e-5;  // of logits in f32 (docs/paths.md)
// In a narrow type each path rounds in its own way: none may lie further from f32 than this many times the plain one.
constexpr double kOfPlainRounding = 2;
constexpr int64_t kAfterLoss = 8;      // positions behind a loss that must show it
constexpr int64_t kMostLengths = 130;  // that are tried one by one

double error_of(const std::vector<float>& base, const std::vector<float>& value, int64_t begin = 0, int64_t end = -1) {
  if (base.size() != value.size()) return HUGE_VAL;
  ErrorRatio e;
  for (int64_t i = begin; i < (end < 0 ? static_cast<int64_t>(base.size()) : end); ++i) e.add(value[i], base[i]);
  return e.value();
}

// Over windows [2^k, 2^(k+1)) of positions.
std::vector<ErrorAtLength> errors_of(const PathResult& base, const PathResult& value) {
  std::vector<ErrorAtLength> points;
  for (int64_t begin = 8; begin < base.tokens(); begin *= 2) {
    const int64_t end = std::min(2 * begin, base.tokens());
    if (2 * (end - begin) < begin) break;
    points.push_back(
        {static_cast<double>(end), error_of(base.logits, value.logits, begin * base.vocab, end * base.vocab)});
  }
  return points;
}

std::vector<int32_t> seeded_tokens(int count, int vocab, uint64_t seed) {
  std::vector<int32_t> out(count);
  auto state = static_cast<uint32_t>(seed * 2654435761u + 12345);
  for (int32_t& id : out) id = static_cast<int32_t>((state = state * 1664525u + 1013904223u) >> 8) % vocab;
  return out;
}

class Bisection {
 public:
  Bisection(PathRunner& runner, const Path& path, const Path& base, const std::vector<int32_t>& tokens,
            double tolerance)
      : runner_(runner), path_(path), base_(base), tokens_(tokens), tolerance_(tolerance) {}

  Status run(RelationResult& r) {
    LATHE_RETURN_IF_ERROR(try_lengths(r));
    return r.smallest_length > 0 ? find_address(r) : Status::ok();
  }

 private:
  std::vector<int32_t> first(int64_t n) const { return {tokens_.begin(), tokens_.begin() + n}; }

  // By the last position: what came before is the business of shorter prompts.
  Result<bool> fails_at(int64_t length) {
    LATHE_ASSIGN(const PathResult base, runner_.run(base_, first(length)));
    LATHE_ASSIGN(const PathResult value, runner_.run(path_, first(length)));
    const int64_t vocab = base.vocab;
    return error_of(base.logits, value.logits, (length - 1) * vocab, length * vocab) > tolerance_;
  }

  Status try_lengths(RelationResult& r) {
    std::vector<int64_t> failing;
    const auto most = std::min<int64_t>(kMostLengths, static_cast<int64_t>(tokens_.size()));
    for (int64_t n = 1; n <= most; ++n) {
      LATHE_ASSIGN(const bool fails, fails_at(n));
      if (fails) failing.push_back(n);
    }
    if (failing.empty()) {
      LATHE_ASSIGN(const bool all, fails_at(static_cast<int64_t>(tokens_.size())));
      r.lengths = fmt::format("none up to {}", most);
      if (!all) return Status::ok();
      return halve(most, r);
    }
    r.smallest_length = failing[0];
    r.lengths = pattern_of(failing, most);
    return Status::ok();
  }

  Status halve(int64_t good, RelationResult& r) {
    auto bad = static_cast<int64_t>(tokens_.size());
    while (bad - good > 1) {
      LATHE_ASSIGN(const bool fails, fails_at((good + bad) / 2));
      (fails ? bad : good) = (good + bad) / 2;
    }
    r.smallest_length = bad;
    r.lengths = fmt::format("from {} tokens on", bad);
    return Status::ok();
  }

  Status find_address(RelationResult& r) {
    using enum PathRunner::Look;
    const auto look = path_.cut.empty() ? kTaps : kStreams;
    LATHE_ASSIGN(const PathResult base, runner_.run(base_, first(r.smallest_length), look));
    LATHE_ASSIGN(const PathResult value, runner_.run(path_, first(r.smallest_length), look));
    r.address = path_.cut.empty() ? first_operator(base, value) : first_layer(base, value);
    return Status::ok();
  }

  std::string kind_of(int layer) const {
    const auto& layers = runner_.config().text.layers;
    if (layer < 0 || layer >= static_cast<int>(layers.size())) return "";
    return layers[layer].mixer == glm5_next::MixerKind::kKda ? " (KDA)" : " (sparse attention)";
  }

  std::string first_layer(const PathResult& base, const PathResult& value) const {
    for (size_t l = 0; l < base.streams.size(); ++l)
      if (const double e = error_of(base.streams[l], value.streams[l]); e > tolerance_)
        return fmt::format("layer {}{}, {} by ranks: error {:.1e}; layers before it agree", l,
                           kind_of(static_cast<int>(l)), path_.cut, e);
    return "after the last layer";
  }

  // The first position at which anything differs, and there the first place.
  std::string first_operator(const PathResult& base, const PathResult& value) const {
    using Key = std::tuple<int64_t, int, TappedRow::Place>;
    std::map<Key, const TappedRow*> others;
    for (const TappedRow& t : value.taps) others[{t.position, t.layer, t.place}] = &t;
    std::map<Key, const TappedRow*> own;
    for (const TappedRow& t : base.taps) own[{t.position, t.layer, t.place}] = &t;
    for (const auto& [key, expected] : own) {
      const auto other = others.find(key);
      if (other == others.end()) continue;
      const double e = error_of(expected->values, other->second->values);
      if (e > tolerance_) return address_of(*other->second, e, base);
    }
    return "no layer's result differs by more than the tolerance, the logits do: after the last layer";
  }

  // What stands between the last place that agreed and this one.
  std::string address_of(const TappedRow& t, double error, const PathResult& base) const {
    const bool kda = runner_.config().text.layers[t.layer].mixer == glm5_next::MixerKind::kKda;
    const bool routed = std::any_of(base.taps.begin(), base.taps.end(), [&](const TappedRow& r) {
      return r.layer == t.layer && r.place == TappedRow::Place::kRouting;
    });
    const std::string mixer = kda ? kda_operator(t.position) : "sparse_mla";
    using enum TappedRow::Place;
    const std::string op = t.place == kSelection ? "index_select"
                           : t.place == kRouting ? mixer
                           : routed              ? "moe"
                                                 : mixer + " or mlp";
    return fmt::format("pass {}, position {}, layer {}{}, operator {}: error {:.1e}; all before it agrees", t.pass,
                       t.position, t.layer, kind_of(t.layer), op, error);
  }
  const char* kda_operator(int64_t position) const {
    const bool decodes = path_.decode_from >= 0 && position >= path_.decode_from;
    return decodes && path_.replay ? "kda_replay" : decodes || path_.chunk == 1 ? "kda_decode" : "kda_prefill";
  }

  PathRunner& runner_;
  const Path &path_, &base_;
  const std::vector<int32_t>& tokens_;
  const double tolerance_;
};

const Path* find_path(const std::vector<Path>& paths, const std::string& name) {
  const auto it = std::find_if(paths.begin(), paths.end(), [&](const Path& p) { return p.name == name; });
  return it == paths.end() ? nullptr : &*it;
}

}  // namespace

int RelationReport::failures() const {
  return static_cast<int>(
      std::count_if(relations.begin(), relations.end(), [](const RelationResult& r) { return !r.as_expected; }));
}

std::vector<Path> relation_paths(int tokens, int threads) {
  const int half = tokens / 2;
  std::vector<Path> paths = {
      {.name = "plain"},
      {.name = "threads", .threads = std::max(threads, 2), .bit_equal = true},
      {.name = "company", .company = 3, .bit_equal = true},
      {.name = "chunks of 1", .chunk = 1},
      {.name = "chunks of 15", .chunk = 15},
      {.name = "chunks of 16", .chunk = 16},
      {.name = "chunks of 17", .chunk = 17},
      {.name = "chunks of 33", .chunk = 33},
      {.name = "chunks of 64", .chunk = 64},
      {.name = "two pieces", .chunk = half},
      {.name = "cached prefix", .chunk = half, .frozen_at = half, .base = "two pieces", .bit_equal = true},
      {.name = "cached prefix, off a page", .chunk = 37, .frozen_at = 37, .base = "pieces of 37", .bit_equal = true},
      {.name = "pieces of 37", .chunk = 37},
      {.name = "decode from the half", .decode_from = half},
      {.name = "replay from the half", .decode_from = half, .replay = true},
      {.name = "speculative", .decode_from = half, .replay = true, .drafts = 3, .base = "replay from the half"},
      {.name = "strict", .variants = {"kda_prefill=sequential", "sparse_mla=absorbed"}},
      {.name = "strict, chunks of 17",
       .chunk = 17,
       .variants = {"kda_prefill=sequential", "sparse_mla=absorbed"},
       .base = "strict",
       .bit_equal = true},
      {.name = "strict, decode",
       .decode_from = half,
       .variants = {"kda_prefill=sequential", "sparse_mla=absorbed"},
       .base = "strict",
       .bit_equal = true},
  };
  // Every kind of cut in the partition table.
  for (Parallel kind : {Parallel::kTensor, Parallel::kExpert, Parallel::kContext}) {
    const bool any = std::any_of(std::begin(kOperatorCuts), std::end(kOperatorCuts),
                                 [&](const OperatorCut& c) { return c.by == kind; });
    const char* word = kind == Parallel::kTensor ? "tp" : kind == Parallel::kExpert ? "ep" : "cp";
    if (any) paths.push_back({.name = fmt::format("{}=2", word), .cut = fmt::format("{}=2", word)});
  }
  for (SegmentKind kind : {SegmentKind::kState, SegmentKind::kConvRing, SegmentKind::kLatentPage})
    paths.push_back({.name = fmt::format("without {}", segment_kind_name(kind)),
                     .chunk = half,
                     .forgets = kind,
                     .must_fail = true});
  return paths;
}

std::string pattern_of(const std::vector<int64_t>& failing, int64_t most) {
  if (failing.empty()) return fmt::format("none up to {}", most);
  const int64_t from = failing[0];
  if (static_cast<int64_t>(failing.size()) == most - from + 1) return fmt::format("from {} tokens on", from);
  std::vector<bool> fails(most + 1);
  for (int64_t n : failing) fails[n] = true;
  for (int64_t period = 2; from + 2 * period - 1 <= most; ++period) {
    bool holds = true;
    for (int64_t n = from; holds && n + period <= most; ++n) holds = fails[n] == fails[n + period];
    if (holds) return fmt::format("period {}: at {} tokens and every {} on", period, from, period);
  }
  return fmt::format("{} of {} lengths, the first {}", failing.size(), most, from);
}

Result<RelationResult> check_relation(PathRunner& runner, const Path& path, const std::vector<Path>& paths,
                                      const std::vector<int32_t>& tokens, double tolerance) {
  const Path* base = find_path(paths, path.base.empty() ? "plain" : path.base);
  if (!base) return internal("path '{}' is held against '{}', which isn't there", path.name, path.base);
  RelationResult r{.path = path.name, .base = base->name, .dtype = {}, .bit_equal = path.bit_equal};
  r.tolerance = path.bit_equal ? 0 : tolerance;
  r.must_fail = path.must_fail;
  LATHE_ASSIGN(const PathResult expected, runner.run(*base, tokens));
  LATHE_ASSIGN(const PathResult value, runner.run(path, tokens));
  // A loss shows right behind it, before the rest dilutes it.
  const int64_t lost_at = path.must_fail ? int64_t{path.chunk} * expected.vocab : 0;
  const int64_t end = path.must_fail ? std::min<int64_t>(lost_at + kAfterLoss * expected.vocab,
                                                         static_cast<int64_t>(expected.logits.size()))
                                     : -1;
  r.error = error_of(expected.logits, value.logits, lost_at, end);
  const bool equal = path.bit_equal ? expected.logits == value.logits : r.error <= r.tolerance;
  r.as_expected = equal != r.must_fail;
  r.errors = errors_of(expected, value);
  r.growth = fit_growth(r.errors);
  if (!equal && !r.must_fail) LATHE_RETURN_IF_ERROR(Bisection(runner, path, *base, tokens, r.tolerance).run(r));
  return r;
}

Result<RelationReport> check_relations(const RelationOptions& o, const RelationProgress& progress) {
  const std::vector<Path> paths = relation_paths(o.tokens, o.threads);
  RelationReport report;
  std::vector<float> exact;  // the plain path in f32
  int done = 0;
  for (const std::string& dtype : o.dtypes) {
    LATHE_ASSIGN(const std::unique_ptr<PathRunner> runner, PathRunner::create(o.model, dtype, o.tokens));
    const glm5_next::TextConfig& c = runner->config().text;
    if (o.tokens < 40 || o.tokens > c.max_positions)
      return invalid("{} tokens: {} allows {}, and fewer than 40 can't show every path", o.tokens,
                     runner->config().file, c.max_positions);
    const std::vector<int32_t> tokens = seeded_tokens(o.tokens, c.vocab, o.seed);
    double tolerance = kOtherOrder;
    LATHE_ASSIGN(const PathResult plain, runner->run(paths[0], tokens));
    if (dtype == "f32")
      exact = plain.logits;
    else if (exact.empty())
      return invalid("relations in {} are held against f32: check that first", dtype);
    else
      tolerance = kOfPlainRounding * error_of(exact, plain.logits);
    for (const Path& path : paths) {
      ++done;
      if (path.name == "plain" || fnmatch(o.paths.c_str(), path.name.c_str(), 0) != 0) continue;
      if (progress) progress(path.name, done, static_cast<int>(paths.size() * o.dtypes.size()));
      LATHE_ASSIGN(RelationResult r, check_relation(*runner, path, paths, tokens, tolerance));
      r.dtype = dtype;
      report.blind |= r.must_fail && !r.as_expected;
      report.relations.push_back(std::move(r));
    }
  }
  if (report.relations.empty()) return invalid("no path matches '{}'", o.paths);
  return report;
}

std::string to_text(const RelationReport& report) {
  std::string out = fmt::format("{:<28} {:<22} {:<5} {:>9} {:>10}  {}\n", "path", "against", "dtype", "error",
                                "allowed", "error with length");
  for (const RelationResult& r : report.relations)
    out += fmt::format("{:<28} {:<22} {:<5} {:>9.1e} {:>10}  {}{}\n", r.path, r.base, r.dtype, r.error,
                       r.must_fail   ? "must fail"
                       : r.bit_equal ? "equal bits"
                                     : fmt::format("{:.1e}", r.tolerance),
                       r.error == 0 ? "" : to_text(r.growth), r.as_expected ? "" : "  FAIL");
  for (const RelationResult& r : report.relations) {
    if (r.as_expected) continue;
    if (r.must_fail) {
      out += fmt::format("FAIL {} {}: passes, so a loss of it would go unseen\n", r.path, r.dtype);
      continue;
    }
    out += fmt::format("FAIL {} {} against {}: fails {}; smallest failing length {}\n  {}\n", r.path, r.dtype, r.base,
                       r.lengths, r.smallest_length, r.address);
  }
  return out + fmt::format("{} relations, {} failed\n", report.relations.size(), report.failures());
}

nlohmann::json to_json(const RelationReport& report) {
  nlohmann::json rows = nlohmann::json::array();
  for (const RelationResult& r : report.relations) {
    nlohmann::json errors = nlohmann::json::array();
    for (const ErrorAtLength& e : r.errors)
      if (std::isfinite(e.error)) errors.push_back({e.length, e.error});
    rows.push_back({{"path", r.path},
                    {"errors", errors},
                    {"base", r.base},
                    {"dtype", r.dtype},
                    {"bit_equal", r.bit_equal},
                    {"error", std::isfinite(r.error) ? nlohmann::json(r.error) : nlohmann::json("inf")},
                    {"tolerance", r.tolerance},
                    {"must_fail", r.must_fail},
                    {"as_expected", r.as_expected},
                    {"power", r.growth.power},
                    {"power_error", r.growth.error},
                    {"grows", r.growth.grows()},
                    {"smallest_failing_length", r.smallest_length},
                    {"failing_lengths", r.lengths},
                    {"address", r.address}});
  }
  return {{"kind", "relations"}, {"schema", 1}, {"relations", rows}, {"failures", report.failures()}};
}

}  // namespace lathe
