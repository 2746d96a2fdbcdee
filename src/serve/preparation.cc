#include "serve/preparation.h"

#include <algorithm>
#include <charconv>
#include <random>

#include "serve/metrics.h"

namespace lathe::serve {

namespace {

constexpr size_t kPrompts = 64, kBiases = 1024;

bool ends_with_think(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return text.ends_with("<think>");
}

uint64_t random_seed() {
  thread_local std::random_device device;
  return uint64_t{device()} << 32 | device();
}

std::vector<int32_t> ids_of(const Json& list, const std::string& param, int vocab, Errors& errors) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& v = list[i];
    if (!v.is_number_integer() || v.get<int64_t>() < 0 || v.get<int64_t>() >= vocab) {
      errors.bad(param, fmt::format("{}[{}] must be a token id below {}", param, i, vocab));
      return ids;
    }
    ids.push_back(v.get<int32_t>());
  }
  return ids;
}

}  // namespace

Preparation::Preparation(const PreparationTools& tools, Api api, ApiKey asker)
    : tools_(tools), api_(api), asker_(std::move(asker)) {}

bool Preparation::read(std::string_view text) {
  Json body = parse_body(text, errors_);
  fields_ = read_fields(api_, body, unknown_, errors_);
  if (!unknown_.empty() && tools_.config.reject_unknown_fields)
    errors_.bad(*unknown_.begin(), fmt::format("there is no field '{}'", *unknown_.begin()), "unknown_field");
  if (errors_.any()) return false;
  if (fields_.model && *fields_.model != tools_.model)
    errors_.fail({.status = 404,
                  .message = "the model is not served here; see /v1/models",
                  .param = "model",
                  .code = "model_not_found"});
  const ConversationRules rules{.strict = tools_.config.reject_unknown_fields,
                                .template_keys = tools_.config.template_keys};
  is_chat_ = true;
  if (api_ == kChat || api_ == kRender) {
    conversation_ = read_chat(fields_, rules, errors_);
  } else if (api_ == kMessages || api_ == kCountTokens) {
    conversation_ = read_messages_api(fields_, rules, errors_);
  } else if (api_ == kResponses) {
    conversation_ = read_responses_input(fields_, rules, errors_);
  } else if (api_ == kTokenize && !fields_.messages.is_null()) {
    conversation_ = read_chat(fields_, rules, errors_);
  } else {
    is_chat_ = false;
    if (api_ == kDetokenize)
      read_ids(fields_.tokens);
    else
      read_prompts(fields_.prompt);
  }
  check_fields();
  return !errors_.any();
}

void Preparation::read_ids(const Json& tokens) {
  if (tokens.is_null()) return errors_.bad("tokens", "tokens is missing", "missing");
  prompts_.push_back(ids_of(tokens, "tokens", tools_.service.config().text.vocab, errors_));
}

// A string, ids, or a list of either.
void Preparation::read_prompts(const Json& prompt) {
  const int vocab = tools_.service.config().text.vocab;
  if (prompt.is_null()) return errors_.bad("prompt", "prompt is missing", "missing");
  if (prompt.is_string()) return texts_.push_back(prompt.get<std::string>());
  if (!prompt.is_array())
    return errors_.bad("prompt", "prompt must be a string, a list of token ids, or a list of either", "invalid_type");
  if (prompt.empty()) return errors_.bad("prompt", "prompt is empty", "out_of_range");
  if (prompt[0].is_number()) return prompts_.push_back(ids_of(prompt, "prompt", vocab, errors_));
  if (prompt.size() > kPrompts || (api_ == kTokenize && prompt.size() > 1))
    return errors_.bad(
        "prompt",
        fmt::format("prompt holds {} prompts; the limit is {}", prompt.size(), api_ == kTokenize ? 1 : kPrompts),
        "out_of_range");
  for (size_t i = 0; i < prompt.size() && !errors_.any(); ++i) {
    const std::string param = fmt::format("prompt[{}]", i);
    if (prompt[i].is_string() && prompts_.empty())
      texts_.push_back(prompt[i].get<std::string>());
    else if (prompt[i].is_array() && texts_.empty())
      prompts_.push_back(ids_of(prompt[i], param, vocab, errors_));
    else
      errors_.bad(param, param + " must be of the same kind as the others: strings, or lists of token ids",
                  "invalid_type");
  }
}

