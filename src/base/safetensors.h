#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/mapped_file.h"

namespace lathe {

// Tensor data inside a mapped file, contiguous, last dimension fastest.
struct TensorSpan {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
  int64_t count() const { return bytes / dtype_bytes(dtype); }
};

// One safetensors file (8 bytes of header length, a JSON header, then data), checked when opened: every tensor lies
// inside the file, has the bytes its shape and dtype ask for, and overlaps no other.
class Safetensors {
 public:
  static Result<Safetensors> open(const std::string& path);
  // The same over bytes in memory, which must outlive the result; `path` is for messages.
  static Result<std::map<std::string, TensorSpan, std::less<>>> parse(const uint8_t* data, int64_t bytes,
                                                                      const std::string& path);

  Result<TensorSpan> find(std::string_view name) const;  // an error names the file and the nearest tensor
  const std::map<std::string, TensorSpan, std::less<>>& tensors() const { return tensors_; }
  const std::string& path() const { return file_.path(); }
  std::vector<std::string> names() const;

 private:
  explicit Safetensors(MappedFile file) : file_(std::move(file)) {}
  MappedFile file_;
  std::map<std::string, TensorSpan, std::less<>> tensors_;
};

// Writes a safetensors file piece by piece, straight to disk: sizes first, then the data, in the same order or by
// place.
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape;
  };
  static Result<SafetensorsWriter> create(const std::string& path, std::vector<Entry> entries);
  SafetensorsWriter(SafetensorsWriter&& other) noexcept { *this = std::move(other); }
  SafetensorsWriter& operator=(SafetensorsWriter&& other) noexcept;
  ~SafetensorsWriter();

  // The next bytes of the data section.
  Status append(const void* data, int64_t bytes);
  // Bytes of one entry, from `offset` within it. Each byte is written once; append and place don't mix.
  Status place(size_t entry, int64_t offset, const void* data, int64_t bytes);
  // All data there? Then flushed and closed.
  Status finish();

 private:
  SafetensorsWriter() = default;
  std::string path_;
  void* file_ = nullptr;
  std::vector<int64_t> begin_;  // of each entry in the file, and the end
  int64_t expected_bytes_ = 0, written_bytes_ = 0;
};

}  // namespace lathe
