#include "lathe/logits.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json_reader.h"
#include "engine/executor.h"
#include "engine/pictures.h"
#include "engine/run_settings.h"
#include "model/collectives.h"
#include "ops/kda_replay/kda_replay.h"
#include "ops/registry.h"

namespace lathe {

namespace {

constexpr int64_t kMaxTokenFileBytes = int64_t{1} << 30;

// What one pass brings of one list: `rows` tokens from `position` on.
struct Piece {
  int list;
  int64_t position, rows;
};

// Takes rows as they are computed: a list's positions in order, the lists in any.
class LogitsSink {
 public:
  virtual ~LogitsSink() = default;
  virtual Status logits(int list, int64_t position, int64_t rows, const float* values) = 0;
  virtual Status hidden(int list, int layer, int64_t position, int64_t rows, const float* values) = 0;
};

// Widths of what a sink is given.
struct LogitsShape {
  LogitsShape(const glm5_next::TextConfig& c, bool hidden)
      : vocab(c.vocab), copies(c.hc_copies), width(c.hidden), layers(hidden ? c.layers.size() : 0) {}
  int64_t vocab, copies, width;
  size_t layers;
};

class LogitsInMemory final : public LogitsSink {
 public:
  LogitsInMemory(const LogitsShape& shape, const std::vector<std::vector<int32_t>>& tokens) {
    for (const auto& list : tokens) {
      SequenceLogits& r = results.emplace_back();
      r.rows = static_cast<int64_t>(list.size()), r.vocab = shape.vocab;
      r.logits.reserve(r.rows * r.vocab);
      if (shape.layers) r.copies = shape.copies, r.width = shape.width, r.hidden.resize(shape.layers);
    }
  }
  Status logits(int list, int64_t, int64_t rows, const float* values) override {
    SequenceLogits& r = results[list];
    r.logits.insert(r.logits.end(), values, values + rows * r.vocab);
    return Status::ok();
  }
  Status hidden(int list, int layer, int64_t, int64_t rows, const float* values) override {
    SequenceLogits& r = results[list];
    r.hidden[layer].insert(r.hidden[layer].end(), values, values + rows * r.copies * r.width);
    return Status::ok();
  }

  std::vector<SequenceLogits> results;
};

// Rows [first, first + count) of a pass belong to these positions of lists. `pieces` as the pass was asked for.
template <class F>
Status for_each_piece(const Batch& batch, const std::vector<Piece>& pieces, int64_t first, int64_t count, F&& f) {
  int64_t row = 0;
  for (int in_pass : batch.order) {
    const Piece& p = pieces[in_pass];
    const int64_t begin = std::max(first, row), end = std::min(first + count, row + p.rows);
    if (begin < end) LATHE_RETURN_IF_ERROR(f(Piece{p.list, p.position + begin - row, end - begin}, begin - first));
    row += p.rows;
  }
  return Status::ok();
}

// Begun with the first rows: an error before them leaves no file behind.
class LogitsFile final : public LogitsSink {
 public:
  LogitsFile(const LogitsShape& shape, const std::vector<std::vector<int32_t>>& tokens, std::string path)
      : shape_(shape), tokens_(tokens), path_(std::move(path)) {}
  Status logits(int list, int64_t position, int64_t rows, const float* values) override {
    return place(list * (1 + shape_.layers), position, rows, shape_.vocab, values);
  }
  Status hidden(int list, int layer, int64_t position, int64_t rows, const float* values) override {
    return place(list * (1 + shape_.layers) + 1 + layer, position, rows, shape_.copies * shape_.width, values);
  }
  Status finish(const Status& status) {
    if (status.is_ok()) return writer_->finish();
    std::error_code ignored;
    if (writer_) std::filesystem::remove(path_, ignored);
    return status;
  }

