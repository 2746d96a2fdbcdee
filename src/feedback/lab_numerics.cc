#include "feedback/lab_numerics.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/probe.h"
#include "base/thread_pool.h"
#include "feedback/kda_chain.h"
#include "feedback/kda_forms.h"
#include "feedback/kda_scan_relation.h"
#include "ops/kda_prefill/head_work.h"

namespace lathe {

namespace {

constexpr double kLimit = 3e-4;  // kda_scan's contract with operands in TF32
constexpr int kDim = kKdaTokenDim, kCells = kDim * kDim, kStep = KdaChunkMap::kTokens;
using Matrix = std::vector<double>;

// state·a + b of [V, K] and [K, K].
Matrix mapped(const Matrix& state, const Matrix& a, const Matrix& b) {
  Matrix out = b;
  for (int j = 0; j < kDim; ++j)
    for (int m = 0; m < kDim; ++m)
      for (int i = 0; i < kDim; ++i) out[j * kDim + i] += state[j * kDim + m] * a[m * kDim + i];
  return out;
}

Matrix transposed(const Matrix& x) {
  Matrix out(kCells);
  for (int i = 0; i < kDim; ++i)
    for (int j = 0; j < kDim; ++j) out[j * kDim + i] = x[i * kDim + j];
  return out;
}

double error_of(const Matrix& oracle, const Matrix& value) {
  ErrorRatio e;
  for (int i = 0; i < kCells; ++i) e.add(value[i], oracle[i]);
  return e.value();
}

// The maps of all segments as kda_scan makes them, and exact ones; and what the state comes to with either.
class ScanSteps {
 public:
  ScanSteps(KdaScanForm form, int64_t tokens, int segments, uint64_t seed, Arena& arena)
      : pass_(form, segments, tokens / segments, arena) {
    const KdaTokenSource source(KdaTokenGates::kRetain, seed);
    KdaTokens block(kStep);
    for (int s = 0; s < segments; ++s) {
      KdaOracleState a, b;
      a.set_identity();
      for (int64_t at = 0; at < tokens / segments; at += kStep) {
        source.make(s * (tokens / segments) + at, kStep, block);
        for (int t = 0; t < kStep; ++t)
          a.step(block, t, false, nullptr), b.step(block, t, true, nullptr), truth_.step(block, t, true, nullptr);
        const FlushTinyNumbers flush;
        pass_.add_to_map(block, kStep);
      }
      exact_a_.push_back(transposed(a.S)), exact_b_.push_back(transposed(b.S));
    }
  }

  std::vector<NumericsLabReport::Exchange> exchanges() const {
    std::vector<float> joined(kCells);
    pass_.read_joined(pass_.segments, joined.data());
    return {{"as it is", error(Matrix(joined.begin(), joined.end()))},
            {"join in doubles", error(chained(false, false))},
            {"and B exact", error(chained(false, true))},
            {"and A exact instead", error(chained(true, false))}};
  }

 private:
  double error(const Matrix& state) const { return error_of(transposed(truth_.S), state); }
  Matrix chained(bool exact_a, bool exact_b) const {
    Matrix state(kCells);
    std::vector<float> own(kCells);
    for (int s = 0; s < pass_.segments; ++s) {
      pass_.read_map(s, own.data());
      const Matrix a = exact_a ? exact_a_[s] : Matrix(own.begin(), own.end());
      pass_.read_map_b(s, own.data());
      state = mapped(state, a, exact_b ? exact_b_[s] : Matrix(own.begin(), own.end()));
    }
    return state;
  }

  KdaScanPass pass_;
  KdaOracleState truth_;
  std::vector<Matrix> exact_a_, exact_b_;
};

class Lab {
 public:
  Lab(const NumericsLabOptions& options, const LabProgress& progress)
      : o_(options), progress_(progress), begin_ns_(monotonic_ns()) {
    r_.mended = o_.mended, r_.tokens = o_.tokens, r_.segments = o_.segments, r_.limit = kLimit;
    r_.variant = o_.mended ? "increment_tf32" : "product_tf32";
  }

  Result<NumericsLabReport> run() {
    LATHE_RETURN_IF_ERROR(measure_relation());
    if (!r_.relation_holds) {
      LATHE_RETURN_IF_ERROR(find_smallest_failing());
      LATHE_RETURN_IF_ERROR(exchange_variants());
    }
    LATHE_RETURN_IF_ERROR(exchange_steps());
    exchange_formats();
    conclude();
    r_.seconds = static_cast<double>(monotonic_ns() - begin_ns_) / 1e9;
    return std::move(r_);
  }

 private:
  void say(const std::string& what) {
    if (progress_) progress_(what);
  }
  Growth growth(const std::vector<double>& errors) const {
    std::vector<ErrorAtLength> points;
    for (size_t i = 0; i < errors.size(); ++i) points.push_back({static_cast<double>(o_.tokens[i]), errors[i]});
    return fit_growth(points);
  }
  int64_t longest() const { return o_.tokens.back(); }

