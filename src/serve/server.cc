#include "serve/server.h"

#include <algorithm>
#include <filesystem>

#include "serve/page.h"

namespace lathe::serve {

namespace {

constexpr size_t kMostRequestId = 128;

ErrorShape shape_of(std::string_view path) {
  return path.starts_with("/v1/messages") ? ErrorShape::kMessages : ErrorShape::kOpenAi;
}

bool is_request_id(std::string_view s) {
  return !s.empty() && s.size() <= kMostRequestId &&
         std::all_of(s.begin(), s.end(), [](char c) { return c > ' ' && c <= '~'; });
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

// "name:port", "[::1]:port" or "name", without the port.
std::string host_name(std::string_view host) {
  if (host.starts_with("[")) return std::string(host.substr(1, host.find(']') - 1));
  return std::string(host.substr(0, host.find(':')));
}

std::string decoded_basic(std::string_view text) {
  std::vector<uint8_t> bytes;
  if (!decode_base64(text, bytes)) return "";
  const std::string pair(bytes.begin(), bytes.end());
  const size_t colon = pair.find(':');
  return colon == std::string::npos ? "" : pair.substr(colon + 1);
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

HttpReply json_reply(const Json& json, int status = 200) { return {.status = status, .body = dump(json)}; }

bool takes_json(std::string_view type) {
  type = type.substr(0, type.find(';'));
  while (!type.empty() && type.back() == ' ') type.remove_suffix(1);
  std::string lower(type);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower == "application/json" || (lower.starts_with("application/") && lower.ends_with("+json"));
}

}  // namespace

Result<std::unique_ptr<Server>> Server::create(const ServerConfig& config, const ServerIdentity& identity) {
  LATHE_RETURN_IF_ERROR(check_server_config(config));
  ApiKeys keys;
  if (!config.keys_file.empty()) {
    LATHE_ASSIGN(keys, ApiKeys::load(config.keys_file));
  }
  std::unique_ptr<Server> server(new Server(config, identity, std::move(keys)));
  LATHE_RETURN_IF_ERROR(server->listen());
  return server;
}

Server::Server(const ServerConfig& config, const ServerIdentity& identity, ApiKeys keys)
    : config_(config), identity_(identity), keys_(std::move(keys)), log_(log_level_of(config.log_level)) {
  model_ = config.served_name;
  if (model_.empty()) model_ = std::filesystem::path(config.model).lexically_normal().filename().string();
  if (model_.empty()) model_ = std::filesystem::path(config.model).lexically_normal().parent_path().filename().string();
  fingerprint_ = fmt::format("lathe-{}-{}", identity.build_id, config.strict ? "strict" : "fast");
  workers_ = std::make_unique<WorkQueue>(static_cast<int>(config.workers), static_cast<size_t>(config.max_preparing));
  decoders_ =
      std::make_unique<WorkQueue>(static_cast<int>(config.decode_workers), static_cast<size_t>(config.max_preparing));
  http_ = std::make_unique<HttpServer>(HttpLimits{.max_connections = static_cast<int>(config.max_connections),
                                                  .idle_seconds = config.idle_seconds,
                                                  .header_seconds = config.header_seconds,
                                                  .body_idle_seconds = config.body_idle_seconds,
                                                  .write_stall_seconds = config.write_stall_seconds,
                                                  .ping_seconds = config.ping_seconds,
                                                  .send_buffer_bytes = config.send_buffer_bytes,
                                                  .all_bodies_bytes = config.all_bodies_bytes},
                                       *this);
}

// Threads that use the service go first, the service before what its sinks point to.
Server::~Server() {
  workers_.reset();
  decoders_.reset();
  if (Service* s = ready_service_; s && !drains_.empty()) s->drain(0);  // the one that waits comes back then
  for (std::thread& t : drains_) t.join();
  ready_service_ = nullptr;
  grammars_.reset();
  service_.reset();
  http_.reset();
}

Status Server::listen() {
  LATHE_RETURN_IF_ERROR(http_->listen(config_.host, static_cast<int>(config_.port)));
  if (config_.admin.empty()) return Status::ok();
  if (config_.admin.starts_with("unix:")) return http_->listen_unix(config_.admin.substr(5));
  const size_t colon = config_.admin.rfind(':');
  const int port = std::atoi(config_.admin.c_str() + colon + 1);
  if (port < 0 || port > 65535) return invalid("admin '{}': the port must be 0 to 65535", config_.admin);
  return http_->listen(host_name(config_.admin.substr(0, colon)), port, true);
}

void Server::attach(std::unique_ptr<Service> service) {
  service_ = std::move(service);
  grammars_ = std::make_unique<GrammarCache>(service_->tokenizer(), GrammarLimits{}, config_.grammar_cache_bytes,
                                             static_cast<int>(config_.decode_workers));
  tools_.reset(new PreparationTools{.config = config_,
                                    .service = *service_,
                                    .grammars = *grammars_,
                                    .metrics = metrics_,
                                    .pixels = {},
                                    .model = model_,
                                    .fingerprint = fingerprint_});
  if (service_->config().vision) {
    Result<ProcessorConfig> processor = ProcessorConfig::read(service_->options().engine.model);
    if (processor.is_ok())
      tools_->pixels = processor->image;
    else
      log_.write(LogLevel::kWarning, "no_images", {{"reason", processor.status().message()}});
  }
  ready_service_ = service_.get();
}

ServerEnd Server::run() {
  http_->on_signal([this](int signal) {
    log_.write(LogLevel::kInfo, "signal", {{"signal", signal}});
    if (++signals_ > 1) return http_->stop();
    drain();
  });
  http_->every(0.25, [this] { tick(); });
  http_->run();
  return failed_ ? ServerEnd::kEngineFailed : ServerEnd::kDrained;
}

void Server::stop() { http_->stop(); }

void Server::drain() {
  if (draining_.exchange(true)) return;
  log_.write(LogLevel::kInfo, "draining", {{"seconds", config_.drain_seconds}});
  http_->post([this] {
    drains_.emplace_back([this] {
      if (Service* s = ready_service_) s->drain(config_.drain_seconds);
      // Behind the last event there are bytes to be sent.
      if (draining_) http_->linger(5);
    });
  });
}

void Server::tick() {
  const Service* s = ready_service_;
  if (!s || !s->failed() || failed_.exchange(true)) return;
  metrics_.count("engine_faults_total");
  log_.write(LogLevel::kError, "engine_failed", {});
  http_->linger(5);
}

HttpReply Server::broken(int status, std::string_view message) {
  metrics_.count("requests_total", fmt::format("route=\"\",code=\"{}\",finish=\"\"", status));
  return error_reply({.status = status,
                      .type = status < 500 ? "invalid_request_error" : "server_error",
                      .message = std::string(message)},
                     ErrorShape::kOpenAi);
}

// Whoever makes a browser resolve a name of his own to a loopback address has that name in the Host header.
std::optional<ApiError> Server::check_host(const HttpRequest& head) const {
  if (head.admin || !is_loopback(config_.host)) return std::nullopt;
  const std::string name = host_name(head.header("host"));
  if (is_loopback(name) ||
      std::find(config_.allowed_hosts.begin(), config_.allowed_hosts.end(), name) != config_.allowed_hosts.end())
    return std::nullopt;
  return ApiError{
      .status = 403, .type = "permission_error", .message = "this Host isn't served", .code = "host_not_allowed"};
}

const ApiKey* Server::key_of(const HttpRequest& head) const {
  const std::string_view authorization = head.header("authorization");
  if (authorization.starts_with("Bearer ")) return keys_.find(authorization.substr(7));
  if (authorization.starts_with("Basic ")) return keys_.find(decoded_basic(authorization.substr(6)));
  return keys_.find(head.header("x-api-key"));
}

std::optional<ApiError> Server::check_key(const HttpRequest& head, const Route* route) const {
  if (keys_.empty() || (route && route->id == RouteId::kLive)) return std::nullopt;
  const ApiKey* key = key_of(head);
  if (!key)
    return ApiError{
        .status = 401, .type = "authentication_error", .message = "a valid key is needed", .code = "invalid_api_key"};
  if (key->metrics_only && (!route || route->id != RouteId::kMetrics))
    return ApiError{
        .status = 403, .type = "permission_error", .message = "this key may read /metrics only", .code = "not_allowed"};
  return std::nullopt;
}

std::optional<ApiError> Server::unavailable() const {
  if (failed_) return unavailable_now("the engine has failed", "engine_failed", 10);
  const Service* s = ready_service_;
  if (draining_ || (s && s->draining())) return unavailable_now("the server is shutting down", "draining", 10);
  if (!s) return unavailable_now("the model is being loaded", "loading", 5);
  return std::nullopt;
}

std::optional<HttpReply> Server::refuse(const HttpRequest& head) {
  const RouteMatch match = match_route(head.method, head.path, head.admin);
  std::optional<ApiError> error = check_host(head);
  if (!error) error = check_key(head, match.route);
  if (!error && !match.route && match.allowed.empty())
    error = ApiError{.status = 404, .message = "there is no such route", .code = "not_found"};
  if (!error && !match.route)
    error = ApiError{.status = 405, .message = "this route takes another method", .code = "method_not_allowed"};
  if (!error && match.route->api && !takes_json(head.header("content-type")))
    error = ApiError{
        .status = 415, .message = "the Content-Type must be application/json", .code = "unsupported_media_type"};
  if (!error && match.route->api) error = unavailable();
  const std::string_view id = head.header("x-request-id");
  if (!error && !id.empty() && !is_request_id(id))
    error = bad_request("X-Request-Id", "X-Request-Id must have at most 128 printable characters");
  if (!error) return std::nullopt;
  HttpReply reply = error_reply(*error, shape_of(head.path));
  if (error->status == 405) reply.headers.push_back({"Allow", match.allowed});
  if (error->status == 401)
    reply.headers.push_back({"WWW-Authenticate", head.path == "/" ? "Basic realm=\"lathe\"" : "Bearer"});
  reply.headers.push_back({"X-Request-Id", is_request_id(id) ? std::string(id) : new_id("req_")});
  metrics_.count("requests_total", fmt::format("route={},code=\"{}\",finish=\"\"",
                                               quoted_label(match.route ? match.route->path : ""), error->status));
  if (error->status == 503) metrics_.count("requests_rejected_total", fmt::format("why={}", quoted_label(error->code)));
  return reply;
}

void Server::handle(std::shared_ptr<Exchange> exchange) {
  const HttpRequest& request = exchange->request();
  const RouteMatch match = match_route(request.method, request.path, request.admin);
  auto ask = std::make_shared<Ask>();
  ask->exchange = exchange;
  ask->route = match.route;
  if (const ApiKey* key = keys_.empty() ? nullptr : key_of(request)) ask->key = *key;
  const std::string_view id = request.header("x-request-id");
  ask->request_id = id.empty() ? new_id("req_") : std::string(id);
  ask->trace = request.header("traceparent").substr(0, 128);
  exchange->reply_headers.push_back({"X-Request-Id", ask->request_id});
  if (match.route->api) return generate(std::move(ask));
  reply(*ask, simple(*ask, match.id));
}

void Server::reply(const Ask& ask, HttpReply r) {
  metrics_.count("requests_total",
                 fmt::format("route={},code=\"{}\",finish=\"\"", quoted_label(ask.route->path), r.status));
  log_.write(LogLevel::kDebug, "request", {{"id", ask.request_id}, {"route", ask.route->path}, {"status", r.status}});
  ask.exchange->reply(std::move(r));
}

HttpReply Server::simple(const Ask& ask, const std::string& id) {
  Service* service = ready_service_;
  switch (ask.route->id) {
    case RouteId::kModels:
      return json_reply({{"object", "list"}, {"data", Json::array({model_json()})}});
    case RouteId::kModel:
      if (id == model_) return json_reply(model_json());
      return error_reply({.status = 404,
                          .message = "the model is not served here; see /v1/models",
                          .param = "model",
                          .code = "model_not_found"},
                         ErrorShape::kOpenAi);
    case RouteId::kCancel:
      if (in_flight_.cancel(ask.key.name, id)) return json_reply({{"id", id}, {"cancelled", true}});
      return error_reply({.status = 404, .message = "no request of this key has that id", .code = "not_found"},
                         ErrorShape::kOpenAi);
    case RouteId::kLive: {
      const double stalled = service ? service->stalled_seconds() : 0;
      const bool live = stalled < config_.stall_seconds;
      return json_reply({{"status", live ? "live" : "stalled"}}, live ? 200 : 503);
    }
    case RouteId::kReady:
      if (const auto error = unavailable()) return error_reply(*error, ErrorShape::kOpenAi);
      return json_reply({{"status", "ready"}});
    case RouteId::kMetrics:
      return metrics_reply();
    case RouteId::kVersion:
      return json_reply({{"version", identity_.version},
                         {"commit", identity_.commit},
                         {"build", identity_.build_id},
                         {"model", model_},
                         {"mode", config_.strict ? "strict" : "fast"}});
    case RouteId::kOpenApi:
      return {.body = server_openapi()};
    case RouteId::kPage:
      if (!config_.page || page_html().empty()) break;
      return {.content_type = "text/html; charset=utf-8",
              .body = std::string(page_html()),
              .headers = {{"Content-Security-Policy",
                           "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src "
                           "'self'; img-src data: blob:; "
                           "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
                          {"X-Content-Type-Options", "nosniff"},
                          {"Referrer-Policy", "no-referrer"}}};
    case RouteId::kDrain:
      drain();
      return json_reply({{"draining", true}});
    case RouteId::kUndrain:
      draining_ = false;
      if (service) service->undrain();
      return json_reply({{"draining", false}});
    case RouteId::kLogLevel:
      if (id != "debug" && id != "info" && id != "warning" && id != "error")
        return error_reply(bad_request("level", "level must be one of debug, info, warning, error"),
                           ErrorShape::kOpenAi);
      log_.set_level(log_level_of(id));
      return json_reply({{"log_level", id}});
    case RouteId::kFlushCache:
      if (service) service->flush_cache();
      return json_reply({{"flushed", service != nullptr}});
    default:
      break;
  }
  return error_reply({.status = 404, .message = "there is no such route", .code = "not_found"}, ErrorShape::kOpenAi);
}

Json Server::model_json() const {
  const Service* s = ready_service_;
  Json input = Json::array({"text"});
  if (tools_ && s && tools_->pixels) input.push_back("image");
  return {{"id", model_},
          {"object", "model"},
          {"created", created_},
          {"owned_by", "lathe"},
          {"max_model_len", s ? Json(s->max_context()) : Json(nullptr)},
          {"modalities", {{"input", input}, {"output", Json::array({"text"})}}}};
}

HttpReply Server::metrics_reply() const {
  std::vector<Metric> metrics = metrics_.counters();
  std::vector<Histogram> histograms = metrics_.histograms();
  if (const Service* s = ready_service_) {
    ServiceStats stats = s->stats();
    // What the engine measures wins over the server's own view of it.
    auto measured = [](const auto& list, const std::string& name) {
      return std::any_of(list.begin(), list.end(), [&](const auto& x) { return x.name == name; });
    };
    std::erase_if(metrics, [&](const Metric& m) { return measured(stats.metrics, m.name); });
    std::erase_if(histograms, [&](const Histogram& h) { return measured(stats.histograms, h.name); });
    metrics.insert(metrics.end(), stats.metrics.begin(), stats.metrics.end());
    histograms.insert(histograms.end(), stats.histograms.begin(), stats.histograms.end());
  }
  metrics.push_back({"http_connections", "", static_cast<double>(http_->connections()), false});
  metrics.push_back(
      {"build_info",
       fmt::format("version={},build={}", quoted_label(identity_.version), quoted_label(identity_.build_id)), 1,
       false});
  const std::string common = fmt::format("model={},role=\"all\"", quoted_label(model_));
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = prometheus_text(metrics, histograms, common, config_.vllm_metrics)};
}

// -- requests with bodies

void Server::refuse_with(const Ask& ask, const ApiError& error) {
  GenerationEnd end;
  end.status = error.status;
  end.finish = error.code;
  ask.exchange->reply(error_reply(error, shape_of(ask.route->path)));
  finish(ask, end);
}

void Server::generate(std::shared_ptr<Ask> ask) {
  const bool generates = ask->route->api & (kChat | kCompletions | kResponses | kMessages);
  ask->entry = in_flight_.add(ask->key.name, ask->request_id);
  if (generates && !ask->key.name.empty()) {
    if (const auto wait = quotas_.begin(ask->key, now_seconds()))
      return refuse_with(*ask, {.status = 429,
                                .type = "rate_limit_error",
                                .message = "this key's quota is used up",
                                .code = "rate_limit_exceeded",
                                .retry_after = *wait});
    ask->counted = true;
  }
  ++preparing_;
  auto preparation = std::make_shared<Preparation>(*tools_, static_cast<Api>(ask->route->api), ask->key);
  if (!workers_->push([this, ask, preparation] { prepare(ask, preparation); })) {
    --preparing_;
    refuse_with(*ask, unavailable_now("the server is overloaded", "overloaded", 1));
  }
}

void Server::prepare(const std::shared_ptr<Ask>& ask, const std::shared_ptr<Preparation>& p) {
  const std::string body = std::move(ask->exchange->request().body);
  bool good = p->read(body);
  for (size_t i = 0; i < p->unknown_fields().size(); ++i)
    metrics_.count("unknown_fields_total", fmt::format("route={}", quoted_label(ask->route->path)));
  if (good && ask->route->id == RouteId::kDetokenize) {
    --preparing_;
    return detokenize(ask, *p);
  }
  good = good && p->tokenize();
  if (config_.log_prompts) log_.write(LogLevel::kInfo, "prompt", {{"id", ask->request_id}, {"body", body}});
  auto go_on = [this, ask, p] {
    const bool read = p->read_media();
    --preparing_;
    if (!read) return refuse_with(*ask, p->error());
    ask->route->api&(kCountTokens | kRender | kTokenize) ? tell_prepared(ask, *p) : start(ask, p);
  };
  if (!good) {
    --preparing_;
    return refuse_with(*ask, p->error());
  }
  if (!p->is_heavy()) return go_on();
  // Before pictures are read, there must be room for their request.
  std::optional<ApiError> error = unavailable();
  const bool generates = !(ask->route->api & (kCountTokens | kRender | kTokenize));
  if (!error && generates)
    if (const auto refusal = service_->would_refuse(p->prompt_tokens(), p->choices())) error = error_of(*refusal);
  if (!error && !decoders_->push(go_on)) error = unavailable_now("the server is overloaded", "overloaded", 1);
  if (!error) return;
  --preparing_;
  refuse_with(*ask, *error);
}

void Server::start(const std::shared_ptr<Ask>& ask, const std::shared_ptr<Preparation>& p) {
  GenerationPlan plan;
  if (!p->plan(plan)) return refuse_with(*ask, p->error());
  const std::string reply_id = plan.reply.id;
  auto generation = std::make_shared<Generation>(*service_, ask->exchange, std::move(plan),
                                                 [this, ask](const GenerationEnd& end) { finish(*ask, end); });
  if (!in_flight_.attach(ask->entry, reply_id, generation)) return refuse_with(*ask, error_of(Failure::kCancelled));
  generation->start();
}

void Server::tell_prepared(const std::shared_ptr<Ask>& ask, Preparation& p) {
  Json out;
  const std::vector<int32_t>& ids = p.prompts()[0];
  switch (ask->route->id) {
    case RouteId::kCountTokens:
      out = {{"input_tokens", ids.size()}};
      break;
    case RouteId::kRender:
      out = {{"prompt", p.rendered()}, {"prompt_token_ids", ids}, {"count", ids.size()}};
      break;
    default:
      out = {{"count", ids.size()}, {"max_model_len", service_->max_context()}, {"tokens", ids}};
  }
  ask->exchange->reply(json_reply(out));
  finish(*ask, {});
}

void Server::detokenize(const std::shared_ptr<Ask>& ask, const Preparation& p) {
  const std::string text = service_->tokenizer().decode(p.prompts()[0], p.fields().skip_special_tokens.value_or(false));
  ask->exchange->reply(json_reply({{"prompt", text}}));
  finish(*ask, {});
}

void Server::finish(const Ask& ask, const GenerationEnd& end) {
  in_flight_.remove(ask.entry);
  if (ask.counted) {
    quotas_.end(ask.key.name);
    quotas_.charge(ask.key, end.usage.prompt_tokens + end.usage.completion_tokens, now_seconds());
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - ask.arrival).count();
  metrics_.count("requests_total", fmt::format("route={},code=\"{}\",finish={}", quoted_label(ask.route->path),
                                               end.status, quoted_label(end.finish)));
  if (end.status == 503) metrics_.count("requests_rejected_total", fmt::format("why={}", quoted_label(end.finish)));
  if (end.status == 429) metrics_.count("requests_rejected_total", "why=\"quota\"");
  if (end.malformed_calls) metrics_.count("tool_parse_failures_total", "", end.malformed_calls);
  if (end.status == 499) metrics_.count("requests_cancelled_total", fmt::format("why={}", quoted_label(end.finish)));
  if (end.seconds_to_first >= 0) metrics_.observe("time_to_first_token_seconds", end.seconds_to_first);
  if (end.usage.completion_tokens) {
    metrics_.observe("e2e_latency_seconds", seconds);
    metrics_.count("prompt_tokens_total", "", end.usage.prompt_tokens);
    metrics_.count("generation_tokens_total", "", end.usage.completion_tokens);
  }
  Json line = {{"id", ask.request_id},
               {"reply", ask.entry->reply_id},
               {"route", ask.route->path},
               {"status", end.status},
               {"finish", end.finish},
               {"seconds", seconds},
               {"prompt_tokens", end.usage.prompt_tokens},
               {"cached_tokens", end.usage.cached_tokens},
               {"completion_tokens", end.usage.completion_tokens}};
  if (!ask.key.name.empty()) line["key"] = ask.key.name;
  if (!ask.trace.empty()) line["traceparent"] = ask.trace;
  if (end.seconds_to_first >= 0) line["seconds_to_first_token"] = end.seconds_to_first;
  log_.write(end.status >= 500 ? LogLevel::kWarning : LogLevel::kInfo, "request", std::move(line));
}

}  // namespace lathe::serve
