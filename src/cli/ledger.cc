#include "feedback/ledger.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "base/json_reader.h"
#include "cli/command.h"

namespace lathe {

namespace {

constexpr int64_t kMostBodyBytes = int64_t{64} << 20;

struct Options {
  std::string file = "lathe.ledger", what, body, author;
  bool json = false;
};

nlohmann::json whole(const LedgerEntry& e) {
  return {{"seq", e.seq}, {"kind", e.kind}, {"id", e.id}, {"time", e.time}, {"author", e.author}, {"body", e.body}};
}

// The words of a body that tell it apart.
std::string gist(const nlohmann::json& body) {
  for (const char* field :
       {"words", "value", "cause", "metric", "statement", "address", "question", "type", "state", "kind", "command"})
    if (body.is_object() && body.contains(field) && body[field].is_string()) return body[field];
  return "";
}

Outcome show(const Options& o) {
  LATHE_ASSIGN(const std::unique_ptr<Ledger> ledger, Ledger::open(o.file, Ledger::Mode::kRead));
  if (o.what.find('-') != std::string::npos) {
    LATHE_ASSIGN(const LedgerEntry entry, ledger->find(o.what));
    fmt::print("{}\n", whole(entry).dump(2));
    return Status::ok();
  }
  nlohmann::json all = nlohmann::json::array();
  LATHE_RETURN_IF_ERROR(ledger->each(o.what, [&](const LedgerEntry& e) {
    if (o.json)
      all.push_back(whole(e));
    else
      fmt::print("{:<22} {}  {:<16} {}\n", e.id, e.time, e.author, gist(e.body));
  }));
  if (o.json) fmt::print("{}\n", all.dump(2));
  return Status::ok();
}

Outcome export_lines(const Options& o) {
  LATHE_ASSIGN(const std::unique_ptr<Ledger> ledger, Ledger::open(o.file, Ledger::Mode::kRead));
  return ledger->each(o.what, [](const LedgerEntry& e) { fmt::print("{}\n", whole(e).dump()); });
}

Outcome verify(const Options& o) {
  LATHE_ASSIGN(const std::unique_ptr<Ledger> ledger, Ledger::open(o.file, Ledger::Mode::kRead));
  if (const Status s = ledger->verify(); !s.is_ok()) {
    fmt::print(stderr, "lathe: {}\n", s.message());
    return Exit::kInvalid;
  }
  LATHE_ASSIGN(const std::string head, ledger->head());
  fmt::print("{}: whole; head {}\n", o.file, head);
  return Status::ok();
}

Outcome add(const Options& o) {
  if (o.what == "approval") return invalid("approvals are given by people; no command adds one");
  LATHE_ASSIGN(const nlohmann::json body, read_json_file(o.body, kMostBodyBytes));
  LATHE_ASSIGN(const std::unique_ptr<Ledger> ledger, Ledger::open(o.file, Ledger::Mode::kWrite));
  LATHE_ASSIGN(const std::string id, ledger->append(o.what, body, o.author));
  fmt::print("{}\n", id);
  return Status::ok();
}

CLI::App* add_part(CLI::App& ledger, Chosen& chosen, const std::shared_ptr<Options>& o, const char* name,
                   const char* what, Outcome (*body)(const Options&)) {
  CLI::App* sub = ledger.add_subcommand(name, what);
  sub->add_option("--file", o->file, "The ledger")->capture_default_str();
  sub->callback([&chosen, o, body] { chosen.body = [o, body] { return body(*o); }; });
  return sub;
}

}  // namespace

void add_ledger(CLI::App& app, Chosen& chosen) {
  auto o = std::make_shared<Options>();
  CLI::App* ledger = app.add_subcommand("ledger", "What was asked, tried and found: append-only, chained by hashes");
  ledger->group(kMeasure);
  ledger->require_subcommand(1);
  CLI::App* show_sub = add_part(*ledger, chosen, o, "show", "All objects, those of a kind, or one by its id", show);
  show_sub->add_option("what", o->what, "Kind or id");
  add_json_option(*show_sub, o->json);
  add_part(*ledger, chosen, o, "export", "Every object as a line of JSON", export_lines)
      ->add_option("kind", o->what, "Only this kind");
  add_part(*ledger, chosen, o, "verify", "Is the chain whole, and does every verdict agree with what was sealed?",
           verify);
  CLI::App* add_sub = add_part(*ledger, chosen, o, "add", "Append an object from a JSON file", add);
  add_sub->add_option("kind", o->what, "Such as goal, hypothesis, change, gate")->required();
  add_sub->add_option("body", o->body, "JSON file")->required();
  add_sub->add_option("--author", o->author, "Who says so")->required();
  ledger->footer(
      "Exit codes: 0 as asked, 2 bad input, 30 the ledger isn't whole.\n"
      "Examples:\n"
      "  lathe ledger add hypothesis why.json --author ada\n"
      "  lathe compare --op kda_decode avx2 portable --ledger lathe.ledger --hypothesis hypothesis-000002\n"
      "  lathe ledger show verdict\n"
      "  lathe ledger verify");
}

}  // namespace lathe
