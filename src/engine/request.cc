#include "engine/request.h"

namespace lathe {

const char* failure_name(Failure failure) {
  switch (failure) {
    case Failure::kCancelled:
      return "cancelled";
    case Failure::kDeadline:
      return "deadline_exceeded";
    case Failure::kGrammarDeadEnd:
      return "grammar_dead_end";
    case Failure::kNonFinite:
      return "nonfinite_logits";
    case Failure::kExhausted:
      return "exhausted";
    case Failure::kDraining:
      return "draining";
    case Failure::kInternal:
      return "internal_error";
    case Failure::kEngine:
      return "engine";
  }
  return "?";
}

}  // namespace lathe
