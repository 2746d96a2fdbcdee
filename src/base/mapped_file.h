#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace lathe {

// A file's bytes, mapped read-only. Pages come in when they are read.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const uint8_t* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  MappedFile() = default;
  std::string path_;
  const uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Lets go of the memory of part of a mapped file; whoever reads it again has it read from disk again.
void forget_mapped(const void* data, int64_t bytes);

// A small file's text; an error names the file if it is missing, unreadable or larger than `limit`.
Result<std::string> read_text_file(const std::string& path, int64_t limit_bytes);

}  // namespace lathe
