#include "estimator/provisioner/trainer_loads.h"

#include <algorithm>

#include "base/json/edit.h"

namespace plimsoll::estimator::inline provisioner {

namespace {

// What the dense part of each rank takes less than that of the rank with the highest peak.
class DenseDifference {
 public:
  DenseDifference(const Estimate& fullest, const Plan& plan) : by_rank_(fullest.allocated_by_rank) {
    differs_ = by_rank_.size() == plan.ranks.size() && !by_rank_.empty();
    most_ = differs_ ? *std::max_element(by_rank_.begin(), by_rank_.end()) : Bytes{};
  }
  Bytes of(std::size_t rank) const { return differs_ ? most_ - by_rank_[rank] : Bytes{}; }

 private:
  const std::vector<Bytes>& by_rank_;
  bool differs_ = false;
  Bytes most_;
};

Bytes on_card(const RankLoad& held) {
  return std::max(Bytes{}, held.weights + held.optimizer - held.host_memory);
}

}  // namespace

std::vector<TrainerLoad> trainer_loads(const Estimate& fullest, const Plan& plan,
                                       const std::vector<RankExchange>& exchanges) {
  if (!fullest.lookups || exchanges.size() != plan.ranks.size()) {
    return trainer_loads(fullest, plan);
  }
  const DenseDifference difference(fullest, plan);
  const LookupLevels& levels = *fullest.lookups;
  const Bytes workspace = fullest.breakdown.workspace;
  const Bytes dense = fullest.peak.allocated - fullest.breakdown.embeddings;
  std::vector<TrainerLoad> loads;
  loads.reserve(plan.ranks.size());
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const RankExchange& exchange = exchanges[rank];
    const Bytes unmade = levels.pooled_gradient_is_copy ? exchange.pooled.unmade : Bytes{};
    const Bytes at_lookups = std::max({levels.pooled_forward + exchange.pooled.forward,
                                       levels.pooled_backward - unmade + exchange.pooled.backward,
                                       levels.sequences_forward + exchange.sequences.forward,
                                       levels.sequences_backward + exchange.sequences.backward});
    const Bytes more = exchange.kept + std::max(Bytes{}, at_lookups + workspace - dense);
    const Bytes tables = on_card(plan.ranks[rank]);
    loads.push_back(
        {.allocated = dense - difference.of(rank) + tables + more, .embeddings = tables, .lookups = more});
  }
  return loads;
}

std::vector<TrainerLoad> trainer_loads(const Estimate& fullest, const Plan& plan) {
  const DenseDifference difference(fullest, plan);
  std::vector<TrainerLoad> loads;
  loads.reserve(plan.ranks.size());
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const RankLoad& held = plan.ranks[rank];
    TrainerLoad load;
    load.allocated = fullest.peak.allocated - plan.max_memory + held.memory - difference.of(rank);
    load.embeddings = std::min(on_card(held), held.memory);
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
