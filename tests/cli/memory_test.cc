#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "feedback/child_process.h"
#include "testing/golden.h"
#include "testing/sized_config.h"

// Peak memory of the commands, as the kernel counts it (anonymous, shared and touched mapped pages), against what
// `lathe inspect` says beforehand. Models are made beside the build and stay there: a second run finds them.
namespace lathe {
namespace {

namespace fs = std::filesystem;

const fs::path kBuild = fs::path(own_binary()).parent_path().parent_path();

std::string output_of(const std::vector<std::string>& command) {
  const ChildOutput child = run_child(command).value();
  EXPECT_EQ(child.exit_code, 0) << fmt::format("{}", fmt::join(command, " "));
  return child.stdout_text;
}

// Bytes resident at most, all kinds together; -1 if the program failed. Its output goes nowhere.
int64_t peak_bytes(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (!std::freopen("/dev/null", "w", stdout)) _exit(126);
    execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  rusage usage{};
  if (wait4(child, &status, 0, &usage) != child || status != 0) return -1;
  return int64_t{usage.ru_maxrss} * 1024;
}

struct Sized {
  int megabytes;
  bool w8a8;
};

class PeakMemory : public ::testing::TestWithParam<Sized> {
 protected:
  void SetUp() override {
    const auto [megabytes, w8a8] = GetParam();
    const fs::path folder = kBuild / "memory-models";
    model_ = folder / fmt::format("{}mb{}", megabytes, w8a8 ? "-w8a8" : "");
    fs::create_directories(folder);
    const std::string config = testing::sized_config(megabytes, w8a8).dump(), source = model_.string() + ".json";
    if (read(model_ / "made-from") == config) return;
    fs::remove_all(model_);
    std::ofstream(source) << config;
    output_of({lathe_, "synth", source, model_});
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
      fs::copy(testing::source_path(std::string("tests/data/tokenizer/small/") + file), model_ / file);
    std::ofstream(model_ / "made-from") << config;
  }

  static std::string read(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  nlohmann::json plan(int context) const {
    return nlohmann::json::parse(output_of(
        {lathe_, "inspect", model_, "--context", std::to_string(context), "--json", "--threads", "2"}))["memory"];
  }

  // As predicted; and within a tenth of weights and caches, to which a small model's process may come.
  void expect_planned(int64_t peak, const nlohmann::json& plan) const {
    const auto of = [&](const char* field) { return plan[field].get<double>(); };
    const double lasting = of("weights") + of("vectors") + of("slots") + of("pages");
    SCOPED_TRACE(fmt::format("peak {:.1f} MB, plan {}", static_cast<double>(peak) / 1e6, plan.dump()));
    EXPECT_LE(static_cast<double>(peak), of("total"));
    EXPECT_LE(static_cast<double>(peak), 1.1 * lasting + (GetParam().megabytes < 400 ? of("process") : 0));
    EXPECT_GE(static_cast<double>(peak), 0.8 * of("total"));
  }

  const std::string lathe_ = kBuild / "lathe";
  fs::path model_;
};

TEST_P(PeakMemory, OfLogitsIsAsInspectPredicted) {
  constexpr int kTokens = 1500;  // several passes, logits of every token
  const fs::path tokens = model_.string() + "-tokens.json", out = model_.string() + "-logits.safetensors";
  nlohmann::json ids = nlohmann::json::array();
  for (int i = 0; i < kTokens; ++i) ids.push_back(i * 7919 % 1024);
  std::ofstream(tokens) << nlohmann::json::array({ids});
  expect_planned(peak_bytes({lathe_, "logits", "--model", model_, "--tokens", tokens, "--out", out, "--threads", "2"}),
                 plan(kTokens));
  EXPECT_GT(fs::file_size(out), kTokens * 1024 * 4u);
}

TEST_P(PeakMemory, OfGenerateIsAsInspectPredicted) {
  std::string prompt;
  for (int i = 0; i < 400; ++i) prompt += fmt::format("{} ", i * 7919 % 1024);
  expect_planned(peak_bytes({lathe_, "generate", "--model", model_, "--prompt", prompt, "--raw", "--max-tokens", "4",
                             "--threads", "2"}),
                 plan(2200));
}

INSTANTIATE_TEST_SUITE_P(Sizes, PeakMemory, ::testing::Values(Sized{60, false}, Sized{60, true}, Sized{200, false}),
                         [](const auto& test) {
                           return fmt::format("{}MB{}", test.param.megabytes, test.param.w8a8 ? "W8A8" : "");
                         });

}  // namespace
}  // namespace lathe
