#include "model/glm5_next/quantize.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json_reader.h"
#include "base/mapped_file.h"
#include "model/checkpoint.h"
#include "model/row_quantizer.h"
#include "model/tensor_spelling.h"

namespace lathe::glm5_next {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kMaxConfigBytes = 16 << 20;
constexpr int kBlock = 128;

// What all tasks tell; exact sums of squares don't matter in their last digits.
struct Tally {
  std::atomic<double> error{0}, all{0};
  std::atomic<bool> not_finite{false};
};

// One matrix of the output: its name there and the rows it is made of.
struct WideMatrix {
  std::string name;
  Weight rows;
};

class Quantizer {
 public:
  Quantizer(const Config& config, const Checkpoint& in, const QuantizeOptions& options)
      : config_(config),
        in_(in),
        options_(options),
        stored_(options.format == WeightFormat::kRowInt8 ? DType::kI8 : DType::kE4M3) {}

  // The output's tensors in the order of the input's files.
  Result<std::vector<TensorSource>> sources() {
    LATHE_RETURN_IF_ERROR(find_matrices());
    std::vector<const std::pair<const std::string, Checkpoint::Entry>*> ordered;
    for (const auto& tensor : in_.tensors()) ordered.push_back(&tensor);
    std::sort(ordered.begin(), ordered.end(), [](auto* a, auto* b) {
      return std::pair(a->second.file->path(), a->second.span.data) <
             std::pair(b->second.file->path(), b->second.span.data);
    });
    std::vector<TensorSource> list;
    for (const auto* tensor : ordered) {
      if (dropped_.contains(tensor->first)) continue;
      if (auto it = matrices_.find(tensor->first); it != matrices_.end())
        for (const WideMatrix& m : it->second) add_quantised(m, list);
      else
        list.push_back(copy_of(tensor->first, tensor->second.span));
    }
    return list;
  }

  int tensors() const { return tensors_; }
  Status finite() const {
    return tally_->not_finite ? corrupt("{}: a matrix holds a NaN or an infinity; it can't be quantised", in_.dir())
                              : Status::ok();
  }
  double error_ratio() const { return tally_->all > 0 ? std::sqrt(tally_->error / tally_->all) : 0; }

 private:
  Status wrong_shape(const std::string& name, const TensorSpan& span, const std::vector<int64_t>& shape) const {
    return corrupt("{}: tensor '{}': shape [{}], but config.json makes it [{}]", in_.file_of(name), name,
                   fmt::join(span.shape, ", "), fmt::join(shape, ", "));
  }

  Status find_matrices() {
    for (const TensorInfo& t : list_tensors(config_, WeightFormat::kPlain)) {
      if (!t.wide && !(options_.lm_head && t.part == TensorPart::kLmHead)) continue;
      if (const auto* direct = find_tensor(in_, t.name))
        LATHE_RETURN_IF_ERROR(take(*direct, t));
      else
        LATHE_RETURN_IF_ERROR(take_stacked(t));
    }
    if (tensors_ == 0) return corrupt("{}: has none of the matrices that config.json announces", in_.dir());
    return Status::ok();
  }

  // A tensor of its own, perhaps with scales of blocks.
  Status take(const std::pair<const std::string, Checkpoint::Entry>& tensor, const TensorInfo& t) {
    const auto& [name, entry] = tensor;
    const TensorSpan& span = entry.span;
    if (span.shape != t.shape) return wrong_shape(name, span, t.shape);
    if (in_.find(name + "_scale"))
      return invalid("{}: tensor '{}' has a weight_scale: this checkpoint is W8A8 already", entry.file->path(), name);
    Weight w{.data = span.data, .dtype = span.dtype, .out = t.shape[0], .in = t.shape[1], .stride = t.shape[1]};
    if (span.dtype == DType::kE4M3) {
      const TensorSpan* scale = in_.find(name + "_scale_inv");
      if (!scale) return in_.missing(name + "_scale_inv");
      const std::vector<int64_t> blocks = {(w.out + kBlock - 1) / kBlock, (w.in + kBlock - 1) / kBlock};
      if (scale->shape != blocks || scale->dtype != DType::kF32)
        return wrong_shape(name + "_scale_inv", *scale, blocks);
      w.scale = static_cast<const float*>(scale->data);
      w.block_out = w.block_in = kBlock, w.scale_stride = blocks[1];
      dropped_.insert(name + "_scale_inv");
    } else if (span.dtype != DType::kF32 && span.dtype != DType::kBF16 && span.dtype != DType::kF16) {
      return corrupt("{}: tensor '{}': dtype {} is not one of f32, bf16, f16, e4m3", entry.file->path(), name,
                     dtype_name(span.dtype));
    }
    matrices_[name].push_back({name, w});
    ++tensors_;
    return Status::ok();
  }

