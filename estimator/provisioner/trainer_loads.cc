#include "estimator/provisioner/trainer_loads.h"

#include <algorithm>

#include "base/json/edit.h"

namespace plimsoll::estimator::inline provisioner {

std::vector<TrainerLoad> trainer_loads(const Estimate& fullest, const Plan& plan) {
  const std::vector<Bytes>& dense = fullest.allocated_by_rank;
  const bool dense_differs = dense.size() == plan.ranks.size() && !dense.empty();
  const Bytes most_dense = dense_differs ? *std::max_element(dense.begin(), dense.end()) : Bytes{};
  std::vector<TrainerLoad> loads;
  loads.reserve(plan.ranks.size());
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const RankLoad& held = plan.ranks[rank];
    const Bytes on_card = held.weights + held.optimizer - held.host_memory;
    TrainerLoad load;
    load.allocated = fullest.peak.allocated - plan.max_memory + held.memory;
    if (dense_differs) {
      load.allocated += dense[rank] - most_dense;
    }
    load.embeddings = std::clamp(on_card, Bytes{}, held.memory);
    load.lookups = held.memory - load.embeddings;
    loads.push_back(load);
  }
  return loads;
}

Json to_json(const std::vector<TrainerLoad>& loads) {
  JsonArray json;
  for (const TrainerLoad& load : loads) {
    const JsonPlace each = json.append(::Json::objectValue);
    each["allocatedBytes"] = load.allocated.count;
    each["embeddingBytes"] = load.embeddings.count;
    each["lookupBytes"] = load.lookups.count;
  }
  return json;
}

}  // namespace plimsoll::estimator::provisioner
