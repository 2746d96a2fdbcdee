#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <csignal>
#include <filesystem>
#include <list>
#include <mutex>

#include "serve/http.h"

// The only file that knows Asio and Beast: they take a compiler half a minute.
namespace lathe::serve {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using Socket = asio::generic::stream_protocol::socket;
using Clock = std::chrono::steady_clock;
using Parser = http::request_parser<http::string_body>;

namespace {

Clock::duration seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
}

auto caught(error_code& e) { return asio::redirect_error(asio::use_awaitable, e); }

std::string text_of(beast::string_view s) { return {s.data(), s.size()}; }

bool is_malformed(error_code e) {
  return e != http::error::end_of_stream && e != http::error::partial_message &&
         e.category() == http::make_error_code(http::error::bad_field).category();
}

// Ends a connection's waiting when the time is over: reads and writes come back with an error then.
class Watchdog {
 public:
  explicit Watchdog(Socket& socket) : socket_(socket), timer_(socket.get_executor()) {}
  ~Watchdog() { disarm(); }
  Watchdog(const Watchdog&) = delete;

  void arm(double s) {
    fired_ = false;
    timer_.expires_after(seconds(s));
    // A timer that ran out just before it was disarmed still comes by: then it isn't its turn any more.
    timer_.async_wait([this, turn = turn_, mine = ++*turn_](error_code e) {
      if (e || *turn != mine) return;
      fired_ = true;
      error_code ignored;
      socket_.cancel(ignored);
    });
  }
  void disarm() {
    ++*turn_;
    timer_.cancel();
  }
  bool fired() const { return fired_; }

 private:
  Socket& socket_;
  asio::steady_timer timer_;
  std::shared_ptr<int64_t> turn_ = std::make_shared<int64_t>(0);
  bool fired_ = false;
};

struct Connection;

}  // namespace

struct HttpServer::State : std::enable_shared_from_this<HttpServer::State> {
  State(const HttpLimits& l, HttpApp& a) : limits(l), app(a), signals(io) {}

  HttpLimits limits;
  HttpApp& app;
  asio::io_context io{1};
  asio::signal_set signals;
  std::list<Connection*> open;
  std::vector<std::function<void()>> acceptors;  // each closes one
  std::vector<std::shared_ptr<asio::steady_timer>> timers;
  std::vector<std::string> socket_files;
  int ports[2] = {0, 0};  // of the public listener, and the admin's
  int64_t body_bytes = 0;
  bool stopping = false, lingering = false;
  std::atomic<int> connections{0};

  template <class Acceptor>
  asio::awaitable<void> accept(std::shared_ptr<Acceptor> acceptor, bool admin);
  template <class Acceptor>
  void start(std::shared_ptr<Acceptor> acceptor, bool admin);
  void settle();  // stops when lingering and nothing is under way
  void wait_for_signal(std::function<void(int)> f);
  void tick(std::shared_ptr<asio::steady_timer> timer, double every, std::function<void()> f);
  std::shared_ptr<asio::steady_timer> new_timer() {
    return timers.emplace_back(std::make_shared<asio::steady_timer>(io));
  }
  void close_all();
};

namespace {

// The connection's side of a request. The reply arrives from any thread and is taken up on the server's.
class SocketExchange : public Exchange, public std::enable_shared_from_this<SocketExchange> {
 public:
  SocketExchange(std::shared_ptr<HttpServer::State> state, HttpRequest request)
      : state_(std::move(state)), signal_(state_->io) {
    request_ = std::move(request);
  }

  void reply(HttpReply r) override {
    post([this, r = std::move(r)]() mutable {
      if (!head_ && !complete_) head_ = std::move(r), source_.reset(), whole_ = true;
    });
  }
  void listen(std::shared_ptr<HttpStream> stream) override {
    post([this, s = std::move(stream)]() mutable {
      if (!head_ && !complete_) source_ = std::move(s);
    });
  }
  void stream(HttpReply head, std::shared_ptr<HttpStream> stream) override {
    post([this, h = std::move(head), s = std::move(stream)]() mutable {
      if (!head_ && !complete_) head_ = std::move(h), source_ = std::move(s), whole_ = false;
    });
  }
  void wake() override {
    if (woken_.exchange(true)) return;  // the one that is on its way will do
    post([this] { woken_ = false; });
  }
  void on_gone(std::function<void()> f) override {
    post([this, f = std::move(f)]() mutable {
      if (gone_) return f();
      left_ = std::move(f);
    });
  }

