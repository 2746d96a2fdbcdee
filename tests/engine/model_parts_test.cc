// Parts of the model against the reference: token sets, routed experts, states after prefill and decode, single layers
// fed with the golden's input, the MTP block with chained drafts.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "engine/executor.h"
#include "engine/run_settings.h"
#include "testing/golden.h"

namespace lathe {
namespace {

using testing::fixture;
using testing::floats;
using testing::ints;
using testing::rms_ratio;
using testing::shape;

// A model folder with an executor over it.
struct Engine {
  glm5_next::Config config;
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<Device> device = make_cpu_device();
  ThreadPool pool{2};
  std::unique_ptr<Executor> executor;

  Engine(const std::string& model, DType dtype, int slots = 1, int replay_length = 0) {
    config = glm5_next::Config::read(model).value();
    checkpoint = std::make_unique<Checkpoint>(Checkpoint::open(model).value());
    ExecutorOptions options{
        .dtype = dtype, .replay_length = replay_length, .max_draft = 4, .slots = slots, .pages = 64};
    auto made = Executor::create(config, *checkpoint, *device, pool, nullptr, options);
    if (!made.is_ok()) ADD_FAILURE() << made.status().message();
    executor = std::move(made).value();
  }
};

class Recorder final : public StepObserver {
 public:
  void selection(int layer, Array<int32_t> selected, Array<int32_t> count, int width) override {
    for (int64_t r = 0; r < count.count; ++r)
      sets[layer].push_back({selected.data + r * width, selected.data + r * width + count[r]});
  }
  void routing(int layer, Array<int32_t> chosen, Array<float> weight) override {
    experts[layer].insert(experts[layer].end(), chosen.data, chosen.data + chosen.count);
    weights[layer].insert(weights[layer].end(), weight.data, weight.data + weight.count);
  }
  std::map<int, std::vector<std::set<int32_t>>> sets;
  std::map<int, std::vector<int32_t>> experts;
  std::map<int, std::vector<float>> weights;
};

// The golden's experts of a row in ascending order, with their weights.
void sort_routing(std::vector<int32_t>& ids, std::vector<float>& weights, int top_k) {
  for (size_t row = 0; row < ids.size(); row += top_k) {
    std::vector<std::pair<int32_t, float>> pairs;
    for (int j = 0; j < top_k; ++j) pairs.push_back({ids[row + j], weights[row + j]});
    std::sort(pairs.begin(), pairs.end());
    for (int j = 0; j < top_k; ++j) std::tie(ids[row + j], weights[row + j]) = pairs[j];
  }
}

// [H, K, V] of a golden as our [H, V, K].
std::vector<float> transposed(const std::vector<float>& s, const std::vector<int64_t>& dims) {
  std::vector<float> out(s.size());
  for (int64_t h = 0; h < dims[0]; ++h)
    for (int64_t k = 0; k < dims[1]; ++k)
      for (int64_t v = 0; v < dims[2]; ++v) out[(h * dims[2] + v) * dims[1] + k] = s[(h * dims[1] + k) * dims[2] + v];
  return out;
}

void expect_states(Engine& e, SequenceId id, const Safetensors& golden, const std::string& prefix) {
  int kda_layer = 0;
  for (size_t l = 0; l < e.config.text.layers.size(); ++l) {
    if (e.config.text.layers[l].mixer != glm5_next::MixerKind::kKda) continue;
    const std::string name = fmt::format("{}.{}.recurrent", prefix, l);
    const Pool state = e.executor->memory().kda(kda_layer++).state;
    const float* ours = state.f32(e.executor->memory().slot(id));
    if (!golden.tensors().contains(name)) continue;
    EXPECT_LE(rms_ratio({ours, ours + state.item_size}, transposed(floats(golden, name), shape(golden, name))), 1e-4)
        << name;
  }
}

class Parts : public ::testing::TestWithParam<const char*> {};

TEST_P(Parts, SetsExpertsAndStatesEqualTheReference) {
  const std::string name = GetParam();
  LATHE_GOLDEN(golden, "golden/" + name + "_forward.safetensors");
  Engine e(fixture("models/" + name), DType::kF32);
  const SequenceId id = e.executor->memory().open().value();
  Recorder seen;
  ASSERT_TRUE(e.executor->run({{.sequence = id, .tokens = ints(golden, "input_ids"), .features = {}}}, &seen).is_ok());
  for (auto& [layer, sets] : seen.sets) {
    const std::string topk = fmt::format("topk.{}", layer);
    if (!golden.tensors().contains(topk)) continue;  // a shared layer
    const std::vector<int32_t> expected = ints(golden, topk);
    const int64_t width = shape(golden, topk)[1];
    for (size_t r = 0; r < sets.size(); ++r) {
      std::set<int32_t> want(expected.begin() + r * width, expected.begin() + (r + 1) * width);
      want.erase(-1);
      EXPECT_EQ(sets[r], want) << topk << " row " << r;
    }
  }
  for (auto& [layer, chosen] : seen.experts) {
    const std::string key = fmt::format("router.{}.ids", layer);
    if (!golden.tensors().contains(key)) continue;
    std::vector<int32_t> ids = ints(golden, key);
    std::vector<float> weights = floats(golden, fmt::format("router.{}.weights", layer));
    sort_routing(ids, weights, e.config.text.top_k);
    EXPECT_EQ(chosen, ids) << "layer " << layer;
    EXPECT_LE(rms_ratio(seen.weights[layer], weights), 1e-4) << "layer " << layer;
  }
  for (int32_t token : ints(golden, "decode_ids"))
    ASSERT_TRUE(e.executor->run({{.sequence = id, .tokens = {token}, .features = {}}}).is_ok());
  // The golden's `state` was kept by reference while decoding went on: it is the end state, like `state_end`.
  expect_states(e, id, golden, "state");
  expect_states(e, id, golden, "state_end");
}

INSTANTIATE_TEST_SUITE_P(Models, Parts,
                         ::testing::Values("tiny", "tiny_bf16", "tiny_shared", "realdims_bf16", "realdims_fp8"));

// Each layer in bf16 on the golden's own input: 1e-2 over the rows whose experts and token sets agree with f32.
TEST(LayersInBf16, StayNearTheReferenceWhereChoicesAgree) {
  for (const std::string name : {"tiny", "realdims_bf16"}) {
    LATHE_GOLDEN(golden, "golden/" + name + "_forward.safetensors");
    const std::string model = fixture(name == "tiny" ? "models/tiny_bf16" : "models/" + name);
    Engine exact(model, DType::kF32, 16), low(model, DType::kBF16, 16);
    const std::vector<int32_t> prompt = ints(golden, "input_ids");
    const int64_t rows = static_cast<int64_t>(prompt.size());
    const std::vector<float> layers = floats(golden, "layers");
    const int64_t width = exact.config.text.hc_copies * exact.config.text.hidden;
    int64_t differing = 0, judged = 0;
    for (size_t l = 1; l < exact.config.text.layers.size(); ++l) {
      const std::vector<float> input(layers.begin() + (l - 1) * rows * width, layers.begin() + l * rows * width);
      Recorder seen[2];
      std::vector<float> out[2];
      for (int i = 0; i < 2; ++i) {
        Engine& e = i ? low : exact;
        SequenceMemory& memory = e.executor->memory();
        const SequenceId id = memory.open().value();
        const std::vector<lathe::Run> runs = {{.sequence = id, .tokens = prompt, .features = {}}};
        ASSERT_TRUE(memory.reserve(id, static_cast<int>(rows)).is_ok());
        const auto batch = Batch::build(*e.device, runs, memory, {}).value();
        Arena activations = Arena::create(*e.device, int64_t{1} << 28).value(),
              io = Arena::create(*e.device, int64_t{1} << 26).value();
        const Rows in = io.rows(rows, width, e.executor->tower().dtype()), result = io.rows(rows, width, in.dtype);
        for (int64_t j = 0; j < rows * width; ++j) {
          if (i)
            in.b16()[j] = to_bf16(input[j]);
          else
            in.f32()[j] = round_bf16(input[j]);  // both see the same input
        }
        const glm5_next::Step step{e.executor->op_context(), *batch, memory, activations, &seen[i], {}};
        ASSERT_TRUE(e.executor->tower().layer_alone(step, static_cast<int>(l), in, result).is_ok());
        ASSERT_TRUE(rows_to_host(*e.device, result, out[i]).is_ok());
        memory.close(id);
      }
      double error = 0, reference = 0;
      const int top_k = exact.config.text.top_k, layer = static_cast<int>(l);
      for (int64_t r = 0; r < rows; ++r) {
        bool agree = true;
        if (seen[0].sets.contains(layer)) agree &= seen[0].sets[layer][r] == seen[1].sets[layer][r];
        if (seen[0].experts.contains(layer))
          agree &=
              std::equal(seen[0].experts[layer].begin() + r * top_k, seen[0].experts[layer].begin() + (r + 1) * top_k,
                         seen[1].experts[layer].begin() + r * top_k);
        ++judged;
        if (!agree) {
          ++differing;
          continue;
        }
        for (int64_t j = r * width; j < (r + 1) * width; ++j)
          error += std::pow(double{out[1][j]} - out[0][j], 2), reference += std::pow(out[0][j], 2);
      }
      EXPECT_LE(std::sqrt(error / reference), 1e-2) << name << " layer " << l;
    }
    std::printf("%s: choices differ in %ld of %ld rows\n", name.c_str(), static_cast<long>(differing),
                static_cast<long>(judged));
    EXPECT_LE(differing, judged / 4) << name;
  }
}

TEST(Mtp, EveryPositionAndChainedDraftsEqualTheReference) {
  LATHE_GOLDEN(golden, "golden/tiny_mtp.safetensors");
  Engine e(fixture("models/tiny"), DType::kF32);
  SequenceMemory& memory = e.executor->memory();
  const SequenceId id = memory.open().value();
  const std::vector<int32_t> next = ints(golden, "next_ids"), drafts = ints(golden, "draft_ids");
  const int rows = static_cast<int>(next.size()), hidden = e.config.text.hidden;
  Arena io = Arena::create(*e.device, 1 << 22).value();
  const Rows previous = io.rows(rows, hidden, DType::kF32);
  const std::vector<float> h = floats(golden, "prev_hidden");
  std::copy(h.begin(), h.end(), previous.f32());
  ASSERT_TRUE(memory.reserve(id, rows + 4).is_ok());
  std::vector<int32_t> tokens = next;
  tokens[0] = -1;  // the embedding of row 0 counts as zero
  auto out = e.executor->run_mtp(
      {{.sequence = id, .tokens = tokens, .features = {}, .in_ring = false, .logits_of_last = -1}}, {0}, previous);
  ASSERT_TRUE(out.is_ok()) << out.status().message();
  std::vector<float> ours;
  ASSERT_TRUE(rows_to_host(*e.device, out->hidden, ours).is_ok());
  EXPECT_LE(rms_ratio(ours, floats(golden, "mtp_hidden")), 1e-4);
  ASSERT_TRUE(rows_to_host(*e.device, out->logits, ours).is_ok());
  EXPECT_LE(rms_ratio(ours, floats(golden, "mtp_logits")), 1e-4);
  // The first draft is the choice of the last row; each further one feeds the block's own output back.
  const std::vector<float> expected = floats(golden, "draft_logits");
  int32_t draft = static_cast<int32_t>(std::max_element(ours.end() - 512, ours.end()) - (ours.end() - 512));
  const Rows fed_back = io.rows(1, hidden, DType::kF32);
  std::copy_n(out->hidden.f32(rows - 1), hidden, fed_back.f32());
  for (size_t i = 0; i < drafts.size(); ++i) {
    EXPECT_EQ(draft, drafts[i]) << i;
    if (i + 1 == drafts.size()) break;
    out = e.executor->run_mtp(
        {{.sequence = id, .tokens = {draft}, .features = {}, .in_ring = false, .logits_of_last = -1}},
        {rows + static_cast<int>(i)}, fed_back);
    ASSERT_TRUE(out.is_ok());
    ASSERT_TRUE(rows_to_host(*e.device, out->logits, ours).is_ok());
    EXPECT_LE(rms_ratio(ours, {expected.begin() + (i + 1) * 512, expected.begin() + (i + 2) * 512}), 1e-4) << i;
    draft = static_cast<int32_t>(std::max_element(ours.begin(), ours.end()) - ours.begin());
    std::copy_n(out->hidden.f32(), hidden, fed_back.f32());
  }
}

}  // namespace
}  // namespace lathe
