#pragma once

#include <cstdint>

#include "base/probe.h"

// The stage of the concurrency lab: a prefill whose layers run on a device, and a thread that sends each layer's cache
// rows over a link while the prefill goes on. Device and link are timed waits, so that only who holds the lock, and for
// how long, differs between the two twins.
namespace lathe {

struct DispatchLabOptions {
  // The defect: the expert dispatch keeps the lock of the work queue while it waits for its device. The mended twin
  // lets go of it first.
  bool hold_lock_across_wait = true;
  bool transfer = true;  // false: prefill alone
  int layers = 32;
  int64_t attention_us = 1000;  // of a layer, before the dispatch; nobody holds the lock
  int64_t experts_us = 4000;    // of a layer, on the device
  int chunks_per_layer = 2;     // to send; known once the attention has written its rows
  int64_t chunk_us = 900;       // on the link
  int64_t next_chunk_us = 300;  // to get the next one ready
  Recorder* probes = nullptr;
};

// Until the prefill is done and every chunk has arrived.
int64_t run_dispatch_lab(const DispatchLabOptions& options);

}  // namespace lathe
