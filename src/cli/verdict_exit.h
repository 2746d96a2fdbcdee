#pragma once

#include "cli/command.h"
#include "feedback/verdict.h"

namespace lathe {

// The exit code of a verdict: better, and no difference, are "as asked".
inline Exit exit_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kImproved:
    case Verdict::kEquivalent:
      return Exit::kAsAsked;
    case Verdict::kRegressed:
      return Exit::kRegressed;
    case Verdict::kMixed:
      return Exit::kMixed;
    case Verdict::kInconclusive:
      return Exit::kInconclusive;
    case Verdict::kIncorrect:
      return Exit::kIncorrect;
    case Verdict::kInvalid:
      return Exit::kInvalid;
    case Verdict::kRefused:
      return Exit::kRefused;
  }
  return Exit::kInternal;
}

}  // namespace lathe
