#include "feedback/compare_arms.h"

#include <filesystem>
#include <set>
#include <sstream>

#include "feedback/op_candidate.h"

namespace lathe {

Result<CompareArm> compare_arm(const std::string& text, const std::string& own) {
  CompareArm arm{.text = text, .binary = own, .build_id = {}, .variant = {}, .settings = {}};
  std::istringstream words(text);
  bool build = false;
  for (std::string word; std::getline(words, word, ',');) {
    const size_t equals = word.find('=');
    if (word.empty()) return invalid("'{}': an empty word; an arm is written like avx2,threads=1", text);
    if (word.find('/') != std::string::npos && equals == std::string::npos) {
      if (build) return invalid("'{}' names two builds", text);
      build = true;
      LATHE_ASSIGN(arm.binary, candidate_binary(word));
    } else if (equals != std::string::npos) {
      if (!arm.settings.emplace(word.substr(0, equals), word.substr(equals + 1)).second)
        return invalid("'{}' sets {} twice", text, word.substr(0, equals));
    } else if (word != "default") {
      if (!arm.variant.empty()) return invalid("'{}' names two variants: {} and {}", text, arm.variant, word);
      arm.variant = word;
    }
  }
  LATHE_ASSIGN(arm.build_id, candidate_build_id(arm.binary));
  return arm;
}

std::vector<std::string> factors(const CompareArm& a, const CompareArm& b) {
  std::vector<std::string> all;
  const auto factor = [&](const std::string& name, const std::string& was, const std::string& is) {
    const auto shown = [](const std::string& s) { return s.empty() ? "default" : s; };
    if (was != is) all.push_back(fmt::format("{} {} -> {}", name, shown(was), shown(is)));
  };
  factor("build", a.build_id, b.build_id);
  factor("variant", a.variant, b.variant);
  std::set<std::string> keys;
  for (const auto* arm : {&a, &b})
    for (const auto& [key, value] : arm->settings) keys.insert(key);
  for (const std::string& key : keys) {
    const auto value = [&](const CompareArm& arm) {
      const auto it = arm.settings.find(key);
      return it == arm.settings.end() ? "" : it->second;
    };
    factor(key, value(a), value(b));
  }
  return all;
}

}  // namespace lathe
