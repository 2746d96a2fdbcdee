#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "cli/command.h"
#include "cli/whole_number.h"
#include "engine/run_settings.h"
#include "model/glm5_next/inventory.h"
#include "model/glm5_next/memory_plan.h"
#include "model/glm5_next/weights.h"
#include "ops/kda_replay/kda_replay.h"

namespace lathe {

namespace {

using namespace glm5_next;
using Json = nlohmann::ordered_json;

constexpr int64_t kMaxConfigBytes = 16 << 20;

struct Options {
  std::string model, dtype, cut;
  MemoryRequest request;
  bool replay = false, json = false;
};

// A model folder, or a config.json alone: then tensors are as the configuration announces them.
struct Model {
  Config config;
  WeightFormat format = WeightFormat::kPlain;
  Inventory inventory;
  int files = 0;
};

Result<Model> open_model(const std::string& path) {
  Model m;
  const bool folder = std::filesystem::is_directory(path);
  const std::string file = folder ? path + "/config.json" : path;
  LATHE_ASSIGN(const std::string text, read_text_file(file, kMaxConfigBytes));
  if (!folder) {
    LATHE_ASSIGN(m.config, Config::parse(text, file));
    LATHE_ASSIGN(m.format, read_weight_format(text, file));
    m.inventory.tensors = list_tensors(m.config, m.format);
    return m;
  }
  LATHE_ASSIGN(m.config, Config::read(path));
  LATHE_ASSIGN(m.format, read_weight_format(text, file));
  LATHE_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(path));
  m.inventory = take_inventory(m.config, checkpoint);
  std::map<std::string, int> files;
  for (const auto& [name, entry] : checkpoint.tensors()) ++files[entry.file->path()];
  m.files = static_cast<int>(files.size());
  return m;
}

// What this process has in memory now: about what any command has besides the model, but for the operators' code,
// its threads' stacks, a tokenizer, and the rest of the huge page in which short caches end.
constexpr int64_t kComputing = int64_t{6} << 20;

int64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  int64_t sum = 0;
  for (std::string line; std::getline(status, line);)
    for (const char* field : {"RssAnon:", "RssShmem:", "RssFile:"})
      if (line.starts_with(field)) sum += std::stoll(line.substr(std::string(field).size())) * 1024;
  return sum;
}

struct Total {
  int64_t tensors = 0, parameters = 0, bytes = 0;
};

struct Summary {
  std::map<TensorPart, Total> parts;
  std::map<std::string, int64_t> bytes_by_dtype;
  Total all;
  int64_t active = 0;
};

Summary summarise(const Model& m) {
  Summary s;
  for (const TensorInfo& t : m.inventory.tensors) {
    for (Total* total : {&s.parts[t.part], &s.all}) {
      ++total->tensors;
      total->bytes += t.bytes();
      if (!t.scale) total->parameters += t.count();
    }
    s.bytes_by_dtype[dtype_name(t.dtype)] += t.bytes();
  }
  s.active = active_parameters(m.config, m.inventory.tensors);
  return s;
}

Json layers_json(const Model& m) {
  const TextConfig& c = m.config.text;
  int shared = 0, moe = 0;
  for (const LayerConfig& l : c.layers) shared += l.shared_index, moe += l.moe;
  const int sparse = c.sparse_layers(), all = static_cast<int>(c.layers.size());
  return {{"all", all},
          {"kda", all - sparse},
          {"sparse", sparse},
          {"sparse_with_shared_index", shared},
          {"dense", all - moe},
          {"moe", moe},
          {"experts", c.experts},
          {"experts_per_token", c.top_k},
          {"shared_experts", c.shared_experts},
          {"mtp", c.mtp_layers},
          {"vision", m.config.vision ? m.config.vision->depth : 0}};
}

