#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lathe {

// Names a beginning: the same key means the same tokens, pictures, salt and model.
struct PrefixKey {
  uint64_t low = 0, high = 0;
  bool operator==(const PrefixKey&) const = default;
};
struct PrefixKeyHash {  // a key is already a hash
  size_t operator()(const PrefixKey& key) const { return key.low; }
};

// A picture or clip of a prompt: which one it is, and its first placeholder's position.
struct MediaKey {
  int position = 0;
  std::string identity;  // hash of bytes, size and preprocessing; >= 16 bytes
};

// SipHash-2-4 with 128 bits under a secret: a pseudorandom function, so that nobody who doesn't know the secret finds
// two beginnings with one key better than by guessing, whatever hits he observes. XXH3 would be faster, but promises
// nothing against an adversary. Any thread.
class PrefixHasher {
 public:
  using Secret = std::array<uint8_t, 16>;
  static Secret draw_secret();
  // `layout`: what must be equal for memory to be exchangeable: model, versions and data types of memory. A block is
  // `block_tokens` tokens.
  PrefixHasher(const Secret& secret, std::string_view layout, int block_tokens);
  ~PrefixHasher();
  PrefixHasher(const PrefixHasher&) = delete;

  PrefixKey hash(std::string_view bytes) const;
  PrefixKey root(std::string_view salt) const;  // the key of no tokens
  int block_tokens() const { return block_tokens_; }

 private:
  void* mac_;  // EVP_MAC_CTX with the secret
  PrefixKey layout_;
  int block_tokens_;
};

// Keys of all beginnings of one prompt, and of what is generated after it. A key is kept for each complete block, each
// hashed from the one before it, the block's tokens and the media that begin in it; keys between are computed when
// asked for.
class PrefixKeys {
 public:
  PrefixKeys() = default;
  // media: ascending by position; a picture belongs to every beginning that holds its first placeholder.
  PrefixKeys(std::shared_ptr<const PrefixHasher> hasher, std::vector<int32_t> tokens, std::vector<MediaKey> media = {},
             std::string_view salt = {});

  void append(std::span<const int32_t> tokens);
  int length() const { return static_cast<int>(tokens_.size()); }
  int block_tokens() const { return hasher_->block_tokens(); }
  int blocks() const { return static_cast<int>(chain_.size()) - 1; }  // complete ones
  PrefixKey block(int count) const { return chain_[count]; }          // of the first `count` blocks
  PrefixKey at(int position) const;                                   // of the first `position` tokens

 private:
  PrefixKey next(PrefixKey parent, int begin, int end) const;

  std::shared_ptr<const PrefixHasher> hasher_;
  std::vector<int32_t> tokens_;
  std::vector<MediaKey> media_;
  std::vector<PrefixKey> chain_;
};

}  // namespace lathe
