// Our interpreter against Jinja's own, over templates made up from a grammar. Needs a Python with jinja2; says so where
// there is none.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "testing/golden.h"
#include "text/jinja/json_value.h"
#include "text/jinja/template.h"

namespace lathe::jinja {
namespace {

using Json = nlohmann::ordered_json;

// Debian's own Python first: its packages aren't seen by others.
std::string python_with_jinja() {
  for (const char* python : {"/usr/bin/python3", "python3"})
    if (std::system((std::string(python) + " -c 'import jinja2' >/dev/null 2>&1").c_str()) == 0) return python;
  return "";
}

std::string run(const std::string& command) {
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return out;
  char buffer[1 << 16];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
  return pclose(pipe) == 0 ? out : "";
}

// What we refuse and Python does: integers beyond 64 bits, % on strings.
bool out_of_reach(const std::string& message) {
  return message.find("an integer is too large") != std::string::npos ||
         message.find("formatting with %") != std::string::npos;
}

TEST(JinjaOracle, RandomTemplatesRenderAsUnderJinja) {
  const std::string python = python_with_jinja();
  if (python.empty())
    GTEST_SKIP() << "SKIPPED: no Python with jinja2 (apt install python3-jinja2): the interpreter is not compared";
  const std::filesystem::path script = testing::source_path("tests/text/jinja_oracle.py");
  ASSERT_TRUE(std::filesystem::exists(script)) << script;
  const std::string answer =
      run("echo '{\"cases\": [], \"random\": 1200, \"seed\": 20261130}' | " + python + " " + script.string());
  ASSERT_FALSE(answer.empty());
  const Json cases = Json::parse(answer);
  ASSERT_GT(cases.size(), 1100u);
  int rendered = 0;
  for (const Json& c : cases) {
    const std::string source = c["template"];
    const Result<Template> t = Template::parse(source, "t");
    std::vector<std::pair<std::string, Value>> variables;
    for (const auto& [k, v] : c["variables"].items())
      variables.emplace_back(k, *value_from_json(v.dump(), "variables"));
    const Result<Text> out = t.is_ok() ? t->render(variables, 0) : Result<Text>(t.status());
    if (!c.contains("text")) {
      EXPECT_FALSE(out.is_ok()) << source << "\nJinja: " << c["error"] << "\nours: " << out->view();
    } else if (!out.is_ok()) {
      EXPECT_TRUE(out_of_reach(out.status().message()))
          << source << "\nJinja: " << c["text"] << "\nours: " << out.status().message();
    } else {
      ++rendered;
      EXPECT_EQ(out->view(), c["text"].get<std::string>()) << source;
    }
  }
  EXPECT_GT(rendered, 300);  // the rest fail on both sides
}

}  // namespace
}  // namespace lathe::jinja
