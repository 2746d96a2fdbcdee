#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"

namespace lathe {

// How a program marks an answer.
enum class Mark {
  kExact,      // the content, stripped, is the answer's text
  kJson,       // the content is JSON equal to the answer
  kToolCalls,  // names and arguments are equal, in order
};

// One question of an item, put after its messages; `user` empty: the messages end with the question.
struct EvalAsk {
  std::string user;
  Mark mark = Mark::kExact;
  nlohmann::ordered_json answer;  // text, JSON text, or a list of {name, arguments}
};

struct EvalItem {
  std::string id, task;
  nlohmann::ordered_json messages, tools;  // tools: null where there are none
  std::vector<EvalAsk> asks;
  int context = 0;  // tokens, of items that are about long contexts
  bool quick = false, hard = false;
};

// A suite: gzipped JSON lines. Errors name file, line and field.
Result<std::vector<EvalItem>> read_eval_suite(const std::string& path);

}  // namespace lathe