 private:
  Status place(size_t entry, int64_t position, int64_t rows, int64_t width, const float* values) {
    if (!writer_) LATHE_RETURN_IF_ERROR(begin());
    constexpr int64_t kBytes = sizeof(float);
    return writer_->place(entry, position * width * kBytes, values, rows * width * kBytes);
  }
  Status begin() {
    std::vector<SafetensorsWriter::Entry> entries;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const auto rows = static_cast<int64_t>(tokens_[i].size());
      entries.push_back({fmt::format("logits.{}", i), DType::kF32, {rows, shape_.vocab}});
      for (size_t l = 0; l < shape_.layers; ++l)
        entries.push_back({fmt::format("hidden.{}.{}", i, l), DType::kF32, {rows, shape_.copies, shape_.width}});
    }
    LATHE_ASSIGN(writer_, SafetensorsWriter::create(path_, std::move(entries)));
    return Status::ok();
  }

  const LogitsShape shape_;
  const std::vector<std::vector<int32_t>>& tokens_;
  const std::string path_;
  std::optional<SafetensorsWriter> writer_;
};

// Hands the residual streams of one pass to a sink; without one, takes part in gathering them.
class StreamsReader final : public StepObserver {
 public:
  StreamsReader(Executor& executor, const std::vector<Piece>& pieces, LogitsSink* sink)
      : executor_(executor), pieces_(pieces), sink_(sink) {}
  void streams(int layer, const Rows& rows) override {
    const Batch& batch = executor_.last_batch();
    OpContext op = executor_.op_context();
    Rows all = rows;
    DeviceBuffer gathered;
    if (batch.cut) {
      gathered = DeviceBuffer::allocate(*op.device, batch.all_rows * rows.width * dtype_bytes(rows.dtype)).value();
      all = {.data = gathered.as(),
             .dtype = rows.dtype,
             .rows = batch.all_rows,
             .width = rows.width,
             .stride = rows.width};
      keep(gather_rows(op, batch, rows, all));
    }
    if (!sink_) return;
    keep(rows_to_host(*op.device, all, values_));
    keep(for_each_piece(batch, pieces_, 0, all.rows, [&](const Piece& p, int64_t row) {
      return sink_->hidden(p.list, layer, p.position, p.rows, values_.data() + row * all.width);
    }));
  }
  Status status;

 private:
  void keep(Status s) {
    if (status.is_ok()) status = std::move(s);
  }
  Executor& executor_;
  const std::vector<Piece>& pieces_;
  LogitsSink* sink_;
  std::vector<float> values_;
};

// All passes of one rank.
class LogitsRun {
 public:
  // sink: nullptr where another rank has it.
  LogitsRun(const LogitsOptions& options, Executor& executor, const std::vector<std::vector<int32_t>>& tokens,
            const PictureFeatures& pictures, LogitsSink* sink)
      : options_(options), executor_(executor), tokens_(tokens), pictures_(pictures), sink_(sink) {}

  Status run() {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      LATHE_ASSIGN(const SequenceId id, executor_.memory().open());
      ids_.push_back(id);
    }
    for (;;) {
      const std::vector<int> chosen = plan();
      if (chosen.empty()) return sink_status_;
      LATHE_RETURN_IF_ERROR(pass(chosen));
    }
  }

 private:
  int length(int list) const { return static_cast<int>(tokens_[list].size()); }
  int position(int list) const { return executor_.memory().position(ids_[list]); }

  // How much of a list the next pass takes. Follows from the list alone, so company changes no bit.
  int next_piece(int list) const {
    const int at = position(list),
              prefill_end = options_.decode_from < 0 ? length(list) : std::min(options_.decode_from, length(list));
    if (at >= prefill_end) return 1;
    const int most = options_.chunk > 0 ? options_.chunk : static_cast<int>(executor_.limits().rows);
    return std::min(most, prefill_end - at);
  }

