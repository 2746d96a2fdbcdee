#include "feedback/model_source.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "feedback/sign_flip.h"
#include "feedback/talking_child.h"

namespace lathe {

namespace {

constexpr int kPrompts = 3, kTokens = 24, kWords = 96;
constexpr int kLoadMs = 300'000, kTokenMs = 120'000;

// Words that begin differently every time: no prompt goes on from an earlier one's memory.
std::string prompt(uint64_t seed) {
  constexpr const char* kVocabulary[] = {"seven", "lathe", "river", "count", "two",
                                         "blue",  "turn",  "stone", "add",   "nine"};
  RandomStream random(seed);
  std::string text = fmt::format("{}", random.below(1'000'000));
  for (int i = 0; i < kWords; ++i) text += fmt::format(" {}", kVocabulary[random.below(10)]);
  return text;
}

}  // namespace

Result<std::unique_ptr<ModelSource>> ModelSource::create(const std::string& model, const CompareArm& a,
                                                         const CompareArm& b, int threads) {
  auto source = std::unique_ptr<ModelSource>(new ModelSource);
  for (int i = 0; i < 2; ++i) {
    const CompareArm& arm = i == 0 ? a : b;
    if (!arm.variant.empty())
      return invalid("'{}': of which operator is that a variant? Write OPERATOR={}", arm.text, arm.variant);
    std::vector<std::string>& command = source->command_[i];
    command = {arm.binary, "model-server", "--model", model};
    bool threads_set = false;
    for (const auto& [key, value] : arm.settings) {
      threads_set |= key == "threads";
      if (key == "threads" || key == "dtype")
        command.insert(command.end(), {"--" + key, value});
      else
        command.insert(command.end(), {"--variant", key + "=" + value});
    }
    if (!threads_set) command.insert(command.end(), {"--threads", std::to_string(threads)});
  }
  return source;
}

Result<Life> ModelSource::live(Arm arm) {
  using Clock = std::chrono::steady_clock;
  const auto us = [](Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double, std::micro>(to - from).count();
  };
  Life life{.arm = arm, .values = {}};
  const auto trouble = [&](const std::string& why) {
    life.trouble = Life::Trouble{Verdict::kInvalid, why};
    return life;
  };
  LATHE_ASSIGN(const std::unique_ptr<TalkingChild> child, TalkingChild::start(command_[arm == Arm::kA ? 0 : 1]));
  if (const Result<std::string> ready = child->line(kLoadMs); !ready.is_ok()) return trouble(ready.status().message());
  std::vector<double> first, between;
  const uint64_t block = lives_++ / 2;  // both lives of a block answer the same prompts
  for (int p = 0; p < kPrompts; ++p) {
    const auto asked = Clock::now();
    LATHE_RETURN_IF_ERROR(
        child->say(nlohmann::json{{"prompt", prompt(block * kPrompts + p)}, {"max_tokens", kTokens}}.dump()));
    std::vector<Clock::time_point> arrived;
    for (;;) {
      const Result<std::string> line = child->line(kTokenMs);
      if (!line.is_ok()) return trouble(line.status().message());
      if (line->starts_with("done")) break;
      if (!line->starts_with("token")) return trouble("the engine says: " + *line);
      arrived.push_back(Clock::now());
    }
    if (arrived.size() < 2) return trouble(fmt::format("{} tokens came; two at least are needed", arrived.size()));
    first.push_back(us(asked, arrived.front()));
    between.push_back(us(arrived.front(), arrived.back()) / static_cast<double>(arrived.size() - 1));
  }
  life.values = {median(first), median(between)};
  return life;
}

}  // namespace lathe
