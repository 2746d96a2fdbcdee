#include "testing/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace lathe::testing {

namespace {

constexpr double kPatience = 60;  // seconds; only a hanging server makes a test wait that long

std::string lower(std::string s) {
  std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return std::tolower(c); });
  return s;
}

}  // namespace

HttpClient::HttpClient(int port, int receive_buffer) {
  socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
  if (receive_buffer) setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) close();
}

HttpClient::~HttpClient() { close(); }

void HttpClient::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

bool HttpClient::send(const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = ::send(socket_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
  }
  return true;
}

bool HttpClient::fill(double seconds) {
  if (socket_ < 0) return false;
  pollfd p{.fd = socket_, .events = POLLIN, .revents = 0};
  if (poll(&p, 1, static_cast<int>(seconds * 1000)) <= 0) return false;
  char bytes[65536];
  const ssize_t n = recv(socket_, bytes, sizeof bytes, 0);
  if (n <= 0) {
    close();
    return false;
  }
  buffer_.append(bytes, static_cast<size_t>(n));
  return true;
}

std::string HttpClient::read_some(double seconds) {
  if (buffer_.empty()) fill(seconds);
  return std::exchange(buffer_, "");
}

bool HttpClient::ended(double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (socket_ >= 0 && std::chrono::steady_clock::now() < until) fill(0.05);
  return socket_ < 0;
}

HttpAnswer HttpClient::read() {
  HttpAnswer a;
  size_t head_end;
  while ((head_end = buffer_.find("\r\n\r\n")) == std::string::npos)
    if (!fill(kPatience)) return a;
  const std::string head = buffer_.substr(0, head_end + 2);
  buffer_.erase(0, head_end + 4);
  a.status = std::atoi(head.c_str() + 9);
  for (size_t at = head.find("\r\n") + 2; at < head.size();) {
    const size_t end = head.find("\r\n", at), colon = head.find(':', at);
    if (colon < end) a.headers[lower(head.substr(at, colon - at))] = head.substr(colon + 2, end - colon - 2);
    at = end + 2;
  }
  if (a.status == 100) return read();
  auto take = [&](size_t count) {
    while (buffer_.size() < count)
      if (!fill(kPatience)) return false;
    a.body += buffer_.substr(0, count);
    buffer_.erase(0, count);
    return true;
  };
  if (a.headers.contains("content-length")) {
    a.complete = take(std::stoul(a.headers["content-length"]));
  } else if (a.headers.contains("transfer-encoding")) {
    for (;;) {
      size_t end;
      while ((end = buffer_.find("\r\n")) == std::string::npos)
        if (!fill(kPatience)) return a;
      const size_t size = std::stoul(buffer_.substr(0, end), nullptr, 16);
      buffer_.erase(0, end + 2);
      if (!take(size)) return a;
      std::string crlf;
      while (buffer_.size() < 2)
        if (!fill(kPatience)) return a;
      buffer_.erase(0, 2);
      if (size == 0) break;
    }
    a.complete = true;
  } else {
    while (fill(kPatience)) {
    }
    a.body += std::exchange(buffer_, "");
    a.complete = true;
  }
  return a;
}

HttpAnswer HttpClient::ask(const std::string& method, const std::string& path, const std::string& body,
                           HttpHeaders headers) {
  std::string text = method + " " + path + " HTTP/1.1\r\n";
  auto has = [&](const char* name) {
    return std::any_of(headers.begin(), headers.end(), [&](const auto& h) { return lower(h.first) == name; });
  };
  if (!has("host")) headers.emplace_back("Host", "localhost");
  if (!body.empty() && !has("content-type")) headers.emplace_back("Content-Type", "application/json");
  if (!body.empty() || method == "POST") headers.emplace_back("Content-Length", std::to_string(body.size()));
  for (const auto& [name, value] : headers) text += name + ": " + value + "\r\n";
  send(text + "\r\n" + body);
  return read();
}

HttpAnswer ask(int port, const std::string& method, const std::string& path, const std::string& body,
               HttpHeaders headers) {
  HttpClient client(port);
  return client.ask(method, path, body, std::move(headers));
}

std::vector<std::string> event_data(const std::string& body) {
  std::vector<std::string> all;
  for (size_t at = 0; at < body.size();) {
    const size_t end = std::min(body.find('\n', at), body.size());
    if (body.compare(at, 6, "data: ") == 0) all.push_back(body.substr(at + 6, end - at - 6));
    at = end + 1;
  }
  return all;
}

}  // namespace lathe::testing
