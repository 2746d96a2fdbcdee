#include "text/tokenizer_file.h"

#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "base/mapped_file.h"
#include "text/tokenizer_json.h"

namespace lathe {

using Json = nlohmann::json;

namespace {

// Ids index tables; the largest published vocabularies have some 262 thousand entries.
constexpr int64_t kMaxId = (int64_t{1} << 24) - 1;
constexpr size_t kMaxPattern = 64 << 10;
constexpr size_t kMaxSteps = 32;

// GPT-2's, which ByteLevel uses where use_regex is set.
constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string type_of(const Json& node) {
  const auto it = node.find("type");
  return it != node.end() && it->is_string() ? it->get<std::string>() : "";
}

class FileReader {
 public:
  FileReader(const Json& root, TokenizerFile& file) : root_(root), file_(file) {}

  Status read() {
    LATHE_RETURN_IF_ERROR(read_model());
    LATHE_RETURN_IF_ERROR(read_added());
    LATHE_RETURN_IF_ERROR(read_normalizer(root_.value("normalizer", Json()), "normalizer"));
    bool byte_level = false;
    LATHE_RETURN_IF_ERROR(read_steps(root_.value("pre_tokenizer", Json()), "pre_tokenizer", byte_level));
    if (!byte_level) return refuse("pre_tokenizer", "has no ByteLevel step; only byte-level BPE is supported");
    bool decodes_bytes = false;
    LATHE_RETURN_IF_ERROR(read_decoder(root_.value("decoder", Json()), "decoder", decodes_bytes));
    if (!decodes_bytes) return refuse("decoder", "must be ByteLevel");
    return read_post_processor(root_.value("post_processor", Json()), "post_processor");
  }

 private:
  Status broken(const std::string& field, const std::string& what) const {
    return corrupt("{}: {}: {}", file_.name, field, what);
  }
  Status refuse(const std::string& field, const std::string& what) const {
    return invalid("{}: {}: {}", file_.name, field, what);
  }
  Status unsupported_type(const std::string& field, const Json& node) const {
    if (!node.is_object()) return broken(field, "must be an object");
    return refuse(field + ".type", fmt::format("'{}' is not supported", type_of(node)));
  }
  // A list-valued member; an empty list where it is absent.
  Result<Json> list(const Json& node, const char* member, const std::string& field) const {
    const auto it = node.find(member);
    if (it == node.end() || it->is_null()) return Json::array();
    if (!it->is_array()) return broken(field + "." + member, "must be a list");
    return *it;
  }

  Status read_model() {
    const auto it = root_.find("model");
    if (it == root_.end() || !it->is_object()) return broken("model", "is missing");
    const Json& model = *it;
    // Files of GPT-2's time have no type.
    if (model.contains("type") && type_of(model) != "BPE") return unsupported_type("model", model);
    if (file_.vocab.empty()) return broken("model.vocab", "is missing or empty");
    JsonReader reader(model, file_.name, "model");
    file_.ignore_merges = reader.boolean("ignore_merges", false);
    if (reader.boolean("byte_fallback", false)) return refuse("model.byte_fallback", "is not supported");
    if (reader.number("dropout", 0, 0, 1) != 0) return refuse("model.dropout", "must be 0: encoding is deterministic");
    for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (!reader.text(affix, "").empty()) return refuse(std::string("model.") + affix, "is not supported");
    return reader.status();
  }

  Status read_added() {
    LATHE_ASSIGN(const Json tokens, list(root_, "added_tokens", "tokenizer"));
    for (size_t i = 0; i < tokens.size(); ++i) {
      JsonReader reader(tokens[i], file_.name, fmt::format("added_tokens[{}]", i));
      AddedToken token;
      token.id = static_cast<int32_t>(reader.required_integer("id", 0, kMaxId));
      token.content = reader.text("content", "");
      token.special = reader.boolean("special", false);
      token.normalized = reader.boolean("normalized", false);
      token.lstrip = reader.boolean("lstrip", false);
      token.rstrip = reader.boolean("rstrip", false);
      token.single_word = reader.boolean("single_word", false);
      if (token.content.empty()) reader.fail("content", "is missing or empty");
      LATHE_RETURN_IF_ERROR(reader.status());
      file_.added.push_back(std::move(token));
    }
    return Status::ok();
  }

  Status read_normalizer(const Json& node, const std::string& field) {
    if (node.is_null()) return Status::ok();
    if (type_of(node) == "NFC") return file_.normalizer = Normalizer::kNfc, Status::ok();
    if (type_of(node) != "Sequence") return unsupported_type(field, node);
    LATHE_ASSIGN(const Json parts, list(node, "normalizers", field));
    for (size_t i = 0; i < parts.size(); ++i)
      LATHE_RETURN_IF_ERROR(read_normalizer(parts[i], fmt::format("{}.normalizers[{}]", field, i)));
    return Status::ok();
  }

