#include "cli/throughput_report.h"

#include "base/json/edit.h"
#include "cli/console.h"
#include "estimator/speed/iteration_time.h"

namespace plimsoll::cli {

std::optional<estimator::Throughput> throughput_of(const estimator::EstimateRequest& request,
                                                   const PlacedTables& placed, AnswerBudget& budget) {
  if (request.gpu == nullptr) {
    return std::nullopt;
  }
  constexpr double kMillisecondsPerSecond = 1e3;
  estimator::SpeedRequest speed{.job = request};
  speed.job.budget = budget.get();
  if (!placed.plan.placements.empty()) {
    speed.embedding_seconds = placed.plan.max_milliseconds / kMillisecondsPerSecond *
                              static_cast<double>(request.training->gradient_accumulation);
  }
  Result<estimator::IterationTime> time = budget.run([&] { return estimator::iteration_time(speed); });
  if (!time) {
    return std::nullopt;
  }
  return estimator::Throughput{
      .gpu_model = request.gpu->name, .trainers = request.trainers, .iteration = *std::move(time)};
}

Json throughput_json(const estimator::Throughput& throughput) {
  JsonEdit json(estimator::to_json(throughput, std::nullopt));
  JsonArray parts;
  for (const estimator::TimePart& part : throughput.iteration.parts) {
    parts.append(json_object({{"name", part.name}, {"seconds", estimator::rounded_text(part.seconds)}}));
  }
  json["parts"] = std::move(parts).take();
  return json.root().value();
}

std::string throughput_text(const estimator::Throughput& throughput, bool parts) {
  std::string text = "  about " + text_of(throughput) + ", within a factor of " +
                     estimator::rounded_text(throughput.iteration.uncertainty) + "\n";
  for (const estimator::TimePart& part : throughput.iteration.parts) {
    text += parts ? "    " + part.name + " " + estimator::rounded_text(part.seconds) + " s\n" : std::string();
  }
  return text;
}

}  // namespace plimsoll::cli
