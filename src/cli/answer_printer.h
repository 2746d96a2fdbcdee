#pragma once

#include <string>
#include <string_view>

namespace lathe {

// Streams an answer to stdout. A model's thoughts come first, up to </think>: dimmed on a terminal, apart from the
// answer by an empty line, the tag itself left out.
class AnswerPrinter {
 public:
  // thinking: the output begins with thoughts.
  AnswerPrinter(bool terminal, bool thinking);
  ~AnswerPrinter();  // ends the line
  AnswerPrinter(const AnswerPrinter&) = delete;
  void print(std::string_view piece);

 private:
  void show(std::string_view text);
  bool terminal_, thinking_, shown_ = false;
  std::string held_;  // may be the beginning of the tag
};

}  // namespace lathe
