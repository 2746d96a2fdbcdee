#pragma once

#include <optional>
#include <string_view>

namespace lathe {

// What an experiment says about one claim; exactly one of eight. "Better" and "worse" are about B against A.
enum class Verdict {
  kImproved,
  kRegressed,
  kEquivalent,    // the interval lies inside the margin
  kMixed,         // parts disagree beyond noise, or B is better and much less steady
  kInconclusive,  // validly measured, and still undecided
  kIncorrect,     // results are wrong; times mean nothing
  kInvalid,       // the measurement itself is unusable
  kRefused,       // a rule forbids judging
};

const char* verdict_name(Verdict verdict);   // as in JSON and the ledger: "inconclusive"
const char* verdict_words(Verdict verdict);  // for people: "can't tell"
std::optional<Verdict> verdict_from(std::string_view name);

}  // namespace lathe