  void set_gone() {
    if (gone_.exchange(true)) return;
    if (left_) std::exchange(left_, nullptr)();
    signal_.cancel();
  }
  // The reply is on its way, complete.
  void set_complete() {
    complete_ = true;
    left_ = nullptr;
    source_.reset();
  }
  // Waits for news, or until the time is over (then false).
  asio::awaitable<bool> news(double s) {
    if (std::exchange(news_, false)) co_return true;
    signal_.expires_after(seconds(s));
    error_code e;
    co_await signal_.async_wait(caught(e));
    co_return std::exchange(news_, false) || gone_;
  }

  std::optional<HttpReply>& head() { return head_; }
  bool whole() const { return whole_; }
  HttpStream* source() const { return source_.get(); }

 private:
  template <class F>
  void post(F f) {
    asio::post(state_->io, [self = shared_from_this(), f = std::move(f)]() mutable {
      f();
      self->news_ = true;
      self->signal_.cancel();
    });
  }

  std::shared_ptr<HttpServer::State> state_;
  asio::steady_timer signal_;
  std::optional<HttpReply> head_;
  std::shared_ptr<HttpStream> source_;
  std::function<void()> left_;
  std::atomic<bool> woken_{false};
  bool whole_ = true, news_ = false, complete_ = false;
};

std::string date() {
  char text[64];
  const time_t now = time(nullptr);
  tm utc;
  gmtime_r(&now, &utc);
  return std::string(text, strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc));
}

struct Connection : std::enable_shared_from_this<Connection> {
  Connection(std::shared_ptr<HttpServer::State> s, Socket k, bool a)
      : state(std::move(s)), socket(std::move(k)), watchdog(socket), admin(a) {
    place = state->open.insert(state->open.end(), this);
    ++state->connections;
  }
  ~Connection() {
    state->open.erase(place);
    --state->connections;
    state->settle();
  }

  std::shared_ptr<HttpServer::State> state;
  Socket socket;
  Watchdog watchdog;
  beast::flat_buffer buffer;
  bool admin, keep_alive = true, chunked = true, head_only = false;
  bool busy = false;  // with a request
  std::list<Connection*>::iterator place;
  std::shared_ptr<SocketExchange> exchange;

  void close() {
    error_code ignored;
    socket.close(ignored);
  }

  asio::awaitable<void> run() {
    while (keep_alive && !state->stopping) {
      busy = false;
      state->settle();
      if (state->lingering || !co_await first_byte()) break;
      busy = true;
      Parser parser;
      parser.header_limit(HttpLimits::kHeaderBytes);
      parser.body_limit(HttpLimits::kBodyBytes);
      if (!co_await read_head(parser)) break;
      HttpRequest request = head_of(parser);
      if (std::optional<HttpReply> refused = check(request, parser)) {
        keep_alive = keep_alive && parser.is_done() && !refused->close;
        if (!co_await send(*refused)) break;
        if (!keep_alive) co_await let_client_read();
        continue;
      }
      if (!co_await read_body(parser)) break;
      request.body = std::move(parser.get().body());
      const int64_t body = static_cast<int64_t>(request.body.size());
      state->body_bytes += body;
      exchange = std::make_shared<SocketExchange>(state, std::move(request));
      watch_for_close();
      state->app.handle(exchange);
      const bool sent = co_await answer();
      if (!sent) exchange->set_gone();
      exchange->set_complete();
      exchange.reset();
      state->body_bytes -= body;
      if (!sent) break;
      error_code ignored;
      socket.cancel(ignored);  // the watch for the client's leaving
    }
    close();
  }

  asio::awaitable<bool> first_byte() {
    if (buffer.size() > 0) co_return true;
    watchdog.arm(state->limits.idle_seconds);
    error_code e;
    co_await socket.async_wait(Socket::wait_read, caught(e));
    watchdog.disarm();
    co_return !e && !watchdog.fired();
  }

