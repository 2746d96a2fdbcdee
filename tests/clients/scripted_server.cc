#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "testing/test_server.h"

// lathe_scripted_server SCRIPT.json: a server with scripted replies on a free loopback port, which it prints. Ends when
// its standard input does.
//   {"replies": [{"when": "text of the prompt", "text": "<think>...</think>..."}], "step_seconds": 0.01, "keys_file":
//   "..."}
int main(int argc, char** argv) {
  using namespace lathe;
  if (argc != 2) return fmt::print(stderr, "usage: lathe_scripted_server SCRIPT.json\n"), 2;
  std::stringstream text;
  text << std::ifstream(argv[1]).rdbuf();
  const nlohmann::json json = nlohmann::json::parse(text.str());
  lathe::testing::Script script;
  script.step_seconds = json.value("step_seconds", 0.0);
  script.most_tokens = json.value("most_tokens", 3);
  script.max_context = json.value("max_context", 32768);
  script.cached_tokens = json.value("cached_tokens", 0);
  for (const auto& r : json.at("replies"))
    script.replies.push_back({.when = r.value("when", ""),
                              .text = r.at("text"),
                              .failure = std::nullopt,
                              .fail_after = 0,
                              .endless = r.value("endless", false)});
  ServerConfig config;
  config.keys_file = json.value("keys_file", "");
  config.served_name = json.value("served_name", "");
  lathe::testing::TestServer server(std::move(script), config);
  fmt::print("{}\n", server.port());
  std::fflush(stdout);
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  return 0;
}
