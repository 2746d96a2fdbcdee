#include "feedback/report.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "feedback/build_info.h"
#include "feedback/importer.h"
#include "feedback/report_plot.h"

namespace lathe {

namespace {

// Colours have names; a dark page and paper give them other values. Nothing is said by colour alone.
constexpr const char* kStyle = R"(
:root{--bg:#fff;--ink:#16202c;--dim:#5b6b7c;--line:#dfe5ec;--card:#f6f8fa;--a:#1f6feb;--b:#c2570c;--good:#1a7f4b;--bad:#c62828;
--s0:#1f6feb;--s1:#c2570c;--s2:#1a7f4b;--s3:#8250df;--s4:#b3257b;--s5:#0f7b8a;--s6:#8a6d00;--s7:#57606a}
@media(prefers-color-scheme:dark){:root{--bg:#0f141a;--ink:#e6edf3;--dim:#9aa8b6;--line:#2b3541;--card:#171e26;--a:#6cb0ff;--b:#f0995a;
--good:#58c28b;--bad:#ff8078;--s0:#6cb0ff;--s1:#f0995a;--s2:#58c28b;--s3:#b594ff;--s4:#f08ac2;--s5:#58c4d2;--s6:#d9bd4c;--s7:#a8b3bf}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main,header,nav{max-width:1120px;margin:0 auto;padding:0 20px}
header{padding-top:28px}
h1{font-size:1.6rem;margin:0}
h2{font-size:1.25rem;margin:0 0 8px;overflow-wrap:anywhere}
h3{font-size:1rem;margin:20px 0 6px}
p{margin:6px 0;overflow-wrap:anywhere}
li{overflow-wrap:anywhere}
.dim{color:var(--dim);font-size:.9rem}
.skip{position:absolute;left:-999px}
.skip:focus{position:static}
a{color:var(--a)}
:focus-visible{outline:2px solid var(--a);outline-offset:2px;border-radius:3px}
nav ul{display:flex;flex-direction:column;gap:2px;padding:12px 16px;margin:16px 0;list-style:none;background:var(--card);border:1px solid var(--line);border-radius:8px}
nav b{font-weight:600}
section{padding:22px 0;border-top:1px solid var(--line)}
section:first-child{border:0}
.verdict{display:block;padding:10px 14px;border-left:5px solid var(--dim);background:var(--card);border-radius:0 8px 8px 0;margin:8px 0 12px;font-weight:600;overflow-wrap:anywhere}
.good>.verdict{border-color:var(--good)}.bad>.verdict{border-color:var(--bad)}.unsure>.verdict{border-color:var(--b)}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr));gap:18px;align-items:start}
figure{margin:0;padding:12px;border:1px solid var(--line);border-radius:8px;break-inside:avoid;min-width:0}
figure.wide{grid-column:1/-1}
figcaption{font-weight:600;font-size:.92rem;margin-bottom:6px}
.scroll{overflow-x:auto}
svg{display:block;width:100%;height:auto;margin:0 auto}
svg.timeline{min-width:680px}
svg text{font:12px system-ui,sans-serif;fill:var(--ink)}
.tick{fill:var(--dim)!important}.label{fill:var(--dim)!important}.note{font-size:11px!important;fill:var(--dim)!important}
.mid{text-anchor:middle}.end{text-anchor:end}
.grid{stroke:var(--line);stroke-width:1}
polyline{fill:none;stroke-width:2;stroke-linejoin:round}
.zero{stroke:var(--dim);stroke-width:1.2}.limit{stroke:var(--bad);stroke-dasharray:6 4;stroke-width:1.5}
.roof{stroke:var(--ink);stroke-width:2.2}.stem{stroke:var(--dim);stroke-width:1;stroke-dasharray:2 3}
.whisker{stroke:var(--a);stroke-width:3}.median{stroke:var(--ink);stroke-width:2.5}
circle.effect,circle.arm-a{fill:var(--a)}circle.arm-b{fill:var(--b)}circle{stroke:var(--bg);stroke-width:1}
)"
                               R"(
.s0{--c:var(--s0)}.s1{--c:var(--s1)}.s2{--c:var(--s2)}.s3{--c:var(--s3)}.s4{--c:var(--s4)}.s5{--c:var(--s5)}.s6{--c:var(--s6)}.s7{--c:var(--s7)}
polyline.series{stroke:var(--c)}circle.dot{fill:var(--c)}
polyline.s1,polyline.s5{stroke-dasharray:7 3}polyline.s2,polyline.s6{stroke-dasharray:2 3}polyline.s3,polyline.s7{stroke-dasharray:9 3 2 3}
.legend{display:flex;flex-wrap:wrap;gap:4px 14px;list-style:none;padding:0;margin:8px 0 0;font-size:.85rem}
.legend li::before{content:"";display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:6px;vertical-align:-1px;background:var(--c,var(--dim))}
.op{--c:#5b8fd9}.part{--c:#7aa69a}.phase{--c:#b9c3ce}.device{--c:#a586d6}.wait{--c:#e3b34c}.lock{--c:#d64545}.hold{--c:#e58a5a}
svg.timeline rect{fill:var(--c)}svg.timeline text.in{fill:#111;font-size:10px;pointer-events:none}
svg.timeline text.in.lock{fill:#fff}.lane{font-size:11px!important}
.bars{display:grid;gap:4px;margin:8px 0}
.row{display:grid;grid-template-columns:minmax(0,2fr) minmax(0,3fr) 110px;gap:10px;align-items:center;font-size:.88rem}
.name{overflow-wrap:anywhere}.value{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.track{display:block;height:16px;background:var(--card);border-radius:3px;overflow:hidden}
.fill{display:block;height:100%;background:var(--dim)}
.fill.arm-a{background:var(--a)}.fill.arm-b{background:var(--b)}.fill.bad{background:var(--bad)}.fill.good{background:var(--good)}.fill.quiet{background:var(--dim);opacity:.55}
table{border-collapse:collapse;font-size:.86rem;margin:8px 0;width:100%}
th,td{text-align:left;padding:4px 10px 4px 0;border-bottom:1px solid var(--line);vertical-align:top;font-variant-numeric:tabular-nums}
th{color:var(--dim);font-weight:600}
details{margin-top:6px}summary{cursor:pointer;color:var(--dim);font-size:.86rem}
footer{max-width:1120px;margin:0 auto;padding:20px;color:var(--dim);font-size:.82rem;border-top:1px solid var(--line)}
@media(max-width:600px){main,header,nav,footer{padding-left:14px;padding-right:14px}.row{grid-template-columns:minmax(0,1fr) auto;gap:2px 10px}.row .track{grid-column:1/-1;grid-row:2}
figure{padding:8px}svg text{font-size:13px}}
@media print{:root{--bg:#fff;--ink:#000;--dim:#444;--line:#ccc;--card:#f4f4f4;--a:#1f6feb;--b:#c2570c;--good:#1a7f4b;--bad:#c62828}
nav,.skip{display:none}body{font-size:11pt}main,header{max-width:none;padding:0}section{break-inside:auto}h2,h3,.verdict{break-after:avoid}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}.scroll{overflow:visible}svg.timeline{min-width:0}}
)";

const char* tone_class(ReportSection::Tone tone) {
  using enum ReportSection::Tone;
  return tone == kGood ? "good" : tone == kBad ? "bad" : tone == kUnsure ? "unsure" : "plain";
}

Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return not_found("{}: can't be read", path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// By what the file says of itself.
Result<ReportSection> section_of(const nlohmann::json& j, const std::string& path) {
  try {
    const std::string kind = j.value("kind", "");
    if (kind == "comparison") return comparison_section(j);
    if (kind == "relations") return relations_section(j);
    if (kind == "lab") return lab_section(j);
    return bench_section(j);
  } catch (const nlohmann::json::exception& e) {
    return corrupt("{}: not a result that this version of lathe writes: {}", path, e.what());
  }
}

bool is_result(const nlohmann::json& j) {
  return j.is_object() && (j.contains("kind") || (j.contains("rows") && j.contains("machine")));
}

}  // namespace

std::string report_page(const std::vector<ReportSection>& sections) {
  std::string nav, body;
  int number = 0;
  for (const ReportSection& s : sections) {
    const std::string id = fmt::format("part{}", ++number), verdict = html_escaped(s.verdict);
    nav += fmt::format("<li><a href=\"#{}\">{}</a>{}</li>\n", id, html_escaped(s.title),
                       verdict.empty() ? "" : " <b>" + verdict + "</b>");
    body +=
        fmt::format("<section id=\"{}\" class=\"{}\" aria-labelledby=\"{}h\"><h2 id=\"{}h\">{}</h2>\n{}{}</section>\n",
                    id, tone_class(s.tone), id, id, html_escaped(s.title),
                    verdict.empty() ? "" : "<strong class=\"verdict\">" + verdict + "</strong>", s.html);
  }
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\">\n"
      "<title>Lathe report: {}</title><style>{}</style></head>\n<body><a class=\"skip\" href=\"#main\">To the "
      "results</a>\n"
      "<header><h1>Lathe report</h1></header>\n<nav aria-label=\"Results\"><ul>{}</ul></nav>\n<main "
      "id=\"main\">\n{}</main>\n"
      "<footer>Written by lathe {}, build {}. A claim's level stands beside it: A1 seen together, A2 differs between "
      "runs, A3 on the "
      "critical path, A4 exchanged alone, A5 injected with doses.</footer></body></html>\n",
      sections.empty() ? "nothing" : html_escaped(sections[0].title), kStyle, nav, body, build_info().version,
      build_info().build_id);
}

Result<std::string> report_html(const std::vector<std::string>& files) {
  std::vector<ReportSection> sections;
  std::vector<Trace> traces;
  std::vector<std::string> names;
  for (const std::string& path : files) {
    LATHE_ASSIGN(const std::string text, read_file(path));
    const nlohmann::json j = nlohmann::json::parse(text, nullptr, false);
    if (is_result(j)) {
      LATHE_ASSIGN(ReportSection s, section_of(j, path));
      sections.push_back(std::move(s));
      continue;
    }
    LATHE_ASSIGN(Trace trace, import_trace(path));
    traces.push_back(std::move(trace)), names.push_back(std::filesystem::path(path).filename().string());
  }
  if (traces.size() == 1 || traces.size() == 2) {
    std::vector<Trace> a(traces.begin(), traces.begin() + 1), b(traces.begin() + 1, traces.end());
    LATHE_ASSIGN(ReportSection s, explanation_section(a, b));
    sections.push_back(std::move(s));
  }
  for (size_t i = 0; i < traces.size(); ++i) sections.push_back(trace_section(traces[i], names[i]));
  return report_page(sections);
}

}  // namespace lathe
