#include "feedback/importer.h"

#include <fmt/format.h>
#include <zlib.h>

#include <cstring>

#include "base/mapped_file.h"

namespace lathe {

namespace {

constexpr size_t kLargestInflated = size_t{4} << 30;  // a trace larger than that isn't read by anybody; a bomb may be

struct Inflated {
  std::string bytes;
  std::string warning;
};

// As far as the compressed bytes go: a copy that was cut off still has its beginning.
Inflated inflate_gzip(std::string_view packed) {
  Inflated out;
  z_stream z{};
  if (inflateInit2(&z, 15 + 32) != Z_OK) return {"", "zlib can't be started"};
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  size_t left = packed.size();
  std::vector<char> block(1 << 20);
  int state = Z_OK;
  while (state == Z_OK || state == Z_BUF_ERROR || state == Z_STREAM_END) {
    if (z.avail_in == 0) {
      const uInt more = static_cast<uInt>(std::min<size_t>(left, 1 << 30));
      z.avail_in = more, left -= more;
    }
    if (state == Z_STREAM_END && (z.avail_in == 0 || inflateReset(&z) != Z_OK)) break;  // else another member
    z.next_out = reinterpret_cast<Bytef*>(block.data()), z.avail_out = static_cast<uInt>(block.size());
    state = inflate(&z, Z_NO_FLUSH);
    const size_t got = block.size() - z.avail_out;
    out.bytes.append(block.data(), got);
    if (out.bytes.size() > kLargestInflated) {
      out.warning = "the file inflates to more than 4 GiB; the rest was not read";
      break;
    }
    if (got == 0 && z.avail_in == 0 && left == 0 && state != Z_STREAM_END) break;
  }
  if (state != Z_STREAM_END && out.warning.empty()) out.warning = "the gzip stream is cut off or damaged";
  inflateEnd(&z);
  return out;
}

bool looks_like_json(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  return first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
}

// Every non-empty line ends in a number after a space, and no line begins with white space.
bool looks_collapsed(std::string_view text) {
  int lines = 0;
  while (!text.empty() && lines < 20) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos && lines > 0) break;  // perhaps cut off
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.find_last_of(' ');
    if (space == 0 || space == std::string_view::npos || space + 1 == line.size() || line[0] == ' ' || line[0] == '\t')
      return false;
    if (line.find_first_not_of("0123456789.\r", space + 1) != std::string_view::npos) return false;
    ++lines;
  }
  return lines > 0;
}

}  // namespace

void TraceComplaints::write(Trace& trace) const {
  for (const auto& [what, count] : counts_)
    trace.warnings.push_back(count == 1 ? what : fmt::format("{} ({} times)", what, count));
}

Result<Trace> import_trace_bytes(std::string_view bytes, const std::string& name) {
  if (bytes.size() >= 2 && bytes.substr(0, 2) == "\x1f\x8b") {
    const Inflated inflated = inflate_gzip(bytes);
    if (inflated.bytes.size() >= 2 && inflated.bytes.compare(0, 2, "\x1f\x8b") == 0)
      return corrupt("{}: compressed twice; unpack it once", name);
    Result<Trace> trace = import_trace_bytes(inflated.bytes, name);
    if (trace.is_ok() && !inflated.warning.empty()) {
      trace->warnings.insert(trace->warnings.begin(), inflated.warning);
      trace->truncated = true;
    }
    return trace;
  }
  if (bytes.size() >= 16 && bytes.substr(0, 15) == "SQLite format 3") return import_nsight(bytes, name);
  if (looks_like_json(bytes)) return import_chrome(bytes, name);
  if (looks_collapsed(bytes)) return import_collapsed(bytes, name);
  return import_perf(bytes, name);
}

Result<Trace> import_trace(const std::string& path) {
  LATHE_ASSIGN(const MappedFile file, MappedFile::open(path));
  return import_trace_bytes({reinterpret_cast<const char*>(file.data()), static_cast<size_t>(file.bytes())}, path);
}

}  // namespace lathe
