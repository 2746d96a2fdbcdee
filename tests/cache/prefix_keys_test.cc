// Keys of beginnings: equal if and only if everything that made the memory is.
#include "cache/prefix_keys.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

#include "cache/pattern_model.h"

namespace lathe {
namespace {

using testing::some_tokens;

constexpr PrefixHasher::Secret kSecret = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
constexpr int kBlock = 8;

std::shared_ptr<const PrefixHasher> hasher(const char* layout = "m", PrefixHasher::Secret secret = kSecret) {
  return std::make_shared<PrefixHasher>(secret, layout, kBlock);
}
std::vector<PrefixKey> all(const PrefixKeys& keys) {
  std::vector<PrefixKey> list;
  for (int p = 0; p <= keys.length(); ++p) list.push_back(keys.at(p));
  return list;
}

TEST(PrefixKeys, TheHashIsSipHash24With128Bits) {
  // From the authors' reference vectors: key 00..0f, message of 0 and of 1 byte.
  const uint8_t expected[2][16] = {
      {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93},
      {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45}};
  for (size_t n = 0; n < 2; ++n) {
    const PrefixKey key = hasher()->hash(std::string(n, '\0'));
    EXPECT_EQ(std::memcmp(&key, expected[n], 16), 0) << n;
  }
}

TEST(PrefixKeys, EqualAsFarAsTheTokensAreAndNoFurther) {
  const std::vector<int32_t> tokens = some_tokens(40, 1);
  const PrefixKeys keys(hasher(), tokens);
  std::set<uint64_t> distinct;
  for (const PrefixKey& k : all(keys)) distinct.insert(k.low);
  EXPECT_EQ(distinct.size(), 41u);
  for (int changed = 0; changed < 40; ++changed) {
    std::vector<int32_t> other = tokens;
    other[changed] ^= 1;
    const PrefixKeys keys_of_other(hasher(), other);
    for (int p = 0; p <= 40; ++p) EXPECT_EQ(keys.at(p) == keys_of_other.at(p), p <= changed) << changed << " at " << p;
  }
}

TEST(PrefixKeys, AppendedPieceByPieceTheyAreThoseOfTheWhole) {
  const std::vector<int32_t> tokens = some_tokens(53, 2);
  const std::vector<MediaKey> media = {{3, "picture of 16 by"}, {9, "another of 16 by"}};
  const PrefixKeys whole(hasher(), tokens, media, "salt");
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    PrefixKeys grown(hasher(), {}, media, "salt");
    for (int at = 0; at < 53;) {
      const int count = std::min<int>(53 - at, static_cast<int>(random() % 20));
      grown.append(std::span(tokens).subspan(at, count));
      at += count;
    }
    EXPECT_EQ(all(grown), all(whole));
    EXPECT_EQ(grown.blocks(), 53 / kBlock);
  }
}

TEST(PrefixKeys, APictureBelongsToEveryBeginningWithItsFirstPlaceholder) {
  const std::vector<int32_t> tokens(40, 7);  // placeholders look alike
  for (int position : {0, 5, 7, 8, 15, 30}) {
    const PrefixKeys one(hasher(), tokens, {{position, "0123456789abcdef"}}),
        two(hasher(), tokens, {{position, "0123456789abcdeF"}});
    for (int p = 0; p <= 40; ++p) EXPECT_EQ(one.at(p) == two.at(p), p <= position) << position << " at " << p;
    const PrefixKeys none(hasher(), tokens);
    EXPECT_NE(one.at(position + 1), none.at(position + 1));
  }
  // The same picture elsewhere is another prompt; so are two pictures in the other order.
  const PrefixKeys here(hasher(), tokens, {{8, "0123456789abcdef"}}),
      there(hasher(), tokens, {{9, "0123456789abcdef"}});
  EXPECT_NE(here.at(40), there.at(40));
  const PrefixKeys ab(hasher(), tokens, {{8, "a123456789abcdef"}, {12, "b123456789abcdef"}}),
      ba(hasher(), tokens, {{8, "b123456789abcdef"}, {12, "a123456789abcdef"}});
  EXPECT_NE(ab.at(16), ba.at(16));
}

TEST(PrefixKeys, SaltSecretAndLayoutChangeThemAll) {
  const std::vector<int32_t> tokens = some_tokens(20, 4);
  PrefixHasher::Secret other_secret = kSecret;
  other_secret[15] ^= 0x80;
  const std::vector<PrefixKey> plain = all(PrefixKeys(hasher(), tokens));
  for (const std::vector<PrefixKey>& other :
       {all(PrefixKeys(hasher(), tokens, {}, "salt")), all(PrefixKeys(hasher("n"), tokens)),
        all(PrefixKeys(hasher("m", other_secret), tokens))})
    for (int p = 0; p <= 20; ++p) EXPECT_NE(plain[p], other[p]) << p;
  EXPECT_EQ(plain, all(PrefixKeys(hasher(), tokens)));
  EXPECT_NE(PrefixHasher::draw_secret(), PrefixHasher::draw_secret());
}

// Inputs that would give the same bytes if lengths weren't hashed.
TEST(PrefixKeys, NoTwoInputsRunTogether) {
  const PrefixKeys long_key(hasher(), {1, 2}, {{0, std::string("0123456789abcdef\1\0\0\0\1\0\0\0x", 25)}});
  const PrefixKeys two_keys(hasher(), {1, 2}, {{0, "0123456789abcdef"}, {1, "x"}});
  EXPECT_NE(long_key.at(2), two_keys.at(2));
  EXPECT_NE(PrefixKeys(hasher(), {1, 2}).at(2), PrefixKeys(hasher(), {1, 2, 0}).at(3));
}

}  // namespace
}  // namespace lathe