  // An expert's part of a stacked tensor; it gets a name of its own.
  Status take_stacked(const TensorInfo& t) {
    const size_t at = t.name.find("mlp.experts.");
    const bool mtp = t.layer == static_cast<int>(config_.text.layers.size());
    const std::string layer =
        t.name.substr(0, t.name.find('.', std::string_view("model.language_model.layers.").size()) + 1);
    // transformers drops the MTP block when it saves, but keeps the field that announces it.
    if (mtp && !find_tensor(in_, layer + "eh_proj.weight")) return Status::ok();
    if (at == std::string::npos) return in_.missing(t.name);
    const bool down = t.name.ends_with("down_proj.weight"), up = t.name.ends_with("up_proj.weight");
    const std::string stacked = t.name.substr(0, at) + (down ? "mlp.experts.down_proj" : "mlp.experts.gate_up_proj");
    const auto* found = find_tensor(in_, stacked);
    if (!found) return in_.missing(t.name);
    const auto& [name, entry] = *found;
    const int64_t expert = std::stoll(t.name.substr(at + std::strlen("mlp.experts."))), out = t.shape[0],
                  in = t.shape[1];
    const int64_t rows = down ? out : 2 * out;  // gate rows first
    if (const std::vector<int64_t> shape = {config_.text.experts, rows, in}; entry.span.shape != shape)
      return wrong_shape(name, entry.span, shape);
    if (entry.span.dtype != DType::kF32 && entry.span.dtype != DType::kBF16 && entry.span.dtype != DType::kF16)
      return corrupt("{}: tensor '{}': stacked experts must be f32, bf16 or f16", entry.file->path(), name);
    Weight all{
        .data = entry.span.data, .dtype = entry.span.dtype, .out = config_.text.experts * rows, .in = in, .stride = in};
    const std::string root = name.substr(0, name.find("mlp.experts."));
    matrices_[name].push_back({root + t.name.substr(at), all.slice(expert * rows + (up ? out : 0), out)});
    ++tensors_;
    return Status::ok();
  }

  void add_quantised(const WideMatrix& m, std::vector<TensorSource>& list) const {
    const DType stored = stored_;
    std::shared_ptr<Tally> tally = tally_;
    auto each_row = [w = m.rows, stored, tally](int64_t begin, int64_t count, auto&& use) {
      std::vector<float> row(w.in);
      for (int64_t r = begin; r < begin + count; ++r) {
        weight_row(w, r, row.data());
        const float scale = row_scale(row.data(), w.in, stored);
        if (std::isnan(scale)) tally->not_finite = true;
        use(r - begin, row, std::isnan(scale) ? 1 : scale);
      }
      // What has been read of the mapped input would stay in memory otherwise.
      forget_mapped(w.at(begin), count * w.in * dtype_bytes(w.dtype));
    };
    list.push_back({m.name, stored, {m.rows.out, m.rows.in}, [=](int64_t begin, int64_t count, void* out) {
                      double error = 0, all = 0;
                      each_row(begin, count, [&](int64_t r, const std::vector<float>& row, float scale) {
                        const int64_t width = static_cast<int64_t>(row.size());
                        if (tally->not_finite) return;
                        error += quantize_row(row.data(), width, scale, stored, static_cast<char*>(out) + r * width);
                        for (float x : row) all += double{x} * x;
                      });
                      tally->error += error, tally->all += all;
                    }});
    list.push_back({m.name + "_scale", DType::kF32, {m.rows.out, 1}, [=](int64_t begin, int64_t count, void* out) {
                      each_row(begin, count, [&](int64_t r, const std::vector<float>&, float scale) {
                        static_cast<float*>(out)[r] = scale;
                      });
                    }});
  }

  static TensorSource copy_of(const std::string& name, const TensorSpan& span) {
    TensorSource source{name, span.dtype, span.shape, {}};
    const int64_t row_bytes = span.bytes / std::max(source.rows(), int64_t{1});
    source.fill = [data = static_cast<const char*>(span.data), row_bytes](int64_t begin, int64_t count, void* out) {
      std::memcpy(out, data + begin * row_bytes, count * row_bytes);
      forget_mapped(data + begin * row_bytes, count * row_bytes);
    };
    return source;
  }

