#include "estimator/execute/shared_parameters.h"

#include <algorithm>

namespace plimsoll::estimator::inline execute {
namespace {

constexpr std::int64_t kMasterWidth = 4;
// Padding of smaller parameters is not worth a warning: norms and biases, adapters of few rows.
constexpr std::int64_t kExperts = 1 << 16;
constexpr std::int64_t kMatrix = 1 << 21;

// What the life cycle must know of the parameter. `first_unit`: of its chunk.
ReplicaParameter replica_of(const TraceRunRequest& request, const Trace& trace, const PreparedTrace& prepared,
                            const SteppedParameter& of, std::int32_t first_unit, bool trained) {
  const TraceParameter& parameter = trace.parameters[of.id];
  const TensorView view = prepared.shapes.tensor_of(parameter.layout, parameter.dtype);
  const std::int32_t unit = prepared.units.of_parameter[of.id];
  const bool float8 = request.gathers_float8 && unit != kRootUnit && view.shape.size() == 2;
  return {.elements = view.elements,
          .rows = of.rows,
          .columns = of.columns,
          .dimensions = of.dimensions,
          .first = view.shape.empty() ? 1 : view.shape.front(),
          .width = view.width,
          .gathered_width = float8 ? 1 : view.width,
          .optimizer_width = request.keeps_fp32 ? kMasterWidth : view.width,
          .count = trace.storages[index(parameter.storage)].count,
          .unit = unit == kRootUnit ? unit : first_unit + unit,
          .experts_over = parameter.expert || view.shape.size() == 3 ? request.experts_over : 1,
          .separate_step = request.has_separate_step(of.id),
          .trained = trained};
}

}  // namespace

bool is_alone(const Replication& replication) {
  return replication.replicas == 1 && replication.strategy == crds::ParallelStrategy::kAuto;
}

ChunkParameters SharedParameters::add(std::int32_t chunk, const Trace& trace, const PreparedTrace& prepared) {
  ChunkParameters of_chunk{.first_unit = end_unit_, .end_unit = end_unit_};
  of_chunk.shared.assign(trace.storages.size(), -1);
  for (const SteppedParameter& stepped : prepared.parameters) {
    if (stepped.sparse) {
      of_chunk.own.push_back(stepped);
      continue;
    }
    of_chunk.shared[index(trace.parameters[stepped.id].gradient.front())] = next();
    add(chunk, trace, prepared, stepped, true, of_chunk);
  }
  if (gathers(request_.replication.strategy)) {
    for (const SteppedParameter& frozen : prepared.frozen) {
      add(chunk, trace, prepared, frozen, false, of_chunk);
    }
  }
  for (const UnitEvent& event : prepared.units.events) {
    of_chunk.end_unit = std::max(of_chunk.end_unit, of_chunk.first_unit + event.unit + 1);
  }
  end_unit_ = of_chunk.end_unit;
  if (!of_chunk.own.empty() && !is_alone(request_.replication)) {
    warnings_.emplace_back(
        "sparse gradients are exchanged row by row; counted as if trainers looked up different rows");
  }
  return of_chunk;
}

void SharedParameters::add(std::int32_t chunk, const Trace& trace, const PreparedTrace& prepared,
                           const SteppedParameter& parameter, bool trained, ChunkParameters& of_chunk) {
  charge(request_.budget, 1);
  const TraceParameter& named = trace.parameters[parameter.id];
  of_chunk.shared[index(named.storage)] = next();
  parameters_.push_back(replica_of(request_, trace, prepared, parameter, of_chunk.first_unit, trained));
  origins_.push_back({chunk, parameter.id});
  of_chunk.end_unit = std::max(of_chunk.end_unit, parameters_.back().unit + 1);
  warn_of_padding(named.name, parameters_.back());
}

void SharedParameters::warn_of_padding(const std::string& name, const ReplicaParameter& parameter) {
  const Replication& replication = request_.replication;
  const bool experts = parameter.first * parameter.columns != parameter.elements;
  if (warned_of_padding_ || replication.strategy != crds::ParallelStrategy::kFSDP2 ||
      parameter.elements < (experts ? kExperts : kMatrix)) {
    return;
  }
  const std::int64_t shards = replication.replicas / replication.replicate / parameter.experts_over;
  std::string warning = padding_warning(!name.empty() ? name
                                        : experts     ? "a layer's weight of experts"
                                                      : "a layer's weight",
                                        parameter, std::max<std::int64_t>(1, shards));
  warned_of_padding_ = !warning.empty();
  if (warned_of_padding_) {
    warnings_.push_back(std::move(warning));
  }
}

}  // namespace plimsoll::estimator::execute
