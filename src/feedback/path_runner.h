#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/executor.h"

// The same tokens through the engine on one of its paths (docs/paths.md), with taps inside every layer.
namespace lathe {

struct Path {
  std::string name;
  int chunk = 0;         // prefill in pieces of so many tokens; 0: at once
  int decode_from = -1;  // tokens from this position on one by one; -1: none
  bool replay = false;   // those by the replay ring
  int drafts = 0;        // and each with so many wrong drafts behind it, which are rolled back
  int frozen_at = 0;     // there the sequence is frozen and closed, and a fork of it goes on; 0: never
  int company = 0;       // other sequences of other lengths in the same passes
  int threads = 1;
  std::string cut;                     // "tp=2", ...: by in-process ranks
  std::vector<std::string> variants;   // OP=NAME
  std::optional<SegmentKind> forgets;  // this kind of memory is cleared after the first pass

  std::string base;        // the path that this one is held against; "": the plain one
  bool bit_equal = false;  // else: another order of sums
  bool must_fail = false;  // a loss that a relation has to notice
};

// What one place inside the model held for one position.
struct TappedRow {
  enum class Place { kSelection, kRouting, kStreams };  // in the order of a layer
  int64_t position;
  int layer;
  Place place;
  int pass;  // of the path
  std::vector<float> values;
};

struct PathResult {
  int64_t vocab = 0;
  std::vector<float> logits;                // [tokens, vocab]
  std::vector<std::vector<float>> streams;  // by layer, [tokens, width]; only if asked for, of paths without company
  std::vector<TappedRow> taps;              // in the order of passes and layers; only if asked for, of uncut paths
  int64_t tokens() const { return static_cast<int64_t>(logits.size()) / vocab; }
};

class PathRunner {
 public:
  using MakeExecutor = std::function<decltype(Executor::create)>;
  // `most_tokens`: of a sequence. dtype "f32", "bf16" or "". Tests give an executor of their own.
  static Result<std::unique_ptr<PathRunner>> create(const std::string& model, const std::string& dtype, int most_tokens,
                                                    MakeExecutor make_executor = Executor::create);
  ~PathRunner();
  enum class Look { kLogits, kTaps, kStreams };
  Result<PathResult> run(const Path& path, const std::vector<int32_t>& tokens, Look look = Look::kLogits);

  const glm5_next::Config& config() const { return config_; }

 private:
  struct Engine;
  PathRunner() = default;
  Result<Engine*> engine(const Path& path);
  // What the public way of computing logits can: cut paths, and streams.
  Result<PathResult> run_logits(const Path& path, const std::vector<int32_t>& tokens, Look look) const;

  std::string model_, dtype_;
  int most_tokens_ = 0;
  MakeExecutor make_executor_;
  glm5_next::Config config_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::map<int, std::unique_ptr<Engine>> engines_;  // by threads
};

}  // namespace lathe
