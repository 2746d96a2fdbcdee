#include "lathe/logits.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "engine/executor.h"
#include "engine/pictures.h"
#include "engine/run_settings.h"
#include "model/collectives.h"

namespace lathe {

namespace {

constexpr int64_t kMaxTokenFileBytes = int64_t{1} << 30;
constexpr int kReplayLength = 16;

// Copies the residual streams of one pass to the host, in the order of the batch.
class StreamsKeeper final : public StepObserver {
 public:
  StreamsKeeper(Executor& executor, int layers) : executor_(executor), by_layer(layers) {}
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
    std::vector<float>& out = by_layer[layer];
    keep(rows_to_host(*op.device, all, out));
  }
  Status status;

 private:
  void keep(Status s) {
    if (status.is_ok()) status = std::move(s);
  }
  Executor& executor_;

 public:
  std::vector<std::vector<float>> by_layer;
};

// How much of a sequence the next pass takes.
int next_piece(const LogitsOptions& o, int position, int length) {
  const int prefill_end = o.decode_from < 0 ? length : std::min(o.decode_from, length);
  if (position >= prefill_end) return 1;
  const int rest = prefill_end - position;
  return o.chunk > 0 ? std::min(o.chunk, rest) : rest;
}

// All passes of one rank.
class LogitsRun {
 public:
  LogitsRun(const LogitsOptions& options, Executor& executor, const std::vector<std::vector<int32_t>>& tokens,
            const PictureFeatures& pictures)
      : options_(options), executor_(executor), tokens_(tokens), pictures_(pictures), results_(tokens.size()) {}

  Result<std::vector<SequenceLogits>> run() {
    const glm5_next::TextConfig& c = executor_.tower().config();
    for (SequenceLogits& r : results_) {
      r.vocab = c.vocab;
      if (options_.hidden) r.copies = c.hc_copies, r.width = c.hidden, r.hidden.resize(c.layers.size());
    }
    for (size_t i = 0; i < tokens_.size(); ++i) {
      LATHE_ASSIGN(const SequenceId id, executor_.memory().open());
      ids_.push_back(id);
    }
    for (;;) {
      std::vector<int> chosen = plan();
      if (chosen.empty()) return std::move(results_);
      LATHE_RETURN_IF_ERROR(pass(chosen));
    }
  }

 private:
  // Sequences whose next piece fits a pass together; a piece larger than the budget goes alone.
  std::vector<int> plan() {
    constexpr int kRowBudget = 4096;
    std::vector<int> chosen;
    int rows = 0;
    for (int i = 0; i < static_cast<int>(tokens_.size()); ++i) {
      const int length = static_cast<int>(tokens_[i].size()), position = executor_.memory().position(ids_[i]);
      if (position == length) continue;
      const int piece = next_piece(options_, position, length);
      if (!chosen.empty() && rows + piece > kRowBudget) break;
      rows += piece;
      chosen.push_back(i);
    }
    return chosen;
  }

  Status pass(const std::vector<int>& chosen) {
    std::vector<Run> runs;
    for (int i : chosen) {
      const int position = executor_.memory().position(ids_[i]), length = static_cast<int>(tokens_[i].size());
      const int piece = next_piece(options_, position, length);
      Run run{.sequence = ids_[i],
              .tokens = {tokens_[i].begin() + position, tokens_[i].begin() + position + piece},
              .features = {}};
      if (!pictures_.row_of_token.empty())
        run.features = {pictures_.row_of_token[i].begin() + position,
                        pictures_.row_of_token[i].begin() + position + piece};
      run.in_ring = options_.replay && options_.decode_from >= 0 && position >= options_.decode_from;
      run.logits_of_last = -1;
      runs.push_back(std::move(run));
    }
    StreamsKeeper keeper(executor_, static_cast<int>(executor_.tower().config().layers.size()));
    LATHE_ASSIGN(const glm5_next::StepOutput out,
                 executor_.run(runs, options_.hidden ? &keeper : nullptr, pictures_.rows));
    std::vector<float> logits;
    LATHE_RETURN_IF_ERROR(rows_to_host(executor_.device(), out.logits, logits));
    LATHE_RETURN_IF_ERROR(keeper.status);
    int64_t row = 0;
    for (int in_batch : executor_.last_batch().order) {
      SequenceLogits& r = results_[chosen[in_batch]];
      const int64_t rows = static_cast<int64_t>(runs[in_batch].tokens.size());
      append(r.logits, logits, row * r.vocab, rows * r.vocab);
      for (size_t l = 0; l < r.hidden.size(); ++l)
        append(r.hidden[l], keeper.by_layer[l], row * r.copies * r.width, rows * r.copies * r.width);
      r.rows += rows;
      row += rows;
    }
    return Status::ok();
  }