  Status measure_relation() {
    r_.relation.name = "state", r_.outputs.name = "y";
    for (int64_t tokens : o_.tokens) {
      say(fmt::format("kda_scan={} in {} segments against kda_prefill, {} tokens", r_.variant, o_.segments, tokens));
      LATHE_ASSIGN(const auto errors, kda_scan_errors({r_.variant}, tokens, o_.segments, o_.threads, o_.seed));
      r_.relation.errors.push_back(errors[0].state), r_.outputs.errors.push_back(errors[0].y);
    }
    r_.relation.growth = growth(r_.relation.errors), r_.outputs.growth = growth(r_.outputs.errors);
    r_.relation_holds =
        std::all_of(r_.relation.errors.begin(), r_.relation.errors.end(), [](double e) { return e <= kLimit; });
    return Status::ok();
  }

  // Halving between none and the first length that fails; whole chunks in every segment.
  Status find_smallest_failing() {
    const int64_t unit = int64_t{o_.segments} * kStep;
    int64_t good = 0, bad = longest() / unit;
    for (size_t i = o_.tokens.size(); i-- > 0;) (r_.relation.errors[i] > kLimit ? bad : good) = o_.tokens[i] / unit;
    if (good >= bad) good = 0;
    while (bad - good > 1) {
      const int64_t middle = (good + bad) / 2;
      say(fmt::format("the smallest length that fails: {} tokens?", middle * unit));
      LATHE_ASSIGN(const auto e, kda_scan_errors({r_.variant}, middle * unit, o_.segments, o_.threads, o_.seed));
      (e[0].state > kLimit ? bad : good) = middle;
    }
    r_.smallest_failing = bad * unit;
    return Status::ok();
  }

  Status exchange_variants() {
    say("other variants of kda_scan");
    LATHE_ASSIGN(const auto errors, kda_scan_errors({"product_tf32", "increment_tf32", "increment"}, longest(),
                                                    o_.segments, o_.threads, o_.seed));
    for (const KdaScanError& e : errors) r_.variants.push_back({e.variant, e.state});
    return Status::ok();
  }

  Status exchange_steps() {
    say("the steps of kda_scan, one by one");
    const auto device = make_cpu_device();
    LATHE_ASSIGN(Arena arena, Arena::create(*device, int64_t{64} << 20));
    const KdaScanForm form = o_.mended ? KdaScanForm::kIncrementTf32 : KdaScanForm::kProductTf32;
    r_.steps = ScanSteps(form, longest(), o_.segments, o_.seed, arena).exchanges();
    return Status::ok();
  }

  // A of one segment by itself.
  void exchange_formats() {
    using enum KdaOperands;
    struct Chain {
      KdaChain<float> chain;
      std::vector<double> errors;
    };
    std::vector<Chain> chains;
    for (KdaChainForm form : {KdaChainForm::kProduct, KdaChainForm::kIncrement})
      for (KdaOperands operands : {kTf32Truncated, kBf16, kTf32, kTf32x3, kFp32}) {
        r_.chains.push_back({fmt::format("{}, {}", kda_chain_form_name(form), kda_operands_name(operands)), {}, {}});
        chains.push_back({KdaChain<float>(form, operands), {}});
      }
    KdaChain<double> oracle(KdaChainForm::kIncrement, kFp32);
    const KdaTokenSource source(KdaTokenGates::kRetain, o_.seed);
    std::vector<KdaChunkMap> maps;
    ThreadPool pool(o_.threads);
    KdaTokens block(kStep);
    int64_t at = 0;
    for (int64_t tokens : o_.tokens) {
      say(fmt::format("the chain alone in other number formats, {} tokens", tokens));
      for (maps.clear(); at < tokens / o_.segments; at += kStep) {
        source.make(at, kStep, block);
        maps.emplace_back(block);
      }
      pool.run(static_cast<int64_t>(chains.size()) + 1, [&](int64_t i, int) {
        const FlushTinyNumbers flush;
        for (const KdaChunkMap& map : maps)
          if (i == 0)
            oracle.append(map);
          else
            chains[i - 1].chain.append(map);
      });
      for (Chain& c : chains) c.errors.push_back(error_of(oracle.a(), Matrix(c.chain.a().begin(), c.chain.a().end())));
    }
    for (size_t i = 0; i < chains.size(); ++i)
      r_.chains[i].errors = chains[i].errors, r_.chains[i].growth = growth(chains[i].errors);
  }

  double chain_error(KdaChainForm form, KdaOperands operands) const {
    const std::string name = fmt::format("{}, {}", kda_chain_form_name(form), kda_operands_name(operands));
    for (const auto& c : r_.chains)
      if (c.name == name) return c.errors.back();
    return HUGE_VAL;
  }

