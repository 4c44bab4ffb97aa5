#include "estimator/provisioner/provisioner.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "base/utf8.h"
#include "estimator/provisioner/original_request.h"
#include "estimator/sharder/bound.h"

namespace plimsoll::estimator::inline provisioner {
namespace {

constexpr std::size_t kWarningLimit = 256;  // longer admission warnings may be cut by the API server

// A warning within the limit, cut at a whole UTF-8 character.
std::string shortened(std::string text) {
  return text.size() <= kWarningLimit ? text : std::string(utf8_prefix(text, kWarningLimit - 3)) + "...";
}

const char* event_reason_of(const Error& exceeded) {
  return exceeded.code == ErrorCode::kTimeout     ? "DeadlineExceeded"
         : exceeded.code == ErrorCode::kCancelled ? "Cancelled"
                                                  : "TooLarge";
}

std::string gpus_text(std::int64_t count, const std::string& model) {
  return std::to_string(count) + " x " + model;
}

// The counts that whole nodes make: any up to one node, multiples of it above.
std::int64_t round_up(std::int64_t trainers, std::int64_t per_node) {
  return trainers <= per_node ? trainers : (trainers + per_node - 1) / per_node * per_node;
}

std::int64_t round_down(std::int64_t trainers, std::int64_t per_node) {
  return trainers <= per_node ? trainers : trainers / per_node * per_node;
}

// The counts that make whole replicas of a model too, each of `replica` trainers.
std::int64_t whole_replicas(std::int64_t trainers, std::int64_t per_node, std::int64_t replica) {
  const std::int64_t multiple = (trainers + replica - 1) / replica * replica;
  if (multiple <= per_node) {
    return multiple;
  }
  const std::int64_t step = std::lcm(per_node, replica);
  return (multiple + step - 1) / step * step;
}

// The most trainers of one job that the cluster's nodes of this model can hold, `per_node` on each.
std::int64_t capacity_of(const AvailableGpu& gpu, std::int64_t per_node) {
  std::int64_t places = 0;
  for (const crds::GpuNodeShape& shape : gpu.shapes) {
    places += shape.nodes * (shape.gpus_per_node / per_node * per_node);
  }
  return gpu.shapes.empty() ? round_down(gpu.total_gpus, per_node) : places;
}

// One GPU model in the race.
struct Contender {
  const AvailableGpu* gpu = nullptr;
  std::vector<std::string> product_labels;  // those that the template's own selectors let it use
  std::int64_t per_node = 1;
  std::int64_t least = 1;     // provisioning.minTrainers in whole nodes
  std::int64_t most = 0;      // provisioning.maxTrainers in whole nodes
  std::int64_t capacity = 0;  // of the cluster
  std::int64_t bound = 0;     // no smaller count can fit; 0 when `impossible` says why none can
  std::int64_t failed = 0;    // the largest count that has run out of memory on this model or a larger one
  std::string impossible;

