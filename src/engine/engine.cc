#include "lathe/engine.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/executor.h"
#include "engine/generation_defaults.h"
#include "engine/pictures.h"
#include "engine/run_settings.h"
#include "engine/token_choice.h"
#include "ops/registry.h"
#include "text/chat_template.h"
#include "text/output_parser.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace lathe {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kDefaultContext = 131072;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Result<SampleSettings> settle(const SamplingOptions& o, const SampleSettings& defaults) {
  SampleSettings s{.temperature = o.temperature.value_or(defaults.temperature),
                   .top_p = o.top_p.value_or(defaults.top_p),
                   .min_p = o.min_p,
                   .top_k = o.top_k,
                   .seed = o.seed};
  if (!(s.temperature >= 0 && s.temperature <= 100))
    return invalid("temperature {}: must lie in 0..100", s.temperature);
  if (!(s.top_p > 0 && s.top_p <= 1)) return invalid("top_p {}: must lie in (0, 1]", s.top_p);
  if (!(s.min_p >= 0 && s.min_p <= 1)) return invalid("min_p {}: must lie in 0..1", s.min_p);
  if (s.top_k < 0) return invalid("top_k {}: must be at least 1, or 0 for all", s.top_k);
  if (o.max_tokens < 1) return invalid("max_tokens {}: must be at least 1", o.max_tokens);
  return s;
}

}  // namespace

class Prompt {
 public:
  std::vector<int32_t> tokens;
  Media media;
};

struct Engine::State {
  State(EngineOptions o, glm5_next::Config c, Checkpoint p, Tokenizer t, std::unique_ptr<Device> d, int threads)
      : options(std::move(o)),
        config(std::move(c)),
        checkpoint(std::move(p)),
        tokenizer(std::move(t)),
        device(std::move(d)),
        pool(threads),
        choice(config.text.vocab) {}

  EngineOptions options;
  glm5_next::Config config;
  Checkpoint checkpoint;
  Tokenizer tokenizer;
  std::unique_ptr<Device> device;
  ThreadPool pool;
  std::unique_ptr<Executor> executor;
  TokenChoice choice;
  std::optional<ChatTemplate> chat;
  SampleSettings defaults;
  int max_context = 0;

  // What the memory of the last call holds.
  SequenceId sequence = -1;
  std::vector<int32_t> held;

  Result<int> resume(const Prompt& prompt);
  Result<glm5_next::StepOutput> prefill(const Prompt& prompt);
  Result<std::shared_ptr<const Prompt>> expanded(std::vector<int32_t> ids, const std::vector<std::string>& images);
  bool ends(int32_t token) const { return std::find(config.eos.begin(), config.eos.end(), token) != config.eos.end(); }
};

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::load(const EngineOptions& options) {
  LATHE_ASSIGN(glm5_next::Config config, glm5_next::Config::read(options.model));
  LATHE_ASSIGN(Tokenizer tokenizer, Tokenizer::load(options.model));
  LATHE_ASSIGN(Checkpoint checkpoint, Checkpoint::open(options.model));
  LATHE_ASSIGN(std::unique_ptr<Device> device, make_device(options.device));
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  auto s = std::make_unique<State>(options, std::move(config), std::move(checkpoint), std::move(tokenizer),
                                   std::move(device), options.threads > 0 ? options.threads : cores);
  LATHE_ASSIGN(s->defaults, read_generation_defaults(options.model));
  if (ChatTemplate::exists(options.model)) {
    LATHE_ASSIGN(ChatTemplate chat, ChatTemplate::load(options.model));
    s->chat = std::move(chat);
  }
  const int limit = s->config.text.max_positions;
  if (options.max_context < 0 || options.max_context > limit)
    return invalid("max_context {}: {} allows 1 to {}", options.max_context, s->config.file, limit);
  s->max_context = options.max_context ? options.max_context : std::min(limit, kDefaultContext);
  ExecutorOptions eo;
  LATHE_ASSIGN(eo.dtype, activation_dtype(options.dtype, s->config.text));
  LATHE_RETURN_IF_ERROR(add_choices(options.variants, eo.choices));
  eo.probes = options.probes.get();
  eo.slots = 1;
  eo.pages = s->max_context / page_tokens_for(s->config.text.kpool) + 1;
  LATHE_ASSIGN(s->executor, Executor::create(s->config, s->checkpoint, *s->device, s->pool, nullptr, eo));
  return std::unique_ptr<Engine>(new Engine(std::move(s)));
}

int Engine::max_context() const { return state_->max_context; }

Result<std::shared_ptr<const Prompt>> Engine::State::expanded(std::vector<int32_t> ids,
                                                              const std::vector<std::string>& images) {
  auto prompt = std::make_shared<Prompt>();
  LATHE_ASSIGN(prompt->media, read_media(options.model, config, images, {}));
  if (prompt->media.empty()) {
    prompt->tokens = std::move(ids);
  } else {
    const std::vector<Grid> grids = prompt->media.image_grids();
    auto encode = [this](std::string_view text) { return tokenizer.encode(text).value(); };
    LATHE_ASSIGN(prompt->tokens,
                 expand_placeholders(ids, media_tokens(config), grids, {}, config.vision->merge, encode));
  }
  if (prompt->tokens.empty()) return invalid("the prompt is empty");
  for (int32_t id : prompt->tokens)
    if (id >= config.text.vocab)
      return invalid("{}: tokenizer.json gives id {}, the vocabulary has {}", options.model, id, config.text.vocab);
  if (static_cast<int>(prompt->tokens.size()) >= max_context)
    return invalid("the prompt has {} tokens, the context holds {} with at least one to generate",
                   prompt->tokens.size(), max_context);
  return std::shared_ptr<const Prompt>(prompt);
}

