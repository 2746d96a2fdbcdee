#include "feedback/kda_scan_relation.h"

#include <cmath>

#include "feedback/kda_oracle_state.h"
#include "ops/kda_prefill/cases.h"
#include "ops/kda_prefill/kda_prefill.h"
#include "ops/kda_scan/kda_scan.h"
#include "ops/row_floats.h"

namespace lathe {

namespace {

constexpr int kDim = 128;
const KdaShape kShape{1, kDim, kDim, 4, 3, -5, KdaGates::kRetain, DType::kBF16};

// Every second channel decays by 1e-3 to 1e-5 a token, and keys touch it the less the longer it is to last: else the
// delta rule, not the gate, would erase it.
struct RetainingLayer {
  std::vector<float> conv, dt_bias;

  explicit RetainingLayer(CaseBuilder& b)
      : conv(kShape.channels() * kShape.width), dt_bias(static_cast<size_t>(kShape.heads) * kDim) {
    for (float& w : conv) w = static_cast<float>(0.5 * b.normal());
    for (int i = 0; i < kDim; ++i) {
      const bool lasts = i % 2 == 0;
      const double decay = lasts ? std::pow(10.0, -3 - 2.0 * i / kDim) : 1.5;
      dt_bias[i] = static_cast<float>(std::log(decay / (5 - decay)));
      if (!lasts) continue;
      for (int tap = 0; tap < kShape.width; ++tap)
        conv[(kDim + i) * kShape.width + tap] *= static_cast<float>(std::sqrt(decay / 1e-2));
    }
  }
  void place_in(KdaLayer& layer) const {
    layer.conv_weight = {conv.data(), static_cast<int64_t>(conv.size())};
    layer.dt_bias = {dt_bias.data(), static_cast<int64_t>(dt_bias.size())};
  }
};

class Relation {
 public:
  static Result<std::unique_ptr<Relation>> create(int64_t tokens, int segments, int threads, uint64_t seed) {
    auto r = std::make_unique<Relation>(threads);
    const int64_t rows = tokens * (kShape.channels() + 4 * kDim) * 4;
    LATHE_ASSIGN(r->memory_, Arena::create(*r->device_, rows + (int64_t{64} << 20)));
    LATHE_ASSIGN(r->scratch_, Arena::create(*r->device_, int64_t{1} << 30));
    r->build(tokens, segments, seed);
    return r;
  }
  explicit Relation(int threads) : pool_(threads) {}

  Status run_uncut() {
    const KdaPrefillArgs args{
        .in = scan_.in, .layer = scan_.layer, .runs = scan_.runs, .slot = uncut_slot_, .memory = scan_.memory, .y = y_};
    OpContext ctx = context();
    return kda_prefill(ctx, args);
  }
  Result<KdaScanError> compare(const std::string& variant) {
    Choices choices;
    LATHE_RETURN_IF_ERROR(choices.add("kda_scan=" + variant));
    OpContext ctx = context();
    ctx.choices = &choices;
    LATHE_RETURN_IF_ERROR(kda_scan(ctx, scan_));
    ErrorRatio state, y;
    for (int i = 0; i < kDim * kDim; ++i) state.add(scan_.memory.state.f32(1)[i], scan_.memory.state.f32(0)[i]);
    for (int64_t row = 0; row < y_.rows; ++row)
      for (int i = 0; i < kDim; ++i) y.add(to_float(scan_.y.b16(row)[i]), to_float(y_.b16(row)[i]));
    return KdaScanError{variant, state.value(), y.value()};
  }

 private:
  OpContext context() {
    scratch_.reset();
    return {.device = device_.get(), .pool = &pool_, .scratch = &scratch_};
  }

  // The uncut run's memory is slot 0, the cut one's slot 1.
  void build(int64_t tokens, int segments, uint64_t seed) {
    CaseBuilder b(*device_, memory_, seed);
    scan_.in = kda_rows(b, kShape, tokens);
    scan_.layer = kda_layer(b, kShape);
    layer_ = std::make_unique<RetainingLayer>(b);
    layer_->place_in(scan_.layer);
    scan_.runs = {b.ints({0, static_cast<int32_t>(tokens)}), b.ints({0})};
    scan_.before = b.ints({0});
    uncut_slot_ = b.ints({0}), scan_.slot = b.ints({1});
    scan_.memory = kda_memory(b, kShape, 2);
    scan_.segments = segments;
    scan_.y = b.empty_rows(tokens, kDim, kShape.dtype), y_ = b.empty_rows(tokens, kDim, kShape.dtype);
  }

  std::unique_ptr<Device> device_ = make_cpu_device();
  ThreadPool pool_;
  Arena memory_, scratch_;
  std::unique_ptr<RetainingLayer> layer_;
  KdaScanArgs scan_;
  Array<const int32_t> uncut_slot_;
  Rows y_;
};

}  // namespace

Result<std::vector<KdaScanError>> kda_scan_errors(const std::vector<std::string>& variants, int64_t tokens,
                                                  int segments, int threads, uint64_t seed) {
  LATHE_ASSIGN(const std::unique_ptr<Relation> relation, Relation::create(tokens, segments, threads, seed));
  LATHE_RETURN_IF_ERROR(relation->run_uncut());
  std::vector<KdaScanError> errors;
  for (const std::string& variant : variants) {
    LATHE_ASSIGN(KdaScanError e, relation->compare(variant));
    errors.push_back(std::move(e));
  }
  return errors;
}

}  // namespace lathe
