#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/status.h"
#include "ops/workload.h"

// What a supervisor and a candidate's operator server say to each other, one packet a message, over a socket that the
// candidate finds as file descriptor 3; the shared memory is its descriptor 4. Both are of one machine: the structs are
// sent as they are. Neither trusts the other's lengths.

namespace lathe {

inline constexpr int kOpSocketFd = 3, kOpMemoryFd = 4;
inline constexpr int kMostSlots = 64;

struct OpRequest {
  enum Kind : uint32_t { kLoad = 1, kRun = 2 };
  uint32_t kind = 0;
  uint32_t version = 1;
  // kLoad: a case and its copies, `slot_bytes` apart from the start of the memory.
  char op[64] = {}, case_name[128] = {}, variant[64] = {};
  uint64_t seed = 0;
  int64_t slot_bytes = 0;
  int32_t slots = 0;
  int32_t threads = 1;
  // kRun: these slots in this order; rows [begin, begin + rows) of each where rows is not -1.
  int32_t count = 0;
  std::array<uint8_t, kMostSlots> order = {};
  int64_t begin = 0, rows = -1;
};

struct OpReply {
  enum Code : uint32_t { kDone = 0, kDoesNotApply = 1, kFailed = 2 };
  uint32_t code = kDone;
  uint64_t own_ns = 0;  // the candidate's own clock: for comparison, never for a verdict
  uint64_t layout = 0;
  char build_id[32] = {};
  char message[384] = {};
};

// A digest of names, types, shapes and places: equal where two builds mean the same case.
uint64_t layout_digest(const std::vector<FieldView>& fields, const char* base);

void set_text(char* to, size_t capacity, std::string_view text);  // cut, always ended
template <size_t N>
void set_text(char (&to)[N], std::string_view text) {
  set_text(to, N, text);
}
template <size_t N>
std::string get_text(const char (&from)[N]) {
  return std::string(from, strnlen(from, N));
}

// One packet; false where the other side is gone. An error where it doesn't come in time or has a wrong size.
Result<bool> send_packet(int socket, const void* message, size_t bytes);
Result<bool> receive_packet(int socket, void* message, size_t bytes, int timeout_ms);

}  // namespace lathe
