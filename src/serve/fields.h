#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "serve/api_error.h"
#include "serve/json.h"

// Fields of request bodies. One table says which there are, for which routes, within which bounds: decoding, the
// OpenAPI file, docs/serving.md and the tests of bounds all follow from it.
namespace lathe::serve {

enum Api : unsigned {
  kChat = 1,
  kCompletions = 2,
  kResponses = 4,
  kMessages = 8,
  kCountTokens = 16,
  kRender = 32,
  kTokenize = 64,
  kDetokenize = 128,
};

struct Fields {
  // -- what is asked
  std::optional<std::string> model;
  Json messages, prompt, input, system, instructions;
  Json tools, tool_choice;
  std::optional<bool> parallel_tool_calls, add_generation_prompt, add_special_tokens;
  std::optional<std::string> reasoning_effort;
  Json reasoning, thinking, chat_template_kwargs;
  Json tokens;  // of /detokenize

  // -- how long
  std::optional<int64_t> max_tokens, max_completion_tokens, max_output_tokens, min_tokens;
  std::vector<std::string> stop;
  std::vector<int64_t> stop_token_ids;
  std::optional<bool> include_stop_str_in_output, ignore_eos;

  // -- how tokens are chosen
  std::optional<double> temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<int64_t> top_k, n;
  std::optional<uint64_t> seed;
  Json logit_bias, response_format, text, structured_outputs, guided_json;
  std::optional<std::string> guided_regex, guided_grammar;
  std::vector<std::string> guided_choice;

  // -- what is told
  std::optional<bool> stream, logprobs, skip_special_tokens, return_token_ids;
  std::optional<int64_t> top_logprobs, completion_logprobs, prompt_logprobs;
  Json stream_options;

  // -- how it is served
  std::optional<int64_t> priority, timeout_ms;
  std::optional<std::string> cache_salt;
  std::optional<bool> store;
  std::optional<std::string> previous_response_id;
  std::optional<bool> echo, background;
  std::optional<std::string> suffix;
  std::optional<int64_t> best_of;
};

enum class FieldType {
  kBoolean,
  kInteger,
  kNumber,
  kSeed,
  kString,
  kStrings,
  kIntegers,
  kObject,
  kArray,
  kAny,
  kIgnored
};

struct Field {
  const char* name;
  unsigned apis;  // any of Api
  FieldType type;
  double low = 0, high = 0;   // of a number, a string's bytes, a list's length; equal: no bound of its own
  bool above_low = false;     // low itself is too little
  const char* fallback = "";  // what holds where it is absent, in words
  const char* meaning = "";
  std::function<void(Fields&, Json&, const std::string& param, Errors&)> read;
};

// In the order in which the documents show them.
const std::vector<Field>& field_table();

// Reads the fields of one API out of a body, which is used up. Unknown names are collected.
Fields read_fields(Api api, Json& body, std::set<std::string>& unknown, Errors& errors);

// A body as one JSON object: at most 64 levels deep, valid UTF-8, no NaN.
Json parse_body(std::string_view text, Errors& errors);

}  // namespace lathe::serve
