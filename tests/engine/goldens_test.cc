// The whole text model against the reference implementation, through the public API: prefill, cached decode, hidden
// streams, batches. Tolerances: model.md 15.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lathe/logits.h"
#include "testing/golden.h"

namespace lathe {
namespace {

using testing::fixture;
using testing::floats;
using testing::ints;
using testing::rms_ratio;

constexpr double kF32 = 1e-4, kBf16Slack = 1.25;

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<float> rows_of(const std::vector<float>& all, int64_t width, int64_t begin, int64_t count) {
  return {all.begin() + begin * width, all.begin() + (begin + count) * width};
}

int64_t same_argmax(const std::vector<float>& a, const std::vector<float>& b, int64_t vocab) {
  int64_t same = 0;
  for (size_t r = 0; r < a.size(); r += vocab)
    same += std::max_element(a.begin() + r, a.begin() + r + vocab) - a.begin() ==
            std::max_element(b.begin() + r, b.begin() + r + vocab) - b.begin();
  return same;
}

class ForwardGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(ForwardGolden, PrefillDecodeAndStreamsEqualTheReference) {
  const std::string name = GetParam();
  LATHE_GOLDEN(golden, "golden/" + name + "_forward.safetensors");
  const std::string model = fixture("models/" + name);
  if (model.empty()) GTEST_SKIP() << "models/" << name << " is in neither tests/data nor the reference set";
  const std::vector<int32_t> prompt = ints(golden, "input_ids"), forced = ints(golden, "decode_ids");
  const int64_t n = static_cast<int64_t>(prompt.size()), m = static_cast<int64_t>(forced.size());
  for (const char* device : {"cpu", "sim"}) {
    LogitsOptions options{.model = model, .dtype = "f32"};
    options.decode_from = static_cast<int>(n);
    options.hidden = true;
    options.device = device;
    const auto result = compute_logits(options, {joined(prompt, forced)});
    ASSERT_TRUE(result.is_ok()) << result.status().message();
    const SequenceLogits& r = result.value()[0];
    EXPECT_LE(rms_ratio(rows_of(r.logits, r.vocab, 0, n), floats(golden, "logits")), kF32) << device;
    EXPECT_LE(rms_ratio(rows_of(r.logits, r.vocab, n, m), floats(golden, "decode_logits")), kF32) << device;
    if (!golden.tensors().contains("layers")) continue;
    const std::vector<float> layers = floats(golden, "layers");
    const int64_t width = r.copies * r.width;
    for (size_t l = 0; l < r.hidden.size(); ++l)
      EXPECT_LE(rms_ratio(rows_of(r.hidden[l], width, 0, n), rows_of(layers, width, static_cast<int64_t>(l) * n, n)),
                kF32)
          << device << " layer " << l;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ForwardGolden,
                         ::testing::Values("tiny", "tiny_bf16", "tiny_shared", "realdims_bf16", "realdims_fp8"));

TEST(Bf16Golden, LogitsLieAsNearAsTheReferencesOwnBf16) {
  LATHE_GOLDEN(exact, "golden/tiny_bf16_forward.safetensors");
  LATHE_GOLDEN(low, "golden/tiny_bf16_lowprec.safetensors");
  const std::vector<int32_t> prompt = ints(exact, "input_ids"), forced = ints(exact, "decode_ids");
  const int64_t n = static_cast<int64_t>(prompt.size()), m = static_cast<int64_t>(forced.size());
  for (bool replay : {false, true}) {
    LogitsOptions options{.model = fixture("models/tiny_bf16"), .dtype = "bf16"};
    options.decode_from = static_cast<int>(n);
    options.replay = replay;
    const auto result = compute_logits(options, {joined(prompt, forced)});
    ASSERT_TRUE(result.is_ok()) << result.status().message();
    const SequenceLogits& r = result.value()[0];
    for (auto [name, begin, count] : {std::tuple{"logits", int64_t{0}, n}, {"decode_logits", n, m}}) {
      const std::vector<float> ours = rows_of(r.logits, r.vocab, begin, count), reference = floats(exact, name),
                               theirs = floats(low, name);
      EXPECT_LE(rms_ratio(ours, reference), kBf16Slack * rms_ratio(theirs, reference)) << name << " replay " << replay;
      RecordProperty(std::string(name) + (replay ? "_replay" : "") + "_same_argmax",
                     std::to_string(same_argmax(ours, reference, r.vocab)));
    }
  }
}

TEST(BatchGolden, RaggedSequencesEqualTheReferenceAndThemselvesAlone) {
  LATHE_GOLDEN(golden, "golden/tiny_batch.safetensors");
  const std::vector<int32_t> forced = ints(golden, "decode_ids");
  const std::vector<float> last = floats(golden, "prefill_last_logits"), decode = floats(golden, "decode_logits");
  const int64_t sequences = 5, steps = 32, vocab = 512;
  std::vector<std::vector<int32_t>> lists;
  for (int i = 0; i < sequences; ++i)
    lists.push_back(
        joined(ints(golden, fmt::format("ids.{}", i)), {forced.begin() + i * steps, forced.begin() + (i + 1) * steps}));
  LogitsOptions options{.model = fixture("models/tiny"), .dtype = "f32"};
  const auto together = compute_logits(options, lists);
  ASSERT_TRUE(together.is_ok()) << together.status().message();
  for (int i = 0; i < sequences; ++i) {
    const SequenceLogits& r = together.value()[i];
    const int64_t n = r.rows - steps;
    EXPECT_LE(rms_ratio(rows_of(r.logits, vocab, n - 1, 1), rows_of(last, vocab, i, 1)), kF32) << i;
    EXPECT_LE(rms_ratio(rows_of(r.logits, vocab, n, steps), rows_of(decode, vocab, i * steps, steps)), kF32) << i;
    const auto alone = compute_logits(options, {lists[i]});
    ASSERT_TRUE(alone.is_ok());
    EXPECT_EQ(alone.value()[0].logits, r.logits) << "company changed bits of sequence " << i;
  }
}

TEST(GreedyGolden, TeacherForcedChoicesAreTheReferences) {
  for (const std::string name : {"tiny", "tiny_bf16", "tiny_shared"}) {
    LATHE_GOLDEN(golden, "golden/" + name + "_greedy.safetensors");
    std::vector<std::vector<int32_t>> lists, answers;
    for (int i = 0; golden.tensors().contains(fmt::format("prompt.{}", i)); ++i) {
      answers.push_back(ints(golden, fmt::format("tokens.{}", i)));
      lists.push_back(joined(ints(golden, fmt::format("prompt.{}", i)), answers.back()));
    }
    const auto result = compute_logits({.model = fixture("models/" + name), .dtype = "f32"}, lists);
    ASSERT_TRUE(result.is_ok()) << result.status().message();
    for (size_t i = 0; i < lists.size(); ++i) {
      const SequenceLogits& r = result.value()[i];
      for (size_t t = 0; t < answers[i].size(); ++t) {
        const int64_t row = static_cast<int64_t>(lists[i].size() - answers[i].size() + t) - 1;
        const auto begin = r.logits.begin() + row * r.vocab;
        EXPECT_EQ(std::max_element(begin, begin + r.vocab) - begin, answers[i][t])
            << name << " prompt " << i << " step " << t;
      }
    }
  }
}

}  // namespace
}  // namespace lathe
