#include "serve/images.h"

#include <openssl/evp.h>

#include <array>
#include <chrono>

namespace lathe::serve {

namespace {

// Changes whenever the same file and settings would give other patches.
constexpr std::string_view kPreprocessVersion = "lathe-preprocess-1";
constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<int8_t, 256> make_values() {
  std::array<int8_t, 256> v{};
  for (auto& x : v) x = -1;
  for (int i = 0; i < 64; ++i) v[static_cast<uint8_t>(kAlphabet[i])] = static_cast<int8_t>(i);
  return v;
}
constexpr std::array<int8_t, 256> kValues = make_values();

bool starts_with_word(std::string_view s, std::string_view word) {
  if (s.size() < word.size()) return false;
  for (size_t i = 0; i < word.size(); ++i)
    if (std::tolower(static_cast<unsigned char>(s[i])) != word[i]) return false;
  return true;
}

std::string image_key(std::span<const uint8_t> bytes, const Picture& picture, const PixelConfig& p) {
  const std::string rest =
      fmt::format("|{}x{}|{}|{} {} {} {} {} {}|{} {} {}|{}|{}", picture.width, picture.height, kPreprocessVersion,
                  p.patch, p.temporal_patch, p.merge, p.expand_factor, p.min_tokens, p.max_tokens, p.rescale,
                  p.normalise, p.rescale_factor, fmt::join(p.mean, ","), fmt::join(p.std, ","));
  std::string key(32, '\0');
  EVP_MD_CTX* c = EVP_MD_CTX_new();
  EVP_DigestInit_ex(c, EVP_sha256(), nullptr);
  EVP_DigestUpdate(c, bytes.data(), bytes.size());
  EVP_DigestUpdate(c, rest.data(), rest.size());
  EVP_DigestFinal_ex(c, reinterpret_cast<unsigned char*>(key.data()), nullptr);
  EVP_MD_CTX_free(c);
  return key;
}

// The encoded picture of a data: URI; "" and a reason if it is none.
std::vector<uint8_t> data_of(const ImageSource& source, const ImageRules& rules, std::string& why, Errors& errors) {
  std::vector<uint8_t> bytes;
  std::string_view url = source.url;
  auto refuse = [&](const char* word, std::string text) {
    why = word;
    errors.bad(source.param, std::move(text), "invalid_image");
    return std::vector<uint8_t>();
  };
  if (starts_with_word(url, "http:") || starts_with_word(url, "https:"))
    return refuse("remote", "this server fetches no images: send a data: URI");
  if (starts_with_word(url, "file:")) return refuse("file", "this server reads no files: send a data: URI");
  if (!starts_with_word(url, "data:")) return refuse("url", "an image must be a data: URI with base64");
  const size_t comma = url.find(',');
  if (comma == std::string_view::npos || comma < 12 || url.substr(comma - 7, 7) != ";base64")
    return refuse("url", "an image must be a data: URI with base64");
  url.remove_prefix(comma + 1);
  if (static_cast<int64_t>(url.size()) / 4 * 3 > rules.limits.encoded_bytes + 3)
    return refuse("bytes", fmt::format("the image has more than {} bytes", rules.limits.encoded_bytes));
  if (!decode_base64(url, bytes)) return refuse("base64", "the image's base64 is broken");
  return bytes;
}

}  // namespace

bool decode_base64(std::string_view text, std::vector<uint8_t>& bytes) {
  bytes.clear();
  if (text.ends_with('=')) {
    if (text.size() % 4 != 0) return false;
    text.remove_suffix(text.ends_with("==") ? 2 : 1);
  }
  if (text.size() % 4 == 1) return false;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t held = 0;
  int bits = 0;
  for (char c : text) {
    const int v = kValues[static_cast<uint8_t>(c)];
    if (v < 0) return false;
    held = held << 6 | static_cast<uint32_t>(v);
    if ((bits += 6) >= 8) bytes.push_back(static_cast<uint8_t>(held >> (bits -= 8)));
  }
  return (held & ((1u << bits) - 1)) == 0;
}

std::string encode_base64(std::string_view bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t v = 0;
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 3; ++j) v = v << 8 | (j < n ? static_cast<uint8_t>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j) out += j <= n ? kAlphabet[v >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

ReadImages read_images(const std::vector<ImageSource>& sources, const PixelConfig& pixels, const ImageRules& rules,
                       std::string& why, Errors& errors) {
  ReadImages out;
  if (static_cast<int64_t>(sources.size()) > rules.max_images) {
    why = "count";
    errors.bad("messages", fmt::format("the request has {} images; the limit is {}", sources.size(), rules.max_images),
               "invalid_image");
    return out;
  }
  const auto start = std::chrono::steady_clock::now();
  for (const ImageSource& source : sources) {
    const std::vector<uint8_t> bytes = data_of(source, rules, why, errors);
    if (errors.any()) return out;
    Result<Picture> picture = decode_picture(bytes, "image", rules.limits);
    if (!picture.is_ok()) {
      why = picture.status().code() == StatusCode::kUnavailable ? "format" : "broken";
      errors.bad(source.param,
                 why == "format" ? "this server was built without this image format"
                                 : "the image is not a PNG, JPEG or WebP within the limits, or is broken",
                 "invalid_image");
      return out;
    }
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > rules.seconds) {
      why = "time";
      errors.bad(source.param, "the request's images took too long to decode", "invalid_image");
      return out;
    }
    Result<Patches> patches = preprocess_image(*picture, pixels);
    if (!patches.is_ok()) {
      why = "size";
      errors.bad(source.param, "the image's shape can't be fitted into the model's patches", "invalid_image");
      return out;
    }
    out.media.images.push_back(std::move(patches).value());
    out.keys.push_back(image_key(bytes, *picture, pixels));
  }
  return out;
}

}  // namespace lathe::serve
