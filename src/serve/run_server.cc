#include <thread>

#include "lathe/server.h"
#include "lathe/trace.h"
#include "serve/server.h"

namespace lathe {

namespace {

ServiceOptions service_options(const ServerConfig& c) {
  ServiceOptions o;
  o.engine = {.model = c.model,
              .dtype = c.dtype,
              .device = c.device,
              .threads = static_cast<int>(c.threads),
              .max_context = static_cast<int>(c.max_context),
              .variants = c.variants};
  o.strict = c.strict;
  o.max_running = static_cast<int>(c.max_running);
  o.step_tokens = static_cast<int>(c.step_tokens);
  o.cache_tokens = c.cache_tokens;
  o.checkpoints = static_cast<int>(c.checkpoints);
  o.checkpoint_interval = static_cast<int>(c.checkpoint_interval);
  o.host_tier_bytes = c.host_tier_bytes;
  o.drafts = static_cast<int>(c.drafts);
  o.max_queue = static_cast<int>(c.max_queue);
  o.max_queue_capacities = c.max_queue_capacities;
  o.max_wait_seconds = c.max_wait_seconds;
  o.audit = {.tokens_per_minute = static_cast<int>(c.audit_tokens_per_minute), .share = c.audit_share};
  return o;
}

// Findings go into the log: a token that the replay would hardly have given is an incident.
class LoggingAuditor final : public Auditor {
 public:
  explicit LoggingAuditor(const serve::Log& log) : log_(log) {}
  void found(const AuditFinding& f) override {
    log_.write(serve::LogLevel::kError, "audit_finding",
               {{"reply", f.id},
                {"position", f.position},
                {"layer", f.layer},
                {"token", f.chosen},
                {"best", f.best},
                {"below", f.below}});
  }
  void clean(const std::string& id, int tokens) override {
    log_.write(serve::LogLevel::kDebug, "audit_clean", {{"reply", id}, {"tokens", tokens}});
  }

 private:
  const serve::Log& log_;
};

// The listeners answer while the model is loaded: with 503, so that whoever waits can tell loading from absence.
Result<ServerEnd> serve_until_end(const ServerConfig& config, const ServerIdentity& identity,
                                  std::shared_ptr<Recorder> probes) {
  std::unique_ptr<LoggingAuditor> auditor;  // goes after the service that tells it
  LATHE_ASSIGN(const std::unique_ptr<serve::Server> server, serve::Server::create(config, identity));
  auditor = std::make_unique<LoggingAuditor>(server->log());
  ServiceOptions options = service_options(config);
  options.audit.auditor = auditor.get();
  options.engine.probes = std::move(probes);
  server->log().write(
      serve::LogLevel::kInfo, "listening",
      {{"host", config.host}, {"port", server->port()}, {"admin", config.admin}, {"keys", !config.keys_file.empty()}});
  Status loading = Status::ok();
  std::thread loader([&] {
    Result<std::unique_ptr<Service>> service = Service::start(options);
    if (!service.is_ok()) {
      loading = service.status();
      return server->stop();
    }
    const int max_context = (*service)->max_context();
    server->attach(std::move(service).value());
    server->log().write(serve::LogLevel::kInfo, "ready",
                        {{"model", config.model}, {"max_context", max_context}, {"strict", config.strict}});
  });
  const ServerEnd end = server->run();
  loader.join();
  if (!loading.is_ok()) return loading;
  return end;
}

}  // namespace

Result<ServerEnd> run_server(const ServerConfig& config, const ServerIdentity& identity) {
  const RecordingOptions recording{.file = config.trace, .inject = {}};
  LATHE_ASSIGN(const std::shared_ptr<Recorder> probes, begin_recording(recording));
  LATHE_ASSIGN(const ServerEnd end, serve_until_end(config, identity, probes));
  LATHE_RETURN_IF_ERROR(write_recording(probes.get(), recording, {{"command", "serve"}, {"model", config.model}}));
  return end;
}

}  // namespace lathe
