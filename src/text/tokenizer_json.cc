#include "text/tokenizer_json.h"

#include <nlohmann/json.hpp>

namespace lathe {

using Json = nlohmann::json;

namespace {

constexpr size_t kMaxDepth = 32;

// nlohmann's SAX interface. The stack holds the containers that are open and go into the tree.
class Handler : public nlohmann::json_sax<Json> {
 public:
  Handler(int64_t max_id, TokenizerFile& file) : max_id_(max_id), file_(file) {}

  Json root;
  Status status;

  bool null() override { return value(nullptr); }
  bool boolean(bool x) override { return value(x); }
  bool number_integer(number_integer_t x) override { return in_ == kVocab ? vocab_id(x) : value(x); }
  bool number_unsigned(number_unsigned_t x) override {
    if (in_ == kVocab) return vocab_id(x <= static_cast<uint64_t>(max_id_) ? static_cast<int64_t>(x) : -1);
    return value(x);
  }
  bool number_float(number_float_t x, const string_t&) override { return value(x); }
  bool binary(binary_t&) override { return fail("tokenizer", "holds binary data"); }
  bool string(string_t& x) override {
    if (in_ == kMerges) return merge_text(x);
    if (in_ == kPair) return pair_.push_back(std::move(x)), true;
    return value(std::move(x));
  }

  bool key(string_t& x) override {
    key_ = std::move(x);
    return true;
  }

  bool start_object(std::size_t) override {
    if (in_ == kTree && at_model_member("vocab")) return in_ = kVocab, file_.vocab.clear(), true;
    return in_ == kTree ? open(Json::object()) : unexpected("an object");
  }
  bool end_object() override {
    if (in_ == kVocab) return in_ = kTree, true;
    return close();
  }
  bool start_array(std::size_t) override {
    if (in_ == kMerges) return in_ = kPair, pair_.clear(), true;
    if (in_ == kTree && at_model_member("merges")) return in_ = kMerges, file_.merges.clear(), true;
    return in_ == kTree ? open(Json::array()) : unexpected("a list");
  }
  bool end_array() override {
    if (in_ == kMerges) return in_ = kTree, true;
    if (in_ != kPair) return close();
    in_ = kMerges;
    if (pair_.size() != 2) return bad_merge("must have two parts");
    file_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    if (status.is_ok()) status = corrupt("{}: not JSON: {}", file_.name, e.what());
    return false;
  }

 private:
  enum Place { kTree, kVocab, kMerges, kPair };

  bool fail(const std::string& field, const std::string& what) {
    status = corrupt("{}: {}: {}", file_.name, field, what);
    return false;
  }
  bool bad_merge(const char* what) { return fail(fmt::format("model.merges[{}]", file_.merges.size()), what); }
  bool unexpected(const char* what) {
    if (in_ == kVocab) return fail("model.vocab", fmt::format("'{}' is {}, not an id", key_, what));
    return bad_merge("must be text or a pair of texts");
  }

  bool at_model_member(const char* member) const {
    return stack_.size() == 2 && model_open_ && key_ == member && stack_.back()->is_object();
  }

  bool vocab_id(int64_t id) {
    if (id < 0 || id > max_id_)
      return fail("model.vocab", fmt::format("the id of '{}' is not from 0 to {}", key_, max_id_));
    file_.vocab.emplace_back(std::move(key_), static_cast<int32_t>(id));
    return true;
  }

  bool merge_text(const std::string& text) {
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
      return bad_merge("must be two parts with one space between them");
    file_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    return true;
  }

  Json* place(Json x) {
    if (stack_.empty()) return root = std::move(x), &root;
    Json& parent = *stack_.back();
    if (parent.is_array()) return parent.push_back(std::move(x)), &parent.back();
    return &(parent[key_] = std::move(x));
  }
  bool value(Json x) {
    if (in_ != kTree) return unexpected(x.type_name());
    place(std::move(x));
    return true;
  }
  bool open(Json empty) {
    if (stack_.size() >= kMaxDepth) return fail("tokenizer", fmt::format("is nested deeper than {} levels", kMaxDepth));
    if (stack_.size() == 1) model_open_ = key_ == "model";
    stack_.push_back(place(std::move(empty)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  const int64_t max_id_;
  TokenizerFile& file_;
  Place in_ = kTree;
  std::vector<Json*> stack_;
  std::string key_;
  bool model_open_ = false;  // the child of the root that was opened last is "model"
  std::vector<std::string> pair_;
};

}  // namespace

Result<Json> read_tokenizer_json(std::string_view json, int64_t max_id, TokenizerFile& file) {
  Handler handler(max_id, file);
  if (!Json::sax_parse(json.begin(), json.end(), &handler)) {
    LATHE_CHECK(!handler.status.is_ok());
    return handler.status;
  }
  return std::move(handler.root);
}

}  // namespace lathe
