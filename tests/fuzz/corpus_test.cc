// Every seed, and every input that once broke something, through its fuzz target: what libFuzzer found stays found,
// with any compiler. CMakeLists.txt gives each target's entry its file's name.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "testing/golden.h"

extern "C" {
int fuzz_config(const uint8_t* data, size_t size);
int fuzz_grammar_ebnf(const uint8_t* data, size_t size);
int fuzz_grammar_regex(const uint8_t* data, size_t size);
int fuzz_grammar_schema(const uint8_t* data, size_t size);
int fuzz_grammar_tools(const uint8_t* data, size_t size);
int fuzz_http(const uint8_t* data, size_t size);
int fuzz_image(const uint8_t* data, size_t size);
int fuzz_output_stream(const uint8_t* data, size_t size);
int fuzz_request(const uint8_t* data, size_t size);
int fuzz_safetensors(const uint8_t* data, size_t size);
int fuzz_template(const uint8_t* data, size_t size);
int fuzz_tokenizer(const uint8_t* data, size_t size);
int fuzz_trace(const uint8_t* data, size_t size);
}

namespace lathe {
namespace {

using Target = int (*)(const uint8_t*, size_t);

// How many files of the corpus went through, and every beginning of the first few hundred bytes of each.
int run_corpus(const char* name, Target target) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(testing::source_path(std::string("tests/fuzz/corpus/") + name))) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    SCOPED_TRACE(entry.path().filename().string());
    for (size_t size = 0; size <= std::min<size_t>(bytes.size(), 300); ++size) {
      const std::vector<uint8_t> cut(bytes.begin(), bytes.begin() + static_cast<int64_t>(size));  // its end is guarded
      EXPECT_EQ(target(cut.data(), size), 0);
    }
    EXPECT_EQ(target(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()), 0);
    ++files;
  }
  return files;
}

TEST(Corpus, Config) { EXPECT_GE(run_corpus("config", fuzz_config), 3); }
TEST(Corpus, GrammarEbnf) { EXPECT_GE(run_corpus("grammar_ebnf", fuzz_grammar_ebnf), 2); }
TEST(Corpus, GrammarRegex) { EXPECT_GE(run_corpus("grammar_regex", fuzz_grammar_regex), 2); }
TEST(Corpus, GrammarSchema) { EXPECT_GE(run_corpus("grammar_schema", fuzz_grammar_schema), 5); }
TEST(Corpus, GrammarTools) { EXPECT_GE(run_corpus("grammar_tools", fuzz_grammar_tools), 1); }
TEST(Corpus, Http) { EXPECT_GE(run_corpus("http", fuzz_http), 3); }
TEST(Corpus, Image) { EXPECT_GE(run_corpus("image", fuzz_image), 13); }
TEST(Corpus, OutputStream) { EXPECT_GE(run_corpus("output_stream", fuzz_output_stream), 2); }
TEST(Corpus, Request) { EXPECT_GE(run_corpus("request", fuzz_request), 4); }
TEST(Corpus, Safetensors) { EXPECT_GE(run_corpus("safetensors", fuzz_safetensors), 1); }
TEST(Corpus, Template) { EXPECT_GE(run_corpus("template", fuzz_template), 6); }
TEST(Corpus, Tokenizer) { EXPECT_GE(run_corpus("tokenizer", fuzz_tokenizer), 4); }
TEST(Corpus, Trace) { EXPECT_GE(run_corpus("trace", fuzz_trace), 4); }

}  // namespace
}  // namespace lathe
