#include "text/splitter.h"

#include "text/utf8.h"

namespace lathe {

namespace {

struct Part {
  size_t begin, end;
  bool match;
};

// Matches and what lies between them, in order; `give` gets each part that isn't empty.
template <class Give>
bool each_part(const Pattern& pattern, std::string_view text, Pattern::Scratch& scratch, bool invert,
               const Give& give) {
  size_t done = 0, from = 0, last_end = std::string_view::npos;
  const auto part = [&](size_t begin, size_t end, bool match) {
    if (begin < end) give(Part{begin, end, match != invert});
  };
  while (from <= text.size()) {
    size_t begin = 0, end = 0;
    const Pattern::Found found = pattern.search(text, from, scratch, begin, end);
    if (found == Pattern::Found::kGaveUp) return false;
    if (found == Pattern::Found::kNone) break;
    if (begin == end && end == last_end) {  // an empty match right behind the last one: go on a character further
      if (from >= text.size()) break;
      from += utf8_step(text, from).bytes;
      continue;
    }
    part(done, begin, false);
    part(begin, end, true);
    done = from = last_end = end;
  }
  part(done, text.size(), false);
  return true;
}

// How the parts that aren't isolated join their neighbours.
std::vector<Part> joined(const std::vector<Part>& parts, SplitBehavior behavior) {
  std::vector<Part> out;
  if (behavior == SplitBehavior::kMergedWithNext) {
    for (size_t i = parts.size(); i-- > 0;) {
      const bool joins = parts[i].match && !(i + 1 < parts.size() && parts[i + 1].match) && !out.empty();
      joins ? void(out.back().begin = parts[i].begin) : out.push_back(parts[i]);
    }
    return {out.rbegin(), out.rend()};
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool after_match = i > 0 && parts[i - 1].match;
    const bool joins = !out.empty() && (behavior == SplitBehavior::kContiguous ? parts[i].match == after_match
                                                                               : parts[i].match && !after_match);
    joins ? void(out.back().end = parts[i].end) : out.push_back(parts[i]);
  }
  return out;
}

}  // namespace

Result<Splitter> Splitter::build(const TokenizerFile& file) {
  Splitter splitter;
  splitter.name_ = file.name;
  for (const SplitStep& how : file.steps) {
    Step step{how, std::nullopt};
    if (!how.pattern.empty()) {
      LATHE_ASSIGN(step.pattern, Pattern::compile(how.pattern, file.name + ": pre_tokenizer: pattern"));
    }
    splitter.steps_.push_back(std::move(step));
  }
  return splitter;
}

Splitter::Scratch Splitter::make_scratch() const {
  Scratch scratch;
  for (const Step& step : steps_)
    scratch.patterns.push_back(step.pattern ? std::optional(step.pattern->make_scratch()) : std::nullopt);
  return scratch;
}

Status Splitter::split(std::string_view text, Scratch& scratch, const Sink& sink) const {
  return run(0, text, scratch, sink);
}

Status Splitter::run(size_t step, std::string_view text, Scratch& scratch, const Sink& sink) const {
  if (text.empty()) return Status::ok();
  if (step == steps_.size()) return sink(text), Status::ok();
  if (steps_[step].how.add_prefix_space && text[0] != ' ') {
    std::string spaced(1, ' ');
    spaced += text;
    return split_by(step, spaced, scratch, sink);
  }
  return split_by(step, text, scratch, sink);
}

Status Splitter::split_by(size_t index, std::string_view text, Scratch& scratch, const Sink& sink) const {
  const Step& step = steps_[index];
  if (!step.pattern) return run(index + 1, text, scratch, sink);
  Status status;
  const auto next = [&](const Part& part) {
    if (status.is_ok()) status = run(index + 1, text.substr(part.begin, part.end - part.begin), scratch, sink);
  };
  std::vector<Part> parts;
  const bool isolated = step.how.behavior == SplitBehavior::kIsolated;
  const bool done = each_part(*step.pattern, text, *scratch.patterns[index], step.how.invert,
                              [&](const Part& part) { isolated ? next(part) : parts.push_back(part); });
  if (!done)
    return invalid("{}: pre_tokenizer: pattern '{}' backtracks past its limit on a text of {} bytes", name_,
                   step.how.pattern, text.size());
  if (step.how.behavior == SplitBehavior::kRemoved) {
    std::erase_if(parts, [](const Part& part) { return part.match; });
  } else if (!isolated) {
    parts = joined(parts, step.how.behavior);
  }
  for (const Part& part : parts) next(part);
  return status;
}

}  // namespace lathe
