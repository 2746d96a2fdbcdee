#include "model/new_model_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/safetensors.h"

namespace lathe {

namespace fs = std::filesystem;

namespace {

// What one task makes at a time: large enough that handing it out costs nothing, small enough for a private cache.
constexpr int64_t kPieceBytes = int64_t{1} << 20;
constexpr int64_t kPiecesPerThread = 4;
constexpr int64_t kLine = 64;

struct Piece {
  const TensorSource* tensor;
  int64_t begin, count, bytes;
  char* out;
};

// Whole rows of one tensor after the other, about kPieceBytes each.
class PieceStream {
 public:
  explicit PieceStream(const std::vector<const TensorSource*>& tensors) : tensors_(tensors) { skip_empty(); }
  bool done() const { return tensor_ == tensors_.size(); }

  // Up to `limit` bytes of pieces, at least one; their bytes go to `buffer`.
  std::vector<Piece> take(int64_t limit, std::vector<char>& buffer) {
    std::vector<Piece> pieces;
    int64_t used = 0;
    while (!done()) {
      const TensorSource& t = *tensors_[tensor_];
      const int64_t row_bytes = t.bytes() / t.rows();
      const int64_t count = std::min(std::max(kPieceBytes / row_bytes, int64_t{1}), t.rows() - row_);
      if (used && used + count * row_bytes > limit) break;
      pieces.push_back({&t, row_, count, count * row_bytes, nullptr});
      used += count * row_bytes;
      if ((row_ += count) == t.rows()) ++tensor_, row_ = 0, skip_empty();
    }
    if (used > static_cast<int64_t>(buffer.size())) buffer.resize(used);
    char* out = buffer.data();
    for (Piece& p : pieces) p.out = out, out += p.bytes;
    return pieces;
  }

 private:
  void skip_empty() {
    while (!done() && tensors_[tensor_]->bytes() == 0) ++tensor_;
  }
  const std::vector<const TensorSource*>& tensors_;
  size_t tensor_ = 0;
  int64_t row_ = 0;
};

std::vector<std::vector<const TensorSource*>> plan_shards(const std::vector<TensorSource>& tensors,
                                                          int64_t shard_bytes) {
  std::vector<std::vector<const TensorSource*>> shards(1);
  int64_t used = 0;
  for (const TensorSource& t : tensors) {
    if (used && used + t.bytes() > shard_bytes) shards.emplace_back(), used = 0;
    shards.back().push_back(&t);
    used += t.bytes();
  }
  for (auto& shard : shards)
    std::stable_sort(shard.begin(), shard.end(), [](const TensorSource* a, const TensorSource* b) {
      const bool a_odd = a->bytes() % kLine, b_odd = b->bytes() % kLine;
      return a_odd != b_odd ? b_odd : a_odd && dtype_bytes(a->dtype) > dtype_bytes(b->dtype);
    });
  return shards;
}

}  // namespace

int64_t TensorSource::bytes() const {
  int64_t n = dtype_bytes(dtype);
  for (int64_t d : shape) n *= d;
  return n;
}

Result<NewModelFolder> NewModelFolder::create(const std::string& dir) {
  std::error_code error;
  NewModelFolder folder(dir);
  if (fs::exists(dir, error)) {
    if (!fs::is_directory(dir, error)) return invalid("{}: is not a folder", dir);
    if (!fs::is_empty(dir, error)) return invalid("{}: is not empty; give a new folder, nothing is overwritten", dir);
  } else if (!fs::create_directories(dir, error)) {
    return invalid("{}: cannot be made: {}", dir, error.message());
  } else {
    folder.made_dir_ = true;
  }
  return folder;
}

NewModelFolder::NewModelFolder(NewModelFolder&& other) noexcept
    : dir_(std::move(other.dir_)),
      made_dir_(other.made_dir_),
      finished_(other.finished_),
      files_(std::move(other.files_)) {
  other.finished_ = true;
}

NewModelFolder::~NewModelFolder() {
  if (finished_) return;
  std::error_code ignored;
  for (const std::string& name : files_) fs::remove(path(name), ignored);
  if (made_dir_) fs::remove(dir_, ignored);
}

Status NewModelFolder::write_shard(const std::string& file, const std::vector<const TensorSource*>& tensors,
                                   ThreadPool& pool) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (const TensorSource* t : tensors) entries.push_back({t->name, t->dtype, t->shape});
  files_.push_back(file);
  LATHE_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(path(file), std::move(entries)));
  PieceStream stream(tensors);
  const int64_t limit = pool.threads() * kPiecesPerThread * kPieceBytes;
  std::vector<char> buffers[2];
  std::vector<Piece> full;  // made, to be written; task 0 does that while the others make the next ones
  for (int turn = 0; !full.empty() || !stream.done(); turn ^= 1) {
    std::vector<Piece> next = stream.take(limit, buffers[turn]);
    Status status;
    pool.run(static_cast<int64_t>(next.size()) + 1, [&](int64_t task, int) {
      if (task > 0) {
        const Piece& p = next[task - 1];
        return p.tensor->fill(p.begin, p.count, p.out);
      }
      for (const Piece& p : full)
        if (status.is_ok()) status = writer.append(p.out, p.bytes);
    });
    LATHE_RETURN_IF_ERROR(status);
    for (const Piece& p : full) wrote_(p.bytes, p.tensor->name);
    full = std::move(next);
  }
  return writer.finish();
}

