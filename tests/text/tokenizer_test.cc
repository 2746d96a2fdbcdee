#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/json_reader.h"
#include "testing/golden.h"
#include "text/stream_decoder.h"
#include "text/utf8.h"

namespace lathe {
namespace {

using Json = nlohmann::json;
using testing::fixture;

Json read(const std::string& path) { return std::move(read_json_file(path, 64 << 20)).value(); }

Tokenizer load(const std::string& which) {
  Result<Tokenizer> t = Tokenizer::load(fixture("tokenizer/" + which));
  EXPECT_TRUE(t.is_ok()) << t.status().message();
  return std::move(t).value();
}

std::vector<int32_t> encode(const Tokenizer& t, std::string_view text, const EncodeOptions& options = {}) {
  auto ids = t.encode(text, options);
  EXPECT_TRUE(ids.is_ok()) << ids.status().message();
  return ids.is_ok() ? *ids : std::vector<int32_t>{-1};
}

// A complete tokenizer.json: all bytes, plus `merges` as "a b", plus what `change` does to it.
Json small_file(const std::vector<std::string>& merges = {}) {
  Json file = read(fixture("tokenizer/small/tokenizer.json"));
  Json vocab = Json::object();
  for (const auto& [token, id] : file["model"]["vocab"].items())
    if (utf8_length(token) == 1) vocab[token] = vocab.size();
  file["model"]["merges"] = Json::array();
  for (const std::string& merge : merges) {
    std::string joined = merge;
    joined.erase(joined.find(' '), 1);
    if (!vocab.contains(joined)) vocab[joined] = vocab.size();
    file["model"]["merges"].push_back(merge);
  }
  file["model"]["vocab"] = vocab;
  file["added_tokens"] = Json::array();
  return file;
}

Json added(int id, const std::string& content, const Json& flags = Json::object()) {
  Json token = {{"id", id}, {"content", content}, {"special", false}, {"normalized", false}};
  token.update(flags);
  return token;
}

Tokenizer make(const Json& file) {
  auto t = Tokenizer::parse(file.dump(), "made.json");
  EXPECT_TRUE(t.is_ok()) << t.status().message();
  return std::move(t).value();
}

std::vector<std::string> pieces(const Tokenizer& t, std::string_view text, const EncodeOptions& options = {}) {
  std::vector<std::string> out;
  for (int32_t id : encode(t, text, options)) out.push_back(t.decode(std::vector<int32_t>{id}));
  return out;
}

class TokenizerFixture : public ::testing::TestWithParam<const char*> {
 protected:
  const Json cases = read(fixture(std::string("tokenizer/") + GetParam() + "_cases.json"));
  const Tokenizer tokenizer = load(GetParam());
};
INSTANTIATE_TEST_SUITE_P(All, TokenizerFixture, ::testing::Values("small", "large"));

TEST_P(TokenizerFixture, EncodesAndDecodesAsTheReferenceLibrary) {
  ASSERT_GT(cases["encode"].size(), 100u);
  for (const Json& c : cases["encode"]) {
    const std::string text = c["text"];
    const auto ids = encode(tokenizer, text);
    EXPECT_EQ(ids, c["ids"].get<std::vector<int32_t>>()) << text;
    for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(tokenizer.spelling(ids[i]), c["tokens"][i]) << text;
    EXPECT_EQ(tokenizer.decode(ids), c["decoded"]) << text;
    EXPECT_EQ(tokenizer.decode(ids, true), c["decoded_skip_special"]) << text;
  }
}

TEST_P(TokenizerFixture, DecodesPrefixesAndRandomIds) {
  for (const Json& c : cases["stream"]) {
    const auto ids = c["ids"].get<std::vector<int32_t>>();
    for (size_t n = 1; n <= ids.size(); ++n)
      EXPECT_EQ(tokenizer.decode(std::span(ids).first(n)), c["prefix_decoded"][n - 1]);
  }
  for (const Json& c : cases["decode"]) {
    const auto ids = c["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.decode(ids), c["decoded"]);
    if (c.contains("decoded_skip_special")) {
      EXPECT_EQ(tokenizer.decode(ids, true), c["decoded_skip_special"]);
    }
  }
}

TEST_P(TokenizerFixture, StreamsWholeCharactersThatAddUpToTheWhole) {
  std::vector<std::vector<int32_t>> lists;
  for (const char* kind : {"encode", "stream", "decode"})
    for (const Json& c : cases[kind]) lists.push_back(c["ids"].get<std::vector<int32_t>>());
  uint32_t random = 7;  // ids in any order: characters begin, break off and never end
  for (int i = 0; i < 200; ++i) {
    lists.emplace_back();
    for (int n = 0; n < 40; ++n) lists.back().push_back((random = random * 1664525 + 1013904223) >> 8 & 0xFF);
  }
  for (const auto& ids : lists)
    for (bool skip : {false, true}) {
      StreamDecoder stream(tokenizer, skip);
      std::string text;
      for (int32_t id : ids) {
        const std::string piece = stream.push(id);
        EXPECT_TRUE(is_utf8(piece));
        text += piece;
      }
      text += stream.finish();
      EXPECT_EQ(text, tokenizer.decode(ids, skip));
    }
}

TEST(Tokenizer, MergesByRankThenFromTheLeft) {
  const Tokenizer t = make(small_file({"a a", "aa a", "b c", "a b"}));
  EXPECT_EQ(pieces(t, "aaaa"), (std::vector<std::string>{"aa", "aa"}));
  EXPECT_EQ(pieces(t, "aaa"), (std::vector<std::string>{"aaa"}));
  EXPECT_EQ(pieces(t, "abc"), (std::vector<std::string>{"a", "bc"}));  // b c ranks before a b
}

// Short and long pieces are merged by different loops; the definition, applied literally, is the judge.
TEST(Tokenizer, LongPiecesMergeAsTheDefinitionSays) {
  const std::vector<std::string> merges = {"a b",  "b a", "ab a", "a a",  "ab ab", "aba b",
                                           "c ab", "b b", "bb a", "aa c", "c c"};
  const Tokenizer t = make(small_file(merges));
  uint32_t random = 1;
  for (int length : {1, 2, 5, 40, 47, 48, 49, 50, 100, 500}) {
    std::vector<std::string> symbols;
    std::string text;
    for (int i = 0; i < length; ++i) {
      symbols.emplace_back(1, "abc"[((random = random * 1664525 + 1013904223) >> 16) % 3]);
      text += symbols.back();
    }
    for (bool merged = true; merged;) {
      merged = false;
      for (const std::string& merge : merges) {
        const std::string left = merge.substr(0, merge.find(' ')), right = merge.substr(merge.find(' ') + 1);
        for (size_t i = 0; i + 1 < symbols.size() && !merged; ++i) {
          if (symbols[i] != left || symbols[i + 1] != right) continue;
          symbols[i] += symbols[i + 1];
          symbols.erase(symbols.begin() + i + 1);
          merged = true;
        }
        if (merged) break;
      }
    }
    EXPECT_EQ(pieces(t, text), symbols) << text;
  }
}

TEST(Tokenizer, IgnoreMergesTakesAWholePieceFirst) {
  Json file = small_file({"a b", "b c", "ab c"});
  file["model"]["vocab"]["abcd"] = 500;
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(pieces(make(file), "abcd abcd"), (std::vector<std::string>{"abcd", " ", "abc", "d"}));
  file["model"]["ignore_merges"] = false;
  EXPECT_EQ(pieces(make(file), "abcd"), (std::vector<std::string>{"abc", "d"}));
}

TEST(Tokenizer, MergesMayBeTextOrPairs) {
  Json file = small_file({"a b"});
  file["model"]["merges"] = {{"a", "b"}};
  EXPECT_EQ(pieces(make(file), "ab"), (std::vector<std::string>{"ab"}));
}

TEST(Tokenizer, AddedTokensCanBeKeptAsText) {
  const Tokenizer t = load("small");
  const std::string text = "x<|user|>y<think>";
  EXPECT_EQ(encode(t, text).size(), 4u);
  EncodeOptions plain;
  plain.match_added = false;
  const auto ids = encode(t, text, plain);
  for (int32_t id : ids) EXPECT_FALSE(t.vocabulary().is_added(id));
  EXPECT_EQ(t.decode(ids), text);
}

TEST(Tokenizer, LiteralRangesStayText) {
  const Tokenizer t = load("small");
  const std::string text = "<|user|>a<|user|>b<|user|><|system|>";
  const int32_t user = t.id_of("<|user|>"), system = t.id_of("<|system|>");
  EncodeOptions options;
  const auto controls = [&](std::vector<ByteRange> literal) {
    options.literal = literal;
    std::vector<int32_t> out;
    const auto ids = encode(t, text, options);
    for (int32_t id : ids)
      if (t.vocabulary().is_added(id)) out.push_back(id);
    EXPECT_EQ(t.decode(ids), text);
    return out;
  };
  EXPECT_EQ(controls({}), (std::vector<int32_t>{user, user, user, system}));
  EXPECT_EQ(controls({{9, 17}}), (std::vector<int32_t>{user, user, system}));
  EXPECT_EQ(controls({{16, 17}}), (std::vector<int32_t>{user, user, system}));  // one byte is enough
  EXPECT_EQ(controls({{3, 4}, {25, 27}}), (std::vector<int32_t>{user}));
  EXPECT_EQ(controls({{0, text.size()}}), (std::vector<int32_t>{}));
}

TEST(Tokenizer, AddedTokensTakeTheLongestFirstAndStripSpaces) {
  Json file = small_file();
  file["added_tokens"] = {added(300, "<a>"), added(301, "<a><b>"), added(302, "L", {{"lstrip", true}}),
                          added(303, "R", {{"rstrip", true}}), added(304, "word", {{"single_word", true}})};
  const Tokenizer t = make(file);
  const auto ids = [&](std::string_view text) {
    std::vector<int32_t> out = encode(t, text);
    for (int32_t& id : out)
      if (id < 300) id = 0;
    return out;
  };
  EXPECT_EQ(ids("<a><b><a>"), (std::vector<int32_t>{301, 300}));
  EXPECT_EQ(ids("x \n L y"), (std::vector<int32_t>{0, 302, 0, 0}));
  EXPECT_EQ(ids("R \xc2\xa0 y"), (std::vector<int32_t>{303, 0}));
  EXPECT_EQ(ids("word"), (std::vector<int32_t>{304}));
  EXPECT_EQ(ids("-word-"), (std::vector<int32_t>{0, 304, 0}));
  EXPECT_EQ(ids("words").size(), 5u);
  EXPECT_EQ(ids("\xc3\xa9word").size(), 6u);
}

TEST(Tokenizer, NfcComposesBeforeSplitting) {
  Json file = small_file();
  EXPECT_EQ(make(file).decode(encode(make(file), "e\xcc\x81")), "e\xcc\x81");
  file["normalizer"] = {{"type", "NFC"}};
  const Tokenizer t = make(file);
  EXPECT_EQ(t.decode(encode(t, "e\xcc\x81!")), "\xc3\xa9!");
  EXPECT_EQ(t.decode(encode(t, "\xe1\x84\x80\xe1\x85\xa1")), "\xea\xb0\x80");    // jamo
  EXPECT_EQ(t.decode(encode(t, "\xe3\x81\x8b\xe3\x82\x99x")), "\xe3\x81\x8cx");  // ka and the voicing mark
  EncodeOptions options;
  const std::vector<ByteRange> literal = {{1, 3}};
  options.literal = literal;
  EXPECT_EQ(t.decode(encode(t, "e\xcc\x81", options)), "e\xcc\x81");  // composed apart
}

TEST(Tokenizer, SplitBehaviors) {
  const auto split = [](const char* behavior, bool invert) {
    Json file = small_file({"a b", "- a", "b -", "- -", "ab -", "ab --", "-- ab", "- ab"});
    file["model"]["ignore_merges"] = true;
    file["pre_tokenizer"]["pretokenizers"][0] = {
        {"type", "Split"}, {"pattern", {{"String", "-"}}}, {"behavior", behavior}, {"invert", invert}};
    return pieces(make(file), "ab--ab");
  };
  using V = std::vector<std::string>;
  EXPECT_EQ(split("Isolated", false), (V{"ab", "-", "-", "ab"}));
  EXPECT_EQ(split("Removed", false), (V{"ab", "ab"}));
  EXPECT_EQ(split("Removed", true), (V{"-", "-"}));
  EXPECT_EQ(split("MergedWithPrevious", false), (V{"ab-", "-", "ab"}));
  EXPECT_EQ(split("MergedWithNext", false), (V{"ab", "-", "-ab"}));
  EXPECT_EQ(split("Contiguous", false), (V{"ab", "--", "ab"}));
}

TEST(Tokenizer, Gpt2StyleFile) {
  Json file = small_file({"h i"});
  file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}};
  file["model"].erase("type");
  const Tokenizer t = make(file);
  EXPECT_EQ(pieces(t, "hi  hi"), (std::vector<std::string>{" ", "hi", " ", " ", "hi"}));
  EXPECT_EQ(pieces(t, " hi"), (std::vector<std::string>{" ", "hi"}));
}

TEST(Tokenizer, PutsThePostProcessorsTokensAround) {
  Json file = small_file();
  file["added_tokens"] = {added(300, "<s>"), added(301, "</s>")};
  file["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}, {{"SpecialToken", {{"id", "</s>"}}}}}}};
  const Tokenizer t = make(file);
  EncodeOptions options;
  options.add_special = true;
  EXPECT_EQ(pieces(t, "a", options), (std::vector<std::string>{"<s>", "a", "</s>"}));
  EXPECT_EQ(pieces(t, "a"), (std::vector<std::string>{"a"}));
}

TEST(Tokenizer, BrokenTextIsReadWithReplacementCharacters) {
  const Tokenizer t = load("large");
  const auto round = [&](std::string_view text) { return t.decode(encode(t, text)); };
  EXPECT_EQ(round("a\xff\xfe z"), "a\ufffd\ufffd z");
  EXPECT_EQ(round("\xe4\xb8"), "\ufffd");  // a beginning counts once
  EXPECT_EQ(round("\xf0\x9f\x98x"), "\ufffdx");
  EXPECT_EQ(round("\xed\xa0\x80"), "\ufffd\ufffd\ufffd");  // a surrogate isn't the beginning of anything
  EXPECT_EQ(round("\xc0\xaf"), "\ufffd\ufffd");            // nor is an overlong form
}

TEST(Tokenizer, ThreadsShareOneTokenizer) {
  const Tokenizer t = load("large");
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "word" + std::to_string(i * 7919 % 1000) + " ";
  const auto expected = encode(t, text);
  std::vector<std::thread> threads;
  std::vector<std::vector<int32_t>> got(4);
  for (auto& ids : got) threads.emplace_back([&] { ids = *t.encode(text); });
  for (auto& thread : threads) thread.join();
  for (const auto& ids : got) EXPECT_EQ(ids, expected);
}

// One megabyte of one letter, of spaces, of digits is a single piece or a million of them: neither may be quadratic.
// The bound is generous, for sanitizers; the measured times stand in docs/text.md.
TEST(Tokenizer, AMillionOfTheSameEndsSoon) {
  for (const char* which : {"small", "large"}) {
    const Tokenizer t = load(which);
    for (const char* unit : {"a", " ", "1", "\n", "-", "\xe4\xb8\xad", "<", "<|user|>", " \n", "'", "ab"}) {
      std::string text;
      while (text.size() < (1 << 20)) text += unit;
      const auto begin = std::chrono::steady_clock::now();
      const auto ids = encode(t, text);
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8)) << unit;
      EXPECT_EQ(t.decode(ids), text);
    }
  }
}

