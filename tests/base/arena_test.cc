#include "base/arena.h"

#include <gtest/gtest.h>

namespace lathe {
namespace {

TEST(Arena, PiecesAreAlignedApartAndComeBackAtTheSameAddress) {
  auto device = make_cpu_device();
  Arena arena = Arena::create(*device, 1 << 20).value();
  char* a = arena.take<char>(3);
  char* b = arena.take<char>(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0u);
  EXPECT_GE(b, a + 3);
  {
    ArenaScope scope(arena);
    arena.take<char>(1000);
  }
  EXPECT_EQ(arena.take<char>(1), b + 128);
  EXPECT_GE(arena.peak_bytes(), 1192);
}

TEST(ArenaDeathTest, RunningOutIsABrokenPlan) {
  auto device = make_cpu_device();
  Arena arena = Arena::create(*device, 128).value();
  EXPECT_DEATH(arena.take<char>(129), "check failed");
}

}  // namespace
}  // namespace lathe
