#pragma once

#include <random>
#include <string>
#include <vector>

#include "engine/service.h"

namespace lathe::testing {

// Requests as a bad day brings them: beginnings shared up to every offset of a pool and a page, forks, all kinds of
// sampling, stop strings, cancellations, priorities that push others out, further turns of what was answered.
struct TrafficOptions {
  uint64_t seed = 0;
  int vocab = 256;    // ids below are drawn
  int documents = 6;  // beginnings that prompts share
  int longest = 260;  // tokens of a document
  int most_tokens = 24;
  bool greedy_only = false;
  bool logprobs = false;  // of every token
  bool pictures = false;  // some prompts have one
  int image_token = -1;
  int patch_merge = 2;
};

class RandomTraffic {
 public:
  explicit RandomTraffic(const TrafficOptions& options);

  struct Item {
    Request request;
    int cancel_after_tokens = -1;  // -1: never
  };
  Item next();
  // A prompt with its answer: perhaps somebody goes on from there.
  void remember(std::vector<int32_t> tokens);

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool one_in(int n) { return below(n) == 0; }
  std::vector<int32_t> prompt();
  void add_picture(Request& r);
  void choose_sampling(Request& r);
  void narrow(Request& r);

  TrafficOptions options_;
  std::mt19937_64 random_;
  std::vector<std::vector<int32_t>> documents_, answered_;
  int count_ = 0;
};

}  // namespace lathe::testing