struct Broken {
  const char* message;  // has to be part of the error
  std::function<void(Json&)> change;
};

TEST(Tokenizer, RefusesBrokenAndUnsupportedFilesByField) {
  const std::vector<Broken> cases = {
      {"model: is missing", [](Json& f) { f.erase("model"); }},
      {"model.type: 'Unigram' is not supported", [](Json& f) { f["model"]["type"] = "Unigram"; }},
      {"model.vocab: is missing or empty", [](Json& f) { f["model"].erase("vocab"); }},
      {"model.vocab: 'a' is a list, not an id", [](Json& f) { f["model"]["vocab"]["a"] = Json::array(); }},
      {"model.vocab: the id of 'a' is not from 0", [](Json& f) { f["model"]["vocab"]["a"] = -1; }},
      {"model.vocab: the id of 'a' is not from 0", [](Json& f) { f["model"]["vocab"]["a"] = 1ull << 40; }},
      {"is given to two tokens", [](Json& f) { f["model"]["vocab"]["a"] = f["model"]["vocab"]["b"]; }},
      {"model.vocab: has no entry 'a' for byte 97", [](Json& f) { f["model"]["vocab"].erase("a"); }},
      {"model.merges[1]: must be two parts", [](Json& f) { f["model"]["merges"] = {"a b", "ab"}; }},
      {"model.merges[0]: must have two parts", [](Json& f) { f["model"]["merges"] = {{"a", "b", "c"}}; }},
      {"model.merges[0]: must be text", [](Json& f) { f["model"]["merges"] = {3}; }},
      {"model.merges[1]: 'qz' is not in the vocabulary", [](Json& f) { f["model"]["merges"] = {"a b", "q z"}; }},
      {"model.byte_fallback", [](Json& f) { f["model"]["byte_fallback"] = true; }},
      {"model.end_of_word_suffix", [](Json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }},
      {"model.dropout", [](Json& f) { f["model"]["dropout"] = 0.1; }},
      {"normalizer.type: 'NFKC' is not supported", [](Json& f) { f["normalizer"] = {{"type", "NFKC"}}; }},
      {"normalizer.normalizers[0].type: 'Lowercase'",
       [](Json& f) { f["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "Lowercase"}}}}}; }},
      {"pre_tokenizer: has no ByteLevel", [](Json& f) { f["pre_tokenizer"] = nullptr; }},
      {"pre_tokenizer.type: 'Metaspace' is not supported",
       [](Json& f) { f["pre_tokenizer"] = {{"type", "Metaspace"}}; }},
      {"pre_tokenizer: pattern: not a regular expression",
       [](Json& f) { f["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a"; }},
      {"pretokenizers[0].behavior", [](Json& f) { f["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Often"; }},
      {"decoder: must be ByteLevel", [](Json& f) { f["decoder"] = nullptr; }},
      {"post_processor.type: 'Roberta' is not", [](Json& f) { f["post_processor"] = {{"type", "Roberta"}}; }},
      {"added_tokens[0].id: is missing", [](Json& f) { f["added_tokens"] = {{{"content", "x"}}}; }},
      {"added_tokens[0].content: is missing or empty", [](Json& f) { f["added_tokens"] = {added(300, "")}; }},
      {"belongs to another token", [](Json& f) { f["added_tokens"] = {added(1, "<x>")}; }},
      {"added_tokens[1]: id 300 is listed twice",
       [](Json& f) { f["added_tokens"] = {added(300, "<x>"), added(300, "<x>")}; }},
  };
  for (const Broken& c : cases) {
    Json file = small_file({"a b"});
    c.change(file);
    const auto t = Tokenizer::parse(file.dump(), "made.json");
    ASSERT_FALSE(t.is_ok()) << c.message;
    EXPECT_NE(t.status().message().find(c.message), std::string::npos) << t.status().message();
    EXPECT_TRUE(t.status().message().starts_with("made.json: ")) << t.status().message();
    EXPECT_NE(t.status().code(), StatusCode::kInternal);
  }
  const std::string whole = small_file({"a b"}).dump();
  for (size_t n = 0; n < whole.size(); n += 97) EXPECT_FALSE(Tokenizer::parse(whole.substr(0, n), "cut.json").is_ok());
  EXPECT_FALSE(Tokenizer::load("/nowhere/tokenizer.json").is_ok());
}

TEST(Tokenizer, APatternThatBacktracksWithoutEndIsGivenUp) {
  Json file = small_file();
  file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a+)+[bc]";
  const Tokenizer t = make(file);
  const auto ids = t.encode(std::string(64, 'a'));
  ASSERT_FALSE(ids.is_ok());
  EXPECT_NE(ids.status().message().find("backtracks"), std::string::npos);
}

}  // namespace
}  // namespace lathe