  Status read_steps(const Json& node, const std::string& field, bool& byte_level) {
    if (node.is_null()) return Status::ok();
    const std::string type = type_of(node);
    if (type == "Sequence") {
      LATHE_ASSIGN(const Json parts, list(node, "pretokenizers", field));
      for (size_t i = 0; i < parts.size(); ++i)
        LATHE_RETURN_IF_ERROR(read_steps(parts[i], fmt::format("{}.pretokenizers[{}]", field, i), byte_level));
      return Status::ok();
    }
    if (byte_level) return refuse(field, "a step behind ByteLevel is not supported");
    SplitStep step;
    JsonReader reader(node, file_.name, field);
    LATHE_RETURN_IF_ERROR(reader.status());
    if (type == "ByteLevel") {
      byte_level = true;
      step.add_prefix_space = reader.boolean("add_prefix_space", true);
      if (reader.boolean("use_regex", true)) step.pattern = kGpt2Pattern;
    } else if (type == "Digits") {
      step.pattern = reader.boolean("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)";
    } else if (type == "Punctuation") {
      step.pattern = R"([\p{P}!-/:-@\[-`{-~])";
      step.behavior = behavior(reader, "Isolated");
    } else if (type == "WhitespaceSplit") {
      step.pattern = R"(\s)";
      step.behavior = SplitBehavior::kRemoved;
    } else if (type == "Whitespace") {
      step.pattern = R"(\w+|[^\w\s]+)";
      step.behavior = SplitBehavior::kRemoved;
      step.invert = true;
    } else if (type == "Split") {
      step.pattern = pattern(reader);
      step.behavior = behavior(reader, "");
      step.invert = reader.boolean("invert", false);
    } else {
      return unsupported_type(field, node);
    }
    if (step.add_prefix_space || !step.pattern.empty()) file_.steps.push_back(std::move(step));
    if (file_.steps.size() > kMaxSteps) return refuse(field, fmt::format("more than {} steps", kMaxSteps));
    return reader.status();
  }

  static SplitBehavior behavior(JsonReader& reader, const char* fallback) {
    const std::string name = reader.text("behavior", fallback);
    constexpr std::pair<const char*, SplitBehavior> kNames[] = {
        {"Removed", SplitBehavior::kRemoved},
        {"Isolated", SplitBehavior::kIsolated},
        {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
        {"MergedWithNext", SplitBehavior::kMergedWithNext},
        {"Contiguous", SplitBehavior::kContiguous},
    };
    for (const auto& [text, value] : kNames)
      if (name == text) return value;
    reader.fail(
        "behavior",
        fmt::format("'{}' is not one of Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous", name));
    return SplitBehavior::kIsolated;
  }

  static std::string pattern(JsonReader& reader) {
    const Json* node = reader.object("pattern");
    if (!node) return reader.fail("pattern", "is missing"), "";
    for (const char* kind : {"Regex", "String"}) {
      const auto it = node->find(kind);
      if (it == node->end() || !it->is_string()) continue;
      std::string text = it->get<std::string>();
      if (text.empty()) reader.fail("pattern", "is empty");
      if (text.size() > kMaxPattern) reader.fail("pattern", "is longer than 64 KiB");
      return std::string_view(kind) == "Regex" ? text : escaped(text);
    }
    return reader.fail("pattern", "must be {\"Regex\": ...} or {\"String\": ...}"), "";
  }

  static std::string escaped(const std::string& literal) {
    std::string out;
    for (char c : literal) {
      if (std::string_view(R"(\^$.[]|()?*+{}-&#)").find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
    return out;
  }

  Status read_decoder(const Json& node, const std::string& field, bool& decodes_bytes) {
    if (node.is_null()) return Status::ok();
    if (type_of(node) == "ByteLevel") return decodes_bytes = true, Status::ok();
    if (type_of(node) != "Sequence") return unsupported_type(field, node);
    LATHE_ASSIGN(const Json parts, list(node, "decoders", field));
    for (size_t i = 0; i < parts.size(); ++i)
      LATHE_RETURN_IF_ERROR(read_decoder(parts[i], fmt::format("{}.decoders[{}]", field, i), decodes_bytes));
    return Status::ok();
  }

  Status read_post_processor(const Json& node, const std::string& field) {
    if (node.is_null()) return Status::ok();
    const std::string type = type_of(node);
    if (type == "ByteLevel") return Status::ok();  // offsets only
    if (type == "Sequence") {
      LATHE_ASSIGN(const Json parts, list(node, "processors", field));
      for (size_t i = 0; i < parts.size(); ++i)
        LATHE_RETURN_IF_ERROR(read_post_processor(parts[i], fmt::format("{}.processors[{}]", field, i)));
      return Status::ok();
    }
    if (type != "TemplateProcessing") return unsupported_type(field, node);
    LATHE_ASSIGN(const Json single, list(node, "single", field));
    std::vector<std::string>* side = &file_.prefix;
    for (const Json& part : single) {
      if (part.is_object() && part.contains("Sequence")) {
        side = &file_.suffix;
      } else if (part.is_object() && part.contains("SpecialToken") && part["SpecialToken"].is_object() &&
                 part["SpecialToken"].contains("id") && part["SpecialToken"]["id"].is_string()) {
        side->push_back(part["SpecialToken"]["id"].get<std::string>());
      } else {
        return broken(field + ".single", "must hold Sequence and SpecialToken entries");
      }
    }
    return Status::ok();
  }

  const Json& root_;
  TokenizerFile& file_;
};

}  // namespace

Result<TokenizerFile> TokenizerFile::parse(std::string_view json, const std::string& name) {
  TokenizerFile file;
  file.name = name;
  LATHE_ASSIGN(const Json root, read_tokenizer_json(json, kMaxId, file));
  if (!root.is_object()) return corrupt("{}: must hold one JSON object", name);
  LATHE_RETURN_IF_ERROR(FileReader(root, file).read());
  return file;
}

Result<TokenizerFile> TokenizerFile::load(const std::string& path) {
  LATHE_ASSIGN(const MappedFile mapped, MappedFile::open(path));
  return parse({reinterpret_cast<const char*>(mapped.data()), static_cast<size_t>(mapped.bytes())}, path);
}

}  // namespace lathe
