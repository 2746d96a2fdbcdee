#pragma once

#include <nlohmann/json_fwd.hpp>

#include "text/tokenizer_file.h"

namespace lathe {

// Reads tokenizer.json as a stream: model.vocab and model.merges, half a million strings, go straight into `file`
// (a tree of them costs five times the time), the rest comes back as a tree without those two.
Result<nlohmann::json> read_tokenizer_json(std::string_view json, int64_t max_id, TokenizerFile& file);

}  // namespace lathe
