#include "base/json_reader.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"

namespace lathe {

using Json = nlohmann::json;

namespace {
constexpr int kMaxDepth = 64;

std::string shown(const Json& j) {
  std::string text = j.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}
}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& path) {
  bool too_deep = false;
  try {
    Json j = Json::parse(text.begin(), text.end(), [&](int depth, Json::parse_event_t, Json&) {
      if (depth > kMaxDepth) too_deep = true;
      return depth <= kMaxDepth;
    });
    if (too_deep) return corrupt("{}: nested deeper than {} levels", path, kMaxDepth);
    return j;
  } catch (const Json::exception& e) {
    return corrupt("{}: not JSON: {}", path, e.what());
  }
}

Result<Json> read_json_file(const std::string& path, int64_t limit_bytes) {
  LATHE_ASSIGN(const std::string text, read_text_file(path, limit_bytes));
  return parse_json(text, path);
}

JsonReader::JsonReader(const Json& object, std::string file, std::string path)
    : object_(object), file_(std::move(file)), path_(std::move(path)) {
  if (!object_.is_object()) status_ = corrupt("{}: {}: must be an object", file_, path_.empty() ? "the file" : path_);
}

std::string JsonReader::path_of(const std::string& field) const { return path_.empty() ? field : path_ + "." + field; }

void JsonReader::fail(const std::string& field, const std::string& message) {
  if (status_.is_ok()) status_ = corrupt("{}: {}: {}", file_, path_of(field), message);
}

const Json* JsonReader::get(const char* field) const {
  if (!object_.is_object()) return nullptr;
  auto it = object_.find(field);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool JsonReader::has(const char* field) const { return get(field) != nullptr; }

int64_t JsonReader::integer(const char* field, int64_t fallback, int64_t low, int64_t high) {
  const Json* j = get(field);
  if (!j) return fallback;
  const bool fits = j->is_number_integer() && !(j->is_number_unsigned() && j->get<uint64_t>() > INT64_MAX);
  if (!fits || j->get<int64_t>() < low || j->get<int64_t>() > high) {
    fail(field, fmt::format("is {}; expected an integer from {} to {}", shown(*j), low, high));
    return fallback;
  }
  return j->get<int64_t>();
}

int64_t JsonReader::required_integer(const char* field, int64_t low, int64_t high) {
  if (!has(field)) fail(field, "is missing");
  return integer(field, low, low, high);
}

double JsonReader::number(const char* field, double fallback, double low, double high) {
  const Json* j = get(field);
  if (!j) return fallback;
  if (!j->is_number() || !(j->get<double>() >= low && j->get<double>() <= high)) {
    fail(field, fmt::format("is {}; expected a number from {} to {}", shown(*j), low, high));
    return fallback;
  }
  return j->get<double>();
}

bool JsonReader::boolean(const char* field, bool fallback) {
  const Json* j = get(field);
  if (!j) return fallback;
  if (!j->is_boolean()) {
    fail(field, fmt::format("is {}; expected true or false", shown(*j)));
    return fallback;
  }
  return j->get<bool>();
}

std::string JsonReader::text(const char* field, const std::string& fallback) {
  const Json* j = get(field);
  if (!j) return fallback;
  if (!j->is_string()) {
    fail(field, fmt::format("is {}; expected a string", shown(*j)));
    return fallback;
  }
  return j->get<std::string>();
}

std::vector<std::string> JsonReader::texts(const char* field) {
  std::vector<std::string> out;
  const Json* j = get(field);
  if (!j) return out;
  if (!j->is_array())
    fail(field, "expected a list of strings");
  else
    for (const Json& item : *j) {
      if (!item.is_string()) {
        fail(field, fmt::format("holds {}; expected strings", shown(item)));
        break;
      }
      out.push_back(item.get<std::string>());
    }
  return out;
}

std::vector<int64_t> JsonReader::integers(const char* field, int64_t low, int64_t high) {
  std::vector<int64_t> out;
  const Json* j = get(field);
  if (!j) return out;
  const Json list = j->is_array() ? *j : Json::array({*j});
  for (const Json& item : list) {
    if (!item.is_number_integer() || (item.is_number_unsigned() && item.get<uint64_t>() > INT64_MAX) ||
        item.get<int64_t>() < low || item.get<int64_t>() > high) {
      fail(field, fmt::format("holds {}; expected integers from {} to {}", shown(item), low, high));
      break;
    }
    out.push_back(item.get<int64_t>());
  }
  return out;
}

std::vector<double> JsonReader::numbers(const char* field) {
  std::vector<double> out;
  const Json* j = get(field);
  if (!j) return out;
  if (!j->is_array())
    fail(field, "expected a list of numbers");
  else
    for (const Json& item : *j) {
      if (!item.is_number() || !std::isfinite(item.get<double>())) {
        fail(field, fmt::format("holds {}; expected numbers", shown(item)));
        break;
      }
      out.push_back(item.get<double>());
    }
  return out;
}

const Json* JsonReader::object(const char* field) {
  const Json* j = get(field);
  if (j && !j->is_object()) {
    fail(field, fmt::format("is {}; expected an object", shown(*j)));
    return nullptr;
  }
  return j;
}

}  // namespace lathe
