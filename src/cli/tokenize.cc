#include <time.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "cli/command.h"
#include "cli/whole_number.h"
#include "text/tokenizer.h"

namespace lathe {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxTextBytes = int64_t{1} << 30;

struct Options {
  std::string model, text, file;
  std::vector<int64_t> ids;
  bool plain = false, special = false, skip_special = false, count = false, json = false;
};

std::string dump(const Json& j) { return j.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Of this thread: what a core needs, whoever else runs on it.
double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

std::string read_stdin() {
  std::string text;
  char buffer[1 << 16];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, stdin)) > 0;) text.append(buffer, n);
  return text;
}

Status decode(const Options& o, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (int64_t id : o.ids) {
    if (id < 0 || id > INT32_MAX || !tokenizer.vocabulary().contains(static_cast<int32_t>(id)))
      return invalid("--ids: {} is no token of {}; its ids end at {}", id, o.model, tokenizer.vocabulary().size() - 1);
    ids.push_back(static_cast<int32_t>(id));
  }
  const std::string text = tokenizer.decode(ids, o.skip_special);
  fmt::print("{}\n", o.json ? dump({{"ids", ids}, {"text", text}}) : text);
  return Status::ok();
}

Status encode(const Options& o, const Tokenizer& tokenizer, const std::string& text) {
  const EncodeOptions options{.match_added = !o.plain, .add_special = o.special};
  const double begin = cpu_seconds();
  LATHE_ASSIGN(const std::vector<int32_t> ids, tokenizer.encode(text, options));
  const double seconds = cpu_seconds() - begin;
  if (o.count) {
    const double rate = seconds > 0 ? static_cast<double>(text.size()) / seconds / 1e6 : 0;
    fmt::print("{}\n",
               o.json
                   ? dump({{"bytes", text.size()}, {"tokens", ids.size()}, {"seconds", seconds}, {"mb_per_s", rate}})
                   : fmt::format("{} bytes, {} tokens, {:.3f} s, {:.1f} MB/s", text.size(), ids.size(), seconds, rate));
    return Status::ok();
  }
  if (!o.json) return fmt::print("{}\n", fmt::join(ids, " ")), Status::ok();
  std::vector<std::string> tokens;
  for (int32_t id : ids) tokens.push_back(tokenizer.spelling(id));
  fmt::print("{}\n", dump({{"ids", ids}, {"tokens", tokens}}));
  return Status::ok();
}

Outcome run(const CLI::App& sub, const Options& o) {
  LATHE_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(o.model));
  if (sub.count("--ids")) return decode(o, tokenizer);
  if (sub.count("text")) return encode(o, tokenizer, o.text);
  if (o.file.empty()) return encode(o, tokenizer, read_stdin());
  LATHE_ASSIGN(const std::string text, read_text_file(o.file, kMaxTextBytes));
  return encode(o, tokenizer, text);
}

}  // namespace

void add_tokenize(CLI::App& app, Chosen& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("tokenize", "Text to token ids and back");
  sub->group(kLookInside);
  sub->add_option("--model", o->model, "Folder with a tokenizer.json, or such a file")->required();
  auto* text = sub->add_option("text", o->text, "The text; without it and --file, standard input is read");
  auto* file = sub->add_option("--file", o->file, "Read the text from this file")->excludes(text);
  sub->add_flag("--plain", o->plain,
                "Keep <|user|>, <think> and other added tokens as text, as is done with text from outside");
  sub->add_flag("--special", o->special,
                "Put the tokens of the file's post-processor (such as <|begin_of_text|>) around the text");
  sub->add_flag("--count", o->count, "Print bytes, tokens and the CPU time that encoding took, instead of ids");
  sub->add_option("--ids", o->ids, "Decode these ids instead, as 1,2,3 or 1 2 3")
      ->delimiter(',')
      ->check(whole_number(0))
      ->excludes(text)
      ->excludes(file);
  sub->add_flag("--skip-special", o->skip_special, "With --ids: leave out special tokens");
  add_json_option(*sub, o->json);
  sub->footer(
      "Bytes that are no UTF-8 are read as U+FFFD.\n"
      "Examples:\n  lathe tokenize --model models/demo 'Hello, world'\n  lathe tokenize --model models/demo --ids "
      "462,464,49 --json\n"
      "  lathe tokenize --model models/demo --file README.md --count");
  sub->callback([&chosen, sub, o] { chosen.body = [sub, o] { return run(*sub, *o); }; });
}

}  // namespace lathe
