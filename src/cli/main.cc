#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "cli/command.h"
#include "feedback/build_info.h"

namespace {

using namespace lathe;

constexpr void (*kCommands[])(CLI::App&, Chosen&) = {
    add_chat,      add_eval,         add_generate,     add_inspect, add_logits,  add_quantize, add_render,
    add_synth,     add_tokenize,     add_bench,        add_verify,  add_version, add_trace,    add_overlap,
    add_explain,   add_serve,        add_check_config, add_lab,     add_compare, add_ledger,   add_selftest,
    add_op_server, add_model_server, add_report,       add_params,
};

constexpr const char* kFooter =
    "Exit codes: 0 as asked, 2 usage or bad input, 10 worse, 11 mixed, 12 can't tell, 20 incorrect, 30 invalid "
    "measurement, 31 refused, 70 internal.\n"
    "lathe COMMAND --help tells more, with examples.";

int code(Exit exit) { return static_cast<int>(exit); }

int complain(Exit exit, std::string_view message) {
  fmt::print(stderr, "lathe: {}\n", message);
  return code(exit);
}

// A failed LATHE_CHECK has printed its expression; the exit code says whose fault it was.
void leave_as_internal(int) { _exit(code(Exit::kInternal)); }

// What a full disk or a closed pipe swallowed is not "as asked".
int after_output(int code_so_far) {
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code_so_far;
  return complain(Exit::kUsage, fmt::format("standard output: {}", std::strerror(errno)));
}

int run_chosen(const Chosen& chosen) {
  try {
    const Outcome outcome = chosen.body();
    return outcome.status().is_ok() ? code(outcome.exit()) : complain(outcome.exit(), outcome.status().message());
  } catch (const std::exception& e) {
    return complain(Exit::kInternal, fmt::format("unexpected: {}", e.what()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGABRT, leave_as_internal);
  CLI::App app{"lathe: an inference engine for hybrid linear and sparse attention models, and its instruments"};
  Chosen chosen;
  app.footer(kFooter);
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", identity_text());
  bool identity = false;
  app.add_flag("--identity", identity, "Build id, features and defaults of this binary, as JSON");
  for (auto add : kCommands) add(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return after_output(app.exit(help));
  } catch (const CLI::ParseError& e) {
    return complain(Exit::kUsage, fmt::format("{}\nlathe: try lathe --help", e.what()));
  }
  if (identity) return fmt::print("{}\n", identity_json()), after_output(0);
  if (!chosen.body) return complain(Exit::kUsage, "no command given\n" + app.help());
  return after_output(run_chosen(chosen));
}