  asio::awaitable<bool> read_head(Parser& parser) {
    watchdog.arm(state->limits.header_seconds);
    error_code e;
    co_await http::async_read_header(socket, buffer, parser, caught(e));
    watchdog.disarm();
    if (!e) co_return true;
    if (watchdog.fired())
      co_await refuse(408, "the request's head took too long");
    else if (e == http::error::header_limit)
      co_await refuse(431, "the request's head is larger than 32 KiB");
    else if (e == http::error::body_limit)
      co_await refuse(413, "the request's body is larger than 64 MiB");
    else if (is_malformed(e))
      co_await refuse(400, "this is not an HTTP/1.1 request");
    co_return false;
  }

  asio::awaitable<bool> read_body(Parser& parser) {
    if (!parser.is_done() && exists(parser, http::field::expect)) {
      if (!co_await write("HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
    }
    while (!parser.is_done()) {
      if (state->body_bytes + static_cast<int64_t>(parser.get().body().size()) > state->limits.all_bodies_bytes) {
        co_await refuse(503, "too many request bodies are held at once");
        co_return false;
      }
      watchdog.arm(state->limits.body_idle_seconds);
      error_code e;
      co_await http::async_read_some(socket, buffer, parser, caught(e));
      watchdog.disarm();
      if (!e) continue;
      if (watchdog.fired())
        co_await refuse(408, "the request's body took too long");
      else if (e == http::error::body_limit)
        co_await refuse(413, "the request's body is larger than 64 MiB");
      else if (is_malformed(e))
        co_await refuse(400, "the request's body isn't framed as its head says");
      co_return false;
    }
    co_return true;
  }

  static bool exists(const Parser& parser, http::field field) { return parser.get().find(field) != parser.get().end(); }

  HttpRequest head_of(const Parser& parser) {
    const auto& message = parser.get();
    HttpRequest r;
    r.admin = admin;
    r.method = text_of(message.method_string());
    const std::string target = text_of(message.target());
    const size_t question = target.find('?');
    r.path = target.substr(0, question);
    if (question != std::string::npos) r.query = target.substr(question + 1);
    for (const auto& field : message) r.headers.push_back({text_of(field.name_string()), text_of(field.value())});
    keep_alive = message.keep_alive();
    chunked = message.version() >= 11;
    head_only = r.method == "HEAD";
    return r;
  }

  std::optional<HttpReply> check(const HttpRequest& r, const Parser& parser) {
    if (r.headers.size() > HttpLimits::kHeaders) return closing(431, "the request has more than 100 header fields");
    if (parser.content_length() && *parser.content_length() > HttpLimits::kBodyBytes)
      return closing(413, "the request's body is larger than 64 MiB");
    if (parser.get().version() >= 11 && parser.get().count(http::field::host) != 1)
      return closing(400, "the request needs one Host header");
    return state->app.refuse(r);
  }

  HttpReply closing(int status, std::string_view message) {
    HttpReply r = state->app.broken(status, message);
    r.close = true;
    return r;
  }

  asio::awaitable<void> refuse(int status, std::string_view message) {
    keep_alive = false;
    co_await send(closing(status, message));
    co_await let_client_read();
  }

  // A close with unread bytes in the kernel resets the connection, and the client may never see the reply: read on for
  // a moment.
  asio::awaitable<void> let_client_read() {
    error_code e;
    socket.shutdown(Socket::shutdown_send, e);
    watchdog.arm(1);
    char waste[4096];
    for (int64_t read = 0; !e && !watchdog.fired() && read < (int64_t{1} << 20);)
      read += static_cast<int64_t>(co_await socket.async_read_some(asio::buffer(waste), caught(e)));
    watchdog.disarm();
  }

  // Sees the client's leaving while the answer is being made. Bytes of a next request end the watch.
  void watch_for_close() {
    socket.async_wait(Socket::wait_read, [self = shared_from_this(), e = exchange](error_code error) {
      if (error == asio::error::operation_aborted) return;
      char byte;
      const ssize_t n = error ? 0 : recv(self->socket.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return;
      e->set_gone();
    });
  }

  asio::awaitable<bool> answer() {
    while (!exchange->head()) {
      if (exchange->gone()) co_return false;
      co_await exchange->news(3600);
      std::string nothing;
      if (!exchange->head() && exchange->source()) exchange->source()->pull(nothing, 0);
    }
    HttpReply& head = *exchange->head();
    head.headers.insert(head.headers.end(), exchange->reply_headers.begin(), exchange->reply_headers.end());
    if (exchange->whole()) co_return co_await send(head);
    co_return co_await send_stream(head);
  }

  std::string head_text(const HttpReply& r, bool streaming) {
    if (r.close || state->stopping || state->lingering) keep_alive = false;
    if (streaming && !chunked) keep_alive = false;  // HTTP/1.0: the end of the connection is the end of the body
    std::string text = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", r.status, reason_phrase(r.status), date());
    if (!r.content_type.empty()) text += fmt::format("Content-Type: {}\r\n", r.content_type);
    for (const Header& h : r.headers) text += fmt::format("{}: {}\r\n", h.name, h.value);
    if (!streaming) text += fmt::format("Content-Length: {}\r\n", r.body.size());
    if (streaming && chunked) text += "Transfer-Encoding: chunked\r\n";
    return text + (keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n");
  }

  asio::awaitable<bool> send(const HttpReply& r) {
    std::string text = head_text(r, false);
    if (!head_only) text += r.body;
    co_return co_await write(std::move(text));
  }

  // The timer begins anew with every byte that the client takes.
  asio::awaitable<bool> write(std::string text) {
    for (size_t at = 0; at < text.size();) {
      watchdog.arm(state->limits.write_stall_seconds);
      error_code e;
      at += co_await socket.async_write_some(asio::buffer(text.data() + at, text.size() - at), caught(e));
      watchdog.disarm();
      if (e) co_return false;
    }
    co_return true;
  }

  asio::awaitable<bool> write_chunk(const std::string& bytes) {
    if (bytes.empty()) co_return true;
    if (!chunked) co_return co_await write(bytes);
    co_return co_await write(fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes));
  }

  asio::awaitable<bool> send_stream(const HttpReply& head) {
    if (!co_await write(head_text(head, true))) co_return false;
    if (head_only) co_return true;
    for (;;) {
      if (exchange->gone()) co_return false;
      std::string bytes;
      const HttpStream::Next next =
          exchange->source()->pull(bytes, static_cast<size_t>(state->limits.send_buffer_bytes));
      const bool silent = bytes.empty();
      if (!co_await write_chunk(bytes)) co_return false;
      if (next == HttpStream::Next::kCut) {
        keep_alive = false;
        co_return true;
      }
      if (next == HttpStream::Next::kEnd) co_return !chunked || co_await write("0\r\n\r\n");
      if (!silent) continue;  // more may have come while the client took this
      if (!co_await exchange->news(state->limits.ping_seconds) && !exchange->gone())
        if (!co_await write_chunk(std::string(exchange->source()->ping()))) co_return false;
    }
  }
};

template <class Protocol>
std::shared_ptr<typename Protocol::acceptor> make_acceptor(asio::io_context& io,
                                                           const typename Protocol::endpoint& endpoint, error_code& e) {
  auto a = std::make_shared<typename Protocol::acceptor>(io);
  a->open(endpoint.protocol(), e);
  if (!e && endpoint.protocol().family() != AF_UNIX) a->set_option(asio::socket_base::reuse_address(true), e);
  if (!e) a->bind(endpoint, e);
  if (!e) a->listen(asio::socket_base::max_listen_connections, e);
  return a;
}

}  // namespace

template <class Acceptor>
asio::awaitable<void> HttpServer::State::accept(std::shared_ptr<Acceptor> acceptor, bool admin) {
  auto self = shared_from_this();
  for (;;) {
    error_code e;
    auto accepted = co_await acceptor->async_accept(caught(e));
    if (stopping) co_return;
    if (e) {  // no file descriptors, most likely: let some be freed
      asio::steady_timer pause(io, std::chrono::milliseconds(100));
      co_await pause.async_wait(caught(e));
      continue;
    }
    if (connections >= limits.max_connections || lingering) {
      accepted.close(e);
      continue;
    }
    if (accepted.local_endpoint(e).protocol().family() != AF_UNIX) {
      const int on = 1;
      setsockopt(accepted.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    // The kernel's share of what a slow client makes us hold; left alone it grows to megabytes.
    const int buffer = static_cast<int>(std::min<int64_t>(limits.send_buffer_bytes, 1 << 30));
    setsockopt(accepted.native_handle(), SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    auto connection = std::make_shared<Connection>(self, Socket(std::move(accepted)), admin);
    asio::co_spawn(
        io, [connection] { return connection->run(); },
        [connection](std::exception_ptr broken) {
          if (broken) connection->close();
        });
  }
}

template <class Acceptor>
void HttpServer::State::start(std::shared_ptr<Acceptor> acceptor, bool admin) {
  acceptors.push_back([acceptor] {
    error_code ignored;
    acceptor->close(ignored);
  });
  asio::co_spawn(io, accept(std::move(acceptor), admin), asio::detached);
}

// Clients are told by the closing, requests by set_gone.
void HttpServer::State::close_all() {
  stopping = true;
  for (const auto& close : acceptors) close();
  for (const auto& timer : timers) timer->cancel();
  for (Connection* c : std::list<Connection*>(open)) {
    if (c->exchange) c->exchange->set_gone();
    c->close();
  }
  error_code ignored;
  signals.cancel(ignored);
  io.restart();
  io.poll();
}

void HttpServer::State::settle() {
  if (!lingering) return;
  for (const Connection* c : open)
    if (c->busy) return;
  io.stop();
}

void HttpServer::State::wait_for_signal(std::function<void(int)> f) {
  signals.async_wait([self = shared_from_this(), f = std::move(f)](error_code e, int signal) mutable {
    if (e) return;
    f(signal);
    self->wait_for_signal(std::move(f));
  });
}

void HttpServer::State::tick(std::shared_ptr<asio::steady_timer> timer, double every, std::function<void()> f) {
  timer->expires_after(seconds(every));
  timer->async_wait([self = shared_from_this(), timer, every, f = std::move(f)](error_code e) mutable {
    if (e || self->stopping) return;
    f();
    self->tick(timer, every, std::move(f));
  });
}

HttpServer::HttpServer(const HttpLimits& limits, HttpApp& app) : state_(std::make_shared<State>(limits, app)) {}

// What waits in the loop holds the state, which holds the loop: the waiting has to be ended.
HttpServer::~HttpServer() {
  state_->close_all();
  for (const std::string& file : state_->socket_files) {
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
  }
}

Status HttpServer::listen(const std::string& host, int port, bool admin) {
  error_code e;
  asio::ip::tcp::resolver resolver(state_->io);
  const auto found = resolver.resolve(host, std::to_string(port), asio::ip::tcp::resolver::passive, e);
  if (e || found.empty()) return invalid("{}:{}: no such address: {}", host, port, e.message());
  auto acceptor = make_acceptor<asio::ip::tcp>(state_->io, found.begin()->endpoint(), e);
  if (e) return unavailable("{}:{}: cannot listen: {}", host, port, e.message());
  if (!state_->ports[admin]) state_->ports[admin] = acceptor->local_endpoint().port();
  state_->start(std::move(acceptor), admin);
  return Status::ok();
}

Status HttpServer::listen_unix(const std::string& path, bool admin) {
  error_code e;
  std::error_code ignored;
  if (std::filesystem::is_socket(path, ignored)) std::filesystem::remove(path, ignored);  // of a server that was killed
  if (path.size() > 100) return invalid("{}: a socket's path has at most 100 bytes", path);
  const mode_t mask = umask(0077);  // its owner's alone
  auto acceptor =
      make_acceptor<asio::local::stream_protocol>(state_->io, asio::local::stream_protocol::endpoint(path), e);
  umask(mask);
  if (e) return unavailable("{}: cannot listen: {}", path, e.message());
  state_->socket_files.push_back(path);
  state_->start(std::move(acceptor), admin);
  return Status::ok();
}

int HttpServer::port(bool admin) const { return state_->ports[admin]; }

void HttpServer::run() {
  state_->io.run();
  state_->close_all();
}

void HttpServer::post(std::function<void()> f) { asio::post(state_->io, std::move(f)); }

void HttpServer::stop() { state_->io.stop(); }

void HttpServer::every(double s, std::function<void()> f) {
  post([state = state_, s, f = std::move(f)]() mutable { state->tick(state->new_timer(), s, std::move(f)); });
}

void HttpServer::on_signal(std::function<void(int)> f) {
  state_->signals.add(SIGTERM);
  state_->signals.add(SIGINT);
  state_->wait_for_signal(std::move(f));
}

void HttpServer::linger(double s) {
  post([state = state_, s] {
    state->lingering = true;
    auto timer = state->new_timer();
    timer->expires_after(seconds(s));
    timer->async_wait([state](error_code) { state->io.stop(); });
    state->settle();
  });
}

int HttpServer::connections() const { return state_->connections; }

}  // namespace lathe::serve