  const std::string& name() const { return gpu->model.name; }
  double cost_of(std::int64_t trainers) const {
    return static_cast<double>(trainers) * gpu->model.relative_cost;
  }
};

Topology topology_of(const Contender& contender, std::int64_t trainers) {
  const GpuModel& gpu = contender.gpu->model;
  return {.trainers = trainers,
          .per_node = contender.per_node,
          .intra_node_bandwidth = gpu.intra_node_bandwidth,
          .inter_node_bandwidth = gpu.inter_node_bandwidth,
          .hbm_bandwidth = gpu.hbm_bandwidth};
}

// What decides between two choices, least first.
using Rank = std::tuple<double, double, std::int64_t, std::string>;

Rank rank_of(crds::Objective objective, const Contender& contender, std::int64_t trainers) {
  const auto count = static_cast<double>(trainers);
  const double cost = contender.cost_of(trainers);
  const bool by_cost = objective == crds::Objective::kLowestCost;
  return {by_cost ? cost : count, by_cost ? count : cost, -contender.gpu->model.hbm_bandwidth.count,
          contender.name()};
}

struct Found {
  const Contender* contender = nullptr;
  std::int64_t trainers = 0;
  Estimate estimate;
  Plan plan;
};

class ModelSearch {
 public:
  explicit ModelSearch(const ProvisionRequest& request)
      : request_(request),
        spec_(request.job->spec),
        asked_(original_request_of(*request.job)),
        tables_memory_(request.budget) {
    if (spec_.model.dlrm && !request.unestimated) {
      const std::vector<crds::EmbeddingTable>& groups = spec_.model.dlrm->tables;
      const BudgetCause cause(request.budget,
                              {"spec.model.dlrm.tables", static_cast<std::int64_t>(groups.size())});
      tables_memory_.resize(memory_of_expanded(groups));
      sharding_.tables = expand_tables(groups, request.budget);
    }
    sharding_.work_budget = request.budget;
    sharding_.batch_size = spec_.training.batch_size_per_trainer;
    sharding_.optimizer = spec_.training.embedding_optimizer;
    sharding_.allocated_bytes = true;  // what torchrec's planner leaves out runs out of memory all the same
    std::vector<std::string> warnings;
    runtime_ = runtime_settings_of(request.job->raw, warnings);
    for (std::string& warning : warnings) {
      warn(std::move(warning));
    }
    state_.emplace(sharding_);
  }

  Provision run();

 private:
  bool gather_contenders();
  void learn_from(const std::vector<FailedSize>& failed);
  Bytes shortfall(const FailedSize& failed);
  std::string no_count_left(const Contender& contender) const;
  void bound(Contender& contender);
  void bound_without_tables(Contender& contender);
  std::int64_t replica() const;
  std::string why_none(const Contender& contender, Bytes left);
  std::optional<Found> search(const Contender& contender, std::int64_t most, std::string& why_not);
  Result<Estimate> estimate(const Contender& contender, std::int64_t trainers, Bytes embeddings);
  Result<Bytes> budget(const Contender& contender, std::int64_t trainers);
  Result<Bytes> exact_budget(const Contender& contender, std::int64_t trainers);
  Bytes usable(const Contender& contender) const;
  std::string usable_text(const Contender& contender) const;
  std::int64_t most_that_beats(const Found& best, const Contender& contender) const;
  Candidate consider(Contender& contender, std::optional<Found>& best);
  std::optional<Found> race();
  void describe(Found found);
  Provision refuse(const char* event_reason, const std::string& reason);
  std::string sentence(const Found& found) const;
  void warn(std::string text) { answer_.warnings.push_back(shortened(std::move(text))); }
  template <class Compute>
  void within_budget(Contender& contender, Compute compute);