Json plan_json(const MemoryRequest& r, const MemoryPlan& p, int64_t process) {
  return {{"context", r.context},
          {"batch", r.batch},
          {"rows", p.rows},
          {"dtype", dtype_name(r.dtype)},
          {"threads", r.threads},
          {"ranks", r.cut.size},
          {"weights", p.weights},
          {"vectors", p.vectors},
          {"slots", p.slots},
          {"pages", p.pages},
          {"activations", p.activations},
          {"scratch", p.scratch},
          {"process", process},
          {"total", p.total() + process},
          {"slot_bytes", p.slot_bytes},
          {"page_bytes", p.page_bytes},
          {"page_tokens", p.page_tokens},
          {"page_count", p.page_count}};
}

void print_json(const Options& o, const Model& m, const Summary& s, const MemoryPlan& plan, int64_t process) {
  Json parts = Json::object(), dtypes = Json::object();
  for (const auto& [part, t] : s.parts)
    parts[tensor_part_name(part)] = {{"tensors", t.tensors}, {"parameters", t.parameters}, {"bytes", t.bytes}};
  for (const auto& [dtype, bytes] : s.bytes_by_dtype) dtypes[dtype] = bytes;
  fmt::print("{}\n", Json{{"model", o.model},
                          {"format", weight_format_name(m.format)},
                          {"files", m.files},
                          {"layers", layers_json(m)},
                          {"tensors", s.all.tensors},
                          {"parameters", s.all.parameters},
                          {"active_parameters", s.active},
                          {"bytes", s.all.bytes},
                          {"bytes_by_dtype", dtypes},
                          {"parts", parts},
                          {"unknown", m.inventory.unknown},
                          {"missing", m.inventory.missing},
                          {"memory", plan_json(o.request, plan, process)}}
                         .dump(2));
}

// 12.3 GB, 456 MB, 7.8 kB.
std::string size_text(int64_t bytes) {
  const double b = static_cast<double>(bytes);
  if (b >= 1e9) return fmt::format("{:.3f} GB", b / 1e9);
  if (b >= 1e6) return fmt::format("{:.2f} MB", b / 1e6);
  return fmt::format("{:.2f} kB", b / 1e3);
}

std::string grouped(int64_t n) {
  std::string digits = std::to_string(n);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<size_t>(i), 1, ',');
  return digits;
}

void print_names(const char* what, const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  if (names.empty()) return;
  fmt::print("{} {}:", names.size(), what);
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) fmt::print(" {}", names[i]);
  fmt::print("{}\n", names.size() > kShown ? " ..." : "");
}

void print_text(const Options& o, const Model& m, const Summary& s, const MemoryPlan& p, int64_t process) {
  const Json l = layers_json(m);
  const auto count = [&](const char* name) { return l[name].get<int>(); };
  fmt::print("{}: {} layers ({} KDA, {} sparse; {} dense, {} MoE of {} experts, {} a token, {} shared){}{}\n", o.model,
             count("all"), count("kda"), count("sparse"), count("dense"), count("moe"), count("experts"),
             count("experts_per_token"), count("shared_experts"), count("mtp") ? ", MTP block" : "",
             count("vision") ? fmt::format(", vision tower of {}", count("vision")) : "");
  fmt::print("{} tensors{}, {} parameters, {} of them active for a token; {} ({})\n\n", s.all.tensors,
             m.files ? fmt::format(" in {} files", m.files) : ", from the configuration alone",
             grouped(s.all.parameters), grouped(s.active), size_text(s.all.bytes), weight_format_name(m.format));
  fmt::print("{:<18} {:>8} {:>17} {:>12}\n", "part", "tensors", "parameters", "bytes");
  for (const auto& [part, t] : s.parts)
    fmt::print("{:<18} {:>8} {:>17} {:>12}\n", tensor_part_name(part), t.tensors, grouped(t.parameters),
               size_text(t.bytes));
  fmt::print("\nby dtype:");
  for (const auto& [dtype, bytes] : s.bytes_by_dtype) fmt::print("  {} {}", dtype, size_text(bytes));
  fmt::print("\n");
  print_names("unknown tensors, never read", m.inventory.unknown);
  print_names("missing tensors", m.inventory.missing);
  const MemoryRequest& r = o.request;
  fmt::print("\nmemory for {} sequence{} of {} tokens, {}, {} rows a pass, {} thread{}{}:\n", r.batch,
             r.batch == 1 ? "" : "s", r.context, dtype_name(r.dtype), p.rows, r.threads, r.threads == 1 ? "" : "s",
             r.cut.size > 1 ? fmt::format(", {} ranks", r.cut.size) : "");
  auto line = [](const char* what, int64_t bytes, const std::string& how) {
    fmt::print("  {:<18} {:>12}  {}\n", what, size_text(bytes), how);
  };
  line("weights", p.weights,
       fmt::format("mapped{}{}", r.vision ? "" : ", without vision", r.mtp ? "" : ", without MTP"));
  line("small vectors", p.vectors, "as f32");
  line("slots", p.slots, fmt::format("{} x {}, whatever the length", r.batch, size_text(p.slot_bytes)));
  line("pages", p.pages, fmt::format("{} x {} of {} tokens", p.page_count, size_text(p.page_bytes), p.page_tokens));
  line("activations", p.activations, "of one pass");
  line("scratch", p.scratch, "inside an operator, at most");
  line("process", process, "code, headers, this command's heap");
  line("total", p.total() + process, "resident, at most; +10 % is the promise");
}

