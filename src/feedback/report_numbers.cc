#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "feedback/report.h"
#include "feedback/report_plot.h"

// Sections about operators' speed, errors against length, and case studies.
namespace lathe {

namespace {

using nlohmann::json;
constexpr int kStyles = 8;  // line and dot colours of the page, in turn

struct Series {
  std::string name;
  Plot::Points points;
};

std::string error_figure(const std::string& caption, const std::vector<Series>& all, double limit,
                         const std::string& unit) {
  Axis x{.label = unit, .log = true}, y{.label = "RMS error over RMS", .log = true};
  std::vector<double> xs, ys;
  if (limit > 0) ys.push_back(limit);
  for (const Series& s : all)
    for (const auto& [n, e] : s.points)
      if (e > 0) xs.push_back(n), ys.push_back(e);
  fit_axis(x, xs), fit_axis(y, ys);
  if (!xs.empty()) {
    const auto [low, high] = std::minmax_element(xs.begin(), xs.end());
    x.low = *low / 1.2, x.high = *high * 1.2;
  }
  Plot plot(caption, x, y, 480, 330);
  if (limit > 0) {
    plot.line({{x.low, limit}, {x.high, limit}}, "limit");
    plot.text(x.low, limit, "allowed", "note", 4, -5);
  }
  std::string legend = "<ul class=\"legend\">";
  std::vector<std::vector<std::string>> rows;
  int style = 0;
  for (const Series& s : all) {
    Plot::Points shown;
    std::vector<std::string> row = {s.name};
    for (const auto& p : s.points) {
      row.push_back(fmt::format("{}: {}", number_text(p.first), number_text(p.second)));
      if (p.second > 0) shown.push_back(p);
    }
    rows.push_back(row);
    const std::string line = fmt::format("series s{}", style % kStyles), dot = fmt::format("dot s{}", style % kStyles);
    plot.line(shown, line.c_str());
    for (const auto& [n, e] : shown)
      plot.dot(n, e, dot.c_str(), fmt::format("{}, {} tokens: {}", s.name, number_text(n), number_text(e)));
    legend += fmt::format("<li class=\"s{}\">{}</li>", style % kStyles, html_escaped(s.name));
    ++style;
  }
  size_t columns = 1;
  for (auto& row : rows) columns = std::max(columns, row.size());
  std::vector<std::string> head(columns, "length: error");
  head[0] = "";
  return figure_html(plot.svg() + legend + "</ul>", caption, table_html(head, rows));
}

// Operators against their roofs: performance over intensity, and the measured ceilings as far as the rows know them.
std::string roofline(const json& rows) {
  Axis x{.label = "operations a byte", .log = true}, y{.label = "operations a second, 1e9", .log = true};
  std::vector<double> xs, ys;
  double bandwidth = 0, peak = 0;
  std::vector<std::vector<std::string>> table;
  struct Point {
    double intensity, rate, roof;
    std::string name;
  };
  std::vector<Point> points;
  for (const json& r : rows) {
    if (!r.at("median_us").is_number() || !r.at("flop").is_number() || r.at("flop").get<double>() <= 0 ||
        !r.at("roof_us").is_number())
      continue;
    const double us = r["median_us"], flop = r["flop"], bytes = r["bytes"], roof_us = r["roof_us"];
    const std::string name =
        fmt::format("{} {} {}", r.value("op", ""), r.value("variant", ""), r.value("case", r.value("case_name", "")));
    points.push_back({flop / bytes, flop / us / 1e3, flop / roof_us / 1e3, name});
    bandwidth = std::max(bandwidth, bytes / roof_us / 1e3), peak = std::max(peak, flop / roof_us / 1e3);
    table.push_back({name, number_text(us), number_text(roof_us), fmt::format("{:.0f} %", 100 * roof_us / us),
                     number_text(flop / bytes), r.at("error_ratio").is_number() ? number_text(r["error_ratio"]) : ""});
    xs.push_back(points.back().intensity), ys.insert(ys.end(), {points.back().rate, points.back().roof});
  }
  if (points.empty()) return "";
  fit_axis(x, xs), fit_axis(y, ys);
  Plot plot("Roofline", x, y, 640, 380);
  // The best bandwidth and peak that any row's roof is made of.
  const double ridge = peak / bandwidth;
  if (ridge > x.low && ridge < x.high)
    plot.line({{x.low, bandwidth * x.low}, {ridge, peak}, {x.high, peak}}, "roof");
  else
    plot.line({{x.low, std::min(peak, bandwidth * x.low)}, {x.high, std::min(peak, bandwidth * x.high)}}, "roof");
  std::map<std::string, int> style_of_op;
  for (const Point& p : points) {
    const std::string op = p.name.substr(0, p.name.find(' '));
    const auto [at, fresh] = style_of_op.try_emplace(op, static_cast<int>(style_of_op.size()) % kStyles);
    plot.line({{p.intensity, p.rate}, {p.intensity, p.roof}}, "stem");
    plot.dot(p.intensity, p.rate, fmt::format("dot s{}", at->second).c_str(),
             fmt::format("{}: {:.0f} % of its roof", p.name, 100 * p.rate / p.roof));
  }
  std::string legend = "<ul class=\"legend\">";
  for (const auto& [op, style] : style_of_op)
    legend += fmt::format("<li class=\"s{}\">{}</li>", style, html_escaped(op));
  return figure_html(
      plot.svg() + legend + "</ul>",
      fmt::format("Roofline: {} GB/s and {} G operations/s measured; a stem ends at its operator's own roof",
                  number_text(bandwidth), number_text(peak)),
      table_html({"operator", "us", "roof, us", "of roof", "op/byte", "error"}, table), true);
}

std::string bars(const std::vector<std::array<std::string, 3>>& rows, const std::vector<double>& values) {
  const double most = values.empty() ? 1 : *std::max_element(values.begin(), values.end());
  std::string out = "<div class=\"bars\">";
  for (size_t i = 0; i < rows.size(); ++i)
    out += fmt::format(
        "<div class=\"row\"><span class=\"name\">{}</span><span class=\"track\"><span class=\"fill {}\" "
        "style=\"width:{:.1f}%\"></span></span><span class=\"value\">{}</span></div>\n",
        html_escaped(rows[i][0]), rows[i][2], 100 * values[i] / most, html_escaped(rows[i][1]));
  return out + "</div>\n";
}

std::string kernel_lab(const json& lab) {
  std::vector<std::array<std::string, 3>> rows;
  std::vector<double> us;
  std::vector<std::vector<std::string>> table;
  for (const json& f : lab.at("forms")) {
    const json& ratio = f.at("ratio");
    const std::string exchange = f.at("exchange");
    const std::string step = exchange.empty()
                                 ? ""
                                 : fmt::format("{:.2f} ({:.2f} .. {:.2f})", ratio.at("median").get<double>(),
                                               ratio.at("low").get<double>(), ratio.at("high").get<double>());
    rows.push_back({(exchange.empty() ? "start: " : exchange + ": ") + f.at("name").get<std::string>(),
                    fmt::format("{:.1f} us", f.at("us").get<double>()), "arm-a"});
    us.push_back(f.at("us"));
    table.push_back({f.at("name"), exchange, number_text(f.at("us")), f.at("exponentials").dump(),
                     f.at("divisions").dump(), f.at("products").dump(), step});
  }
  rows.push_back({"byte roof", fmt::format("{:.1f} us", lab.at("roof_us").get<double>()), "good"});
  us.push_back(lab.at("roof_us"));
  return "<h3>Time of a head, step by step</h3>" + bars(rows, us) +
         "<details><summary>Numbers</summary><div class=\"scroll\">" +
         table_html({"form", "step", "us a head", "exponentials", "divisions", "products", "over the form before"},
                    table) +
         "</div></details>";
}

std::string numerics_lab(const json& lab) {
  const auto series = [&](const json& s) {
    Series out{s.at("name"), {}};
    for (size_t i = 0; i < s.at("errors").size(); ++i) out.points.push_back({lab.at("tokens")[i], s.at("errors")[i]});
    return out;
  };
  std::vector<Series> relation, product, increment;
  for (const json& s : lab.at("relation")) relation.push_back(series(s));
  for (const json& s : lab.at("chains"))
    (s.at("name").get<std::string>().starts_with("product") ? product : increment).push_back(series(s));
  std::vector<std::array<std::string, 3>> rows;
  std::vector<double> heights;
  std::string steps = "<h3>Steps of kda_scan, exchanged one by one</h3>";
  std::vector<std::vector<std::string>> table;
  for (const json& e : lab.at("steps")) table.push_back({e.at("name"), number_text(e.at("error"))});
  steps += table_html({"step", "error of the state"}, table);
  return "<div class=\"figures\">" + error_figure("Cut against uncut", relation, lab.at("limit"), "tokens of context") +
         error_figure("A as a product of chunk maps, by number format", product, lab.at("limit"), "tokens of context") +
         error_figure("A in increment form, by number format", increment, lab.at("limit"), "tokens of context") +
         "</div>" + steps;
}

std::string concurrency_lab(const json& lab) {
  const json& rule = lab.at("rule");
  std::string out = fmt::format(
      "<p>Prefill with transfer over prefill alone: {:+.2f} % ({:+.2f} .. {:+.2f}); the rule allows 5 %.</p><ul>",
      100 * (rule.at("median").get<double>() - 1), 100 * (rule.at("low").get<double>() - 1),
      100 * (rule.at("high").get<double>() - 1));
  for (const json& f : lab.at("findings")) out += "<li>" + html_escaped(f.get<std::string>()) + "</li>";
  out += "</ul>";
  std::vector<std::array<std::string, 3>> rows;
  std::vector<double> ms;
  for (const json& e : lab.at("effects")) {
    rows.push_back({e.at("delay_us") == 0
                        ? "no delay"
                        : fmt::format("{} us at {}", e.at("delay_us").get<int64_t>(), e.at("where").get<std::string>()),
                    fmt::format("{:.1f} ms", e.at("excess_ms").get<double>()), "arm-b"});
    ms.push_back(std::max(0.0, e.at("excess_ms").get<double>()));
  }
  return rows.empty() ? out : out + "<h3>How late the last chunk is, with a delay in every layer</h3>" + bars(rows, ms);
}

}  // namespace

ReportSection bench_section(const json& bench) {
  ReportSection s{.title = "Operators against their roofs", .verdict = {}, .html = {}};
  s.html =
      fmt::format("<p>Cold, medians over process lives; build {}, {}.</p>", html_escaped(bench.value("build_id", "")),
                  html_escaped(bench.contains("machine") ? bench["machine"].value("cpu", "") : ""));
  s.html += "<div class=\"figures\">" + roofline(bench.at("rows")) + "</div>";
  return s;
}

ReportSection relations_section(const json& j) {
  const int failures = j.at("failures");
  ReportSection s{.title = "Paths of the model against the plain one",
                  .verdict = failures == 0 ? fmt::format("all {} relations hold", j.at("relations").size())
                                           : fmt::format("{} of {} relations fail", failures, j.at("relations").size()),
                  .html = {},
                  .tone = failures == 0 ? ReportSection::Tone::kGood : ReportSection::Tone::kBad};
  std::map<std::string, std::vector<Series>> by_dtype;
  std::map<std::string, double> limit;
  std::vector<std::vector<std::string>> rows;
  for (const json& r : j.at("relations")) {
    const std::string dtype = r.at("dtype");
    if (!r.at("bit_equal").get<bool>() && !r.at("must_fail").get<bool>()) {
      Series one{r.at("path"), {}};
      for (const json& e : r.at("errors")) one.points.push_back({e[0], e[1]});
      limit[dtype] = r.at("tolerance");
      if (by_dtype[dtype].size() < kStyles) by_dtype[dtype].push_back(one);
    }
    rows.push_back({r.at("path"), r.at("base"), dtype, r.at("error").is_number() ? number_text(r["error"]) : "∞",
                    r.at("must_fail").get<bool>()   ? "must fail"
                    : r.at("bit_equal").get<bool>() ? "equal bits"
                                                    : number_text(r.at("tolerance")),
                    r.at("as_expected").get<bool>() ? "as it must be" : "FAILS"});
    if (!r.at("as_expected").get<bool>() && !r.at("address").get<std::string>().empty())
      s.html +=
          fmt::format("<p><strong>{}</strong> {}: fails {}, smallest length {}. {}</p>",
                      html_escaped(r.at("path").get<std::string>()), dtype,
                      html_escaped(r.at("failing_lengths").get<std::string>()),
                      r.at("smallest_failing_length").get<int64_t>(), html_escaped(r.at("address").get<std::string>()));
  }
  s.html += "<div class=\"figures\">";
  for (const auto& [dtype, series] : by_dtype)
    s.html +=
        error_figure("Error of the logits against position, " + dtype, series, limit[dtype], "position in the prompt");
  s.html += "</div><details><summary>All relations</summary><div class=\"scroll\">" +
            table_html({"path", "against", "dtype", "error", "allowed", ""}, rows) + "</div></details>";
  return s;
}

ReportSection lab_section(const json& lab) {
  const std::string name = lab.at("lab"), verdict = lab.at("verdict");
  using enum ReportSection::Tone;
  ReportSection s{
      .title = fmt::format("Case study: {}, {} twin", name, lab.at("mended").get<bool>() ? "mended" : "defective"),
      .verdict = verdict,
      .html = {},
      .tone = lab.at("defect").get<bool>()       ? kBad
              : verdict.starts_with("no defect") ? kGood
                                                 : kUnsure};
  s.html = name == "kernel" ? kernel_lab(lab) : name == "numerics" ? numerics_lab(lab) : concurrency_lab(lab);
  return s;
}

}  // namespace lathe
