#include "ops/workload.h"

#include <cstring>

#include "ops/sample/sample.h"

namespace lathe {

namespace {

Case<SampleArgs> make_case(const char* name, int64_t rows, int vocab, int64_t width,
                           std::vector<SampleSettings> settings, bool bench) {
  return {{.name = fmt::format("{}_rows{}_v{}", name, rows, vocab),
           .bytes = rows * (vocab * 4 + static_cast<int64_t>(sizeof(SampleSettings)) + 8),
           .flop = rows * vocab,
           .traffic = Traffic::kRead,
           .precision = Precision::kFp32,
           .tolerance = 1e-9,
           .bench = bench},
          [=](CaseBuilder& b) {
            static_assert(sizeof(SampleSettings) % 4 == 0);
            std::vector<SampleSettings> each(rows);
            std::vector<int32_t> words(rows * sizeof(SampleSettings) / 4), position(rows);
            for (int64_t r = 0; r < rows; ++r) {
              each[r] = settings[r % settings.size()];
              each[r].seed = static_cast<uint64_t>(b.below(1 << 30));
              position[r] = b.below(1 << 20);
            }
            std::memcpy(words.data(), each.data(), words.size() * 4);
            SampleArgs a;
            a.logits = b.rows(rows, width, DType::kF32, 3);
            a.settings = {reinterpret_cast<const SampleSettings*>(b.ints(words).data), rows};
            a.position = b.ints(position);
            a.token = b.empty<int32_t>(rows);
            a.vocab = vocab;
            return a;
          }};
}

}  // namespace

AnyOp sample_workload() {
  const std::vector<SampleSettings> all = {
      {},                                    // greedy
      {.temperature = 1},                    // plain
      {.temperature = 0.7f, .top_k = 5},     //
      {.temperature = 1, .top_p = 0.9f},     //
      {.temperature = 1.3f, .min_p = 0.1f},  //
      {.temperature = 0.8f, .top_p = 0.95f, .min_p = 0.02f, .top_k = 40},
      {.temperature = 1, .top_p = 0},       // the greatest only
      {.temperature = 2, .top_k = 100000},  // more than there are
  };
  std::vector<Case<SampleArgs>> cases;
  for (auto [rows, vocab, width] : {std::tuple{0, 5, 5}, {8, 1, 1}, {24, 97, 128}, {64, 512, 512}, {40, 3001, 3008}})
    cases.push_back(make_case("mixed", rows, vocab, width, all, false));
  cases.push_back(make_case("greedy", 32, 32768, 32768, {{}}, true));
  cases.push_back(make_case("plain", 32, 32768, 32768, {{.temperature = 1}}, true));
  cases.push_back(make_case("top_p", 32, 154880, 154880, {{.temperature = 1, .top_p = 0.95f}}, true));
  cases.push_back(make_case("top_k", 1, 154880, 154880, {{.temperature = 0.8f, .top_k = 50}}, true));
  return any_op(kSample, std::move(cases), rows_alone<SampleArgs>);
}

}  // namespace lathe
