#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "feedback/explain.h"
#include "feedback/overlap.h"
#include "feedback/report.h"
#include "feedback/report_plot.h"
#include "feedback/unit_partition.h"

namespace lathe {

namespace {

constexpr double kWidth = 1000, kLeft = 150, kRow = 16, kGap = 10;
constexpr int kMostDepth = 4, kMostMarks = 1500, kMostLanes = 14;
constexpr int kRowsOfWaterfall = 14;

// What is worth looking at: the longest wait for a lock with what surrounds it; or a unit from the middle of the run.
Interval worth_seeing(const Trace& t, std::string& why) {
  const LockInterval* longest = nullptr;
  for (const LockInterval& l : t.locks)
    if (l.wait && (!longest || l.length() > longest->length())) longest = &l;
  const Interval whole = t.window();
  if (longest && longest->length() > 0) {
    why = "around the longest wait for a lock";
    const int64_t room = 3 * longest->length();
    return {std::max(whole.begin, longest->begin - room), std::min(whole.end, longest->end + room)};
  }
  const auto units = partition_units(t, "");
  const std::vector<Unit>* best = nullptr;
  for (const auto& [phase, all] : units)
    if (!all.empty() && (!best || all.size() >= best->size())) best = &all, why = "one " + phase + " from the middle";
  if (!best) {
    why = "all of it";
    return whole;
  }
  return (*best)[best->size() / 2].window;
}

std::string style_of(const Trace& t, const Span& s) {
  const std::string& name = t.text(s.name);
  if (name.starts_with("wait for lock")) return "lock";
  if (name.ends_with(" wait") || name.find("ynchronize") != std::string::npos) return "wait";
  return s.kind == SpanKind::kOperator ? "op" : s.kind == SpanKind::kAnnotation ? "phase" : "part";
}

class Timeline {
 public:
  Timeline(const Trace& t, Interval window) : t_(t), window_(window) {}

  std::string svg() {
    for (int track = 0; track < static_cast<int>(t_.tracks.size()) && lanes_ < kMostLanes; ++track) add_track(track);
    add_axis();
    return fmt::format(
        "<svg class=\"timeline\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"Timeline\">\n{}</svg>\n",
        kWidth, y_ + 30, body_);
  }
  bool cut() const { return marks_ >= kMostMarks || lanes_ >= kMostLanes; }

 private:
  double px(int64_t time) const {
    const double share = static_cast<double>(time - window_.begin) / static_cast<double>(window_.length());
    return kLeft + std::clamp(share, 0.0, 1.0) * (kWidth - kLeft - 8);
  }
  bool shown(int64_t begin, int64_t end) const { return end > window_.begin && begin < window_.end; }
  int depth(const Span& s) const {
    int d = 0;
    for (int p = s.parent; p >= 0; p = t_.spans[p].parent) ++d;
    return d;
  }

  void mark(int64_t begin, int64_t end, double y, const std::string& style, const std::string& name) {
    const double x0 = px(begin), x1 = px(end);
    if (x1 - x0 < 0.4 || marks_ >= kMostMarks) return;
    ++marks_;
    body_ += fmt::format(
        "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\"><title>{}, "
        "{}</title></rect>\n",
        style, x0, y, std::max(0.6, x1 - x0 - 0.4), kRow - 2, html_escaped(name), duration_text(end - begin));
    const auto room = static_cast<size_t>((x1 - x0 - 6) / 6.2);
    if (room >= 4)
      body_ += fmt::format("<text class=\"in {}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", style, x0 + 3, y + 10.5,
                           html_escaped(shortened(name, room)));
  }

