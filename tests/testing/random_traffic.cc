#include "testing/random_traffic.h"

#include <algorithm>

#include "image/processor_config.h"

namespace lathe::testing {

RandomTraffic::RandomTraffic(const TrafficOptions& options) : options_(options), random_(options.seed) {
  for (int d = 0; d < options_.documents; ++d) {
    std::vector<int32_t>& doc = documents_.emplace_back();
    for (int i = 0; i < options_.longest; ++i) doc.push_back(below(options_.vocab));
  }
}

// A document up to any place, or a little more than another prompt's beginning.
std::vector<int32_t> RandomTraffic::prompt() {
  if (!answered_.empty() && one_in(3)) {
    std::vector<int32_t> ids = answered_[below(static_cast<int>(answered_.size()))];
    for (int i = 1 + below(9); i > 0; --i) ids.push_back(below(options_.vocab));
    return ids;
  }
  const std::vector<int32_t>& doc = documents_[below(options_.documents)];
  std::vector<int32_t> ids(doc.begin(), doc.begin() + 1 + below(options_.longest - 1));
  for (int i = below(one_in(4) ? 60 : 6); i > 0; --i) ids.push_back(below(options_.vocab));
  return ids;
}

void RandomTraffic::choose_sampling(Request& r) {
  if (options_.greedy_only || one_in(2)) return;
  r.sampling.temperature = 0.5f + static_cast<float>(below(100)) / 100;
  r.sampling.seed = random_();
  if (one_in(2)) r.sampling.top_p = 0.8f;
  if (one_in(3)) r.sampling.top_k = 1 + below(40);
  if (one_in(4)) r.sampling.min_p = 0.05f;
}

// One small picture: its placeholders go somewhere into the prompt.
void RandomTraffic::add_picture(Request& r) {
  const PixelConfig config;
  Picture picture{56 + 28 * below(3), 56 + 28 * below(2), {}};
  const int shade = below(256);
  for (int i = 0; i < picture.width * picture.height * 3; ++i)
    picture.rgb.push_back(static_cast<uint8_t>((shade + i * (1 + shade % 7)) & 255));
  Patches patches = preprocess_image(picture, config).value();
  const auto features = static_cast<size_t>(patches.grid.tokens(options_.patch_merge));
  const auto at = r.prompt.begin() + below(static_cast<int>(r.prompt.size()));
  r.prompt.insert(at, features, options_.image_token);
  r.media_keys.push_back(fmt::format("picture {:3} {:3} {:3} ....", shade, picture.width, picture.height));
  r.media.images.push_back(std::move(patches));
}

void RandomTraffic::remember(std::vector<int32_t> tokens) {
  constexpr size_t kMost = 12;
  if (static_cast<int>(tokens.size()) > options_.longest) return;
  // A placeholder that was generated would ask for a picture.
  if (std::find(tokens.begin(), tokens.end(), options_.image_token) != tokens.end()) return;
  if (answered_.size() < kMost)
    answered_.push_back(std::move(tokens));
  else
    answered_[below(kMost)] = std::move(tokens);
}

// An output of two to four different tokens: the drafts of a model that was never trained are then right now and then.
void RandomTraffic::narrow(Request& r) {
  for (int i = 2 + below(3); i > 0; --i) r.logit_bias.push_back({below(options_.vocab), 60.0f});
}

RandomTraffic::Item RandomTraffic::next() {
  Item item;
  Request& r = item.request;
  r.id = fmt::format("r{}", count_++);
  r.user = fmt::format("u{}", below(5));
  r.priority = one_in(6) ? below(5) - 2 : 0;
  r.prompt = prompt();
  if (options_.pictures && one_in(8)) add_picture(r);
  r.max_tokens = 1 + below(options_.most_tokens);
  r.n = one_in(8) ? 2 + below(2) : 1;
  r.ignore_eos = one_in(2);
  choose_sampling(r);
  if (options_.logprobs) r.logprobs = 2;
  if (one_in(3))
    narrow(r);
  else if (one_in(6))
    r.presence_penalty = 0.5f, r.frequency_penalty = 0.3f;
  if (one_in(8)) r.repetition_penalty = 1.2f;
  if (one_in(8)) r.min_tokens = below(r.max_tokens + 1);
  if (one_in(5)) r.stop.push_back(std::string(1, static_cast<char>('a' + below(26))));
  if (one_in(8)) r.stop_tokens.push_back(below(options_.vocab));
  if (one_in(9)) r.cache_salt = "salt";
  if (one_in(10)) item.cancel_after_tokens = below(r.max_tokens);
  return item;
}

}  // namespace lathe::testing
