#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/safetensors.h"

namespace lathe {

// The tensors of a model folder: model.safetensors, or the shards that model.safetensors.index.json lists. Mapped, not
// read. Names as on disk.
class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::string& dir);
  // The same over tensors in memory, which `owner` keeps alive; `name` stands for the folder in messages.
  static Checkpoint of_memory(std::string name, const std::map<std::string, TensorSpan>& tensors,
                              std::shared_ptr<const void> owner);

  // nullptr: no such tensor.
  const TensorSpan* find(std::string_view name) const;
  // An error that names the folder and the nearest tensor.
  Status missing(std::string_view name) const;
  // The file a tensor lies in, for messages.
  const std::string& file_of(std::string_view name) const;

  const std::string& dir() const { return dir_; }
  int64_t bytes() const;
  struct Entry {
    TensorSpan span;
    const Safetensors* file;  // nullptr: in memory
  };
  const std::map<std::string, Entry, std::less<>>& tensors() const { return tensors_; }

 private:
  Status add_file(const std::string& path);
  std::string dir_;
  std::vector<std::unique_ptr<Safetensors>> files_;
  std::shared_ptr<const void> owner_;
  std::map<std::string, Entry, std::less<>> tensors_;
};

}  // namespace lathe