  void add_track(int track) {
    int deepest = -1;
    const std::string before = body_;
    const auto at = [&](int row) { return y_ + row * kRow; };
    for (const Span& s : t_.spans)
      // Waits for locks have a row of their own below, with the holder.
      if (s.track == track && shown(s.begin, s.end) && !t_.text(s.name).starts_with("wait for lock")) {
        const int row = std::min(depth(s), kMostDepth);
        deepest = std::max(deepest, row);
        mark(s.begin, s.end, at(row), style_of(t_, s), t_.text(s.name));
      }
    for (const DeviceOp& d : t_.device_ops)
      if (d.track == track && shown(d.begin, d.end))
        deepest = std::max(deepest, 0), mark(d.begin, d.end, at(0), "device", t_.text(d.name));
    std::map<NameId, int> row_of_name;  // what is in flight may overlap: a row a name
    for (const Span& s : t_.async_spans)
      if (s.track == track && shown(s.begin, s.end)) {
        const int row = row_of_name.try_emplace(s.name, std::min<int>(row_of_name.size(), kMostDepth)).first->second;
        deepest = std::max(deepest, row);
        mark(s.begin, s.end, at(row), "device", t_.text(s.name));
      }
    int locks = 0;
    for (const LockInterval& l : t_.locks)
      if (l.track == track && shown(l.begin, l.end)) {
        locks = 1;
        const std::string lock = t_.text(l.lock);
        mark(l.begin, l.end, at(deepest + 1), l.wait ? "lock" : "hold",
             l.wait ? fmt::format("waits for {}{}", lock, l.other >= 0 ? ", held by " + t_.track_title(l.other) : "")
                    : "holds " + lock);
      }
    const int rows = deepest + 1 + locks;
    if (rows == 0) {
      body_ = before;
      return;
    }
    body_ += fmt::format(
        "<text class=\"lane\" x=\"4\" y=\"{:.1f}\">{}</text><line class=\"grid\" x1=\"0\" x2=\"{}\" y1=\"{:.1f}\" "
        "y2=\"{:.1f}\"/>\n",
        y_ + 11, html_escaped(shortened(t_.track_title(track), 24)), kWidth, y_ + rows * kRow + kGap / 2,
        y_ + rows * kRow + kGap / 2);
    y_ += rows * kRow + kGap;
    ++lanes_;
  }

  void add_axis() {
    for (int i = 0; i <= 4; ++i) {
      const int64_t time = window_.begin + window_.length() * i / 4;
      body_ += fmt::format("<text class=\"tick {}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", i == 4 ? "end" : "",
                           px(time), y_ + 14, i == 0 ? "0" : duration_text(time - window_.begin));
    }
  }

