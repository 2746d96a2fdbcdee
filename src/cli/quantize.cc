#include "model/glm5_next/quantize.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/progress.h"

namespace lathe {

namespace {

using glm5_next::WeightFormat;

struct Options {
  std::string in, out;
  std::string format;
  bool lm_head = false, json = false;
  int threads = 1;
};

Status run(const Options& o) {
  ThreadPool pool(o.threads);
  const WeightFormat format = o.format == "w8a8-int8" ? WeightFormat::kRowInt8 : WeightFormat::kRowFp8;
  glm5_next::QuantizeReport report;
  {
    ProgressLine line;
    glm5_next::QuantizeOptions options{.format = format, .lm_head = o.lm_head, .progress = {}};
    options.progress = [&](int64_t done, int64_t all, const std::string& tensor) {
      line.show(static_cast<int>(done >> 20), static_cast<int>(all >> 20), "MiB " + tensor);
    };
    LATHE_ASSIGN(report, glm5_next::quantize(o.in, o.out, options, pool));
  }
  if (o.json)
    fmt::print("{}\n", nlohmann::json{{"out", o.out},
                                      {"format", o.format},
                                      {"tensors", report.tensors},
                                      {"bytes_before", report.bytes_before},
                                      {"bytes_after", report.bytes_after},
                                      {"error_ratio", report.error_ratio}}
                           .dump(2));
  else
    fmt::print(
        "{}: {} matrices in {}, {:.3f} GB before, {:.3f} GB after; error of their weights {:.2e} of their size\n",
        o.out, report.tensors, o.format, static_cast<double>(report.bytes_before) / 1e9,
        static_cast<double>(report.bytes_after) / 1e9, report.error_ratio);
  return Status::ok();
}

}  // namespace

void add_quantize(CLI::App& app, Chosen& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* sub =
      app.add_subcommand("quantize", "A checkpoint with 8-bit weights, activations to be quantised by token (W8A8)");
  sub->group(kLookInside);
  sub->add_option("in", o->in, "Folder of a checkpoint: f32, bf16, f16 or released FP8")->type_name("IN")->required();
  sub->add_option("out", o->out, "Folder to write: new, or empty")->type_name("OUT")->required();
  sub->add_option("--format", o->format, "w8a8-int8: most exact, fastest on CPUs; w8a8-fp8: for chips with FP8")
      ->required()
      ->check(CLI::IsMember({"w8a8-int8", "w8a8-fp8"}));
  sub->add_flag("--lm-head", o->lm_head,
                "Also the LM head: fewer bytes a token, but every logit gets its error directly");
  add_threads_option(*sub, o->threads);
  add_json_option(*sub, o->json);
  sub->footer(
      "Experts, dense MLPs, KDA q/k/v/o and MLA q_a, q_b, kv_a, o are converted; all else is copied byte for byte.\n"
      "Examples:\n"
      "  lathe quantize models/demo /tmp/demo-int8 --format w8a8-int8\n"
      "  lathe quantize GLM-5.3-Flash /data/flash-fp8 --format w8a8-fp8 --json");
  sub->callback([&chosen, o] { chosen.body = [o] { return run(*o); }; });
}

}  // namespace lathe
