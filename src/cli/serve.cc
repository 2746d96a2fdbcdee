#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "lathe/server.h"

namespace lathe {

namespace {

// Every key of the configuration is a flag: max_queue is --max-queue.
struct Options {
  std::string file;
  std::vector<std::pair<std::string, std::string>> flags;
};

std::shared_ptr<Options> add_keys(CLI::App& sub) {
  auto o = std::make_shared<Options>();
  sub.add_option("--config", o->file, "TOML file with the same keys as the flags, spelled with '_'");
  for (const ConfigKey& key : server_config_keys()) {
    std::string flag = "--" + key.name;
    std::replace(flag.begin(), flag.end(), '_', '-');
    auto set = [o, name = key.name](const std::string& value) { o->flags.emplace_back(name, value); };
    CLI::Option* option =
        key.type == "boolean"
            ? sub.add_flag_function(
                  flag, [set](std::int64_t n) { set(n > 0 ? "true" : "false"); }, key.meaning)
            : sub.add_option_function<std::string>(
                  flag, set, fmt::format("{} ({})", key.meaning, key.fallback.empty() ? "empty" : key.fallback));
    option->group(key.group);
  }
  return o;
}

Result<ServerConfig> load(const Options& o) {
  std::vector<std::string> environment;
  for (char** v = environ; v && *v; ++v) environment.push_back(*v);
  return load_server_config(o.file, environment, o.flags);
}

Outcome serve(const Options& o) {
  LATHE_ASSIGN(const ServerConfig config, load(o));
  LATHE_ASSIGN(const ServerEnd end, run_server(config, server_identity()));
  if (end == ServerEnd::kEngineFailed) return Exit::kInternal;
  return Status::ok();
}

}  // namespace

void add_serve(CLI::App& app, Chosen& chosen) {
  CLI::App* sub = app.add_subcommand("serve", "HTTP server: OpenAI's and Anthropic's APIs over a model");
  sub->group(kRunModels);
  auto o = add_keys(*sub);
  auto openapi = std::make_shared<bool>(false), manual = std::make_shared<bool>(false);
  sub->add_flag("--openapi", *openapi, "Print the interface as OpenAPI, and end");
  sub->add_flag("--manual", *manual, "Print the tables of docs/serving.md, and end");
  sub->footer(
      "Every flag can stand in the file, too, or in the environment: --max-queue, max_queue = ..., LATHE_MAX_QUEUE.\n"
      "SIGTERM drains, a second one ends at once. Exit code 70: the engine failed.\n"
      "Examples:\n  lathe serve --model models/demo\n  lathe serve --config server.toml --port 8080\n"
      "  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' "
      "-d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}'");
  sub->callback([&chosen, o, openapi, manual] {
    chosen.body = [o, openapi, manual]() -> Outcome {
      if (*openapi) return fmt::print("{}", server_openapi()), Status::ok();
      if (*manual) return fmt::print("{}", server_manual()), Status::ok();
      return serve(*o);
    };
  });
}

void add_check_config(CLI::App& app, Chosen& chosen) {
  CLI::App* sub =
      app.add_subcommand("check-config", "Reads a server's configuration as serve would, and prints what it means");
  sub->group(kRunModels);
  auto o = add_keys(*sub);
  sub->footer(
      "Prints all keys, limits and the memory plan; exit code 2 where something can't be meant.\n"
      "Examples:\n  lathe check-config --model models/demo\n  lathe check-config --config server.toml");
  sub->callback([&chosen, o] {
    chosen.body = [o]() -> Outcome {
      LATHE_ASSIGN(const ServerConfig config, load(*o));
      LATHE_ASSIGN(const std::string text, describe_server(config));
      return fmt::print("{}", text), Status::ok();
    };
  });
}

}  // namespace lathe