  const Trace& t_;
  const Interval window_;
  std::string body_;
  double y_ = 6;
  int marks_ = 0, lanes_ = 0;
};

std::string path_text(const std::vector<std::string>& path) {
  std::string out;
  for (size_t i = 1; i < path.size(); ++i) out += (i > 1 ? " › " : "") + path[i];
  return out.empty() && !path.empty() ? path[0] : out;
}

// From A's time to B's: what each contribution adds or takes.
std::string waterfall(const PhaseExplanation& p) {
  struct Step {
    std::string name;
    double delta;
    bool beyond;
  };
  std::vector<Step> steps;
  double rest = 0;
  int others = 0;
  for (const Contribution& c : p.rows) {
    if (static_cast<int>(steps.size()) < kRowsOfWaterfall && std::fabs(c.delta_ns()) > 0.005 * std::max(p.a_ns, p.b_ns))
      steps.push_back({path_text(c.path), c.delta_ns(), c.beyond_noise()});
    else
      rest += c.delta_ns(), ++others;
  }
  if (others > 0) steps.push_back({fmt::format("{} smaller ones", others), rest, false});
  double low = std::min(p.a_ns, p.b_ns), high = std::max(p.a_ns, p.b_ns), at = p.a_ns;
  for (const Step& s : steps) at += s.delta, low = std::min(low, at), high = std::max(high, at);
  low = std::max(0.0, low - 0.15 * (high - low));
  const double span = std::max(1.0, high - low);
  const auto row = [&](const std::string& name, double from, double to, const char* style, const std::string& value) {
    const double left = 100 * (std::min(from, to) - low) / span,
                 width = std::max(0.4, 100 * std::fabs(to - from) / span);
    return fmt::format(
        "<div class=\"row\"><span class=\"name\">{}</span><span class=\"track\"><span class=\"fill {}\" "
        "style=\"margin-left:{:.1f}%;width:{:.1f}%\"></span></span><span class=\"value\">{}</span></div>\n",
        html_escaped(name), style, left, std::min(width, 100 - left), html_escaped(value));
  };
  const auto ns = [](double t) { return duration_text(static_cast<int64_t>(std::llround(t))); };
  std::string out = "<div class=\"bars waterfall\">" + row("A", low, p.a_ns, "arm-a", ns(p.a_ns));
  at = p.a_ns;
  for (const Step& s : steps) {
    out += row(s.name, at, at + s.delta,
               !s.beyond     ? "quiet"
               : s.delta > 0 ? "bad"
                             : "good",
               (s.delta > 0 ? "+" : "−") + ns(std::fabs(s.delta)));
    at += s.delta;
  }
  return out + row("B", low, p.b_ns, "arm-b", ns(p.b_ns)) + "</div>\n";
}

std::string shares(const PhaseExplanation& p) {
  std::string out = "<div class=\"bars\">";
  int shown = 0;
  for (const Contribution& c : p.rows) {
    if (++shown > kRowsOfWaterfall) break;
    out += fmt::format(
        "<div class=\"row\"><span class=\"name\">{}</span><span class=\"track\"><span class=\"fill arm-a\" "
        "style=\"width:{:.1f}%\"></span></span><span class=\"value\">{}, {:.0f} %</span></div>\n",
        html_escaped(path_text(c.path)), 100 * c.a_ns / std::max(1.0, p.a_ns),
        duration_text(static_cast<int64_t>(c.a_ns)), 100 * c.a_ns / std::max(1.0, p.a_ns));
  }
  return out + "</div>\n";
}

}  // namespace

ReportSection trace_section(const Trace& t, const std::string& name) {
  ReportSection s{.title = "Timeline of " + name, .verdict = {}, .html = {}};
  std::string why;
  const Interval window = worth_seeing(t, why);
  Timeline timeline(t, window);
  const std::string svg = timeline.svg();
  s.html =
      "<ul class=\"legend\"><li class=\"op\">operator</li><li class=\"part\">other work</li><li "
      "class=\"phase\">phase</li><li "
      "class=\"device\">device, in flight</li><li class=\"wait\">wait</li><li class=\"lock\">wait for a lock</li><li "
      "class=\"hold\">lock held</li></ul>";
  s.html += figure_html(svg,
                        fmt::format("{}: {} of {}{}", why, duration_text(window.length()),
                                    duration_text(t.window().length()), timeline.cut() ? "; not all is drawn" : ""),
                        "", true);
  if (t.lost_events > 0) s.html += fmt::format("<p>{} events were lost: times are lower bounds.</p>", t.lost_events);
  if (const Result<OverlapReport> overlap = find_overlap(t, {}); overlap.is_ok()) {
    std::string found;
    for (const std::string& f : overlap->findings) found += "<li>" + html_escaped(f) + "</li>";
    if (!found.empty()) s.html += "<ul>" + found + "</ul>";
    std::vector<std::vector<std::string>> rows;
    for (const LockTime& l : overlap->locks)
      rows.push_back({l.lock, std::to_string(l.holds), duration_text(l.hold_ns), std::to_string(l.waits),
                      duration_text(l.wait_ns),
                      l.holder.empty() ? ""
                                       : fmt::format("{}, in {}{}", l.holder, l.holder_span,
                                                     l.held_across.empty() ? "" : " across " + l.held_across)});
    if (!rows.empty())
      s.html += "<div class=\"scroll\" tabindex=\"0\">" +
                table_html({"lock", "holds", "held", "waits", "waited", "longest hold while somebody waited"}, rows) +
                "</div>";
  }
  return s;
}

Result<ReportSection> explanation_section(const std::vector<Trace>& a, const std::vector<Trace>& b) {
  LATHE_ASSIGN(const Explanation e, explain(a, b, {}));
  using enum ReportSection::Tone;
  ReportSection s{.title = b.empty() ? "Where the time goes" : "Why B differs from A",
                  .verdict = e.verdict,
                  .html = {},
                  .tone = b.empty()   ? kPlain
                          : e.differs ? kBad
                                      : kUnsure};
  const auto list = [&](const char* heading, const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    s.html += fmt::format("<h3>{}</h3><ul>", heading);
    for (const std::string& line : lines) s.html += "<li>" + html_escaped(line) + "</li>";
    s.html += "</ul>";
  };
  list("Settings and builds", e.settings);
  list("Counts", e.counts);
  list("Findings", e.findings);
  list("Waiting chains", e.chains);
  for (const PhaseExplanation& p : e.phases) {
    s.html += fmt::format(
        "<h3>{}: {} unit{}{}</h3>", html_escaped(p.phase), p.a_units, p.a_units == 1 ? "" : "s",
        b.empty() ? ""
                  : fmt::format(" against {}; noise {}", p.b_units, duration_text(static_cast<int64_t>(p.noise_ns))));
    s.html += b.empty() ? shares(p) : waterfall(p);
    if (!b.empty() && !p.reconciled) s.html += "<p>Not reconciled: too much of the change has no address.</p>";
  }
  return s;
}

}  // namespace lathe