Status run(Options& o) {
  LATHE_ASSIGN(const Model model, open_model(o.model));
  MemoryRequest& r = o.request;
  LATHE_ASSIGN(r.dtype, activation_dtype(o.dtype, model.config.text));
  if (!o.cut.empty()) {
    LATHE_ASSIGN(r.cut, Partition::parse(o.cut));
    LATHE_RETURN_IF_ERROR(glm5_next::check_partition(model.config.text, r.cut));
  }
  if (r.context > model.config.text.max_positions)
    return invalid("--context {}: {}: max_position_embeddings is {}", r.context, model.config.file,
                   model.config.text.max_positions);
  r.replay_length = o.replay ? ring_length(model.config.text.gate_bound) : 0;
  const Summary summary = summarise(model);
  const MemoryPlan plan = plan_memory(model.config, model.inventory.tensors, r);
  const int64_t process = resident_bytes() + kComputing;
  if (o.json)
    print_json(o, model, summary, plan, process);
  else
    print_text(o, model, summary, plan, process);
  return Status::ok();
}

}  // namespace

void add_inspect(CLI::App& app, Chosen& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* sub =
      app.add_subcommand("inspect", "Parameters and bytes of a model, and the memory it needs; reads no weights");
  sub->group(kLookInside);
  sub->add_option("model", o->model, "Folder of a checkpoint, or a config.json alone")
      ->type_name("DIR|CONFIG.json")
      ->required();
  sub->add_option("--context", o->request.context, "Tokens of a sequence, prompt and output")
      ->check(whole_number(1))
      ->capture_default_str();
  sub->add_option("--batch", o->request.batch, "Sequences at once")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  sub->add_option("--rows", o->request.rows, "Rows of the widest pass (default: as the engine chooses)")
      ->check(whole_number(1));
  sub->add_option("--logit-rows", o->request.logit_rows, "Rows of logits at once (default: one a sequence)")
      ->check(whole_number(1));
  sub->add_option("--dtype", o->dtype, "Activations and caches: f32 or bf16 (default: as config.json says)");
  sub->add_flag("--replay", o->replay, "With replay rings");
  sub->add_option("--cut", o->cut, "On in-process ranks: tp=N, ep=N or cp=N");
  sub->add_flag("--mtp", o->request.mtp, "The MTP block runs, too");
  sub->add_flag("--vision", o->request.vision,
                "The vision tower runs, too: its weights; activations depend on the pictures");
  add_threads_option(*sub, o->request.threads);
  add_json_option(*sub, o->json);
  sub->footer(
      "Examples:\n"
      "  lathe inspect models/demo\n"
      "  lathe inspect bench/configs/glm-5.3-flash-fp8.json --context 131072 --batch 8\n"
      "  lathe inspect models/demo --context 4096 --json");
  sub->callback([&chosen, o] { chosen.body = [o] { return run(*o); }; });
}

}  // namespace lathe
