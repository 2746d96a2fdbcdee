#include "base/safetensors.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/edit_distance.h"

namespace lathe {

namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxHeaderBytes = int64_t{256} << 20;  // a checkpoint of 76,000 tensors has about 10 MB
constexpr int64_t kMaxDims = 8;

constexpr std::pair<const char*, DType> kNames[] = {
    {"F64", DType::kF64}, {"F32", DType::kF32}, {"BF16", DType::kBF16}, {"F16", DType::kF16}, {"F8_E4M3", DType::kE4M3},
    {"I64", DType::kI64}, {"I32", DType::kI32}, {"I8", DType::kI8},     {"U8", DType::kU8},   {"BOOL", DType::kBool},
};

const char* file_name(DType t) {
  for (auto [name, dtype] : kNames)
    if (dtype == t) return name;
  LATHE_CHECK(!"every dtype has a name in files");
  return "";
}

bool dtype_of(const std::string& name, DType& out) {
  for (auto [known, dtype] : kNames)
    if (name == known) {
      out = dtype;
      return true;
    }
  return false;
}

// A JSON value as a size: a non-negative integer that fits.
bool as_size(const Json& j, int64_t& out) {
  if (!j.is_number_unsigned() || j.get<uint64_t>() > uint64_t{1} << 60) return false;
  out = static_cast<int64_t>(j.get<uint64_t>());
  return true;
}

Result<TensorSpan> parse_entry(const std::string& path, const std::string& name, const Json& entry, const uint8_t* data,
                               int64_t data_bytes) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets"))
    return corrupt("{}: tensor '{}': needs dtype, shape and data_offsets", path, name);
  TensorSpan span;
  if (!entry["dtype"].is_string() || !dtype_of(entry["dtype"], span.dtype))
    return corrupt("{}: tensor '{}': dtype {} is not supported", path, name, entry["dtype"].dump());
  const Json& shape = entry["shape"];
  if (!shape.is_array() || shape.size() > kMaxDims)
    return corrupt("{}: tensor '{}': shape must be a list of up to 8 sizes", path, name);
  int64_t bytes = dtype_bytes(span.dtype);
  for (const Json& dim : shape) {
    int64_t size;
    if (!as_size(dim, size) || __builtin_mul_overflow(bytes, size, &bytes))
      return corrupt("{}: tensor '{}': shape {} is not a list of possible sizes", path, name, shape.dump());
    span.shape.push_back(size);
  }
  const Json& offsets = entry["data_offsets"];
  int64_t begin, end;
  if (!offsets.is_array() || offsets.size() != 2 || !as_size(offsets[0], begin) || !as_size(offsets[1], end) ||
      begin > end)
    return corrupt("{}: tensor '{}': data_offsets {} must be [begin, end]", path, name, offsets.dump());
  if (end > data_bytes)
    return corrupt("{}: tensor '{}' ends at data byte {}, the file at {}: incomplete copy?", path, name, end,
                   data_bytes);
  if (end - begin != bytes)
    return corrupt("{}: tensor '{}': shape {} of {} needs {} bytes, data_offsets give {}", path, name, shape.dump(),
                   dtype_name(span.dtype), bytes, end - begin);
  span.data = data + begin;
  span.bytes = bytes;
  return span;
}

// No two tensors share a byte, and the file ends with the last one. A gap between two may be a tensor that somebody
// left out of the header; whoever asks for it is told its name.
Status check_layout(const std::string& path, const std::map<std::string, TensorSpan, std::less<>>& tensors,
                    const uint8_t* data, int64_t data_bytes) {
  std::vector<std::pair<const uint8_t*, const std::string*>> starts;
  for (const auto& [name, span] : tensors)
    if (span.bytes) starts.push_back({static_cast<const uint8_t*>(span.data), &name});
  std::sort(starts.begin(), starts.end());
  const uint8_t* end = data;
  for (size_t i = 0; i < starts.size(); ++i) {
    const auto [begin, name] = starts[i];
    if (begin < end) return corrupt("{}: tensors '{}' and '{}' overlap", path, *starts[i - 1].second, *name);
    end = begin + tensors.find(*name)->second.bytes;
  }
  if (end < data + data_bytes)
    return corrupt("{}: {} bytes after the last tensor belong to none: oversized, or a damaged header?", path,
                   data + data_bytes - end);
  return Status::ok();
}

}  // namespace

