#include "feedback/measurement_source.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace lathe {

nlohmann::json to_json(const Life& life) {
  nlohmann::json j = {{"arm", life.arm == Arm::kA ? "A" : "B"}, {"values", life.values}};
  if (life.disturbed) j["disturbed"] = true;
  if (life.trouble) j["trouble"] = {{"verdict", verdict_name(life.trouble->verdict)}, {"why", life.trouble->why}};
  return j;
}

Result<Life> life_from(const nlohmann::json& j) {
  try {
    Life life;
    const std::string arm = j.at("arm");
    if (arm != "A" && arm != "B") return corrupt("a life's arm is '{}'; expected A or B", arm);
    life.arm = arm == "A" ? Arm::kA : Arm::kB;
    life.values = j.at("values").get<std::vector<double>>();
    life.disturbed = j.value("disturbed", false);
    if (j.contains("trouble")) {
      const std::string name = j.at("trouble").at("verdict");
      const std::optional<Verdict> verdict = verdict_from(name);
      if (!verdict) return corrupt("a life's trouble has the unknown verdict '{}'", name);
      life.trouble = Life::Trouble{*verdict, j.at("trouble").at("why")};
    }
    return life;
  } catch (const nlohmann::json::exception& e) {
    return corrupt("a life's record: {}", e.what());
  }
}

Result<Life> RecordedSource::live(Arm arm) {
  if (next_ == lives_.size()) return exhausted("the record ends after {} lives; the plan wants more", lives_.size());
  const Life& life = lives_[next_++];
  if (life.arm != arm)
    return corrupt("life {} of the record is of the other arm than the plan's seed draws: another plan", next_ - 1);
  return life;
}

SimulatedSource::SimulatedSource(World world, uint64_t seed) : world_(std::move(world)), random_(seed) {
  for (size_t s = 0; s < world_.effect.size(); ++s) strata_.push_back(fmt::format("stratum{}", s));
}

Result<Life> SimulatedSource::live(Arm arm) {
  Life life{.arm = arm, .values = {}};
  const bool second = lives_ % 2 == 1;
  for (double effect : world_.effect) {
    double log = world_.process * random_.normal() * (arm == Arm::kB ? world_.noise_of_b : 1);
    log += world_.drift * lives_ / 64 + (arm == Arm::kB ? effect : 0) + (second ? world_.second_place : 0);
    if (random_.uniform() < world_.spike_rate) log += world_.spike * random_.uniform();
    life.values.push_back(100 * std::exp(log));
  }
  ++lives_;
  return life;
}

}  // namespace lathe
