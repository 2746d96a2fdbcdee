// Lists of tools from anywhere, and walks under their masks.
#include "fuzz_grammar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return lathe::fuzz::run(lathe::GrammarSource::Kind::kToolCalls, data, size);
}
