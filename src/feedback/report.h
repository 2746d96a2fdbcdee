#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "feedback/trace_tables.h"

// One self-contained HTML page of what the instruments wrote: no scripts, nothing from elsewhere, readable on a phone
// and on paper.
namespace lathe {

// An input: JSON of compare --out, verify --relations --json, bench ops --json or lab --json; or any trace that `lathe
// trace` reads. Two traces are also explained against each other.
Result<std::string> report_html(const std::vector<std::string>& files);

// A section each: its heading and what stands below. `name` is the file's.
struct ReportSection {
  std::string title, verdict, html;
  enum class Tone { kPlain, kGood, kBad, kUnsure } tone = Tone::kPlain;
};
ReportSection comparison_section(const nlohmann::json& comparison);
ReportSection relations_section(const nlohmann::json& relations);
ReportSection bench_section(const nlohmann::json& bench);
ReportSection lab_section(const nlohmann::json& lab);
ReportSection trace_section(const Trace& trace, const std::string& name);
Result<ReportSection> explanation_section(const std::vector<Trace>& a, const std::vector<Trace>& b);

std::string report_page(const std::vector<ReportSection>& sections);

}  // namespace lathe
