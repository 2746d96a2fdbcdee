#pragma once

#include "engine/service.h"

namespace lathe::testing {

// Faults of a server's memory, to see that a test would notice them. Each is made of parts that break one promise.
enum class PlantedFault {
  kSkippedFold,      // a ring is forgotten instead of being folded into the state
  kDroppedTail,      // what a sequence goes on from has lost the open pool's rows
  kCursorPerLayer,   // the ring's cursor moves after each layer instead of after the step
  kReusedUnderLoad,  // a block from the host tier goes to somebody else while its load still writes
};

// On the cpu device.
ServiceParts parts_with(PlantedFault fault);

}  // namespace lathe::testing