  void conclude() {
    using enum KdaOperands;
    if (r_.relation_holds) {
      r_.verdict =
          r_.relation.growth.grows() ? "can't tell: within the limit so far, but the error grows" : "no defect";
      return;
    }
    r_.defect = true;
    const auto step = [&](int i) { return r_.steps[i].error; };
    const bool a_alone = step(3) < kLimit && step(0) > kLimit && step(1) > 0.5 * step(0) && step(2) > 0.5 * step(0);
    const auto variant = [&](const char* name) {
      return std::find_if(r_.variants.begin(), r_.variants.end(), [&](const auto& v) { return v.name == name; })->error;
    };
    const bool form_mends = variant("increment_tf32") < kLimit && chain_error(KdaChainForm::kIncrement, kTf32) < kLimit;
    const bool format_mends =
        chain_error(KdaChainForm::kProduct, kFp32) < kLimit && chain_error(KdaChainForm::kProduct, kTf32) > kLimit;
    r_.proved = a_alone && form_mends && format_mends;
    const std::string growth = to_text(r_.relation.growth);
    r_.verdict = r_.proved
                     ? fmt::format(
                           "kda_scan={}: the chain's product of TF32 operands, A <- A·M, drifts; the state's error "
                           "{} (A4: with A exact, in increment form, or in fp32 it is gone)",
                           r_.variant, growth)
                     : fmt::format(
                           "kda_scan={}: cut differs from uncut, the state's error {}; no step of it is proved to "
                           "be the cause",
                           r_.variant, growth);
  }

  const NumericsLabOptions& o_;
  const LabProgress& progress_;
  int64_t begin_ns_;
  NumericsLabReport r_;
};

std::string row(const NumericsLabReport::Series& s) {
  std::string out = fmt::format("  {:<26}", s.name);
  for (double e : s.errors) out += fmt::format(" {:9.1e}", e);
  return out + "   " + to_text(s.growth) + "\n";
}

nlohmann::json to_json(const NumericsLabReport::Series& s) {
  return {{"name", s.name},
          {"errors", s.errors},
          {"power", s.growth.power},
          {"power_error", s.growth.error},
          {"grows", s.growth.grows()}};
}

}  // namespace

Result<NumericsLabReport> run_numerics_lab(const NumericsLabOptions& o, const LabProgress& progress) {
  const int64_t unit = int64_t{o.segments} * kStep;
  if (o.tokens.size() < 2 || !std::is_sorted(o.tokens.begin(), o.tokens.end()))
    return invalid("the numerics lab needs two or more ascending lengths");
  for (int64_t tokens : o.tokens)
    if (o.segments < 2 || tokens < unit || tokens % unit != 0)
      return invalid("{} tokens in {} segments: lengths must be multiples of {}", tokens, o.segments, unit);
  return Lab(o, progress).run();
}

std::string to_text(const NumericsLabReport& r) {
  std::string out = fmt::format(
      "{} twin: kda_scan={} in {} segments against kda_prefill, state within {:.0e} at every length: {}\n  {:<26}",
      r.mended ? "mended" : "defective", r.variant, r.segments, r.limit, r.relation_holds ? "yes" : "no", "tokens");
  for (int64_t t : r.tokens) out += fmt::format(" {:>9}", t);
  out += "\n" + row(r.relation) + row(r.outputs);
  if (r.smallest_failing) out += fmt::format("the smallest length that fails: {} tokens\n", r.smallest_failing);
  out += fmt::format("what the steps of kda_scan bring, {} tokens, against a recurrence in doubles\n", r.tokens.back());
  for (const auto& e : r.steps) out += fmt::format("  {:<26} {:9.1e}\n", e.name, e.error);
  if (!r.variants.empty()) out += "variants of kda_scan against kda_prefill\n";
  for (const auto& e : r.variants) out += fmt::format("  {:<26} {:9.1e}\n", e.name, e.error);
  out += "A of a segment, by form and number format of its products\n";
  for (const auto& c : r.chains) out += row(c);
  return out + fmt::format("verdict: {} ({:.0f} s)\n", r.verdict, r.seconds);
}

nlohmann::json to_json(const NumericsLabReport& r) {
  const auto exchanges = [](const std::vector<NumericsLabReport::Exchange>& all) {
    nlohmann::json j = nlohmann::json::array();
    for (const auto& e : all) j.push_back({{"name", e.name}, {"error", e.error}});
    return j;
  };
  nlohmann::json chains = nlohmann::json::array();
  for (const auto& c : r.chains) chains.push_back(to_json(c));
  return {{"kind", "lab"},
          {"schema", 1},
          {"lab", "numerics"},
          {"mended", r.mended},
          {"variant", r.variant},
          {"tokens", r.tokens},
          {"segments", r.segments},
          {"limit", r.limit},
          {"relation", {to_json(r.relation), to_json(r.outputs)}},
          {"relation_holds", r.relation_holds},
          {"smallest_failing", r.smallest_failing},
          {"steps", exchanges(r.steps)},
          {"variants", exchanges(r.variants)},
          {"chains", chains},
          {"proved", r.proved},
          {"defect", r.defect},
          {"verdict", r.verdict},
          {"seconds", r.seconds}};
}

}  // namespace lathe
