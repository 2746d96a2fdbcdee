#include "cli/number_table.h"

#include <fmt/format.h>

namespace lathe {

std::string with_prefix(double value) {
  constexpr const char* kPrefix[] = {"", "K", "M", "G", "T"};
  int power = 0;
  while (value >= 1000 && power < 4) value /= 1000, ++power;
  return fmt::format("{:.3g} {}", value, kPrefix[power]);
}

std::string number_line(const NumberRow& row) {
  std::string line = fmt::format("{:<44} {:<14}", row.op + "/" + row.case_name, row.variant);
  if (row.median_us) line += fmt::format(" {:>10.1f} us (±{:.1f})", *row.median_us, row.spread_us.value_or(0));
  if (row.median_us && row.bytes && *row.bytes > 0)
    line += fmt::format("  {}B/s", with_prefix(*row.bytes / *row.median_us * 1e6));
  if (row.median_us && row.flop && *row.flop > 0)
    line += fmt::format("  {}OP/s", with_prefix(*row.flop / *row.median_us * 1e6));
  if (row.tokens_per_s) line += fmt::format("  {:.1f} tokens/s", *row.tokens_per_s);
  if (row.roof_fraction) line += fmt::format("  {:.2f} of roof", *row.roof_fraction);
  if (row.ratio) line += fmt::format("  {:.3g}", *row.ratio);
  if (row.error_ratio)
    line += fmt::format("  error {:.2g} ({:.2f} of tolerance)", *row.error_ratio, row.error_of_tolerance.value_or(0));
  if (!row.note.empty()) line += "  [" + row.note + "]";
  return line;
}

}  // namespace lathe