Status NewModelFolder::write_tensors(std::vector<TensorSource> tensors, int64_t shard_bytes, ThreadPool& pool,
                                     const WriteProgress& progress) {
  const auto shards = plan_shards(tensors, shard_bytes);
  int64_t all = 0, done = 0;
  for (const TensorSource& t : tensors) all += t.bytes();
  std::error_code error;
  if (const fs::space_info space = fs::space(dir_, error); !error && static_cast<uint64_t>(all) > space.available)
    return exhausted("{}: needs {} bytes, the disk has {} free", dir_, all, space.available);
  wrote_ = [&](int64_t bytes, const std::string& tensor) {
    done += bytes;
    if (progress) progress(done, all, tensor);
  };
  if (shards.size() == 1) return write_shard("model.safetensors", shards[0], pool);
  nlohmann::json map = nlohmann::json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    for (const TensorSource* t : shards[i]) map[t->name] = file;
    LATHE_RETURN_IF_ERROR(write_shard(file, shards[i], pool));
  }
  return write_text("model.safetensors.index.json",
                    nlohmann::json{{"metadata", {{"total_size", all}}}, {"weight_map", map}}.dump(2) + "\n");
}

Status NewModelFolder::write_text(const std::string& name, const std::string& text) {
  files_.push_back(name);
  std::FILE* file = std::fopen(path(name).c_str(), "wb");
  if (!file) return invalid("{}: cannot be written: {}", path(name), std::strerror(errno));
  const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !whole) return invalid("{}: write failed: {}", path(name), std::strerror(errno));
  return Status::ok();
}

Status NewModelFolder::copy_file(const std::string& from, const std::string& name) {
  files_.push_back(name);
  std::error_code error;
  if (!fs::copy_file(from, path(name), error))
    return invalid("{}: cannot be copied to {}: {}", from, path(name), error.message());
  return Status::ok();
}

Status NewModelFolder::finish(const std::string& config_json) {
  const std::string draft = "config.json.incomplete";
  LATHE_RETURN_IF_ERROR(write_text(draft, config_json));
  files_.push_back("config.json");
  if (std::rename(path(draft).c_str(), path("config.json").c_str()) != 0)
    return invalid("{}: cannot be written: {}", path("config.json"), std::strerror(errno));
  finished_ = true;
  return Status::ok();
}

}  // namespace lathe
