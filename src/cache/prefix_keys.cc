#include "cache/prefix_keys.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>

namespace lathe {

namespace {

EVP_MAC_CTX* context(void* mac) { return static_cast<EVP_MAC_CTX*>(mac); }

template <class T>
void put(std::string& bytes, const T* values, size_t count) {
  bytes.append(reinterpret_cast<const char*>(values), count * sizeof(T));
}
void put(std::string& bytes, PrefixKey key) { put(bytes, &key.low, 1), put(bytes, &key.high, 1); }
void put(std::string& bytes, uint32_t number) { put(bytes, &number, 1); }

}  // namespace

PrefixHasher::Secret PrefixHasher::draw_secret() {
  Secret secret;
  LATHE_CHECK(RAND_bytes(secret.data(), static_cast<int>(secret.size())) == 1);
  return secret;
}

PrefixHasher::PrefixHasher(const Secret& secret, std::string_view layout, int block_tokens)
    : block_tokens_(block_tokens) {
  LATHE_CHECK(block_tokens > 0);
  EVP_MAC* mac = EVP_MAC_fetch(nullptr, "SIPHASH", nullptr);
  mac_ = mac ? EVP_MAC_CTX_new(mac) : nullptr;
  EVP_MAC_free(mac);
  unsigned size = sizeof(PrefixKey);
  const OSSL_PARAM params[] = {OSSL_PARAM_construct_uint(OSSL_MAC_PARAM_SIZE, &size), OSSL_PARAM_construct_end()};
  LATHE_CHECK(mac_ && EVP_MAC_init(context(mac_), secret.data(), secret.size(), params) == 1);
  layout_ = hash(layout);
}

PrefixHasher::~PrefixHasher() { EVP_MAC_CTX_free(context(mac_)); }

PrefixKey PrefixHasher::hash(std::string_view bytes) const {
  EVP_MAC_CTX* own = EVP_MAC_CTX_dup(context(mac_));
  PrefixKey key;
  size_t written = 0;
  LATHE_CHECK(own && EVP_MAC_update(own, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()) == 1);
  LATHE_CHECK(EVP_MAC_final(own, reinterpret_cast<uint8_t*>(&key), &written, sizeof key) == 1 && written == sizeof key);
  EVP_MAC_CTX_free(own);
  return key;
}

PrefixKey PrefixHasher::root(std::string_view salt) const {
  std::string bytes;
  put(bytes, layout_);
  bytes.append(salt);
  return hash(bytes);
}

PrefixKeys::PrefixKeys(std::shared_ptr<const PrefixHasher> hasher, std::vector<int32_t> tokens,
                       std::vector<MediaKey> media, std::string_view salt)
    : hasher_(std::move(hasher)), media_(std::move(media)), chain_{hasher_->root(salt)} {
  LATHE_CHECK(std::is_sorted(media_.begin(), media_.end(),
                             [](const MediaKey& a, const MediaKey& b) { return a.position < b.position; }));
  append(tokens);
}

void PrefixKeys::append(std::span<const int32_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  for (int end = (blocks() + 1) * block_tokens(); end <= length(); end += block_tokens())
    chain_.push_back(next(chain_.back(), end - block_tokens(), end));
}

PrefixKey PrefixKeys::at(int position) const {
  LATHE_CHECK(position >= 0 && position <= length());
  const int blocks = position / block_tokens(), begin = blocks * block_tokens();
  return position == begin ? chain_[blocks] : next(chain_[blocks], begin, position);
}

// Every part has its length before it: no two inputs give the same bytes.
PrefixKey PrefixKeys::next(PrefixKey parent, int begin, int end) const {
  std::string bytes;
  put(bytes, parent);
  put(bytes, static_cast<uint32_t>(end - begin));
  put(bytes, tokens_.data() + begin, static_cast<size_t>(end - begin));
  auto m = std::lower_bound(media_.begin(), media_.end(), begin,
                            [](const MediaKey& a, int position) { return a.position < position; });
  for (; m != media_.end() && m->position < end; ++m) {
    put(bytes, static_cast<uint32_t>(m->position - begin));
    put(bytes, static_cast<uint32_t>(m->identity.size()));
    bytes.append(m->identity);
  }
  return hasher_->hash(bytes);
}

}  // namespace lathe
