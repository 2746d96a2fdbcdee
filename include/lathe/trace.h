#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lathe/status.h"

// Recording where time goes, from a program that embeds the engine: begin, hand the recorder to EngineOptions,
// generate, write. The file opens in Perfetto; `lathe trace show`, `lathe overlap` and `lathe explain` read it.
namespace lathe {

class Recorder;

struct RecordingOptions {
  std::string file;                 // Chrome/Perfetto JSON to write; compressed if it ends in .gz; "": none
  std::string level = "full";       // or "counters": how often each probe was met, no clock is read
  std::vector<std::string> inject;  // delays, to see what matters: "SPAN=US", "hold:LOCK=US", "wait:LOCK=US"
};

// A null pointer if nothing is asked for: probes are off then.
Result<std::shared_ptr<Recorder>> begin_recording(const RecordingOptions& options);

// What was recorded so far; the engine must be at rest. Does nothing without a file or a recorder. `settings` name what
// made the run, and are kept in the file.
Status write_recording(const Recorder* recorder, const RecordingOptions& options,
                       const std::vector<std::pair<std::string, std::string>>& settings = {});

}  // namespace lathe
