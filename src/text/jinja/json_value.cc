#include "text/jinja/json_value.h"

#include <nlohmann/json.hpp>

#include "text/jinja/ast.h"
#include "text/jinja/machine.h"
#include "text/jinja/python_text.h"

namespace lathe::jinja {

namespace {

constexpr size_t kMaxDepth = 100;

class Handler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Handler(const std::string& name) : name_(name) {}

  Value root;
  Status status;

  bool null() override { return put(None{}); }
  bool boolean(bool x) override { return put(x); }
  bool number_integer(number_integer_t x) override { return put(Value(int64_t{x})); }
  bool number_unsigned(number_unsigned_t x) override {
    return x <= INT64_MAX ? put(Value(static_cast<int64_t>(x)))
                          : put(BigInt{std::make_shared<const std::string>(std::to_string(x))});
  }
  bool number_float(number_float_t x, const string_t& written) override {
    if (written.find_first_of(".eE") != std::string::npos) return put(x);
    return put(BigInt{std::make_shared<const std::string>(written)});
  }
  bool string(string_t& x) override { return put(Value(std::move(x), Origin::kData)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool key(string_t& x) override {
    open_.back().key = Value(std::move(x), Origin::kData);
    return true;
  }
  bool end_object() override {
    Dict dict = std::move(open_.back().dict);
    open_.pop_back();
    return put(std::move(dict));
  }
  bool end_array() override {
    List list = std::move(open_.back().list);
    open_.pop_back();
    return put(std::move(list));
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    if (status.is_ok()) status = invalid("{}: not JSON: {}", name_, e.what());
    return false;
  }

 private:
  struct Open {
    bool is_object;
    Dict dict;
    List list;
    Value key;
  };

  bool open(bool object) {
    if (open_.size() >= kMaxDepth) {
      status = invalid("{}: nested deeper than {} levels", name_, kMaxDepth);
      return false;
    }
    open_.push_back({object, {}, {}, {}});
    return true;
  }
  bool put(Value value) {
    if (open_.empty()) return root = std::move(value), true;
    Open& to = open_.back();
    if (to.is_object) {
      to.dict.set(std::move(to.key), std::move(value));
    } else {
      to.list.depth = std::max(to.list.depth, value.depth() + 1);
      to.list.items.push_back(std::move(value));
    }
    return true;
  }

  const std::string& name_;
  std::vector<Open> open_;
};

}  // namespace

Result<Value> value_from_json(std::string_view json, const std::string& name) {
  Handler handler(name);
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &handler)) {
    if (handler.status.is_ok()) return invalid("{}: not JSON", name);
    return handler.status;
  }
  return std::move(handler.root);
}

Result<std::string> json_from_value(const Value& value) {
  const Ast nothing;
  Machine machine(nothing, Limits(), 0);
  JsonStyle style;
  style.between = ",";
  style.colon = ":";
  try {
    return to_json(machine, value, style);
  } catch (const Failure& failure) {
    return invalid("{}", failure.message);
  }
}

}  // namespace lathe::jinja
