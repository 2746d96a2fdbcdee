// Any bytes as a trace: refused with a message that names the file, or tables whose rows agree with each other; what is
// analysed and written never ends in a crash, and what is written can be read.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "feedback/importer.h"
#include "feedback/overlap.h"
#include "feedback/trace_writer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  const auto trace = import_trace_bytes({reinterpret_cast<const char*>(data), size}, "trace.bin");
  if (!trace.is_ok()) {
    if (trace.status().message().find("trace.bin") == std::string::npos) std::abort();
    return 0;
  }
  for (const Span& s : trace->spans)
    if (s.end < s.begin || s.track >= static_cast<int>(trace->tracks.size()) ||
        s.parent >= static_cast<int>(trace->spans.size()))
      std::abort();
  for (const DeviceOp& op : trace->device_ops)
    if (op.end < op.begin || op.launch >= static_cast<int>(trace->spans.size())) std::abort();
  (void)to_text(summarise(*trace), 10);
  if (const auto report = find_overlap(*trace, {}); report.is_ok()) (void)to_text(*report);
  if (!trace->spans.empty() && !import_trace_bytes(chrome_json(*trace), "trace.bin").is_ok()) std::abort();
  return 0;
}
