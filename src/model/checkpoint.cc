#include "model/checkpoint.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/edit_distance.h"
#include "base/json_reader.h"

namespace lathe {

namespace {
constexpr int64_t kMaxIndexBytes = int64_t{256} << 20;
}

Status Checkpoint::add_file(const std::string& path) {
  LATHE_ASSIGN(Safetensors file, Safetensors::open(path));
  files_.push_back(std::make_unique<Safetensors>(std::move(file)));
  for (const auto& [name, span] : files_.back()->tensors())
    if (auto [it, fresh] = tensors_.try_emplace(name, Entry{span, files_.back().get()}); !fresh)
      return corrupt("{}: tensor '{}' is also in {}", path, name, it->second.file->path());
  return Status::ok();
}

Result<Checkpoint> Checkpoint::open(const std::string& dir) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(dir)) return not_found("{}: no such folder", dir);
  Checkpoint c;
  c.dir_ = dir;
  const std::string single = dir + "/model.safetensors", index = dir + "/model.safetensors.index.json";
  if (!fs::exists(index)) {
    if (!fs::exists(single))
      return not_found("{}: has neither model.safetensors nor model.safetensors.index.json", dir);
    LATHE_RETURN_IF_ERROR(c.add_file(single));
    return c;
  }
  LATHE_ASSIGN(const nlohmann::json json, read_json_file(index, kMaxIndexBytes));
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    return corrupt("{}: weight_map: must be an object of tensor and file names", index);
  std::set<std::string> shards;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string()) return corrupt("{}: weight_map.{}: must be a file name", index, tensor);
    const std::string name = file.get<std::string>();
    if (name.find('/') != std::string::npos || name.empty() || name[0] == '.')
      return corrupt("{}: weight_map.{}: '{}' must be a file of this folder", index, tensor, name);
    shards.insert(name);
  }
  for (const std::string& shard : shards) LATHE_RETURN_IF_ERROR(c.add_file(dir + "/" + shard));
  for (const auto& [tensor, file] : json["weight_map"].items())
    if (!c.find(tensor)) return corrupt("{}: tensor '{}' is not in {}", index, tensor, file.get<std::string>());
  return c;
}

Checkpoint Checkpoint::of_memory(std::string name, const std::map<std::string, TensorSpan>& tensors,
                                 std::shared_ptr<const void> owner) {
  Checkpoint c;
  c.dir_ = std::move(name);
  c.owner_ = std::move(owner);
  for (const auto& [tensor, span] : tensors) c.tensors_.emplace(tensor, Entry{span, nullptr});
  return c;
}

const TensorSpan* Checkpoint::find(std::string_view name) const {
  auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second.span;
}

const std::string& Checkpoint::file_of(std::string_view name) const {
  auto it = tensors_.find(name);
  return it == tensors_.end() || !it->second.file ? dir_ : it->second.file->path();
}

Status Checkpoint::missing(std::string_view name) const {
  std::vector<std::string> names;
  for (const auto& [known, entry] : tensors_) names.push_back(known);
  const std::string nearest = nearest_name(name, names);
  return corrupt("{}: no tensor '{}'{}", dir_, name, nearest.empty() ? "" : fmt::format("; nearest is '{}'", nearest));
}

int64_t Checkpoint::bytes() const {
  int64_t sum = 0;
  for (const auto& [name, entry] : tensors_) sum += entry.span.bytes;
  return sum;
}

}  // namespace lathe