  const Config& config_;
  const Checkpoint& in_;
  const QuantizeOptions& options_;
  DType stored_;
  int tensors_ = 0;
  std::map<std::string, std::vector<WideMatrix>, std::less<>> matrices_;  // by the input tensor they come from
  std::set<std::string, std::less<>> dropped_;                            // scales that the new ones replace
  std::shared_ptr<Tally> tally_ = std::make_shared<Tally>();
};

// In the words of compressed-tensors, which other engines read: weights by output channel, activations by token.
nlohmann::ordered_json quantization_config(WeightFormat format, bool lm_head) {
  const char* type = format == WeightFormat::kRowInt8 ? "int" : "float";
  std::vector<std::string> ignore = {"re:.*visual.*", "re:.*self_attn\\.(f_a|f_b|g_a|g_b|b|kv_b)_proj$",
                                     "re:.*indexer.*", "re:.*mlp\\.gate$", "re:.*eh_proj$"};
  if (!lm_head) ignore.push_back("lm_head");
  return {{"quant_method", "compressed-tensors"},
          {"format", fmt::format("{}-quantized", type)},
          {"quantization_status", "compressed"},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights",
               {{"num_bits", 8}, {"type", type}, {"strategy", "channel"}, {"symmetric", true}, {"dynamic", false}}},
              {"input_activations",
               {{"num_bits", 8}, {"type", type}, {"strategy", "token"}, {"symmetric", true}, {"dynamic", true}}}}}}},
          {"ignore", ignore}};
}

// Tokenizer, templates, generation settings and whatever else lies there.
Status copy_other_files(const std::string& in, NewModelFolder& out) {
  std::error_code error;
  std::vector<std::string> names;
  for (const fs::directory_entry& file : fs::directory_iterator(in, error)) {
    const std::string name = file.path().filename().string();
    if (!file.is_regular_file() || name == "config.json" || name.ends_with(".safetensors") ||
        name.ends_with(".safetensors.index.json"))
      continue;
    names.push_back(name);
  }
  if (error) return invalid("{}: cannot be listed: {}", in, error.message());
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) LATHE_RETURN_IF_ERROR(out.copy_file(in + "/" + name, name));
  return Status::ok();
}

Status check_places(const std::string& in, const std::string& out) {
  std::error_code error;
  const fs::path from = fs::weakly_canonical(in, error), to = fs::weakly_canonical(out, error);
  if (std::mismatch(from.begin(), from.end(), to.begin(), to.end()).first == from.end())
    return invalid("{}: lies in {}, which is only read; give another folder", out, in);
  return Status::ok();
}

int64_t largest_file_bytes(const Checkpoint& checkpoint) {
  uintmax_t largest = 0;
  std::error_code error;
  for (const auto& [name, entry] : checkpoint.tensors())
    largest = std::max(largest, fs::file_size(entry.file->path(), error));
  return static_cast<int64_t>(largest);
}

}  // namespace

Result<QuantizeReport> quantize(const std::string& in, const std::string& out, const QuantizeOptions& options,
                                ThreadPool& pool) {
  LATHE_CHECK(options.format == WeightFormat::kRowInt8 || options.format == WeightFormat::kRowFp8);
  const std::string config_file = in + "/config.json";
  LATHE_ASSIGN(const std::string text, read_text_file(config_file, kMaxConfigBytes));
  LATHE_ASSIGN(const Config config, Config::parse(text, config_file));
  LATHE_ASSIGN(const WeightFormat before, read_weight_format(text, config_file));
  if (before == WeightFormat::kRowInt8 || before == WeightFormat::kRowFp8)
    return invalid("{}: quantization_config: this checkpoint is {} already", config_file, weight_format_name(before));
  LATHE_RETURN_IF_ERROR(check_places(in, out));
  LATHE_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(in));
  Quantizer quantizer(config, checkpoint, options);
  LATHE_ASSIGN(std::vector<TensorSource> sources, quantizer.sources());

  QuantizeReport report{.tensors = quantizer.tensors(), .bytes_before = checkpoint.bytes()};
  for (const TensorSource& s : sources) report.bytes_after += s.bytes();
  LATHE_ASSIGN(NewModelFolder folder, NewModelFolder::create(out));
  LATHE_RETURN_IF_ERROR(
      folder.write_tensors(std::move(sources), largest_file_bytes(checkpoint), pool, options.progress));
  LATHE_RETURN_IF_ERROR(quantizer.finite());
  LATHE_RETURN_IF_ERROR(copy_other_files(in, folder));
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(text);
  json["quantization_config"] = quantization_config(options.format, options.lm_head);
  LATHE_RETURN_IF_ERROR(folder.finish(json.dump(2) + "\n"));
  report.error_ratio = quantizer.error_ratio();
  return report;
}

}  // namespace lathe::glm5_next
