// A model whose ParameterLifeCycle tests run, with what lives of each part. One thread.
//
//   Model model = model_of(crds::ParallelStrategy::kZeRO2, 4, {vector_of(10)});
//   ParameterLifeCycle life = model.life();
//   life.persist();
//   model.ledger.live(Part::kParameters);
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "estimator/parallel/life_cycle.h"

namespace plimsoll::estimator::testing {

// The live memory of each part. A block that is freed twice fails the test.
class Recorder : public ParameterLedger {
 public:
  BlockId allocate(Part part, Bytes bytes_of_one, std::int64_t count, std::size_t /*parameter*/,
                   StreamId stream = kComputeStream) override {
    streams_.insert(stream);
    blocks_[next_] = {part, bytes_of_one * count};
    live_[part] += bytes_of_one * count;
    most_[part] = std::max(most_[part], live_[part]);
    all_ += bytes_of_one * count;
    most_of_all_ = std::max(most_of_all_, all_);
    return next_++;
  }
  void release(BlockId block) override {
    const auto found = blocks_.find(block);
    ASSERT_NE(found, blocks_.end()) << "block " << block << " is not live";
    live_[found->second.first] -= found->second.second;
    all_ -= found->second.second;
    blocks_.erase(found);
  }
  std::int64_t live(Part part) const { return live_.contains(part) ? live_.at(part).count : 0; }
  const std::set<StreamId>& streams() const { return streams_; }
  // Of all parts together.
  std::int64_t live() const { return all_.count; }
  std::int64_t most() const { return most_of_all_.count; }
  std::int64_t most(Part part) const { return most_.contains(part) ? most_.at(part).count : 0; }

 private:
  BlockId next_ = 0;
  std::set<StreamId> streams_;
  std::map<BlockId, std::pair<Part, Bytes>> blocks_;
  std::map<Part, Bytes> live_;
  std::map<Part, Bytes> most_;
  Bytes all_;
  Bytes most_of_all_;
};

// Vectors in FP32 with Momentum, whose state is as large as what it updates.
struct Model {
  Recorder ledger;
  std::vector<ReplicaParameter> parameters;
  Replication replication;
  crds::Optimizer optimizer = crds::Optimizer::kMomentum;

  ParameterLifeCycle life(Budget* budget = nullptr) {
    const Result<OptimizerRun> run =
        optimizer_run(optimizer, crds::OptimizerImplementation::kSingleTensor, Device::kCpu, 215);
    EXPECT_TRUE(run.ok());
    return ParameterLifeCycle(ledger, replication, {parameters.begin(), parameters.end(), budget}, *run,
                              budget);
  }
  // Backward's gradient of the parameter, as whoever executes the iteration allocates it.
  BlockId gradient(std::size_t parameter) {
    return ledger.allocate(Part::kGradients, parameters[parameter].bytes(), parameters[parameter].count,
                           parameter);
  }
};

inline ReplicaParameter vector_of(std::int64_t elements, std::int32_t unit = kRootUnit) {
  return {.elements = elements, .rows = 1, .first = elements, .unit = unit};
}

inline Model model_of(crds::ParallelStrategy strategy, std::int64_t replicas,
                      std::vector<ReplicaParameter> parameters) {
  Model model;
  model.parameters = std::move(parameters);
  model.replication = {.strategy = strategy, .replicas = replicas};
  return model;
}

}  // namespace plimsoll::estimator::testing
