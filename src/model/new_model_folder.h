#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "base/thread_pool.h"

namespace lathe {

// A tensor to be written and how to make its bytes, a few rows at a time: a checkpoint larger than memory is never
// whole.
struct TensorSource {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  // Rows (of the first dimension) [begin, begin + count) to `out`. Called by many threads at once, in any order; what
  // it writes depends on its arguments alone.
  std::function<void(int64_t begin, int64_t count, void* out)> fill;

  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  int64_t bytes() const;
};

// Bytes written so far, of all; the tensor at hand.
using WriteProgress = std::function<void(int64_t done, int64_t all, const std::string& tensor)>;

// A model folder in the making. config.json comes last, so a folder that has one is complete; if the work ends before
// that, what was written is removed again.
class NewModelFolder {
 public:
  // The folder must not exist yet, or be empty: nothing is ever overwritten.
  static Result<NewModelFolder> create(const std::string& dir);
  NewModelFolder(NewModelFolder&& other) noexcept;
  NewModelFolder& operator=(NewModelFolder&&) = delete;
  ~NewModelFolder();

  // model.safetensors; or, beyond `shard_bytes`, numbered shards and their index. Tensors are made by all of the pool's
  // threads while the last ones go to disk; a few megabytes a thread are held. Inside a file they stand so that each is
  // aligned to 64 bytes, if its size permits, and to its elements in any case.
  Status write_tensors(std::vector<TensorSource> tensors, int64_t shard_bytes, ThreadPool& pool,
                       const WriteProgress& progress);
  Status write_text(const std::string& name, const std::string& text);
  Status copy_file(const std::string& from, const std::string& name);
  Status finish(const std::string& config_json);

 private:
  explicit NewModelFolder(std::string dir) : dir_(std::move(dir)) {}
  std::string path(const std::string& name) const { return dir_ + "/" + name; }
  Status write_shard(const std::string& file, const std::vector<const TensorSource*>& tensors, ThreadPool& pool);

  std::string dir_;
  bool made_dir_ = false, finished_ = false;
  std::vector<std::string> files_;
  std::function<void(int64_t bytes, const std::string& tensor)> wrote_;
};

}  // namespace lathe