  // Lists whose next piece fit a pass together; a larger piece goes alone.
  std::vector<int> plan() const {
    std::vector<int> chosen;
    int64_t rows = 0;
    for (int i = 0; i < static_cast<int>(tokens_.size()); ++i) {
      if (position(i) == length(i)) continue;
      const int piece = next_piece(i);
      if (!chosen.empty() && rows + piece > executor_.limits().rows) break;
      rows += piece;
      chosen.push_back(i);
    }
    return chosen;
  }

  Run run_of(const Piece& p) const {
    const auto cut = [&](const std::vector<int32_t>& all) {
      return std::vector<int32_t>(all.begin() + p.position, all.begin() + p.position + p.rows);
    };
    Run run{.sequence = ids_[p.list], .tokens = cut(tokens_[p.list]), .features = {}};
    if (!pictures_.row_of_token.empty()) run.features = cut(pictures_.row_of_token[p.list]);
    run.in_ring = options_.replay && options_.decode_from >= 0 && p.position >= options_.decode_from;
    return run;
  }

  Status pass(const std::vector<int>& chosen) {
    std::vector<Piece> pieces;
    std::vector<Run> runs;
    for (int i : chosen) {
      pieces.push_back({i, position(i), next_piece(i)});
      runs.push_back(run_of(pieces.back()));
    }
    StreamsReader reader(executor_, pieces, sink_);
    LATHE_ASSIGN(const glm5_next::StepOutput out,
                 executor_.run(runs, options_.hidden ? &reader : nullptr, pictures_.rows));
    keep(reader.status);
    return give_logits(out.hidden, pieces);
  }

  // A full disk on one rank must not leave the others waiting for it: the rest goes nowhere, and the error is told at
  // the end.
  void keep(const Status& status) {
    if (status.is_ok()) return;
    if (sink_status_.is_ok()) sink_status_ = status;
    sink_ = nullptr;
  }

  Status give_logits(const Rows& hidden, const std::vector<Piece>& pieces) {
    for (int64_t at = 0; at < hidden.rows; at += executor_.limits().logit_rows) {
      const int64_t rows = std::min(executor_.limits().logit_rows, hidden.rows - at);
      LATHE_ASSIGN(const Rows logits, executor_.logits(hidden, at, rows));
      if (!sink_) continue;
      LATHE_RETURN_IF_ERROR(rows_to_host(executor_.device(), logits, values_));
      keep(for_each_piece(executor_.last_batch(), pieces, at, rows, [&](const Piece& p, int64_t row) {
        return sink_->logits(p.list, p.position, p.rows, values_.data() + row * logits.width);
      }));
    }
    return Status::ok();
  }

  const LogitsOptions& options_;
  Executor& executor_;
  const std::vector<std::vector<int32_t>>& tokens_;
  const PictureFeatures& pictures_;
  LogitsSink* sink_;
  std::vector<SequenceId> ids_;
  Status sink_status_;
  std::vector<float> values_;
};

Status check_tokens(const std::vector<std::vector<int32_t>>& tokens, const glm5_next::Config& config) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].empty()) return invalid("token list {} is empty", i);
    if (static_cast<int64_t>(tokens[i].size()) > config.text.max_positions)
      return invalid("token list {} has {} tokens; {}: max_position_embeddings is {}", i, tokens[i].size(), config.file,
                     config.text.max_positions);
    for (size_t t = 0; t < tokens[i].size(); ++t)
      if (tokens[i][t] < 0 || tokens[i][t] >= config.text.vocab)
        return invalid("token list {}: id {} at position {} lies outside the vocabulary of {}", i, tokens[i][t], t,
                       config.text.vocab);
  }
  return tokens.empty() ? invalid("no token lists were given") : Status::ok();
}

