#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

// The one form in which all instruments report numbers: verify, bench, history and reports.

namespace lathe {

struct NumberRow {
  std::string op, variant, case_name, device;
  std::optional<double> median_us;
  std::optional<double> spread_us;           // half the interquartile range over process lives
  std::optional<double> bytes, flop;         // counted from the contract
  std::optional<double> roof_us;             // what the measured ceilings allow
  std::optional<double> roof_fraction;       // roof_us / median_us
  std::optional<double> error_ratio;         // RMS(err)/RMS(reference), the worst output
  std::optional<double> error_of_tolerance;  // that over the contract's tolerance
  std::optional<double> tokens_per_s;
  std::optional<double> ratio;  // of two numbers of the same run; the note says which
  std::string note;             // where a number comes from, if it isn't plain
};

// Absent numbers become null, infinite ones the string "inf": a reader sees every field in every row.
nlohmann::json to_json(const NumberRow& row);
NumberRow number_row(const nlohmann::json& j);  // what to_json wrote; null and words are absent numbers

}  // namespace lathe
