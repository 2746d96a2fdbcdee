// Where a text stops doesn't depend on how it was split, and no byte too many goes out.
#include "engine/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/output_text.h"
#include "testing/serving_model.h"

namespace lathe {
namespace {

using testing::ServingModel;

struct Cut {
  std::string text, stopped_by;
  std::vector<int32_t> ids;
  bool operator==(const Cut&) const = default;
};

const Tokenizer& byte_tokenizer() {
  static const ServingModel model;
  static const Tokenizer tokenizer = Tokenizer::load(model.path()).value();
  return tokenizer;
}

// One token a byte; `step` tokens are pushed between two takes.
Cut cut(const std::string& text, std::vector<std::string> stop, bool include, int step) {
  Request r;
  r.stop = std::move(stop), r.include_stop = include;
  OutputText out(byte_tokenizer(), r);
  Cut c;
  OutputPiece piece;
  int pushed = 0;
  for (const char byte : text) {
    const bool met = out.push({.token = static_cast<uint8_t>(byte)}, true);
    if (++pushed % step == 0) out.take(piece);
    if (met) break;
  }
  out.finish();
  out.take(piece);
  c.text = piece.text, c.stopped_by = out.stopped_by();
  for (const OutputToken& t : piece.tokens) c.ids.push_back(t.token);
  return c;
}

// The plainest way: after every byte, does the text end with a stop string?
Cut expected(const std::string& text, const std::vector<std::string>& stop, bool include) {
  Cut c;
  for (size_t n = 1; n <= text.size(); ++n) {
    const std::string so_far = text.substr(0, n);
    const std::string* longest = nullptr;
    for (const std::string& s : stop)
      if (so_far.ends_with(s) && (!longest || s.size() > longest->size())) longest = &s;
    c.text = so_far;
    if (!longest) continue;
    c.stopped_by = *longest;
    if (!include) c.text.resize(n - longest->size());
    break;
  }
  for (const char byte : c.text) c.ids.push_back(static_cast<uint8_t>(byte));
  return c;
}

TEST(StopStrings, EverySplitOfRandomTextsStopsWhereThePlainestSearchDoes) {
  std::mt19937 random(7);
  auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int stopped = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = below(40); i >= 0; --i) text += static_cast<char>('a' + below(3));
    std::vector<std::string> stop;
    for (int i = below(4); i >= 0; --i) {
      std::string s;
      for (int j = below(6); j >= 0; --j) s += static_cast<char>('a' + below(3));
      stop.push_back(s);
    }
    for (const bool include : {false, true}) {
      const Cut wanted = expected(text, stop, include);
      stopped += !wanted.stopped_by.empty();
      for (const int step : {1, 2, 5, 100}) EXPECT_EQ(cut(text, stop, include, step), wanted) << text << " " << step;
    }
  }
  EXPECT_GT(stopped, 1000);
}

TEST(StopStrings, OnlyWhatMayBecomeAStopStringIsHeldBack) {
  const StopStrings stops({"###", "\n\nUser"});
  EXPECT_EQ(stops.held_back("text"), 0u);
  EXPECT_EQ(stops.held_back("text#"), 1u);
  EXPECT_EQ(stops.held_back("text##"), 2u);
  EXPECT_EQ(stops.held_back("text\n\nUs"), 4u);
  EXPECT_EQ(stops.held_back("text\n\nUx"), 0u);
}

TEST(OutputText, CharactersInPiecesComeWholeAndTokensWithThem) {
  const std::string text = "h\xc3\xa9\xe2\x82\xac!";  // 1, 2, 3 and 1 bytes
  Request r;
  OutputText out(byte_tokenizer(), r);
  std::string all;
  size_t tokens = 0;
  for (const char byte : text) {
    out.push({.token = static_cast<uint8_t>(byte)}, true);
    OutputPiece piece;
    out.take(piece);
    all += piece.text, tokens += piece.tokens.size();
    EXPECT_TRUE(piece.text.empty() || (piece.text[0] & 0xc0) != 0x80);
  }
  EXPECT_EQ(all, text);
  EXPECT_EQ(tokens, text.size());
}

TEST(OutputText, ABrokenTailBecomesOneReplacement) {
  Request r;
  OutputText out(byte_tokenizer(), r);
  for (const int byte : {0x61, 0xe2, 0x82}) out.push({.token = byte}, true);
  out.finish();
  OutputPiece piece;
  out.take(piece);
  EXPECT_EQ(piece.text, "a\xef\xbf\xbd");
  EXPECT_EQ(piece.tokens.size(), 3u);
  EXPECT_EQ(out.replacements(), 1);
}

}  // namespace
}  // namespace lathe
