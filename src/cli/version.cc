#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command.h"
#include "feedback/build_info.h"
#include "lathe/server.h"

namespace lathe {

ServerIdentity server_identity() {
  const BuildInfo& b = build_info();
  return {b.version, b.commit, b.build_id};
}

void add_version(CLI::App& app, Chosen& chosen) {
  auto json = std::make_shared<bool>(false);
  CLI::App* sub =
      app.add_subcommand("version", "What this build is: version, commit, build id, compiler, instruction sets");
  sub->group(kMeasure);
  add_json_option(*sub, *json);
  sub->footer("Examples:\n  lathe version\n  lathe version --json");
  sub->callback([&chosen, json] {
    chosen.body = [json] {
      fmt::print("{}\n", *json ? identity_json() : identity_text());
      return Status::ok();
    };
  });
}

}  // namespace lathe
