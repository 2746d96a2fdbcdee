#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "lathe/trace.h"

namespace CLI {
class App;
}

// The pattern of every subcommand: one thin file src/cli/NAME.cc (CLI11 is a heavy header: one unit each) with
//
//   void add_NAME(CLI::App& app, Chosen& chosen) {
//     struct Options { std::string model; RunOptions run; };
//     auto o = std::make_shared<Options>();                        // lives as long as the command line
//     CLI::App* sub = app.add_subcommand("NAME", "What it does, in one line");
//     sub->group(kRunModels);
//     sub->add_option("--model", o->model, "Folder of a checkpoint")->required();
//     add_run_options(*sub, o->run);
//     sub->footer("Examples:\n  lathe NAME --model models/demo");
//     sub->callback([&chosen, o] { chosen.body = [o] { return do_it(*o); }; });
//   }
//
// then one line below and one in main.cc. The body runs after parsing; it returns a Status, or an Exit where "as asked"
// and "an error" aren't the only ends. It prints results to stdout; errors it returns, and main prints them.
namespace lathe {

// The same codes for all of lathe; CI relies on them.
enum class Exit {
  kAsAsked = 0,
  kUsage = 2,
  kRegressed = 10,
  kMixed = 11,
  kInconclusive = 12,
  kIncorrect = 20,
  kInvalid = 30,
  kRefused = 31,
  kInternal = 70,
};

class Outcome {
 public:
  Outcome(Status status) : status_(std::move(status)) {}
  Outcome(Exit exit) : exit_(exit) {}

  const Status& status() const { return status_; }
  // What a user can mend is kUsage, what only we can mend kInternal.
  Exit exit() const {
    if (status_.is_ok()) return exit_;
    return status_.code() == StatusCode::kInternal ? Exit::kInternal : Exit::kUsage;
  }

 private:
  Status status_;
  Exit exit_ = Exit::kAsAsked;
};

// What the command line asked for.
struct Chosen {
  std::function<Outcome()> body;
};

// Options that every command which computes has.
struct RunOptions {
  int threads = 0;                    // after parsing: at least 1; default all cores that this process may use
  std::string device = "cpu";         // cpu, sim or cuda
  std::vector<std::string> variants;  // OP=NAME; checked for form
};
void add_run_options(CLI::App& sub, RunOptions& options);
void add_threads_option(CLI::App& sub, int& threads);  // alone, for what computes without a model
void add_variant_option(CLI::App& sub, std::vector<std::string>& variants);
// --trace FILE, --trace-level and --inject.
void add_recording_options(CLI::App& sub, RecordingOptions& options);
// Any 64-bit number; what doesn't fit is refused, not wrapped.
void add_seed_option(CLI::App& sub, uint64_t& seed, const char* meaning);
void add_json_option(CLI::App& sub, bool& json);

// Groups of `lathe --help`.
inline constexpr const char* kRunModels = "Run a model";
inline constexpr const char* kLookInside = "Look inside, make and convert";
inline constexpr const char* kMeasure = "Prove and measure";

void add_chat(CLI::App& app, Chosen& chosen);
void add_check_config(CLI::App& app, Chosen& chosen);
void add_eval(CLI::App& app, Chosen& chosen);
void add_explain(CLI::App& app, Chosen& chosen);
void add_generate(CLI::App& app, Chosen& chosen);
void add_compare(CLI::App& app, Chosen& chosen);
void add_inspect(CLI::App& app, Chosen& chosen);
void add_lab(CLI::App& app, Chosen& chosen);
void add_ledger(CLI::App& app, Chosen& chosen);
void add_logits(CLI::App& app, Chosen& chosen);
void add_overlap(CLI::App& app, Chosen& chosen);
void add_op_server(CLI::App& app, Chosen& chosen);
void add_model_server(CLI::App& app, Chosen& chosen);
void add_params(CLI::App& app, Chosen& chosen);
void add_quantize(CLI::App& app, Chosen& chosen);
void add_render(CLI::App& app, Chosen& chosen);
void add_report(CLI::App& app, Chosen& chosen);
void add_serve(CLI::App& app, Chosen& chosen);
void add_selftest(CLI::App& app, Chosen& chosen);
void add_synth(CLI::App& app, Chosen& chosen);
void add_bench(CLI::App& app, Chosen& chosen);
void add_tokenize(CLI::App& app, Chosen& chosen);
void add_trace(CLI::App& app, Chosen& chosen);
void add_verify(CLI::App& app, Chosen& chosen);
void add_version(CLI::App& app, Chosen& chosen);

// Of this binary, for the server: see lathe/server.h.
struct ServerIdentity;
ServerIdentity server_identity();

}  // namespace lathe
