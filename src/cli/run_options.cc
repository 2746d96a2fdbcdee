#include <sched.h>

#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "cli/whole_number.h"
#include "ops/registry.h"

namespace lathe {

namespace {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}

std::string unknown_choice(const std::string& text) { return check_choice(text).message(); }

}  // namespace

void add_threads_option(CLI::App& sub, int& threads) {
  threads = usable_cores();
  sub.add_option("--threads", threads, "Threads that compute (default: all cores)")->check(CLI::Range(1, 1024));
}

void add_variant_option(CLI::App& sub, std::vector<std::string>& variants) {
  sub.add_option("--variant", variants, "Use variant NAME of operator OP; '*' is every operator. Repeatable")
      ->type_name("OP=NAME")
      ->expected(1)
      ->take_all()
      ->check(CLI::Validator(unknown_choice, "", "choice"));
}

void add_run_options(CLI::App& sub, RunOptions& options) {
  add_threads_option(sub, options.threads);
  sub.add_option("--device", options.device,
                 "Where to compute: cpu, cuda, or sim (a second address space and an in-order queue)")
      ->check(CLI::IsMember({"cpu", "sim", "cuda"}))
      ->capture_default_str();
  add_variant_option(sub, options.variants);
}

void add_recording_options(CLI::App& sub, RecordingOptions& options) {
  sub.add_option("--trace", options.file,
                 "Write where the time goes, as Chrome/Perfetto JSON; lathe trace show reads it")
      ->type_name("FILE");
  sub.add_option("--trace-level", options.level, "full, or counters: no clock is read")
      ->check(CLI::IsMember({"off", "counters", "full"}))
      ->capture_default_str();
  sub.add_option("--inject", options.inject,
                 "Add a delay, to see whether it matters: SPAN=US, hold:LOCK=US, wait:LOCK=US. Repeatable")
      ->type_name("PLACE=US")
      ->expected(1)
      ->take_all();
}

void add_seed_option(CLI::App& sub, uint64_t& seed, const char* meaning) {
  sub.add_option("--seed", seed, meaning)->check(whole_number(0, UINT64_MAX))->capture_default_str();
}

void add_json_option(CLI::App& sub, bool& json) { sub.add_flag("--json", json, "Report as JSON on stdout"); }

}  // namespace lathe
