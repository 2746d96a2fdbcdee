#include "feedback/op_server.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command.h"
#include "feedback/cheats.h"

namespace lathe {

namespace {

Outcome run(const std::string& planted) {
  LATHE_ASSIGN(SharedMemory memory, SharedMemory::open(kOpMemoryFd));
  OpBehaviour honest;
  if (planted.empty()) return serve_operators(kOpSocketFd, std::move(memory), honest);
  const PlantedCandidate* candidate = planted_candidate(planted);
  if (!candidate) return invalid("--planted {}: nothing is planted under that name", planted);
  return serve_operators(kOpSocketFd, std::move(memory), *candidate->make());
}

}  // namespace

// Hidden: started by compare, verify and bench, never by people.
void add_op_server(CLI::App& app, Chosen& chosen) {
  CLI::App* sub = app.add_subcommand("op-server", "Run operators for a supervisor that holds inputs, clock and oracle");
  sub->group("");
  auto planted = std::make_shared<std::string>();
  sub->add_option("--planted", *planted, "Be one of the self-test's candidates");
  sub->callback([&chosen, planted] { chosen.body = [planted] { return run(*planted); }; });
}

}  // namespace lathe
