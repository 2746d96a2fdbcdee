#include "serve/fields.h"

#include <cmath>
#include <limits>

namespace lathe::serve {

namespace {

constexpr int kJsonDepth = 64;
constexpr unsigned kGenerate = kChat | kCompletions | kResponses | kMessages;
constexpr unsigned kTemplate = kChat | kRender;
constexpr double kMaxInteger = std::numeric_limits<int32_t>::max();

std::string type_name(const Json& v) {
  if (v.is_number_float()) return "a number";
  if (v.is_number()) return "an integer";
  return v.is_string()    ? "a string"
         : v.is_boolean() ? "a boolean"
         : v.is_array()   ? "a list"
         : v.is_object()  ? "an object"
                          : "null";
}

void wrong_type(const std::string& param, const char* want, const Json& v, Errors& errors) {
  errors.bad(param, fmt::format("{} must be {}, not {}", param, want, type_name(v)), "invalid_type");
}

std::string range(double low, double high, bool above_low) {
  return above_low ? fmt::format("greater than {} and at most {}", low, high) : fmt::format("within {}..{}", low, high);
}

bool is_whole(const Json& v) {
  if (v.is_number_integer()) return true;
  return v.is_number_float() && std::abs(v.get<double>()) < 9e15 && std::trunc(v.get<double>()) == v.get<double>();
}

std::optional<double> number_in(const Json& v, const std::string& param, double low, double high, bool above_low,
                                Errors& errors) {
  if (!v.is_number()) return wrong_type(param, "a number", v, errors), std::nullopt;
  const double x = v.get<double>();
  if (std::isfinite(x) && (above_low ? x > low : x >= low) && x <= high) return x;
  errors.bad(param, fmt::format("{} must be {}", param, range(low, high, above_low)), "out_of_range");
  return std::nullopt;
}

std::optional<int64_t> integer_in(const Json& v, const std::string& param, double low, double high, Errors& errors) {
  if (!v.is_number()) return wrong_type(param, "an integer", v, errors), std::nullopt;
  if (!is_whole(v)) return errors.bad(param, fmt::format("{} must be an integer", param), "invalid_type"), std::nullopt;
  const double x = v.get<double>();
  if (x >= low && x <= high) return v.is_number_float() ? static_cast<int64_t>(x) : v.get<int64_t>();
  errors.bad(param, fmt::format("{} must be an integer {}", param, range(low, high, false)), "out_of_range");
  return std::nullopt;
}

std::optional<std::string> text_in(const Json& v, const std::string& param, double low, double high, Errors& errors) {
  if (!v.is_string()) return wrong_type(param, "a string", v, errors), std::nullopt;
  const auto& s = v.get_ref<const std::string&>();
  if (low == high || (static_cast<double>(s.size()) >= low && static_cast<double>(s.size()) <= high)) return s;
  errors.bad(param, fmt::format("{} must have {}..{} bytes", param, low, high), "out_of_range");
  return std::nullopt;
}

Field boolean(const char* name, unsigned apis, std::optional<bool> Fields::* member, const char* fallback,
              const char* meaning) {
  return {name,
          apis,
          FieldType::kBoolean,
          0,
          0,
          false,
          fallback,
          meaning,
          [member](Fields& f, Json& v, const std::string& param, Errors& errors) {
            if (!v.is_boolean()) return wrong_type(param, "true or false", v, errors);
            f.*member = v.get<bool>();
          }};
}

Field integer(const char* name, unsigned apis, std::optional<int64_t> Fields::* member, double low, double high,
              const char* fallback, const char* meaning) {
  return {name,
          apis,
          FieldType::kInteger,
          low,
          high,
          false,
          fallback,
          meaning,
          [=](Fields& f, Json& v, const std::string& param, Errors& errors) {
            f.*member = integer_in(v, param, low, high, errors);
          }};
}

Field number(const char* name, unsigned apis, std::optional<double> Fields::* member, double low, double high,
             bool above_low, const char* fallback, const char* meaning) {
  return {name,
          apis,
          FieldType::kNumber,
          low,
          high,
          above_low,
          fallback,
          meaning,
          [=](Fields& f, Json& v, const std::string& param, Errors& errors) {
            f.*member = number_in(v, param, low, high, above_low, errors);
          }};
}

Field text(const char* name, unsigned apis, std::optional<std::string> Fields::* member, double low, double high,
           const char* fallback, const char* meaning) {
  return {name,
          apis,
          FieldType::kString,
          low,
          high,
          false,
          fallback,
          meaning,
          [=](Fields& f, Json& v, const std::string& param, Errors& errors) {
            f.*member = text_in(v, param, low, high, errors);
          }};
}

// One string, or a list of them.
Field texts(const char* name, unsigned apis, std::vector<std::string> Fields::* member, double most, double low,
            double high, const char* meaning) {
  return {name,
          apis,
          FieldType::kStrings,
          0,
          most,
          false,
          "none",
          meaning,
          [=](Fields& f, Json& v, const std::string& param, Errors& errors) {
            if (v.is_string()) v = Json::array({v});
            if (!v.is_array()) return wrong_type(param, "a string or a list of strings", v, errors);
            if (static_cast<double>(v.size()) > most)
              return errors.bad(param, fmt::format("{} has {} strings; the limit is {}", param, v.size(), most),
                                "out_of_range");
            for (size_t i = 0; i < v.size(); ++i)
              if (auto s = text_in(v[i], fmt::format("{}[{}]", param, i), low, high, errors))
                (f.*member).push_back(std::move(*s));
          }};
}

Field integers(const char* name, unsigned apis, std::vector<int64_t> Fields::* member, double most,
               const char* meaning) {
  return {
      name,
      apis,
      FieldType::kIntegers,
      0,
      most,
      false,
      "none",
      meaning,
      [=](Fields& f, Json& v, const std::string& param, Errors& errors) {
        if (!v.is_array()) return wrong_type(param, "a list of token ids", v, errors);
        if (static_cast<double>(v.size()) > most)
          return errors.bad(param, fmt::format("{} has {} entries; the limit is {}", param, v.size(), most),
                            "out_of_range");
        for (size_t i = 0; i < v.size(); ++i)
          (f.*member).push_back(integer_in(v[i], fmt::format("{}[{}]", param, i), 0, kMaxInteger, errors).value_or(0));
      }};
}

// Handed on as it is; whoever knows its inside reads it.
Field raw(const char* name, unsigned apis, Json Fields::* member, FieldType type, const char* fallback,
          const char* meaning) {
  return {name,
          apis,
          type,
          0,
          0,
          false,
          fallback,
          meaning,
          [=](Fields& f, Json& v, const std::string& param, Errors& errors) {
            if (type == FieldType::kObject && !v.is_object()) return wrong_type(param, "an object", v, errors);
            if (type == FieldType::kArray && !v.is_array()) return wrong_type(param, "a list", v, errors);
            if (type == FieldType::kIntegers && !v.is_array())
              return wrong_type(param, "a list of token ids", v, errors);
            f.*member = std::move(v);
          }};
}

// 64 bits, with or without sign.
Field seed(const char* name, unsigned apis, const char* meaning) {
  return {name,
          apis,
          FieldType::kSeed,
          0,
          0,
          false,
          "drawn at random",
          meaning,
          [](Fields& f, Json& v, const std::string& param, Errors& errors) {
            if (v.is_number_unsigned())
              f.seed = v.get<uint64_t>();
            else if (v.is_number_integer())
              f.seed = static_cast<uint64_t>(v.get<int64_t>());
            else if (v.is_number() && !is_whole(v))
              errors.bad(param, "seed must be a 64-bit integer", "out_of_range");
            else if (const auto x = integer_in(v, param, -9e15, 9e15, errors))
              f.seed = static_cast<uint64_t>(*x);
          }};
}

// Known to clients, without a meaning here.
Field ignored(const char* name, unsigned apis) {
  return {name,
          apis,
          FieldType::kIgnored,
          0,
          0,
          false,
          "",
          "accepted, without effect",
          [](Fields&, Json&, const std::string&, Errors&) {}};
}

std::vector<Field> make_table() {
  using enum FieldType;
  using F = Fields;
  const unsigned chat_like = kChat | kMessages | kResponses;
  return {
      text("model", kGenerate | kCountTokens | kRender | kTokenize | kDetokenize, &F::model, 1, 256, "the served model",
           "must be the served model's id"),
      raw("messages", kChat | kMessages | kCountTokens | kRender | kTokenize, &F::messages, kArray, "",
          "the conversation, 1 to 4096 messages"),
      raw("prompt", kCompletions | kTokenize, &F::prompt, kAny, "",
          "a string, a list of token ids, or a list of either (at most 64)"),
      raw("input", kResponses, &F::input, kAny, "", "a string, or a list of items"),
      raw("system", kMessages | kCountTokens, &F::system, kAny, "none", "system prompt: a string or text blocks"),
      raw("instructions", kResponses, &F::instructions, kAny, "none", "system prompt"),
      raw("tools", chat_like | kCountTokens | kRender | kTokenize, &F::tools, kArray, "none",
          "functions that may be called, at most 512"),
      raw("tool_choice", chat_like | kCountTokens | kRender, &F::tool_choice, kAny, "auto",
          "none, auto, required, or one function"),
      boolean("parallel_tool_calls", kChat | kResponses, &F::parallel_tool_calls, "true",
              "whether a reply may hold several calls; with false later ones are dropped"),
      text("reasoning_effort", kTemplate, &F::reasoning_effort, 1, 16, "the template's",
           "none, minimal, low, medium, high, xhigh or max"),
      raw("reasoning", kResponses, &F::reasoning, kObject, "none", "{effort}: as reasoning_effort"),
      raw("thinking", kMessages | kCountTokens, &F::thinking, kObject, "disabled",
          "{type: enabled, disabled or adaptive}: whether thinking blocks are shown"),
      raw("chat_template_kwargs", kTemplate | kTokenize, &F::chat_template_kwargs, kObject, "none",
          "variables of the template, of those that the server allows"),
      boolean("add_generation_prompt", kRender | kTokenize, &F::add_generation_prompt, "true",
              "whether the assistant's turn is opened at the end"),
      boolean("add_special_tokens", kCompletions | kTokenize, &F::add_special_tokens, "true",
              "whether the tokenizer puts its own tokens around a text"),
      raw("tokens", kDetokenize, &F::tokens, FieldType::kIntegers, "required", "ids to turn into text"),

      integer("max_tokens", kChat | kCompletions, &F::max_tokens, 1, kMaxInteger, "what is left of the context",
              "tokens of a choice at most; lowered to what fits (X-Max-Tokens-Effective)"),
      integer("max_tokens", kMessages, &F::max_tokens, 1, kMaxInteger, "required",
              "tokens of the reply at most; lowered to what fits (X-Max-Tokens-Effective)"),
      integer("max_completion_tokens", kChat, &F::max_completion_tokens, 1, kMaxInteger, "max_tokens",
              "the newer name of max_tokens; wins over it"),
      integer("max_output_tokens", kResponses, &F::max_output_tokens, 1, kMaxInteger, "what is left of the context",
              "as max_tokens"),
      integer("min_tokens", kGenerate, &F::min_tokens, 0, kMaxInteger, "0",
              "before that no end token and no stop string ends the output"),
      texts("stop", kChat | kCompletions | kResponses, &F::stop, 16, 1, 256,
            "strings that end the output; at most 16 of 1 to 256 bytes"),
      texts("stop_sequences", kMessages, &F::stop, 16, 1, 256,
            "strings that end the output; at most 16 of 1 to 256 bytes"),
      integers("stop_token_ids", kGenerate, &F::stop_token_ids, 64, "ids that end the output"),
      boolean("include_stop_str_in_output", kGenerate, &F::include_stop_str_in_output, "false",
              "whether the stop string stays in the text"),
      boolean("ignore_eos", kGenerate, &F::ignore_eos, "false", "go on behind end tokens"),

      number("temperature", kGenerate, &F::temperature, 0, 2, false, "server, then generation_config.json",
             "0: always the likeliest token"),
      number("top_p", kGenerate, &F::top_p, 0, 1, true, "server, then generation_config.json",
             "smallest set of likeliest tokens with that probability"),
      integer("top_k", kGenerate, &F::top_k, -1, kMaxInteger, "server, then generation_config.json",
              "likeliest tokens to draw from; -1 or 0: all"),
      number("min_p", kGenerate, &F::min_p, 0, 1, false, "server, then generation_config.json",
             "tokens at least that likely, relative to the likeliest"),
      number("presence_penalty", kGenerate, &F::presence_penalty, -2, 2, false, "0",
             "taken from the logit of every token of the output so far"),
      number("frequency_penalty", kGenerate, &F::frequency_penalty, -2, 2, false, "0",
             "likewise, times how often it came"),
      number("repetition_penalty", kGenerate, &F::repetition_penalty, 0, 2, true, "1",
             "divides logits of tokens of prompt and output"),
      seed("seed", kGenerate, "64 bits; what is drawn depends on (seed, position, logits) only"),
      raw("logit_bias", kChat | kCompletions, &F::logit_bias, kObject, "none", "token id to -100..100, at most 1024"),
      integer("n", kChat | kCompletions, &F::n, 1, 16, "1", "choices"),
      raw("response_format", kChat | kCompletions, &F::response_format, kObject, "text",
          "{type: text, json_object or json_schema}"),
      raw("text", kResponses, &F::text, kObject, "text", "{format: {type: text, json_object or json_schema}}"),
      raw("structured_outputs", kChat | kCompletions, &F::structured_outputs, kObject, "none",
          "one of json, regex, choice, grammar"),
      raw("guided_json", kChat | kCompletions, &F::guided_json, kAny, "none", "a schema; older name"),
      text("guided_regex", kChat | kCompletions, &F::guided_regex, 1, 1 << 10, "none", "a pattern; older name"),
      texts("guided_choice", kChat | kCompletions, &F::guided_choice, 10'000, 1, 1 << 16,
            "texts of which the output is one; older name"),
      text("guided_grammar", kChat | kCompletions, &F::guided_grammar, 1, 64 << 10, "none",
           "a grammar in EBNF; older name"),

      boolean("stream", kGenerate, &F::stream, "false", "server-sent events"),
      raw("stream_options", kChat | kCompletions, &F::stream_options, kObject, "none",
          "{include_usage, continuous_usage_stats}"),
      boolean("logprobs", kChat, &F::logprobs, "false", "log-probabilities of the output's tokens"),
      integer("top_logprobs", kChat, &F::top_logprobs, 0, 20, "0", "and of so many best"),
      integer("logprobs", kCompletions, &F::completion_logprobs, 0, 20, "none",
              "log-probabilities of the output's tokens, and of so many best"),
      integer("prompt_logprobs", kChat | kCompletions, &F::prompt_logprobs, 0, 5, "none",
              "likewise, of the prompt's tokens"),
      boolean("skip_special_tokens", kGenerate | kDetokenize, &F::skip_special_tokens, "true (detokenize: false)",
              "leave special tokens out of the text"),
      boolean("return_token_ids", kChat | kCompletions, &F::return_token_ids, "false", "also tell the ids"),

      integer("priority", kGenerate, &F::priority, -10, 10, "0", "greater goes first; a key's class bounds it"),
      integer("timeout_ms", kGenerate, &F::timeout_ms, 1, kMaxInteger, "none",
              "deadline; 504, or an error frame with code deadline_exceeded"),
      text("cache_salt", kGenerate, &F::cache_salt, 0, 128, "the key's",
           "prompts share cached beginnings only under one salt"),
      boolean("store", kChat | kResponses, &F::store, "false", "responses: true is refused, nothing is stored"),
      text("previous_response_id", kResponses, &F::previous_response_id, 0, 0, "", "refused: nothing is stored"),
      boolean("background", kResponses, &F::background, "false", "true is refused"),
      boolean("echo", kCompletions, &F::echo, "false", "true is refused"),
      text("suffix", kCompletions, &F::suffix, 0, 0, "none", "refused unless empty"),
      integer("best_of", kCompletions, &F::best_of, 1, 16, "n", "must equal n"),
      ignored("user", kGenerate),
      ignored("metadata", kGenerate | kCountTokens),
      ignored("service_tier", kGenerate),
      ignored("safety_identifier", kChat | kResponses),
      ignored("prompt_cache_key", kChat | kResponses),
      ignored("prompt_cache_retention", kChat | kResponses),
      ignored("verbosity", kChat),
      ignored("modalities", kChat),
      ignored("truncation", kResponses),
      ignored("include", kResponses),
      ignored("max_tool_calls", kResponses),
      ignored("container", kMessages),
      ignored("context_management", kMessages | kCountTokens),
      ignored("output_config", kMessages | kCountTokens),
      ignored("client_metadata", kResponses),
      ignored("top_logprobs", kResponses),
  };
}

// Depth of brackets outside strings, without recursion and before anything is built.
int depth_of(std::string_view text) {
  int depth = 0, most = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      most = std::max(most, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return most;
}

}  // namespace

const std::vector<Field>& field_table() {
  static const std::vector<Field> table = make_table();
  return table;
}

Fields read_fields(Api api, Json& body, std::set<std::string>& unknown, Errors& errors) {
  Fields fields;
  for (auto& [name, value] : body.items()) {
    const Field* found = nullptr;
    for (const Field& f : field_table())
      if ((f.apis & api) && name == f.name) found = &f;
    if (!found)
      unknown.insert(name);
    else if (!value.is_null())
      found->read(fields, value, name, errors);
  }
  return fields;
}

Json parse_body(std::string_view text, Errors& errors) {
  if (depth_of(text) > kJsonDepth) {
    errors.bad("", "the body is nested more than 64 levels deep", "invalid_json");
    return Json::object();
  }
  Json body = Json::parse(text, nullptr, false);
  if (body.is_discarded())
    errors.bad("", "the body is not valid JSON (UTF-8, numbers within double's range)", "invalid_json");
  else if (!body.is_object())
    errors.bad("", "the body must be a JSON object", "invalid_json");
  return errors.any() ? Json::object() : body;
}

}  // namespace lathe::serve
