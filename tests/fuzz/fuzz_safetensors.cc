// Any bytes as a safetensors file: refused with a message, or every span lies inside the file and has the bytes of its
// shape.
#include <cstdint>
#include <cstdlib>

#include "base/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto result = lathe::Safetensors::parse(data, static_cast<int64_t>(size), "fuzz");
  if (!result.is_ok()) {
    if (result.status().message().empty()) std::abort();
    return 0;
  }
  for (const auto& [name, span] : result.value()) {
    const uint8_t* begin = static_cast<const uint8_t*>(span.data);
    if (begin < data || begin + span.bytes > data + size) std::abort();
    int64_t bytes = lathe::dtype_bytes(span.dtype);
    for (int64_t d : span.shape) bytes *= d;
    if (bytes != span.bytes) std::abort();
    volatile uint8_t sum = 0;
    for (int64_t i = 0; i < span.bytes; ++i) sum = static_cast<uint8_t>(sum + begin[i]);
  }
  return 0;
}
