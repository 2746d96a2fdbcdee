#pragma once

#include <string>

namespace lathe {

// One line on stderr that overwrites itself, where stderr is a terminal; nothing elsewhere.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();  // the line goes
  ProgressLine(const ProgressLine&) = delete;

  void show(int done, int all, const std::string& what);

 private:
  bool terminal_;
  bool shown_ = false;
};

}  // namespace lathe
