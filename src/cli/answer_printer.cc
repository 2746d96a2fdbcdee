#include "cli/answer_printer.h"

#include <fmt/format.h>

#include <cstdio>

namespace lathe {

namespace {
constexpr std::string_view kEnd = "</think>";
}

AnswerPrinter::AnswerPrinter(bool terminal, bool thinking) : terminal_(terminal), thinking_(thinking) {
  if (terminal_ && thinking_) fmt::print("\x1b[2m");
}

AnswerPrinter::~AnswerPrinter() {
  show(held_);
  fmt::print("{}\n", terminal_ && thinking_ ? "\x1b[0m" : "");
}

void AnswerPrinter::show(std::string_view text) {
  shown_ |= !text.empty();
  fmt::print("{}", text);
  std::fflush(stdout);
}

void AnswerPrinter::print(std::string_view piece) {
  if (!thinking_) return show(piece);
  held_ += piece;
  if (const size_t end = held_.find(kEnd); end != std::string::npos) {
    show(std::string_view(held_).substr(0, end));
    fmt::print("{}{}", terminal_ ? "\x1b[0m" : "", shown_ ? "\n\n" : "");
    thinking_ = false;
    const std::string rest = held_.substr(end + kEnd.size());
    held_.clear();
    return show(rest);
  }
  size_t keep = std::min(held_.size(), kEnd.size() - 1);
  while (keep > 0 && !kEnd.starts_with(std::string_view(held_).substr(held_.size() - keep))) --keep;
  show(std::string_view(held_).substr(0, held_.size() - keep));
  held_.erase(0, held_.size() - keep);
}

}  // namespace lathe
