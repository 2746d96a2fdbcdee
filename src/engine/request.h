#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/pictures.h"
#include "ops/sample/sample.h"
#include "text/grammar/grammar.h"

// What comes into the engine's step loop and what goes out (serving.md 2 and 4). Requests are checked before they get
// here: limits of fields, lengths, ids.
namespace lathe {

using SteadyTime = std::chrono::steady_clock::time_point;

struct LogitBias {
  int32_t token;
  float bias;
};

struct Request {
  std::string id;    // unique among the requests in flight; also how it is cancelled
  std::string user;  // of the fair queue
  int priority = 0;  // greater goes first

  std::vector<int32_t> prompt;  // placeholders of media expanded; not empty
  Media media;                  // for those placeholders, in order
  std::vector<std::string>
      media_keys;  // one a picture, then one a clip: hash of bytes, size, preprocessing; >= 16 bytes
  std::string cache_salt;

  SampleSettings sampling;  // choice i of n draws with seed + i
  float presence_penalty = 0, frequency_penalty = 0, repetition_penalty = 1;
  std::vector<LogitBias> logit_bias;
  int n = 1;
  int max_tokens = 0;  // at least 1; what fits into the context
  int min_tokens = 0;  // before that no end token and no stop string ends the output
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_tokens;
  bool include_stop = false;  // the stop string stays in the text
  int logprobs = -1;          // -1: none; else of the token and so many best
  int prompt_logprobs = -1;   // likewise, of the prompt's tokens
  std::shared_ptr<const Grammar> grammar;
  bool grammar_after_reasoning = false;  // the mask begins behind </think>
  std::optional<SteadyTime> deadline;
};

struct TokenLogprob {
  int32_t token;
  float logprob;
  int rank = 0;  // 1: the best
};

struct OutputToken {
  int32_t token;
  std::optional<float> logprob;
  std::vector<TokenLogprob> best;  // falling
};

enum class FinishReason { kStop, kLength };
// Why a request ended without a finish reason.
enum class Failure {
  kCancelled,
  kDeadline,
  kGrammarDeadEnd,
  kNonFinite,
  kExhausted,
  kDraining,
  kInternal,  // something of this request's own broke; others go on
  kEngine,    // nothing goes on
};
const char* failure_name(Failure failure);

struct Usage {
  int prompt_tokens = 0, cached_tokens = 0, image_tokens = 0;
  int completion_tokens = 0;  // of all choices, those that ended a choice included
  int reasoning_tokens = 0;   // up to and with </think>
};

// One step's news of one choice. Text is whole characters, cut where a stop string was met; what may yet become one is
// held back. All texts of a choice together are its output. `tokens` end where the text ends.
struct OutputPiece {
  int choice = 0;
  std::string text;
  std::vector<OutputToken> tokens;
  std::optional<FinishReason> finish;
  std::string stopped_by;  // the stop string, if one
};

struct RequestEvent {
  enum class Kind { kStarted, kOutput, kDone, kFailed };
  Kind kind = Kind::kOutput;
  std::vector<OutputPiece> pieces;           // of kOutput: coalesced, one a choice at most
  std::vector<OutputToken> prompt_logprobs;  // of kStarted, if asked for; the first token has none
  Usage usage;                               // so far
  Failure failure = Failure::kEngine;        // of kFailed
  std::string message;                       // for a person, of kFailed
};

}  // namespace lathe
