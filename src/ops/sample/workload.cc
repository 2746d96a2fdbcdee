#include "ops/workload.h"

#include <cstring>

#include "ops/sample/sample.h"

namespace lathe {

namespace {

Array<const SampleSettings> build_settings(CaseBuilder& b, int64_t rows, const std::vector<SampleSettings>& settings) {
  static_assert(sizeof(SampleSettings) % 4 == 0);
  std::vector<SampleSettings> each(rows);
  std::vector<int32_t> words(rows * sizeof(SampleSettings) / 4);
  for (int64_t r = 0; r < rows; ++r) {
    each[r] = settings[r % settings.size()];
    each[r].seed = static_cast<uint64_t>(b.below(1 << 30));
  }
  std::memcpy(words.data(), each.data(), words.size() * 4);
  return {reinterpret_cast<const SampleSettings*>(b.ints(words).data), rows};
}

std::vector<int32_t> some_ints(CaseBuilder& b, int64_t count, int below) {
  std::vector<int32_t> values(count);
  for (int32_t& v : values) v = b.below(below);
  return values;
}

template <class T>
Array<const T> records(CaseBuilder& b, const std::vector<T>& values) {
  static_assert(sizeof(T) % 4 == 0);
  std::vector<int32_t> words(values.size() * sizeof(T) / 4);
  std::memcpy(words.data(), values.data(), words.size() * 4);
  return {reinterpret_cast<const T*>(b.ints(words).data), static_cast<int64_t>(values.size())};
}

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
            SampleArgs a;
            a.logits = b.rows(rows, width, DType::kF32, 3);
            a.settings = build_settings(b, rows, settings);
            a.position = b.ints(some_ints(b, rows, 1 << 20));
            a.token = b.empty<int32_t>(rows);
            a.vocab = vocab;
            return a;
          }};
}

// Every second row has edits, every third a mask, every fifth a given token; log probabilities are wanted of most.
Case<SampleArgs> make_edited(int64_t rows, int vocab, std::vector<SampleSettings> settings, bool bench) {
  constexpr int kWidth = 4, kEdits = 6;
  return {{.name = fmt::format("edited_rows{}_v{}", rows, vocab),
           .bytes = rows * (vocab * 4 + (vocab + 31) / 32 * 4 + static_cast<int64_t>(sizeof(SampleSettings)) + 60),
           .flop = 2 * rows * vocab,
           .traffic = Traffic::kRead,
           .precision = Precision::kFp32,
           .tolerance = 1e-5,
           .bench = bench},
          [=](CaseBuilder& b) {
            SampleArgs a;
            a.vocab = vocab, a.best_width = kWidth;
            a.logits = b.rows(rows, vocab + 3, DType::kF32, 3);
            std::vector<int32_t> from = some_ints(b, rows, static_cast<int>(rows)), start{0}, mask(rows, -1),
                                 given(rows, -1), wanted(rows);
            std::vector<Penalties> penalties(rows);
            std::vector<LogitEdit> edits;
            std::vector<int32_t> words;
            int masks = 0;
            for (int64_t r = 0; r < rows; ++r) {
              penalties[r] = {static_cast<float>(b.normal()), static_cast<float>(b.normal()),
                              static_cast<float>(0.5 + b.uniform())};
              for (int32_t e = 0, token = b.below(vocab); r % 2 && e < kEdits && token < vocab; ++e) {
                edits.push_back({token, b.below(3), b.below(2), b.below(4) ? 0.5f : -INFINITY});
                token += 1 + b.below(vocab);
              }
              start.push_back(static_cast<int32_t>(edits.size()));
              if (r % 3 == 0) mask[r] = masks++;
              if (r % 5 == 0) given[r] = b.below(vocab);
              wanted[r] = b.below(kWidth + 2) - 1;
            }
            for (int64_t i = 0; i < masks * a.mask_words(); ++i) words.push_back(b.below(1 << 30) << 2 | b.below(4));
            a.logit_row = b.ints(from);
            a.settings = build_settings(b, rows, settings);
            a.position = b.ints(some_ints(b, rows, 1 << 20));
            a.penalties = records(b, penalties), a.edit_start = b.ints(start), a.edits = records(b, edits);
            a.mask = b.ints(mask);
            const Array<const int32_t> bits = b.ints(words);
            a.allowed = {reinterpret_cast<const uint32_t*>(bits.data), bits.count};
            a.given = b.ints(given), a.best_wanted = b.ints(wanted);
            a.token = b.empty<int32_t>(rows), a.logprob = b.empty<float>(rows), a.rank = b.empty<int32_t>(rows);
            a.best_token = b.empty<int32_t>(rows * kWidth), a.best_logprob = b.empty<float>(rows * kWidth);
            return a;
          }};
}

// Drawn rows [begin, begin + count); which logits they are drawn from stays.
SampleArgs part_of_sample(SampleArgs a, int64_t begin, int64_t count) {
  auto narrow = [&](auto& array, int64_t per_row) {
    if (!array.empty()) array = {array.data + begin * per_row, count * per_row};
  };
  if (a.logit_row.empty()) a.logits = a.logits.slice(begin, count);
  narrow(a.logit_row, 1), narrow(a.settings, 1), narrow(a.position, 1), narrow(a.penalties, 1), narrow(a.mask, 1);
  narrow(a.given, 1), narrow(a.best_wanted, 1), narrow(a.token, 1), narrow(a.logprob, 1), narrow(a.rank, 1);
  narrow(a.best_token, a.best_width), narrow(a.best_logprob, a.best_width);
  if (!a.edit_start.empty()) a.edit_start = {a.edit_start.data + begin, count + 1};
  return a;
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
  for (auto [rows, vocab] : {std::pair{8, 1}, {24, 97}, {64, 515}, {40, 3001}})
    cases.push_back(make_edited(rows, vocab, all, false));
  cases.push_back(make_edited(32, 154880, {{.temperature = 1, .top_p = 0.95f}}, true));
  cases.push_back(make_case("greedy", 32, 32768, 32768, {{}}, true));
  cases.push_back(make_case("plain", 32, 32768, 32768, {{.temperature = 1}}, true));
  cases.push_back(make_case("top_p", 32, 154880, 154880, {{.temperature = 1, .top_p = 0.95f}}, true));
  cases.push_back(make_case("top_k", 1, 154880, 154880, {{.temperature = 0.8f, .top_k = 50}}, true));
  return any_op(kSample, std::move(cases), part_of_sample);
}

}  // namespace lathe
