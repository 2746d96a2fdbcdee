#pragma once

#include <chrono>
#include <memory>
#include <set>
#include <string>

#include "lathe/server.h"
#include "serve/api_keys.h"
#include "serve/generation.h"
#include "serve/images.h"
#include "serve/metrics.h"
#include "serve/structured.h"
#include "text/grammar/grammar_cache.h"

namespace lathe::serve {

// What requests are prepared with; outlives them.
struct PreparationTools {
  const ServerConfig& config;
  const Service& service;
  GrammarCache& grammars;  // of the service's tokenizer
  Metrics& metrics;
  std::optional<PixelConfig> pixels;  // absent: the model takes no pictures
  std::string model, fingerprint;
};

// A request on its way from bytes to what the engine takes, in steps that different threads may run. After each step
// that returns false, error() says why.
class Preparation {
 public:
  Preparation(const PreparationTools& tools, Api api, ApiKey asker);

  bool read(std::string_view body);  // JSON to fields, fields to a conversation or prompts
  bool tokenize();                   // through the template, to ids
  bool is_heavy() const { return !conversation_.images.empty() || structure_; }
  bool read_media();                // decodes pictures, expands their placeholders; compiles the grammar
  bool plan(GenerationPlan& plan);  // lengths, defaults and all checks that need the ids

  const ApiError& error() const { return errors_.first(); }
  const std::set<std::string>& unknown_fields() const { return unknown_; }
  const std::vector<std::vector<int32_t>>& prompts() const { return prompts_; }
  const std::string& rendered() const { return rendered_; }
  const Fields& fields() const { return fields_; }
  int64_t prompt_tokens() const;
  int choices() const { return static_cast<int>(fields_.n.value_or(1)); }

 private:
  void read_ids(const Json& tokens);
  void read_prompts(const Json& prompt);
  void check_fields();
  SampleSettings sampling() const;
  bool fill(Request& request, int64_t asked_tokens);
  void read_logit_bias(Request& request);

  const PreparationTools& tools_;
  const Api api_;
  const ApiKey asker_;
  const std::chrono::steady_clock::time_point arrival_ = std::chrono::steady_clock::now();
  Errors errors_;
  std::set<std::string> unknown_;
  Fields fields_;
  Conversation conversation_;
  bool is_chat_ = false;
  std::vector<std::string> texts_;  // of /v1/completions, before tokenize()
  std::vector<std::vector<int32_t>> prompts_;
  std::string rendered_;
  std::optional<GrammarSource> structure_;
  std::shared_ptr<const Grammar> grammar_;
  ReadImages images_;
  bool in_reasoning_ = false;
};

}  // namespace lathe::serve