void Preparation::check_fields() {
  const Fields& f = fields_;
  if (api_ == kMessages && !f.max_tokens) errors_.bad("max_tokens", "max_tokens is missing", "missing");
  if (f.top_logprobs && !f.logprobs.value_or(false)) errors_.bad("top_logprobs", "top_logprobs needs logprobs: true");
  if (f.echo.value_or(false)) errors_.bad("echo", "echo is not offered; see prompt_logprobs", "unsupported");
  if (f.suffix && !f.suffix->empty()) errors_.bad("suffix", "suffix is not offered", "unsupported");
  if (f.best_of && *f.best_of != f.n.value_or(1)) errors_.bad("best_of", "best_of must equal n", "unsupported");
  if (f.stream_options.is_object() && !f.stream.value_or(false))
    errors_.bad("stream_options", "stream_options needs stream: true");
  for (const char* name : {"include_usage", "continuous_usage_stats"})
    if (const Json& v = member(f.stream_options, name); !v.is_null() && !v.is_boolean())
      errors_.bad("stream_options", fmt::format("stream_options.{} must be true or false", name), "invalid_type");
  if (const Json& type = member(f.thinking, "type");
      f.thinking.is_object() && type != "enabled" && type != "disabled" && type != "adaptive")
    errors_.bad("thinking.type", "thinking.type must be enabled, disabled or adaptive");
  if (f.priority && !asker_.name.empty() && *f.priority > asker_.priority)
    errors_.fail({.status = 403,
                  .type = "permission_error",
                  .message = fmt::format("priority: this key may ask for at most {}", asker_.priority),
                  .param = "priority",
                  .code = "priority_not_allowed"});
  const int vocab = tools_.service.config().text.vocab;
  for (int64_t id : f.stop_token_ids)
    if (id >= vocab) errors_.bad("stop_token_ids", fmt::format("stop_token_ids must be token ids below {}", vocab));
  structure_ = read_structure(f, errors_);
  const std::optional<GrammarSource> forced = errors_.any() ? std::nullopt : forced_calls(conversation_);
  if (structure_ && forced)
    return errors_.bad("response_format", "tool_choice forces a call, which leaves no text for response_format",
                       "unsupported");
  if (forced) structure_ = forced;
  if (structure_ && !forced && !conversation_.tools.empty() && conversation_.choice.kind != ToolChoice::Kind::kNone)
    structure_->tools = dump(conversation_.tools), structure_->parallel = conversation_.parallel_calls;
}

bool Preparation::tokenize() {
  const Tokenizer& tokenizer = tools_.service.tokenizer();
  if (!is_chat_) {
    for (const std::string& text : texts_) {
      // What clients write never becomes a control token.
      Result<std::vector<int32_t>> ids =
          tokenizer.encode(text, {.match_added = false, .add_special = fields_.add_special_tokens.value_or(true)});
      if (!ids.is_ok()) return errors_.bad("prompt", "prompt can't be tokenized: " + ids.status().message()), false;
      prompts_.push_back(std::move(ids).value());
    }
    return true;
  }
  const ChatTemplate* chat = tools_.service.chat_template();
  if (!chat)
    return errors_.bad("messages", "the model has no chat template; use /v1/completions", "unsupported"), false;
  const bool with_tools = !conversation_.tools.empty() && conversation_.choice.kind != ToolChoice::Kind::kNone;
  const ChatInput input{.messages = dump(conversation_.messages),
                        .tools = with_tools ? dump(conversation_.tools) : "",
                        .variables = conversation_.variables.empty() ? "" : dump(conversation_.variables),
                        .generation_prompt = conversation_.generation_prompt};
  const Result<RenderedChat> rendered = chat->render(input);
  if (!rendered.is_ok()) {
    errors_.bad("messages", "the chat template refuses these messages: " + rendered.status().message().substr(0, 200),
                "template_error");
    return false;
  }
  Result<std::vector<int32_t>> ids = rendered->encode(tokenizer);
  if (!ids.is_ok()) return errors_.bad("messages", "the messages can't be tokenized: " + ids.status().message()), false;
  rendered_ = rendered->text();
  in_reasoning_ = ends_with_think(rendered_);
  prompts_.push_back(std::move(ids).value());
  return true;
}

