// Where the embedding tables of an estimate's model go, so that its most loaded trainer is known. Pure.
//
//   Result<PlacedTables> placed = place_tables(request, gpu, left_on_the_card, budget);
//   request.embedding_bytes = placed->embeddings;
#pragma once

#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "cli/answer_budget.h"
#include "estimator/provisioner/exchange.h"
#include "estimator/sharder/sharder.h"
#include "estimator/types/request.h"

namespace plimsoll::cli {

struct PlacedTables {
  Bytes embeddings;                                // of the trainer that holds most
  estimator::Plan plan;                            // empty where they do not fit
  estimator::ShardRequest request;                 // that the plan is for
  std::vector<estimator::RankExchange> exchanges;  // by rank
  estimator::Infeasibility why;                    // its constraint is empty where they fit
};

// Of the model and trainers of `request`, within `room` of GPU memory and `host_room` of the host's on each. Where they do not fit, `embeddings` is the
// least that a trainer would have to hold. Errors: the sharder's, and the budget's.
Result<PlacedTables> place_tables(const estimator::EstimateRequest& request, const estimator::GpuModel& gpu,
                                  Bytes room, AnswerBudget& budget,
                                  std::vector<estimator::Constraint> constraints = {}, Bytes host_room = {});

}  // namespace plimsoll::cli
