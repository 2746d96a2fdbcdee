#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "lathe/server.h"
#include "serve/api_keys.h"
#include "serve/http.h"
#include "serve/in_flight.h"
#include "serve/log.h"
#include "serve/metrics.h"
#include "serve/preparation.h"
#include "serve/routes.h"
#include "serve/work_queue.h"

namespace lathe::serve {

// The HTTP APIs over one Service: routing, keys and quotas, health and drain. The service comes when it is loaded;
// until then requests get 503.
class Server : public HttpApp {
 public:
  // Listens at once. An error names what can't be listened on or read.
  static Result<std::unique_ptr<Server>> create(const ServerConfig& config, const ServerIdentity& identity);
  ~Server();

  void attach(std::unique_ptr<Service> service);  // any thread, once
  ServerEnd run();                                // until the drain after a signal, or the engine's failure
  void stop();                                    // any thread: at once
  void drain();                                   // any thread: as SIGTERM does
  int port(bool admin = false) const { return http_->port(admin); }
  const Log& log() const { return log_; }

  std::optional<HttpReply> refuse(const HttpRequest& head) override;
  void handle(std::shared_ptr<Exchange> exchange) override;
  HttpReply broken(int status, std::string_view message) override;

 private:
  // One request: who asks, and what is told of it afterwards.
  struct Ask {
    std::shared_ptr<Exchange> exchange;
    const Route* route = nullptr;
    ApiKey key;  // without a name where none is needed
    std::string request_id, trace;
    std::shared_ptr<InFlight::Entry> entry;
    std::chrono::steady_clock::time_point arrival = std::chrono::steady_clock::now();
    bool counted = false;  // in the quotas
  };

  Server(const ServerConfig& config, const ServerIdentity& identity, ApiKeys keys);
  Status listen();
  std::optional<ApiError> check_host(const HttpRequest& head) const;
  const ApiKey* key_of(const HttpRequest& head) const;
  std::optional<ApiError> check_key(const HttpRequest& head, const Route* route) const;
  std::optional<ApiError> unavailable() const;

  void generate(std::shared_ptr<Ask> ask);
  void prepare(const std::shared_ptr<Ask>& ask, const std::shared_ptr<Preparation>& preparation);
  void start(const std::shared_ptr<Ask>& ask, const std::shared_ptr<Preparation>& preparation);
  void tell_prepared(const std::shared_ptr<Ask>& ask, Preparation& preparation);
  void detokenize(const std::shared_ptr<Ask>& ask, const Preparation& preparation);
  void finish(const Ask& ask, const GenerationEnd& end);
  void refuse_with(const Ask& ask, const ApiError& error);
  void reply(const Ask& ask, HttpReply reply);
  HttpReply simple(const Ask& ask, const std::string& id);
  Json model_json() const;
  HttpReply metrics_reply() const;
  void tick();

  const ServerConfig config_;
  const ServerIdentity identity_;
  const ApiKeys keys_;
  Log log_;
  Metrics metrics_;
  Quotas quotas_;
  InFlight in_flight_;
  std::string model_, fingerprint_;
  const int64_t created_ = static_cast<int64_t>(time(nullptr));

  std::atomic<bool> draining_{false}, failed_{false};
  std::atomic<int> preparing_{0};
  std::unique_ptr<Service> service_;
  std::unique_ptr<GrammarCache> grammars_;
  std::unique_ptr<PreparationTools> tools_;
  std::atomic<Service*> ready_service_{nullptr};  // set behind service_ and tools_
  std::unique_ptr<WorkQueue> workers_, decoders_;
  std::unique_ptr<HttpServer> http_;
  std::vector<std::thread> drains_;
  int signals_ = 0;
};

}  // namespace lathe::serve
