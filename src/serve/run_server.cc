#include <thread>

#include "lathe/server.h"
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
  o.audit_tokens_per_minute = static_cast<int>(c.audit_tokens_per_minute);
  return o;
}

}  // namespace

// The listeners answer while the model is loaded: with 503, so that whoever waits can tell loading from absence.
Result<ServerEnd> run_server(const ServerConfig& config, const ServerIdentity& identity) {
  LATHE_ASSIGN(std::unique_ptr<serve::Server> server, serve::Server::create(config, identity));
  server->log().write(
      serve::LogLevel::kInfo, "listening",
      {{"host", config.host}, {"port", server->port()}, {"admin", config.admin}, {"keys", !config.keys_file.empty()}});
  Status loading = Status::ok();
  std::thread loader([&] {
    Result<std::unique_ptr<Service>> service = Service::start(service_options(config));
    if (!service.is_ok()) {
      loading = service.status();
      return server->stop();
    }
    server->log().write(
        serve::LogLevel::kInfo, "ready",
        {{"model", config.model}, {"max_context", (*service)->max_context()}, {"strict", config.strict}});
    server->attach(std::move(service).value());
  });
  const ServerEnd end = server->run();
  loader.join();
  if (!loading.is_ok()) return loading;
  return end;
}

}  // namespace lathe