  const ProvisionRequest& request_;
  const crds::TrainingJobSpec& spec_;
  const OriginalRequest asked_;
  BudgetBytes tables_memory_;
  RuntimeSettings runtime_;
  ShardRequest sharding_;            // tables are kept; topology and budget change from search to search
  std::optional<StateBound> state_;  // of the tables
  Estimator estimator_;
  std::vector<Contender> contenders_;
  std::map<std::pair<std::string, std::int64_t>, Bytes> budgets_;
  Bytes shortfall_;                // what the estimates lack, as attempts that ran out of memory have shown
  std::optional<Error> failure_;   // of the estimator: nothing can be decided
  std::optional<Error> exceeded_;  // the budget, during a part of the search
  Provision answer_;
};

// What the card offers once the headroom is kept free, and what estimates lack.
Bytes ModelSearch::usable(const Contender& contender) const {
  const Bytes memory = contender.gpu->model.memory;
  return memory - Bytes::ceil(static_cast<double>(memory.count) * spec_.provisioning.headroom) - shortfall_;
}

Result<Estimate> ModelSearch::estimate(const Contender& contender, std::int64_t trainers, Bytes embeddings) {
  if (request_.unestimated) {
    return Estimate();
  }
  EstimateRequest request;
  request.model = &spec_.model;
  request.training = &spec_.training;
  request.graph = request_.graph;
  request.gpu = &contender.gpu->model;
  request.trainers = trainers;
  request.per_node = contender.per_node;
  request.embedding_bytes = embeddings;
  if (request_.profile != nullptr) {
    request.learned = crds::bounds_for(*request_.profile, contender.name());
    request.given = crds::given_bounds_for(*request_.profile, contender.name());
  }
  request.method = request_.method;
  request.runtime = runtime_;
  request.capacity = usable(contender);
  request.budget = request_.budget;
  return estimator_.estimate(request);
}

// What is left for embeddings on each of `trainers` trainers; negative when the dense part alone is too big.
Result<Bytes> ModelSearch::budget(const Contender& contender, std::int64_t trainers) {
  const auto known = budgets_.find({contender.name(), trainers});
  if (known != budgets_.end()) {
    return known->second;
  }
  Result<Estimate> reserved = estimate(contender, trainers, Bytes{});
  if (!reserved) {
    return reserved.error();
  }
  const Bytes left = usable(contender) - reserved->peak.upper_bound;
  budgets_[{contender.name(), trainers}] = left;
  return left;
}

// The embeddings that the estimate itself finds room for. It may add to their bytes, which the rest of the
// card alone does not tell; asking it here spares a second search for what the first one overlooked.
Result<Bytes> ModelSearch::exact_budget(const Contender& contender, std::int64_t trainers) {
  Result<Bytes> left = budget(contender, trainers);
  constexpr int kTries = 4;
  for (int i = 0; left && i<kTries&& * left> Bytes{}; ++i) {
    const Result<Estimate> full = estimate(contender, trainers, *left);
    if (!full) {
      return full.error();
    }
    const Bytes excess = full->peak.upper_bound - usable(contender);
    if (excess <= Bytes{}) {
      break;
    }
    left = *left - excess - 1_MiB;
  }
  return left;
}

// Fills contenders_ with the models that are present and allowed; false, with the answer's reason, when there
// are none.
bool ModelSearch::gather_contenders() {
  const std::vector<std::string>& allowed = spec_.provisioning.gpu_models;
  std::string present;
  std::set<std::string> cloud_values;
  for (const AvailableGpu& gpu : *request_.gpus) {
    cloud_values.insert(gpu.model.cloud_labels.begin(), gpu.model.cloud_labels.end());
    present += (present.empty() ? "" : ", ") + gpu.model.name;
  }
  for (const std::string& name : allowed) {
    if (std::none_of(request_.gpus->begin(), request_.gpus->end(),
                     [&](const AvailableGpu& gpu) { return same_name(gpu.model.name, name); })) {
      warn("spec.provisioning.gpuModels: no node has a GPU called \"" + name + "\"; the cluster has " +
           (present.empty() ? "none" : present));
    }
  }
  bool excluded_by_template = false;
  for (const AvailableGpu& gpu : *request_.gpus) {
    if (!allowed.empty() && std::none_of(allowed.begin(), allowed.end(), [&](const std::string& name) {
          return same_name(gpu.model.name, name);
        })) {
      continue;
    }
    Contender contender{.gpu = &gpu, .product_labels = {}, .impossible = {}};
    std::copy_if(gpu.product_labels.begin(), gpu.product_labels.end(),
                 std::back_inserter(contender.product_labels),
                 [&](const std::string& label) { return asked_.allows(gpu, label, cloud_values); });
    if (contender.product_labels.empty()) {
      excluded_by_template = true;
      continue;
    }
    // perNode is the user's upper limit: it is lowered to what nodes have, and never raised.
    contender.per_node = std::max<std::int64_t>(1, gpu.gpus_per_node > 0
                                                       ? std::min(gpu.gpus_per_node, asked_.trainers.per_node)
                                                       : asked_.trainers.per_node);
    contender.least = whole_replicas(std::max<std::int64_t>(1, spec_.provisioning.min_trainers),
                                     contender.per_node, replica());
    contender.most = round_down(spec_.provisioning.max_trainers, contender.per_node);
    contender.capacity = capacity_of(gpu, contender.per_node);
    contenders_.push_back(std::move(contender));
  }
  if (!contenders_.empty()) {
    return true;
  }
  answer_.event_reason = "NoGPUInCluster";
  if (request_.gpus->empty()) {
    answer_.reason = "no schedulable node of the cluster has a GPU that Plimsoll knows";
  } else if (excluded_by_template) {
    answer_.reason =
        "the template's node selector or affinity excludes every allowed GPU; the cluster has " + present;
  } else {
    answer_.reason = "none of spec.provisioning.gpuModels is in the cluster, which has " + present;
  }
  return false;
}

std::string ModelSearch::usable_text(const Contender& contender) const {
  return to_string(usable(contender)) +
         (shortfall_ > Bytes{}
              ? " (" + to_string(shortfall_) + " less, which attempts needed beyond their estimate)"
              : std::string());
}

// How much more a trainer of this size needed than it is estimated to, today.
Bytes ModelSearch::shortfall(const FailedSize& failed) {
  const auto found = std::find_if(request_.gpus->begin(), request_.gpus->end(), [&](const AvailableGpu& gpu) {
    return same_name(gpu.model.name, failed.gpu_model);
  });
  if (found == request_.gpus->end()) {
    // It was thought to fit, or it was not Plimsoll's to decide.
    return failed.needed -
           Bytes::ceil(static_cast<double>(failed.capacity.count) * (1 - spec_.provisioning.headroom));
  }
  const Contender size{.gpu = &*found,
                       .product_labels = {},
                       .per_node = std::max<std::int64_t>(1, failed.per_node),
                       .impossible = {}};
  Bytes embeddings;
  if (!sharding_.tables.empty()) {
    const Result<Bytes> left = exact_budget(size, failed.trainers);
    if (!left) {
      return {};
    }
    sharding_.topology = topology_of(size, failed.trainers);
    sharding_.budget = *left;
    const Result<Plan> plan = shard(sharding_);
    if (!plan) {
      return failed.needed - usable(size);  // it is estimated not to fit
    }
    embeddings = plan->max_memory;
  }
  const Result<Estimate> today = estimate(size, failed.trainers, embeddings);
  return today ? failed.needed - today->peak.upper_bound : Bytes{};
}

void ModelSearch::learn_from(const std::vector<FailedSize>& failed) {
  Bytes most;
  for (const FailedSize& size : failed) {
    if (size.needed > Bytes{} && size.trainers > 0) {
      most = std::max(most, shortfall(size));
    }
  }
  for (Contender& contender : contenders_) {
    contender.failed = trainers_ruled_out(failed, *contender.gpu);
    if (contender.failed >= contender.least) {
      contender.least = whole_replicas(contender.failed + 1, contender.per_node, replica());
    }
  }
  budgets_.clear();
  shortfall_ = most;
}

std::string ModelSearch::no_count_left(const Contender& contender) const {
  const std::string most = "provisioning.maxTrainers " + std::to_string(spec_.provisioning.max_trainers);
  if (contender.failed > 0) {
    return "out of memory on " + std::to_string(contender.failed) + " trainers before, and " + most +
           " leaves no larger count in whole nodes of " + std::to_string(contender.per_node);
  }
  return most + " leaves no count from minTrainers " + std::to_string(spec_.provisioning.min_trainers) +
         " up in whole nodes of " + std::to_string(contender.per_node);
}

// What the most trainers lack, in full.
std::string ModelSearch::why_none(const Contender& contender, Bytes left) {
  sharding_.topology = topology_of(contender, contender.most);
  sharding_.budget = left;
  const Infeasibility found = rule_out(sharding_);
  return found.constraint + ": " + found.reason;
}

// Trainers that hold one copy of the model between them.
std::int64_t ModelSearch::replica() const {
  const crds::Parallelism& parallelism = spec_.training.parallelism;
  return std::max<std::int64_t>(1, parallelism.tensor * parallelism.pipeline * parallelism.context);
}

// A model without tables is given the fewest trainers that hold it: all counts take the same, or, where
// trainers share parameters, gradients or state, more take less.
void ModelSearch::bound_without_tables(Contender& contender) {
  if (contender.failed > 0 && !more_trainers_take_less(spec_)) {
    contender.impossible = "out of memory on " + std::to_string(contender.failed) +
                           " trainers before, and each of more would hold as much";
    return;
  }
  const std::int64_t most = std::min(contender.most, std::max(contender.capacity, contender.least));
  std::vector<std::int64_t> counts = {contender.least};
  while (more_trainers_take_less(spec_)) {
    charge(request_.budget, 1);
    const std::int64_t next = whole_replicas(counts.back() + 1, contender.per_node, replica());
    if (next > most) {
      break;
    }
    counts.push_back(next);
  }
  auto too_few = counts.begin();  // none before it fits
  auto enough = counts.end();     // all from it on do
  while (too_few != enough) {
    const auto middle = too_few + (enough - too_few) / 2;
    const Result<Bytes> left = budget(contender, *middle);
    if (!left) {
      failure_ = left.error();
      return;
    }
    if (*left >= Bytes{}) {
      enough = middle;
    } else {
      too_few = middle + 1;
      contender.impossible = "the model without its embeddings exceeds " + usable_text(contender) +
                             " of a GPU by " + to_string(Bytes{} - *left) + " on " + std::to_string(*middle) +
                             " trainers";
    }
  }
  if (enough == counts.end()) {
    return;
  }
  contender.impossible.clear();
  contender.bound = *enough;
  if (contender.bound > contender.capacity) {
    contender.impossible = "needs at least " + std::to_string(contender.bound) +
                           " GPUs, and the cluster has " + std::to_string(contender.capacity) +
                           " in nodes of " + std::to_string(contender.per_node);
  }
}

// The smallest count that the tables' state alone cannot exclude: one comparison a count, no look at how
// tables may be sharded. Reserved memory grows with the count, so a bound found with the reserve of fewer
// trainers holds, and is tightened with the reserve of its own until it stands.
void ModelSearch::bound(Contender& contender) {
  if (contender.least > contender.most) {
    contender.impossible = no_count_left(contender);
    return;
  }
  if (sharding_.tables.empty()) {
    bound_without_tables(contender);
    return;
  }
  std::int64_t count = contender.least;
  while (true) {
    const Result<Bytes> left = budget(contender, count);
    if (!left) {
      failure_ = left.error();
      return;
    }
    if (*left < Bytes{}) {
      contender.impossible = "the model without its embeddings exceeds " + usable_text(contender) +
                             " of a GPU by " + to_string(Bytes{} - *left);
      return;
    }
    std::int64_t fewest = count;
    while (fewest < contender.most && state_->rules_out(fewest, *left)) {
      charge(request_.budget, 1);
      fewest = round_up(fewest + 1, contender.per_node);
    }
    if (fewest >= contender.most && state_->rules_out(fewest, *left)) {
      contender.impossible = why_none(contender, *left);
      return;
    }
    if (fewest == count) {
      break;
    }
    count = fewest;
  }
  contender.bound = count;
  if (count > contender.capacity) {
    contender.impossible = "needs at least " + std::to_string(count) + " GPUs, and the cluster has " +
                           std::to_string(contender.capacity) + " in nodes of " +
                           std::to_string(contender.per_node);
  }
}

// The smallest count from the bound up to `most` whose plan fits, with the estimate of its fullest trainer.
std::optional<Found> ModelSearch::search(const Contender& contender, std::int64_t most,
                                         std::string& why_not) {
  Found found{.contender = &contender, .trainers = contender.bound, .estimate = {}, .plan = {}};
  Bytes withheld;  // what the estimate adds for embeddings beyond their own bytes
  while (true) {
    if (!sharding_.tables.empty()) {
      sharding_.topology = topology_of(contender, found.trainers);
      Result<FewestTrainersPlan> smallest = shard_on_fewest_trainers(
          sharding_, found.trainers, most, [&](std::int64_t trainers) -> Result<Bytes> {
            const Result<Bytes> left = exact_budget(contender, trainers);
            return left ? Result<Bytes>(*left - withheld) : left;
          });
      if (!smallest) {
        why_not = smallest.error().message;
        return std::nullopt;
      }
      found.trainers = smallest->trainers;
      found.plan = std::move(smallest->plan);
    }
    Result<Estimate> peak = estimate(contender, found.trainers, found.plan.max_memory);
    if (!peak) {
      why_not = peak.error().message;
      return std::nullopt;
    }
    const Bytes excess = peak->peak.upper_bound - usable(contender);
    if (excess <= Bytes{}) {
      found.estimate = *std::move(peak);
      found.estimate.breakdown.allocator_slack += shortfall_;
      found.estimate.peak.upper_bound += shortfall_;
      found.estimate.learned += shortfall_;
      return found;
    }
    if (sharding_.tables.empty()) {
      why_not = "a trainer takes " + to_string(peak->peak.upper_bound) + ", and " + usable_text(contender) +
                " may be used";
      return std::nullopt;
    }
    withheld += excess + 1_MiB;  // a step that ends the loop where the excess alone would only approach 0
  }
}

// The largest count of this model that would still be chosen over the best found.
std::int64_t ModelSearch::most_that_beats(const Found& best, const Contender& contender) const {
  const Rank to_beat = rank_of(spec_.provisioning.objective, *best.contender, best.trainers);
  std::int64_t most = 0;
  const std::int64_t limit = std::min(contender.most, contender.capacity);
  for (std::int64_t count = contender.bound;
       count <= limit && rank_of(spec_.provisioning.objective, contender, count) < to_beat;
       count = round_up(count + 1, contender.per_node)) {
    charge(request_.budget, 1);
    most = count;
  }
  return most;
}

std::string ModelSearch::sentence(const Found& found) const {
  const crds::Trainers& asked = asked_.trainers;
  const Contender& contender = *found.contender;
  std::string text = gpus_text(found.trainers, contender.name());
  const bool same_model = asked.gpu_model.empty() || same_name(asked.gpu_model, contender.name());
  if (asked.asked && asked.replicas == found.trainers && same_model) {
    text += " GPUs, as asked";
  } else {
    text += spec_.provisioning.objective == crds::Objective::kLowestCost
                ? " GPUs are the cheapest choice that holds the job"
                : " GPUs are the fewest that hold the job";
  }
  if (asked.asked && !(asked.replicas == found.trainers && same_model)) {
    text += "; " +
            (asked.gpu_model.empty() ? std::to_string(asked.replicas)
                                     : gpus_text(asked.replicas, asked.gpu_model)) +
            " asked for";
    if (found.trainers < asked.replicas) {
      text += ", " + std::to_string(asked.replicas - found.trainers) + " saved";
    } else if (found.trainers > asked.replicas && found.trainers == contender.least) {
      text += ", below minTrainers in whole nodes";
    } else if (found.trainers > asked.replicas) {
      text += ", too few to hold it";
    }
  }
  const std::int64_t there = contender.gpu->total_gpus - contender.gpu->addable_gpus;
  if (found.trainers > there) {
    text +=
        "; " + std::to_string(found.trainers - there) + " of them on nodes that autoscaling has yet to add";
  }
  return text + ". Peak at most " + to_string(found.estimate.peak.upper_bound) + " of " +
         to_string(contender.gpu->model.memory) + " a GPU";
}

void ModelSearch::describe(Found found) {
  const Contender& contender = *found.contender;
  const crds::Trainers& now = spec_.trainers;
  const bool already = now.replicas == found.trainers && now.per_node == contender.per_node &&
                       (now.gpu_model.empty() || same_name(now.gpu_model, contender.name()));
  const bool recommend_only = spec_.provisioning.mode == crds::ProvisioningMode::kOff;
  answer_.event_reason = already ? "AlreadyRight" : recommend_only ? "Recommended" : "Provisioned";
  answer_.reason = sentence(found);
  answer_.decision = Decision{.gpu_model = contender.name(),
                              .product_labels = contender.product_labels,
                              .trainers = found.trainers,
                              .per_node = contender.per_node,
                              .reason = answer_.reason,
                              .estimate = std::move(found.estimate),
                              .plan = std::move(found.plan),
                              .capacity = contender.gpu->model.memory};
  if (exceeded_) {
    warn("not all GPU models were compared: " + contender.name() + " fits, another might take fewer; " +
         exceeded_->message);
  }
  if (!already && !recommend_only) {
    warn(answer_.reason);
    if (found.trainers > contender.gpu->free_gpus) {
      warn("only " + std::to_string(contender.gpu->free_gpus) + " of the cluster's " +
           std::to_string(contender.gpu->total_gpus - contender.gpu->addable_gpus) + " " + contender.name() +
           " GPUs are free now: the job will wait");
    }
  }
}

Provision ModelSearch::refuse(const char* event_reason, const std::string& reason) {
  answer_.event_reason = event_reason;
  answer_.reason = reason;
  warn(reason + "; the job keeps its " + std::to_string(spec_.trainers.replicas) + " trainers");
  return std::move(answer_);
}

// What the budget does not allow is not known to fit; what was found before it was exceeded is kept.
template <class Compute>
void ModelSearch::within_budget(Contender& contender, Compute compute) {
  if (request_.budget == nullptr) {
    compute();
    return;
  }
  const Result<void> done = request_.budget->run([&]() -> Result<void> {
    compute();
    return {};
  });
  if (!done) {
    contender.impossible = done.error().message;
    exceeded_ = exceeded_ ? exceeded_ : std::optional(done.error());
  }
}

// Searches one model for what beats the best so far, and tells what came of it.
Candidate ModelSearch::consider(Contender& contender, std::optional<Found>& best) {
  Candidate candidate{.gpu_model = contender.name(),
                      .trainers = contender.bound,
                      .per_node = contender.per_node,
                      .reason = contender.impossible};
  if (!contender.impossible.empty()) {
    return candidate;
  }
  const std::int64_t limit = std::min(contender.most, contender.capacity);
  std::int64_t most = limit;
  if (best) {
    within_budget(contender, [&] { most = most_that_beats(*best, contender); });
  }
  if (most == 0) {
    candidate.reason = "takes at least " + gpus_text(contender.bound, contender.name()) +
                       ", no better than " + gpus_text(best->trainers, best->contender->name());
    return candidate;
  }
  candidate.searched = true;
  std::string why_not;
  std::optional<Found> found;
  within_budget(contender, [&] { found = search(contender, most, why_not); });
  if (found) {
    candidate.fits = true;
    candidate.trainers = found->trainers;
    candidate.reason = "fits, peak at most " + to_string(found->estimate.peak.upper_bound) + " of " +
                       to_string(contender.gpu->model.memory);
    best = std::move(found);
    return candidate;
  }
  candidate.trainers = most;
  candidate.reason = !contender.impossible.empty() ? contender.impossible
                     : best && most < limit        ? "does not fit on " + gpus_text(most, contender.name()) +
                                                  ", and more would be no better than " +
                                                  gpus_text(best->trainers, best->contender->name())
                                            : "does not fit: " + why_not;
  return candidate;
}

// The most promising model first: the sooner a good answer is known, the fewer models need a search.
std::optional<Found> ModelSearch::race() {
  const auto promise = [&](const Contender& contender) {
    return std::pair(!contender.impossible.empty(),
                     rank_of(spec_.provisioning.objective, contender, contender.bound));
  };
  std::sort(contenders_.begin(), contenders_.end(),
            [&](const Contender& a, const Contender& b) { return promise(a) < promise(b); });
  std::optional<Found> best;
  std::vector<std::pair<std::pair<bool, Rank>, Candidate>> ranked;
  for (Contender& contender : contenders_) {
    Candidate candidate = consider(contender, best);
    candidate.cost = contender.cost_of(candidate.trainers);
    const Rank rank = rank_of(spec_.provisioning.objective, contender, candidate.trainers);
    ranked.emplace_back(std::pair(!candidate.fits, candidate.fits ? rank : Rank{}), std::move(candidate));
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& entry : ranked) {
    answer_.alternatives.push_back(std::move(entry.second));
  }
  return best;
}

Provision ModelSearch::run() {
  if (text_member(request_.job->raw, {"metadata", "annotations", crds::kProvisioningAnnotation}) ==
      "disabled") {
    answer_.event_reason = "Disabled";
    answer_.reason = std::string("the annotation ") + crds::kProvisioningAnnotation + " says disabled";
    return std::move(answer_);
  }
  const std::optional<crds::DlrmModel>& dlrm = spec_.model.dlrm;
  if (dlrm && dlrm->tables.empty() && dlrm->tables_from && !request_.unestimated) {
    return refuse("ModelUnknown", "the embedding tables in ConfigMap " + dlrm->tables_from->config_map_name +
                                      " were not read");
  }
  if (!gather_contenders()) {
    return refuse("NoGPUInCluster", answer_.reason);
  }
  learn_from(request_.failed);
  for (Contender& contender : contenders_) {
    within_budget(contender, [&] { bound(contender); });
    if (failure_) {
      return refuse(failure_->code == ErrorCode::kUnsupported ? "ModelUnknown" : "EstimateFailed",
                    failure_->message);
    }
  }
  if (std::optional<Found> best = race()) {
    describe(*std::move(best));
    return std::move(answer_);
  }
  if (exceeded_) {
    return refuse(event_reason_of(*exceeded_), exceeded_->message);
  }
  if (spec_.provisioning.placement == crds::Placement::kHBMOrSwap) {
    warn("spec.provisioning.placement HBMOrSwap: this version places in GPU memory only");
  }
  const Candidate& nearest = answer_.alternatives.front();
  return refuse("NoFittingGPU",
                "no allowed GPU of the cluster holds this job; " + nearest.gpu_model + ": " + nearest.reason);
}

}  // namespace

bool more_trainers_take_less(const crds::TrainingJobSpec& spec) {
  using enum crds::ParallelStrategy;
  const std::optional<crds::DlrmModel>& dlrm = spec.model.dlrm;
  const bool has_tables = dlrm && (!dlrm->tables.empty() || dlrm->tables_from);
  const crds::ParallelStrategy strategy = spec.training.parallelism.strategy;
  return has_tables || (strategy != kAuto && strategy != kDDP);
}

Provision provision(const ProvisionRequest& request) {
  assert(request.job != nullptr && request.gpus != nullptr);
  if (request.budget == nullptr) {
    return ModelSearch(request).run();
  }
  Result<Provision> answer =
      request.budget->run([&]() -> Result<Provision> { return ModelSearch(request).run(); });
  if (answer) {
    return *std::move(answer);
  }
  Provision none;
  none.event_reason = event_reason_of(answer.error());
  none.reason = answer.error().message;
  none.warnings.push_back(shortened(none.reason + "; the job keeps its " +
                                    std::to_string(request.job->spec.trainers.replicas) + " trainers"));
  return none;
}

}  // namespace plimsoll::estimator::provisioner
