#include "feedback/verdict.h"

#include <iterator>

namespace lathe {

namespace {

struct Words {
  const char *name, *words;
};

// In the order of the enumeration.
constexpr Words kVerdicts[] = {
    {"improved", "B is better"},
    {"regressed", "B is worse"},
    {"equivalent", "no difference beyond the margin: can't tell them apart"},
    {"mixed", "better here, worse there"},
    {"inconclusive", "can't tell"},
    {"incorrect", "results are wrong"},
    {"invalid", "the measurement is unusable"},
    {"refused", "refused to judge"},
};

}  // namespace

const char* verdict_name(Verdict verdict) { return kVerdicts[static_cast<int>(verdict)].name; }
const char* verdict_words(Verdict verdict) { return kVerdicts[static_cast<int>(verdict)].words; }

std::optional<Verdict> verdict_from(std::string_view name) {
  for (size_t i = 0; i < std::size(kVerdicts); ++i)
    if (name == kVerdicts[i].name) return static_cast<Verdict>(i);
  return std::nullopt;
}

}  // namespace lathe