Result<std::shared_ptr<const Prompt>> Engine::raw_prompt(std::string_view text,
                                                         const std::vector<std::string>& images) {
  LATHE_ASSIGN(std::vector<int32_t> ids, state_->tokenizer.encode(text));
  return state_->expanded(std::move(ids), images);
}

Result<std::shared_ptr<const Prompt>> Engine::chat_prompt(std::string_view messages,
                                                          const std::vector<std::string>& images) {
  if (!state_->chat) return not_found("{}: has no chat_template.jinja; use a raw prompt", state_->options.model);
  LATHE_ASSIGN(const ChatInput input, chat_input_from_json(messages, "messages"));
  LATHE_ASSIGN(const RenderedChat rendered, state_->chat->render(input));
  LATHE_ASSIGN(std::vector<int32_t> ids, rendered.encode(state_->tokenizer));
  return state_->expanded(std::move(ids), images);
}

// How many tokens of the prompt the sequence already holds: all that it holds, or none.
Result<int> Engine::State::resume(const Prompt& prompt) {
  const bool extends = sequence >= 0 && prompt.media.empty() && !held.empty() && held.size() < prompt.tokens.size() &&
                       std::equal(held.begin(), held.end(), prompt.tokens.begin());
  if (extends) return static_cast<int>(held.size());
  if (sequence >= 0) executor->memory().close(sequence);
  sequence = -1;
  held.clear();
  LATHE_ASSIGN(sequence, executor->memory().open());
  return 0;
}

Result<glm5_next::StepOutput> Engine::State::prefill(const Prompt& prompt) {
  LATHE_ASSIGN(const PictureFeatures pictures,
               encode_media(prompt.media, config, checkpoint, *executor, {prompt.tokens}));
  Result<glm5_next::StepOutput> out = internal("nothing was left to prefill");
  const int total = static_cast<int>(prompt.tokens.size());
  for (int at = static_cast<int>(held.size()); at < total;) {
    const int rows = std::min(static_cast<int>(executor->limits().rows), total - at);
    Run run{.sequence = sequence,
            .tokens = {prompt.tokens.begin() + at, prompt.tokens.begin() + at + rows},
            .features = {}};
    if (!pictures.row_of_token.empty())
      run.features = {pictures.row_of_token[0].begin() + at, pictures.row_of_token[0].begin() + at + rows};
    at += rows;
    run.logits_of_last = at == total ? 1 : 0;
    out = executor->run({run}, nullptr, pictures.rows);
    if (!out.is_ok()) return out;
    held.insert(held.end(), run.tokens.begin(), run.tokens.end());
  }
  LATHE_RETURN_IF_ERROR(device->synchronize());  // the features may go
  return out;
}

Result<Generation> Engine::generate(const Prompt& prompt, const SamplingOptions& sampling,
                                    const std::function<bool(std::string_view)>& on_text) {
  State& s = *state_;
  LATHE_ASSIGN(const SampleSettings settings, settle(sampling, s.defaults));
  Generation g;
  g.prompt_tokens = static_cast<int>(prompt.tokens.size());
  LATHE_ASSIGN(g.cached_tokens, s.resume(prompt));
  const Clock::time_point start = Clock::now();
  Recorder* const probes = s.options.probes.get();
  Result<glm5_next::StepOutput> prefilled = [&] {
    const ProbeSpan probe(probes, "prefill", nullptr, g.prompt_tokens - g.cached_tokens);
    return s.prefill(prompt);
  }();
  LATHE_ASSIGN(glm5_next::StepOutput out, std::move(prefilled));
  g.prefill_seconds = seconds_since(start);

  const Clock::time_point decode_start = Clock::now();
  const ProbeSpan decode_probe(probes, "decode");
  StreamDecoder decoder(s.tokenizer, /*skip_special=*/true);
  auto give = [&](const std::string& piece) {
    const ProbeSpan probe(probes, "emit text");
    g.text += piece;
    return piece.empty() || !on_text || on_text(piece);
  };
  g.finish = Finish::kLength;
  for (int i = 0; i < sampling.max_tokens; ++i) {
    const int position = static_cast<int>(s.held.size());
    Result<std::vector<int32_t>> chosen = [&] {
      const ProbeSpan probe(probes, "choose token");
      return s.choice.choose(*s.executor, out.logits, {settings}, {position});
    }();
    LATHE_ASSIGN(const std::vector<int32_t> tokens, std::move(chosen));
    const int32_t token = tokens[0];
    if (s.ends(token)) {
      g.finish = Finish::kStop;
      break;
    }
    g.tokens.push_back(token);
    if (!give(decoder.push(token))) {
      g.finish = Finish::kCancelled;
      break;
    }
    if (i + 1 == sampling.max_tokens || position + 1 >= s.max_context) break;
    LATHE_ASSIGN(
        out, s.executor->run(
                 {{.sequence = s.sequence, .tokens = {token}, .features = {}, .in_ring = false, .logits_of_last = 1}}));
    s.held.push_back(token);
  }
  give(decoder.finish());
  g.decode_seconds = seconds_since(decode_start);
  return g;
}

ParsedOutput Engine::parse(const Generation& generation) const {
  ParsedText text = parse_output(generation.text);
  ParsedOutput out{.reasoning = std::move(text.reasoning), .content = std::move(text.content), .tool_calls = {}};
  for (ParsedCall& call : text.calls) out.tool_calls.push_back({std::move(call.name), std::move(call.arguments)});
  return out;
}

}  // namespace lathe