bool Preparation::read_media() {
  if (!conversation_.images.empty()) {
    std::string why = "unsupported";
    if (!tools_.pixels)
      errors_.bad(conversation_.images[0].param, "the model takes no images", "invalid_image");
    else
      images_ =
          read_images(conversation_.images, *tools_.pixels,
                      {.max_images = tools_.config.max_images,
                       .limits = {.encoded_bytes = tools_.config.image_bytes, .pixels = tools_.config.image_pixels},
                       .seconds = tools_.config.image_seconds},
                      why, errors_);
    if (errors_.any()) {
      tools_.metrics.count("image_rejects_total", fmt::format("why={}", quoted_label(why)));
      return false;
    }
    Result<std::vector<int32_t>> expanded = tools_.service.expand(prompts_[0], images_.media);
    if (!expanded.is_ok())
      return errors_.bad("messages", "the template has no place for these images", "invalid_image"), false;
    prompts_[0] = std::move(expanded).value();
  }
  if (!structure_) return true;
  const auto begin = std::chrono::steady_clock::now();
  auto grammar = tools_.grammars.get(*structure_);
  tools_.metrics.observe("grammar_compile_seconds",
                         std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  if (!grammar.is_ok()) {
    tools_.metrics.count("grammar_failures_total", "why=\"refused\"");
    const bool calls = structure_->kind == GrammarSource::Kind::kToolCalls;
    return errors_.bad(calls ? "tools" : structure_param(fields_), grammar.status().message(), "invalid_grammar"),
           false;
  }
  grammar_ = std::move(grammar).value();
  return true;
}

int64_t Preparation::prompt_tokens() const {
  int64_t sum = 0;
  for (const auto& p : prompts_) sum += static_cast<int64_t>(p.size());
  return sum;
}

// The request's wish, else the server's, else the model's.
SampleSettings Preparation::sampling() const {
  const ServerConfig& c = tools_.config;
  SampleSettings s = tools_.service.default_sampling();
  if (c.temperature >= 0) s.temperature = static_cast<float>(c.temperature);
  if (c.top_p >= 0) s.top_p = static_cast<float>(c.top_p);
  if (c.min_p >= 0) s.min_p = static_cast<float>(c.min_p);
  if (c.top_k > -2) s.top_k = static_cast<int32_t>(std::max<int64_t>(0, c.top_k));
  if (fields_.temperature) s.temperature = static_cast<float>(*fields_.temperature);
  if (fields_.top_p) s.top_p = static_cast<float>(*fields_.top_p);
  if (fields_.min_p) s.min_p = static_cast<float>(*fields_.min_p);
  if (fields_.top_k) s.top_k = static_cast<int32_t>(std::max<int64_t>(0, *fields_.top_k));
  s.seed = fields_.seed ? *fields_.seed : random_seed();
  return s;
}

void Preparation::read_logit_bias(Request& r) {
  if (!fields_.logit_bias.is_object()) return;
  if (fields_.logit_bias.size() > kBiases)
    return errors_.bad("logit_bias", "logit_bias has more than 1024 entries", "out_of_range");
  for (const auto& [key, value] : fields_.logit_bias.items()) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= tools_.service.config().text.vocab)
      return errors_.bad("logit_bias", fmt::format("logit_bias: '{}' is no token id below {}", key,
                                                   tools_.service.config().text.vocab));
    if (!value.is_number() || !(value.get<double>() >= -100 && value.get<double>() <= 100))
      return errors_.bad("logit_bias", fmt::format("logit_bias.{} must be a number within -100..100", key),
                         "out_of_range");
    r.logit_bias.push_back({id, value.get<float>()});
  }
}

bool Preparation::fill(Request& r, int64_t asked_tokens) {
  const Fields& f = fields_;
  const int context = tools_.service.max_context();
  const auto prompt = static_cast<int64_t>(r.prompt.size());
  if (prompt == 0)
    return errors_.bad(is_chat_ ? "messages" : "prompt", "the prompt has no tokens", "out_of_range"), false;
  if (prompt > context - 1)
    return errors_.bad(
               is_chat_ ? "messages" : "prompt",
               fmt::format("the prompt has {} tokens; the limit is {}, one less than the context", prompt, context - 1),
               "context_length_exceeded"),
           false;
  r.user = asker_.name.empty() ? "anonymous" : asker_.name;
  r.priority = static_cast<int>(f.priority.value_or(std::min(0, asker_.name.empty() ? 0 : asker_.priority)));
  r.cache_salt = asker_.cache_salt.empty() ? f.cache_salt.value_or("") : asker_.cache_salt;
  r.sampling = sampling();
  r.presence_penalty = static_cast<float>(f.presence_penalty.value_or(0));
  r.frequency_penalty = static_cast<float>(f.frequency_penalty.value_or(0));
  r.repetition_penalty = static_cast<float>(f.repetition_penalty.value_or(1));
  read_logit_bias(r);
  r.n = static_cast<int>(f.n.value_or(1));
  r.max_tokens = static_cast<int>(std::min<int64_t>(asked_tokens > 0 ? asked_tokens : context, context - prompt));
  if (f.min_tokens.value_or(0) > r.max_tokens)
    errors_.bad("min_tokens",
                fmt::format("min_tokens is greater than the {} tokens that the output may have", r.max_tokens),
                "out_of_range");
  r.min_tokens = static_cast<int>(std::min<int64_t>(f.min_tokens.value_or(0), r.max_tokens));
  r.ignore_eos = f.ignore_eos.value_or(false);
  r.skip_special_tokens = f.skip_special_tokens.value_or(true);
  r.stop = f.stop;
  for (int64_t id : f.stop_token_ids) r.stop_tokens.push_back(static_cast<int32_t>(id));
  r.include_stop = f.include_stop_str_in_output.value_or(false);
  if (f.logprobs.value_or(false)) r.logprobs = static_cast<int>(f.top_logprobs.value_or(0));
  if (f.completion_logprobs) r.logprobs = static_cast<int>(*f.completion_logprobs);
  if (f.prompt_logprobs) r.prompt_logprobs = static_cast<int>(*f.prompt_logprobs);
  r.grammar = grammar_;
  r.grammar_after_reasoning = grammar_ && in_reasoning_;
  if (f.timeout_ms) r.deadline = arrival_ + std::chrono::milliseconds(*f.timeout_ms);
  return !errors_.any();
}

