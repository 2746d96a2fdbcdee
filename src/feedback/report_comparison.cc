#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "feedback/report.h"
#include "feedback/report_plot.h"

namespace lathe {

namespace {

using nlohmann::json;

std::string percent_text(double p) { return fmt::format("{:+.1f} %", p); }

double number_or(const json& j, double otherwise) { return j.is_number() ? j.get<double>() : otherwise; }

ReportSection::Tone tone_of(const std::string& verdict) {
  using enum ReportSection::Tone;
  if (verdict == "improved" || verdict == "equivalent") return kGood;
  if (verdict == "regressed" || verdict == "incorrect" || verdict == "mixed") return kBad;
  return kUnsure;
}

// Effect of B against A, by stratum, with its interval; the margin and zero as places to stand.
std::string interval_figure(const json& c) {
  const json& strata = c.at("strata");
  const auto count = static_cast<int>(strata.size());
  Axis x{.label = "B against A, percent (left of zero: less)"}, y{.label = "", .low = -0.6, .high = count - 0.4};
  std::vector<double> ends = {0};
  for (int i = count; i-- > 0;) {
    const json& e = strata[i].at("effect");
    const double estimate = e.at("percent");
    ends.insert(ends.end(),
                {estimate, number_or(e.at("low_percent"), estimate), number_or(e.at("high_percent"), estimate)});
    y.names.push_back(strata[i].at("name"));
  }
  fit_axis(x, ends);
  Plot plot("Effect by case", x, y, 480, 70 + 34.0 * count);
  plot.line({{0, y.low}, {0, y.high}}, "zero");
  std::vector<std::vector<std::string>> rows;
  for (int i = 0; i < count; ++i) {
    const json &s = strata[count - 1 - i], &e = s.at("effect");
    const double estimate = e.at("percent"), low = number_or(e.at("low_percent"), x.low),
                 high = number_or(e.at("high_percent"), x.high);
    const std::string interval =
        fmt::format("{} ({} .. {})", percent_text(estimate), percent_text(low), percent_text(high));
    plot.line({{low, i}, {high, i}}, "whisker");
    plot.dot(estimate, i, "effect", s.at("name").get<std::string>() + ": " + interval);
    rows.insert(rows.begin(), {s.at("name"), number_text(s.at("median_a")), number_text(s.at("median_b")), interval,
                               s.at("verdict")});
  }
  return figure_html(plot.svg(), "Effect by case, with its interval",
                     table_html({"case", "A, us", "B, us", "B against A", "verdict"}, rows));
}

std::vector<double> values_of(const json& lives, const std::string& arm, size_t stratum) {
  std::vector<double> values;
  for (const json& life : lives)
    if (life.at("arm") == arm && stratum < life.at("values").size()) values.push_back(life.at("values")[stratum]);
  return values;
}

double median_of(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

// Each process life a dot.
std::string distribution_figure(const json& c, size_t stratum) {
  const std::string name = c.at("strata_names")[stratum];
  Axis x{.label = "", .low = -0.6, .high = 1.6, .names = {"A", "B"}}, y{.label = "us a call"};
  std::vector<double> all;
  for (const char* arm : {"A", "B"})
    for (double v : values_of(c.at("lives"), arm, stratum)) all.push_back(v);
  const auto [low, high] = std::minmax_element(all.begin(), all.end());
  y.log = !all.empty() && *high > 8 * *low;
  fit_axis(y, all);
  Plot plot("Process lives of " + name, x, y, 300, 280);
  std::vector<std::vector<std::string>> rows;
  for (int a = 0; a < 2; ++a) {
    std::vector<double> values = values_of(c.at("lives"), a == 0 ? "A" : "B", stratum);
    if (values.empty()) continue;
    for (size_t i = 0; i < values.size(); ++i) {
      const double beside = 0.28 * (static_cast<double>(i * 7 % 13) / 6 - 1);  // so that dots don't hide one another
      plot.dot(a + beside, values[i], a == 0 ? "arm-a" : "arm-b", number_text(values[i]) + " us");
    }
    const double median = median_of(values);
    plot.line({{a - 0.42, median}, {a + 0.42, median}}, "median");
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    rows.push_back({a == 0 ? "A" : "B", std::to_string(values.size()), number_text(*least), number_text(median),
                    number_text(*most)});
  }
  return figure_html(plot.svg(), name + ": process lives",
                     table_html({"arm", "lives", "least", "median", "most"}, rows));
}

// In the order in which they ran: drift and disturbances show.
std::string order_figure(const json& c) {
  const json& lives = c.at("lives");
  const double base = median_of(values_of(lives, "A", 0));
  Axis x{.label = "process life, in order; first A against itself",
         .low = 0,
         .high = static_cast<double>(lives.size()) + 1},
      y{.label = "over A's median"};
  std::vector<double> all = {1};
  for (const json& life : lives)
    if (!life.at("values").empty()) all.push_back(life.at("values")[0].get<double>() / base);
  fit_axis(y, all);
  Plot plot("Lives in run order", x, y, 640, 280);
  plot.line({{0, 1}, {x.high, 1}}, "zero");
  for (size_t i = 0; i < lives.size(); ++i)
    if (!lives[i].at("values").empty()) {
      const double v = lives[i].at("values")[0].get<double>() / base;
      plot.dot(static_cast<double>(i) + 1, v, lives[i].at("arm") == "A" ? "arm-a" : "arm-b",
               fmt::format("life {}: {:.3f}", i + 1, v));
    }
  return figure_html(plot.svg(), c.at("strata_names")[0].get<std::string>() + ": lives in run order (A blue, B orange)",
                     "", true);
}

std::string facts(const json& c) {
  const json& noise = c.at("noise_floor");
  std::vector<std::vector<std::string>> rows;
  for (const char* arm : {"a", "b"})
    rows.push_back({std::string("arm ") + (*arm == 'a' ? "A" : "B"),
                    fmt::format("{}, build {}", c.at(arm).at("text").get<std::string>(),
                                c.at(arm).at("build_id").get<std::string>())});
  rows.push_back(
      {"blocks", fmt::format("{}, look {} of {}; {} removed", c.at("blocks").get<int>(), c.at("look").get<int>(),
                             c.at("looks").get<int>(), c.at("removed_blocks").get<int>())});
  rows.push_back({"A against itself",
                  fmt::format("deviation {:.2f} %, drift {:+.2f} %, second place {:+.2f} %; detectable {:.2f} %",
                              noise.at("deviation_percent").get<double>(), noise.at("drift_percent").get<double>(),
                              noise.at("order_percent").get<double>(), noise.at("detectable_percent").get<double>())});
  rows.push_back({"sealed plan", c.at("plan_digest").get<std::string>().substr(0, 16)});
  if (c.contains("machine"))
    rows.push_back({"machine", fmt::format("{}, {} cores, {}", c["machine"].value("cpu", ""),
                                           c["machine"].value("cores", 0), c["machine"].value("isa", ""))});
  rows.push_back({"again", fmt::format("lathe compare --replay FILE (the same decision), or with --seed {} (a new run)",
                                       c.at("seed").dump())});
  return table_html({"", ""}, rows);
}

}  // namespace

ReportSection comparison_section(const json& c) {
  ReportSection s{
      .title = fmt::format("{}: {} against {}", c.value("place", "comparison"), c.at("b").at("text").get<std::string>(),
                           c.at("a").at("text").get<std::string>()),
      .verdict = c.at("words"),
      .html = {},
      .tone = tone_of(c.at("verdict"))};
  if (c.at("effect").is_object()) {
    const json& e = c.at("effect");
    const double estimate = e.at("percent");
    s.verdict +=
        fmt::format(": {} ({} .. {})", percent_text(estimate), percent_text(number_or(e.at("low_percent"), -INFINITY)),
                    percent_text(number_or(e.at("high_percent"), INFINITY)));
  }
  s.html = "<p>" + html_escaped(c.value("address", "")) + "</p>";
  for (const json& reason : c.at("reasons")) s.html += "<p>" + html_escaped(reason.get<std::string>()) + "</p>";
  if (!c.at("strata").empty() && c.at("effect").is_object()) {
    s.html += "<div class=\"figures\">" + interval_figure(c);
    for (size_t i = 0; i < std::min<size_t>(c.at("strata_names").size(), 6); ++i) s.html += distribution_figure(c, i);
    s.html += order_figure(c) + "</div>";
  }
  s.html += facts(c);
  return s;
}

}  // namespace lathe
