#include "feedback/report_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lathe {

namespace {

// 1, 2 or 5 times a power of ten, so that about `count` steps fit.
double nice_step(double span, int count) {
  const double raw = span / count, power = std::pow(10, std::floor(std::log10(raw)));
  for (double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw) return factor * power;
  return 10 * power;
}

std::vector<double> tick_values(const Axis& a, int count) {
  std::vector<double> ticks;
  if (a.log) {
    const double decades = std::log10(a.high / a.low);
    const double step = std::max(1.0, std::ceil(decades / count));
    for (double e = std::ceil(std::log10(a.low) - 1e-9); e <= std::log10(a.high) + 1e-9; e += step)
      for (double factor : {1.0, 2.0, 5.0}) {
        const double value = factor * std::pow(10, e);
        if ((factor == 1 || decades < 1.5) && value <= a.high * 1.0001) ticks.push_back(value);
      }
    return ticks;
  }
  const double step = nice_step(a.high - a.low, count);
  for (double v = std::ceil(a.low / step - 1e-9) * step; v <= a.high + 1e-9 * step; v += step)
    ticks.push_back(std::fabs(v) < step * 1e-6 ? 0 : v);
  return ticks;
}

double share(const Axis& a, double v) {
  return a.log ? std::log(v / a.low) / std::log(a.high / a.low) : (v - a.low) / (a.high - a.low);
}

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) < 32 && c != '\n' && c != '\t')
      out += ' ';
    else
      out += c;
  }
  return out;
}

std::string number_text(double v) {
  if (v == 0) return "0";
  if (!std::isfinite(v)) return "∞";
  const double size = std::fabs(v);
  if (size < 1e-3 || size >= 1e6) {
    const int e = static_cast<int>(std::floor(std::log10(size) + 1e-12));
    return fmt::format("{:.3g}e{}", v / std::pow(10, e), e);
  }
  if (size >= 1000) return fmt::format("{:.0f}", v);
  return fmt::format("{:.3g}", v);
}

void fit_axis(Axis& axis, const std::vector<double>& values) {
  std::vector<double> known;
  for (double v : values)
    if (std::isfinite(v) && (!axis.log || v > 0)) known.push_back(v);
  if (known.empty()) {
    axis.low = axis.log ? 1 : 0, axis.high = axis.log ? 10 : 1;
    return;
  }
  const auto [low, high] = std::minmax_element(known.begin(), known.end());
  if (axis.log) {
    axis.low = std::pow(10, std::floor(std::log10(*low) - 1e-9)),
    axis.high = std::pow(10, std::ceil(std::log10(*high) + 1e-9));
    return;
  }
  const double room = std::max((*high - *low) * 0.08, std::fabs(*high) * 1e-3 + 1e-12);
  axis.low = *low - room, axis.high = *high + room;
}

Plot::Plot(std::string title, Axis x, Axis y, double width, double height)
    : title_(std::move(title)), x_(std::move(x)), y_(std::move(y)), width_(width), height_(height) {
  size_t longest = 0;
  for (const std::string& name : y_.names) longest = std::max(longest, name.size());
  if (longest > 0) left_ = std::min(0.45 * width_, 12 + 6.6 * static_cast<double>(longest));
}

double Plot::px(double x) const { return left_ + std::clamp(share(x_, x), -0.02, 1.02) * (width_ - left_ - right_); }
double Plot::py(double y) const {
  return height_ - bottom_ - std::clamp(share(y_, y), -0.02, 1.02) * (height_ - top_ - bottom_);
}

void Plot::line(const Points& points, const char* style) {
  std::string path;
  for (const auto& [x, y] : points) path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", px(x), py(y));
  body_ += fmt::format("<polyline class=\"{}\" points=\"{}\"/>\n", style, path);
}

void Plot::dot(double x, double y, const char* style, const std::string& title) {
  body_ += fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>{}</title></circle>\n", style,
                       px(x), py(y), html_escaped(title));
}

void Plot::bar(double x0, double y0, double x1, double y1, const char* style, const std::string& title) {
  body_ += fmt::format(
      "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"><title>{}</title></rect>\n",
      style, std::min(px(x0), px(x1)), std::min(py(y0), py(y1)), std::max(1.0, std::fabs(px(x1) - px(x0))),
      std::max(1.0, std::fabs(py(y1) - py(y0))), html_escaped(title));
}

void Plot::text(double x, double y, const std::string& text, const char* style, double dx, double dy) {
  body_ += fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", style, px(x) + dx, py(y) + dy,
                       html_escaped(text));
}

std::string Plot::ticks_x() const {
  std::string out;
  const double base = height_ - bottom_;
  const auto tick = [&](double v, const std::string& name) {
    out += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>"
        "<text class=\"tick mid\" x=\"{0:.1f}\" y=\"{3:.1f}\">{4}</text>\n",
        px(v), top_, base, base + 15, html_escaped(name));
  };
  if (x_.names.empty())
    for (double v : tick_values(x_, 6)) tick(v, number_text(v));
  else
    for (size_t i = 0; i < x_.names.size(); ++i) tick(static_cast<double>(i), x_.names[i]);
  return out + fmt::format("<text class=\"label mid\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                           left_ + (width_ - left_ - right_) / 2, height_ - 6, html_escaped(x_.label));
}

std::string Plot::ticks_y() const {
  std::string out;
  const auto tick = [&](double v, const std::string& name) {
    out += fmt::format(
        "<line class=\"grid\" x1=\"{1:.1f}\" x2=\"{2:.1f}\" y1=\"{0:.1f}\" y2=\"{0:.1f}\"/>"
        "<text class=\"tick end\" x=\"{3:.1f}\" y=\"{4:.1f}\">{5}</text>\n",
        py(v), left_, width_ - right_, left_ - 6, py(v) + 4, html_escaped(name));
  };
  if (y_.names.empty())
    for (double v : tick_values(y_, 6)) tick(v, number_text(v));
  else
    for (size_t i = 0; i < y_.names.size(); ++i) tick(static_cast<double>(i), y_.names[i]);
  if (y_.label.empty()) return out;
  const double middle = top_ + (height_ - top_ - bottom_) / 2;
  return out + fmt::format("<text class=\"label mid\" transform=\"translate(13,{:.1f}) rotate(-90)\">{}</text>\n",
                           middle, html_escaped(y_.label));
}

std::string Plot::svg() const {
  // Larger than drawn, letters would shout.
  return fmt::format(
      "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" style=\"max-width:{2:.0f}px\" role=\"img\" "
      "aria-label=\"{3}\">\n{4}{5}{6}</svg>\n",
      width_, height_, 1.15 * width_, html_escaped(title_), ticks_x(), ticks_y(), body_);
}

std::string table_html(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows) {
  std::string out = "<table><thead><tr>";
  for (const std::string& h : head) out += "<th scope=\"col\">" + html_escaped(h) + "</th>";
  out += "</tr></thead><tbody>\n";
  for (const auto& row : rows) {
    out += "<tr>";
    for (const std::string& cell : row) out += "<td>" + html_escaped(cell) + "</td>";
    out += "</tr>\n";
  }
  return out + "</tbody></table>\n";
}

std::string figure_html(const std::string& svg, const std::string& caption, const std::string& table, bool wide) {
  return fmt::format(
      "<figure{}><figcaption>{}</figcaption><div class=\"scroll\" tabindex=\"0\">{}</div>{}</figure>\n",
      wide ? " class=\"wide\"" : "", html_escaped(caption), svg,
      table.empty() ? "" : "<details><summary>Numbers</summary><div class=\"scroll\">" + table + "</div></details>");
}

}  // namespace lathe
