#include "feedback/number_row.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace lathe {

namespace {

nlohmann::json number(const std::optional<double>& x) {
  if (!x) return nullptr;
  if (std::isnan(*x)) return "nan";
  return std::isinf(*x) ? nlohmann::json("inf") : nlohmann::json(*x);
}

}  // namespace

nlohmann::json to_json(const NumberRow& row) {
  nlohmann::json j = {{"op", row.op},
                      {"variant", row.variant},
                      {"case", row.case_name},
                      {"device", row.device},
                      {"median_us", number(row.median_us)},
                      {"spread_us", number(row.spread_us)},
                      {"bytes", number(row.bytes)},
                      {"flop", number(row.flop)},
                      {"roof_us", number(row.roof_us)},
                      {"roof_fraction", number(row.roof_fraction)},
                      {"error_ratio", number(row.error_ratio)},
                      {"error_of_tolerance", number(row.error_of_tolerance)},
                      {"tokens_per_s", number(row.tokens_per_s)}};
  if (!row.note.empty()) j["note"] = row.note;
  return j;
}

}  // namespace lathe
