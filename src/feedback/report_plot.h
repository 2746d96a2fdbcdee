#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Figures of a report as SVG text: they scale, print, and need nothing from elsewhere. Colours are classes that the
// page's style sheet knows.
namespace lathe {

std::string html_escaped(std::string_view text);
std::string number_text(double value);  // three digits that matter: "0.0123", "1.2e-5", "34.5"

struct Axis {
  std::string label;
  double low = 0, high = 1;
  bool log = false;
  std::vector<std::string> names;  // of places 0, 1, ...; then there are no numbers
};

class Plot {
 public:
  Plot(std::string title, Axis x, Axis y, double width = 480, double height = 300);

  using Points = std::vector<std::pair<double, double>>;
  void line(const Points& points, const char* style);
  void dot(double x, double y, const char* style, const std::string& title);
  void bar(double x0, double y0, double x1, double y1, const char* style, const std::string& title);
  void text(double x, double y, const std::string& text, const char* style, double dx = 0, double dy = 0);
  std::string svg() const;

 private:
  double px(double x) const;
  double py(double y) const;
  std::string ticks_x() const;
  std::string ticks_y() const;

  std::string title_, body_;
  Axis x_, y_;
  double width_, height_, left_ = 62, right_ = 14, top_ = 12, bottom_ = 40;
};

// A span of values with room at both ends; log: whole factors of ten.
void fit_axis(Axis& axis, const std::vector<double>& values);

// A figure with its caption, and the numbers behind it as a table to unfold.
std::string figure_html(const std::string& svg, const std::string& caption, const std::string& table,
                        bool wide = false);
std::string table_html(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows);

}  // namespace lathe