Result<std::map<std::string, TensorSpan, std::less<>>> Safetensors::parse(const uint8_t* bytes, int64_t count,
                                                                          const std::string& path) {
  if (count < 8) return corrupt("{}: {} bytes; a safetensors file has at least 8", path, count);
  uint64_t header_bytes;
  std::memcpy(&header_bytes, bytes, 8);
  if (header_bytes > static_cast<uint64_t>(count - 8))
    return corrupt("{}: the header claims {} bytes, the file has {}: truncated, or not safetensors", path, header_bytes,
                   count);
  if (header_bytes > static_cast<uint64_t>(kMaxHeaderBytes))
    return corrupt("{}: a header of {} bytes; at most {} are read", path, header_bytes, kMaxHeaderBytes);
  const char* text = reinterpret_cast<const char*>(bytes + 8);
  int depth = 0;  // deeper nesting than any header has would only cost stack
  Json header = Json::parse(
      text, text + header_bytes,
      [&](int d, Json::parse_event_t, Json&) {
        depth = std::max(depth, d);
        return d <= 8;
      },
      false);
  if (header.is_discarded() || !header.is_object() || depth > 8)
    return corrupt("{}: the header is not a JSON object", path);

  std::map<std::string, TensorSpan, std::less<>> tensors;
  const int64_t data_begin = 8 + static_cast<int64_t>(header_bytes);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    LATHE_ASSIGN(TensorSpan span, parse_entry(path, name, entry, bytes + data_begin, count - data_begin));
    tensors.emplace(name, std::move(span));
  }
  LATHE_RETURN_IF_ERROR(check_layout(path, tensors, bytes + data_begin, count - data_begin));
  return tensors;
}

Result<Safetensors> Safetensors::open(const std::string& path) {
  LATHE_ASSIGN(MappedFile file, MappedFile::open(path));
  Safetensors result(std::move(file));
  LATHE_ASSIGN(result.tensors_, parse(result.file_.data(), result.file_.bytes(), path));
  return result;
}

std::vector<std::string> Safetensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, span] : tensors_) names.push_back(name);
  return names;
}

Result<TensorSpan> Safetensors::find(std::string_view name) const {
  if (auto it = tensors_.find(name); it != tensors_.end()) return it->second;
  const std::string nearest = nearest_name(name, names());
  return not_found("{}: no tensor '{}'{}", path(), name,
                   nearest.empty() ? "" : fmt::format("; nearest is '{}'", nearest));
}

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path, std::vector<Entry> entries) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};  // some readers insist on it
  SafetensorsWriter writer;
  writer.path_ = path;
  for (const Entry& e : entries) {
    int64_t bytes = dtype_bytes(e.dtype);
    for (int64_t d : e.shape) bytes *= d;
    header[e.name] = {{"dtype", file_name(e.dtype)},
                      {"shape", e.shape},
                      {"data_offsets", {writer.expected_bytes_, writer.expected_bytes_ + bytes}}};
    writer.begin_.push_back(writer.expected_bytes_);
    writer.expected_bytes_ += bytes;
  }
  writer.begin_.push_back(writer.expected_bytes_);
  std::string text = header.dump();
  text.resize((8 + text.size() + 63) / 64 * 64 - 8, ' ');  // data begins on a cache line
  for (int64_t& begin : writer.begin_) begin += 8 + static_cast<int64_t>(text.size());
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) return invalid("{}: cannot be written: {}", path, std::strerror(errno));
  writer.file_ = file;
  const uint64_t header_bytes = text.size();
  if (std::fwrite(&header_bytes, 8, 1, file) != 1 || std::fwrite(text.data(), 1, text.size(), file) != text.size())
    return invalid("{}: write failed: {}", path, std::strerror(errno));
  return writer;
}

SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(begin_, other.begin_);
  std::swap(expected_bytes_, other.expected_bytes_);
  std::swap(written_bytes_, other.written_bytes_);
  return *this;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (file_) std::fclose(static_cast<std::FILE*>(file_));
}

Status SafetensorsWriter::append(const void* data, int64_t bytes) {
  LATHE_CHECK(written_bytes_ + bytes <= expected_bytes_);
  if (std::fwrite(data, 1, bytes, static_cast<std::FILE*>(file_)) != static_cast<size_t>(bytes))
    return invalid("{}: write failed: {}", path_, std::strerror(errno));
  written_bytes_ += bytes;
  return Status::ok();
}

Status SafetensorsWriter::place(size_t entry, int64_t offset, const void* data, int64_t bytes) {
  LATHE_CHECK(entry + 1 < begin_.size() && offset >= 0 && begin_[entry] + offset + bytes <= begin_[entry + 1]);
  if (fseeko(static_cast<std::FILE*>(file_), begin_[entry] + offset, SEEK_SET) != 0)
    return invalid("{}: write failed: {}", path_, std::strerror(errno));
  return append(data, bytes);
}

Status SafetensorsWriter::finish() {
  LATHE_CHECK(written_bytes_ == expected_bytes_);
  const int failed = std::fclose(static_cast<std::FILE*>(std::exchange(file_, nullptr)));
  return failed ? invalid("{}: write failed: {}", path_, std::strerror(errno)) : Status::ok();
}

}  // namespace lathe
