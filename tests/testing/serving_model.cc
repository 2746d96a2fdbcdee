#include "testing/serving_model.h"

#include <filesystem>
#include <fstream>

#include "model/glm5_next/synth.h"
#include "testing/small_config.h"
#include "text/byte_alphabet.h"

namespace lathe::testing {

namespace {

using Json = nlohmann::json;

Json tokenizer_json() {
  Json vocab;
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    vocab[spelling_of_bytes({&byte, 1})] = b;
  };
  Json added = Json::array();
  int id = 256;
  for (const char* text : {"<|endoftext|>", "<think>", "</think>", "<|user|>", "<|assistant|>", "<|begin_of_image|>",
                           "<|image|>", "<|end_of_image|>"}) {
    const bool special = text[1] == '|' && std::string_view(text) != "<|image|>";
    added.push_back({{"id", id++},
                     {"content", text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", special}});
  }
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", bytes},
          {"post_processor", bytes},
          {"decoder", bytes},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", true},
            {"vocab", vocab},
            {"merges", Json::array()}}}};
}

void write(const std::string& path, const Json& json) { std::ofstream(path) << json.dump(); }

}  // namespace

ServingModel::ServingModel(uint64_t seed, const std::function<void(Json&)>& change) {
  Json config = small_config();
  config["text_config"]["vocab_size"] = kVocab;
  config["image_token_id"] = kImage, config["image_start_token_id"] = 261, config["image_end_token_id"] = 263;
  config["video_token_id"] = 264, config["video_start_token_id"] = 265, config["video_end_token_id"] = 266;
  if (change) change(config);
  write(folder_.path("config.json"), config);
  ThreadPool pool(1);
  LATHE_CHECK(glm5_next::synthesise(folder_.path("config.json"), path(), {.seed = seed}, pool).is_ok());
  write(path() + "/tokenizer.json", tokenizer_json());
  write(path() + "/generation_config.json", {{"eos_token_id", {kEnd}}});
}

void link_served(const std::string& folder, const std::string& model, const std::string& tokenizer) {
  std::filesystem::create_directories(folder);
  for (const std::string& source : {model, tokenizer})
    for (const auto& entry : std::filesystem::directory_iterator(source)) {
      const std::string to = folder + "/" + entry.path().filename().string();
      if (!std::filesystem::exists(to)) std::filesystem::create_symlink(std::filesystem::absolute(entry.path()), to);
    }
}

}  // namespace lathe::testing