  static void append(std::vector<float>& to, const std::vector<float>& from, int64_t begin, int64_t count) {
    to.insert(to.end(), from.begin() + begin, from.begin() + begin + count);
  }

  const LogitsOptions& options_;
  Executor& executor_;
  const std::vector<std::vector<int32_t>>& tokens_;
  const PictureFeatures& pictures_;
  std::vector<SequenceId> ids_;
  std::vector<SequenceLogits> results_;
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

}  // namespace

Result<std::vector<SequenceLogits>> compute_logits(const LogitsOptions& options,
                                                   const std::vector<std::vector<int32_t>>& tokens) {
  LATHE_ASSIGN(const glm5_next::Config config, glm5_next::Config::read(options.model));
  LATHE_RETURN_IF_ERROR(check_tokens(tokens, config));
  if (options.chunk < 0) return invalid("--chunk {}: must be at least 1", options.chunk);
  if (options.replay && options.decode_from < 0) return invalid("--replay needs --decode-from: it is a way to decode");
  LATHE_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(options.model));
  ExecutorOptions eo;
  LATHE_ASSIGN(eo.dtype, activation_dtype(options.dtype, config.text));
  for (const std::string& v : options.variants) LATHE_RETURN_IF_ERROR(eo.choices.add(v));
  if (!options.cut.empty()) {
    LATHE_ASSIGN(eo.partition, Partition::parse(options.cut));
  }
  eo.replay_length = options.replay ? kReplayLength : 0;
  eo.slots = static_cast<int>(tokens.size());
  for (const auto& list : tokens) eo.pages += static_cast<int>(list.size()) / page_tokens_for(config.text.kpool) + 1;

  LATHE_ASSIGN(const Media media, read_media(options.model, config, options.images, options.videos));
  // The cut is checked before ranks start: they meet at barriers, so they must fail together or not at all.
  std::vector<Result<std::vector<SequenceLogits>>> results(eo.partition.size, internal("rank {} gave no result", 0));
  auto rank_body = [&](Communicator* comm) -> Status {
    const int rank = comm ? comm->rank() : 0;
    LATHE_ASSIGN(std::unique_ptr<Device> device, make_device(options.device));
    ThreadPool pool(comm ? 1 : std::max(options.threads, 1));
    ExecutorOptions mine = eo;
    mine.partition.rank = rank;
    LATHE_ASSIGN(std::unique_ptr<Executor> executor, Executor::create(config, checkpoint, *device, pool, comm, mine));
    LATHE_ASSIGN(const PictureFeatures pictures, encode_media(media, config, checkpoint, *executor, tokens));
    results[rank] = LogitsRun(options, *executor, tokens, pictures).run();
    return results[rank].status();
  };
  if (eo.partition.size == 1)
    LATHE_RETURN_IF_ERROR(rank_body(nullptr));
  else
    LATHE_RETURN_IF_ERROR(run_ranks(eo.partition.size, [&](Communicator& comm) { return rank_body(&comm); }));
  return std::move(results[0]);
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

Status write_logits(const std::vector<SequenceLogits>& results, const std::string& path) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (size_t i = 0; i < results.size(); ++i) {
    const SequenceLogits& r = results[i];
    entries.push_back({fmt::format("logits.{}", i), DType::kF32, {r.rows, r.vocab}});
    for (size_t l = 0; l < r.hidden.size(); ++l)
      entries.push_back({fmt::format("hidden.{}.{}", i, l), DType::kF32, {r.rows, r.copies, r.width}});
  }
  LATHE_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(path, std::move(entries)));
  for (const SequenceLogits& r : results) {
    LATHE_RETURN_IF_ERROR(writer.append(r.logits.data(), static_cast<int64_t>(r.logits.size()) * 4));
    for (const auto& layer : r.hidden)
      LATHE_RETURN_IF_ERROR(writer.append(layer.data(), static_cast<int64_t>(layer.size()) * 4));
  }
  return writer.finish();
}

}  // namespace lathe