bool Preparation::plan(GenerationPlan& plan) {
  const Fields& f = fields_;
  const char* prefix = api_ == kChat          ? "chatcmpl-"
                       : api_ == kCompletions ? "cmpl-"
                       : api_ == kMessages    ? "msg_"
                                              : "resp_";
  int64_t asked = f.max_tokens.value_or(0);
  if (f.max_completion_tokens) asked = *f.max_completion_tokens;
  if (f.max_output_tokens) asked = *f.max_output_tokens;

  Reply& reply = plan.reply;
  reply.id = new_id(prefix);
  reply.model = tools_.model, reply.fingerprint = tools_.fingerprint;
  reply.created = static_cast<int64_t>(time(nullptr));
  reply.choices_a_prompt = static_cast<int>(f.n.value_or(1));
  reply.logprobs = f.logprobs.value_or(false) || f.completion_logprobs.has_value();
  reply.token_ids = f.return_token_ids.value_or(false);
  reply.tell_prompt_logprobs = f.prompt_logprobs.has_value();
  reply.include_usage = member(f.stream_options, "include_usage") == true;
  reply.continuous_usage = member(f.stream_options, "continuous_usage_stats") == true;
  if (api_ == kMessages) reply.reasoning = f.thinking.is_object() && f.thinking["type"] != "disabled";
  if (reply.token_ids) reply.prompts = prompts_;

  int64_t least = asked;
  for (size_t i = 0; i < prompts_.size(); ++i) {
    Request r;
    r.id = prompts_.size() == 1 ? reply.id : fmt::format("{}-{}", reply.id, i);
    r.prompt = std::move(prompts_[i]);
    if (i == 0) r.media = std::move(images_.media), r.media_keys = std::move(images_.keys);
    if (!fill(r, asked)) return false;
    least = std::min<int64_t>(least, r.max_tokens);
    plan.requests.push_back(std::move(r));
  }
  if (asked > 0 && least < asked) plan.headers.push_back({"X-Max-Tokens-Effective", std::to_string(least)});

  const Tokenizer& tokenizer = tools_.service.tokenizer();
  plan.stream = f.stream.value_or(false);
  plan.parse = is_chat_;
  plan.in_reasoning = in_reasoning_;
  plan.parallel_calls = conversation_.parallel_calls;
  if (conversation_.choice.kind != ToolChoice::Kind::kNone && !conversation_.tools.empty())
    plan.tools = dump(conversation_.tools);
  switch (api_) {
    case kMessages:
      plan.shape = make_messages_shape();
      break;
    case kResponses: {
      Json echoed = {
          {"parallel_tool_calls", conversation_.parallel_calls},
          {"tools", f.tools.is_null() ? Json::array() : f.tools},
          {"tool_choice", f.tool_choice.is_null() ? Json("auto") : f.tool_choice},
          {"instructions", f.instructions},
          {"max_output_tokens", nullptr},
          {"temperature", plan.requests[0].sampling.temperature},
          {"top_p", plan.requests[0].sampling.top_p},
          {"text", f.text.is_null() ? Json{{"format", {{"type", "text"}}}} : f.text},
          {"reasoning", f.reasoning.is_null() ? Json{{"effort", nullptr}, {"summary", nullptr}} : f.reasoning},
          {"truncation", "disabled"},
          {"metadata", Json::object()}};
      if (f.max_output_tokens) echoed["max_output_tokens"] = *f.max_output_tokens;
      plan.shape = make_responses_shape(std::move(echoed));
      break;
    }
    case kCompletions:
      plan.shape = make_completions_shape(tokenizer);
      break;
    default:
      plan.shape = make_chat_shape(tokenizer);
  }
  return true;
}

}  // namespace lathe::serve