Status run_logits(const LogitsOptions& options, const glm5_next::Config& config,
                  const std::vector<std::vector<int32_t>>& tokens, LogitsSink& sink) {
  LATHE_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(options.model));
  ExecutorOptions eo;
  LATHE_ASSIGN(eo.dtype, activation_dtype(options.dtype, config.text));
  LATHE_RETURN_IF_ERROR(add_choices(options.variants, eo.choices));
  if (!options.cut.empty()) {
    LATHE_ASSIGN(eo.partition, Partition::parse(options.cut));
  }
  eo.replay_length = options.replay ? ring_length(config.text.gate_bound) : 0;
  eo.slots = static_cast<int>(tokens.size());
  for (const auto& list : tokens) eo.pages += static_cast<int>(list.size()) / page_tokens_for(config.text.kpool) + 1;

  LATHE_ASSIGN(const Media media, read_media(options.model, config, options.images, options.videos));
  // The cut is checked before ranks start: they meet at barriers, so they must fail together or not at all.
  auto rank_body = [&](Communicator* comm) -> Status {
    const int rank = comm ? comm->rank() : 0;
    LATHE_ASSIGN(std::unique_ptr<Device> device, make_device(options.device));
    ThreadPool pool(comm ? 1 : std::max(options.threads, 1));
    ExecutorOptions mine = eo;
    mine.partition.rank = rank;
    LATHE_ASSIGN(std::unique_ptr<Executor> executor, Executor::create(config, checkpoint, *device, pool, comm, mine));
    LATHE_ASSIGN(const PictureFeatures pictures, encode_media(media, config, checkpoint, *executor, tokens));
    return LogitsRun(options, *executor, tokens, pictures, rank == 0 ? &sink : nullptr).run();
  };
  if (eo.partition.size == 1) return rank_body(nullptr);
  return run_ranks(eo.partition.size, [&](Communicator& comm) { return rank_body(&comm); });
}

// What can be said before a weight is read.
Result<glm5_next::Config> check(const LogitsOptions& options, const std::vector<std::vector<int32_t>>& tokens) {
  LATHE_ASSIGN(glm5_next::Config config, glm5_next::Config::read(options.model));
  LATHE_RETURN_IF_ERROR(check_tokens(tokens, config));
  if (options.chunk < 0) return invalid("--chunk {}: must be at least 1", options.chunk);
  if (options.replay && options.decode_from < 0) return invalid("--replay needs --decode-from: it is a way to decode");
  return config;
}

}  // namespace

Result<std::vector<SequenceLogits>> compute_logits(const LogitsOptions& options,
                                                   const std::vector<std::vector<int32_t>>& tokens) {
  LATHE_ASSIGN(const glm5_next::Config config, check(options, tokens));
  LogitsInMemory memory(LogitsShape(config.text, options.hidden), tokens);
  LATHE_RETURN_IF_ERROR(run_logits(options, config, tokens, memory));
  return std::move(memory.results);
}

Status write_logits(const LogitsOptions& options, const std::vector<std::vector<int32_t>>& tokens,
                    const std::string& path) {
  LATHE_ASSIGN(const glm5_next::Config config, check(options, tokens));
  LogitsFile file(LogitsShape(config.text, options.hidden), tokens, path);
  return file.finish(run_logits(options, config, tokens, file));
}

Result<std::vector<std::vector<int32_t>>> read_token_lists(const std::string& path) {
  LATHE_ASSIGN(const nlohmann::json json, read_json_file(path, kMaxTokenFileBytes));
  if (!json.is_array()) return corrupt("{}: must be a list of token-id lists", path);
  std::vector<std::vector<int32_t>> lists;
  for (const auto& list : json) {
    if (!list.is_array()) return corrupt("{}: entry {} must be a list of token ids", path, lists.size());
    std::vector<int32_t> ids;
    for (const auto& id : list) {
      if (!id.is_number_integer() || (id.is_number_unsigned() && id.get<uint64_t>() > INT32_MAX) ||
          id.get<int64_t>() < INT32_MIN)
        return corrupt("{}: entry {} holds {}; expected token ids", path, lists.size(), id.dump());
      ids.push_back(id.get<int32_t>());
    }
    lists.push_back(std::move(ids));
  }
  return lists;
}

}  // namespace lathe
