#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "text/grammar/automaton_builder.h"

namespace lathe {

// The rules that JSON is made of, each added when it is first asked for. White space as models write it: after { [ , :
// and before } ], nothing, one space, or a line end and up to 40 spaces or 10 tabs.
class JsonRules {
 public:
  explicit JsonRules(AutomatonBuilder& builder) : builder_(&builder) {}

  int32_t space();   // white space, or nothing
  int32_t string();  // counts its characters: call it with min and max
  int32_t number();
  int32_t integer();
  int32_t any();             // any value
  int32_t object();          // any object
  int32_t array();           // any array
  int32_t written_string();  // any string, with no escapes but the short ones that it needs

  // From a state, over one thing, to a new state.
  int32_t after_space(int32_t from);
  int32_t after_text(int32_t from, std::string_view text) { return builder_->text(from, text); }
  int32_t after_value(int32_t from, const nlohmann::ordered_json& value);  // exactly this one

  // A rule for what a pattern of ours matches; it must be valid.
  int32_t of_regex(const std::string& pattern);

 private:
  void add_string(int32_t rule);

  AutomatonBuilder* builder_;
  int32_t space_ = -1, string_ = -1, any_ = -1, object_ = -1, array_ = -1;
  std::map<std::string, int32_t> of_regex_;
};

// `text` as a JSON string, as short as it can be.
std::string json_quoted(std::string_view text);

}  // namespace lathe
