#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lathe {

// Parses a file as JSON; an error names the file, line and column.
Result<nlohmann::json> read_json_file(const std::string& path, int64_t limit_bytes);
Result<nlohmann::json> parse_json(std::string_view text, const std::string& path);

// Typed reads from one JSON object of a file. Errors name the file, the field's full path, what stands there and what
// is expected. The first error is kept and later reads return defaults, so a struct can be read straight down and
// checked once at the end.
class JsonReader {
 public:
  JsonReader(const nlohmann::json& object, std::string file, std::string path = "");

  bool has(const char* field) const;  // present and not null
  int64_t integer(const char* field, int64_t fallback, int64_t low, int64_t high);
  int64_t required_integer(const char* field, int64_t low, int64_t high);
  double number(const char* field, double fallback, double low, double high);
  bool boolean(const char* field, bool fallback);
  std::string text(const char* field, const std::string& fallback);
  std::vector<std::string> texts(const char* field);  // absent: empty
  std::vector<int64_t> integers(const char* field, int64_t low,
                                int64_t high);  // a single integer counts as a list of one
  std::vector<double> numbers(const char* field);
  const nlohmann::json* object(const char* field);  // nullptr if absent

  void fail(const std::string& field, const std::string& message);
  // A nested object's reader ended so: its error, with its own path, counts here.
  void adopt(const JsonReader& nested) {
    if (status_.is_ok()) status_ = nested.status_;
  }
  std::string path_of(const std::string& field) const;
  const std::string& file() const { return file_; }
  const Status& status() const { return status_; }

 private:
  const nlohmann::json* get(const char* field) const;
  const nlohmann::json& object_;
  std::string file_, path_;
  Status status_;
};

}  // namespace lathe
