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

std::optional<double> number(const nlohmann::json& j, const char* field) {
  const auto it = j.find(field);
  return it != j.end() && it->is_number() ? std::optional(it->get<double>()) : std::nullopt;
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
                      {"tokens_per_s", number(row.tokens_per_s)},
                      {"ratio", number(row.ratio)}};
  if (!row.note.empty()) j["note"] = row.note;
  return j;
}

NumberRow number_row(const nlohmann::json& j) {
  return {.op = j.at("op"),
          .variant = j.at("variant"),
          .case_name = j.at("case"),
          .device = j.at("device"),
          .median_us = number(j, "median_us"),
          .spread_us = number(j, "spread_us"),
          .bytes = number(j, "bytes"),
          .flop = number(j, "flop"),
          .roof_us = number(j, "roof_us"),
          .roof_fraction = number(j, "roof_fraction"),
          .error_ratio = number(j, "error_ratio"),
          .error_of_tolerance = number(j, "error_of_tolerance"),
          .tokens_per_s = number(j, "tokens_per_s"),
          .ratio = number(j, "ratio"),
          .note = j.value("note", "")};
}

}  // namespace lathe
