#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lathe::testing {

struct HttpAnswer {
  int status = 0;                              // 0: the connection ended without a reply
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without chunk framing
  bool complete = false;                       // as long as its head said
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// A client of one connection, made of plain socket calls: it sends exactly what it is told to.
class HttpClient {
 public:
  explicit HttpClient(int port, int receive_buffer = 0);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;

  bool send(const std::string& bytes);
  HttpAnswer read();                      // one whole reply
  std::string read_some(double seconds);  // what comes within that time; "" if nothing
  bool ended(double seconds);             // the server closes within that time
  void close();
  HttpAnswer ask(const std::string& method, const std::string& path, const std::string& body = "",
                 HttpHeaders headers = {});

 private:
  bool fill(double seconds);
  int socket_ = -1;
  std::string buffer_;
};

// One request on a connection of its own.
HttpAnswer ask(int port, const std::string& method, const std::string& path, const std::string& body = "",
               HttpHeaders headers = {});

// The data of server-sent events, in order; comments are left out.
std::vector<std::string> event_data(const std::string& body);

}  // namespace lathe::testing
