// What the examples of estimator/ leave open.
#pragma once

#include "estimator/execute/run_trace.h"
#include "estimator/provisioner/provisioner.h"
#include "estimator/spec/forward_graph.h"
#include "tests/header_examples/anything.h"

namespace plimsoll::examples {
using namespace estimator;

struct original_request_example {
  crds::TrainingJob job;
  AvailableGpu gpu;
  Anything cloud_values;
};
struct gpu_catalog_example {
  Anything gpu_model_from_the_cluster;
};
struct cluster_view_example {
  GpuCatalog catalog;
  PackedJson object;
  ClusterViewStore store;
};
struct size_exclusion_example {
  ProvisionRequest request;
  crds::TrainingJob job;
  crds::JobStatus status;
  std::vector<AvailableGpu> gpus;
};
struct import_graph_example {
  std::string content;
};
struct dhen_example {
  ModelBuilder& builder;
  crds::DlrmModel model;
  TensorId x;
};
struct dlrm_example {
  crds::TrainingJob job;
};
struct transformer_example {
  crds::TrainingJob job;
};
struct model_builder_example {
  TensorId x;
};
struct small_list_example {
  TensorId x, weight, bias;
};
struct trace_example {
  TraceFile graph;
};
struct transformer_spec_example {
  crds::TrainingJob job;
};
struct json_patch_example {
  crds::TrainingJob job;
};
struct peak_example {
  Ledger& ledger;
  EstimateRequest request;
  Bytes dense_parameters;
};
struct replay_example {
  Ledger& ledger;
};
struct caching_allocator_example {
  Anything out_of_memory();
};
struct convolution_example {
  Anything x, y;
};
struct estimate_example {
  crds::TrainingJob job;
  GpuModel a100;
};
struct free_blocks_example {
  std::int64_t size, address, wanted, limit;
  std::int32_t block;
};
struct rules_example {
  KernelCall call;
};
struct ledger_example {
  std::int64_t kCudaGranule;
  Bytes weight, bytes;
};
struct life_cycle_example {
  ParameterLedger& ledger;
  Replication replication;
  BudgetVector<ReplicaParameter> parameters;
  OptimizerRun optimizer;
  BlockId block;
};
struct pipeline_example {
  Trace trace;
  Anything blocks, producer;
  std::int64_t batch;
  Result<std::vector<std::int32_t>> parts_of_operators(const Trace&, int stages, const Anything& blocks);
  struct Options {
    std::int64_t batch;
  };
  void run_trace(const Trace&, const Anything& producer, Options options);
};
struct runtime_settings_example {
  crds::TrainingJob job;
  std::vector<std::string> warnings;
};
struct spec_run_example {
  EstimateRequest request;
};
struct split_rules_example {
  KernelCall call;
  Anything operands;
};
struct tensor_split_example {
  Trace trace;
};
struct run_trace_example {
  Trace trace;
  Anything producer;
  BlockId block;
};
struct model_source_example {
  crds::TrainingJob job;
  ModelSource* source;
  Budget budget;
};
struct candidates_example {
  crds::TrainingJob job;
  std::vector<AvailableGpu> gpus;
  std::vector<FailedSize> failed;
  void warn(const std::string& reason);
};
struct trainer_count_search_example {
  ProvisionRequest request;
  Candidate candidate;
  std::int64_t most;
  std::string why_not;
};
struct provisioner_example {
  crds::TrainingJob job;
  std::vector<AvailableGpu> gpus;
  const crds::MemoryProfile* profile;
  void patch_with(const Decision& decision);
  void warn(const std::string& reason);
};
struct cost_example {
  ShardRequest request;
  Table table;
};
struct options_example {
  ShardRequest request;
  std::size_t table;
};
struct placement_example {
  std::int64_t trainers, steps;
  std::size_t measures;
  Amount unsharded, unit, limits;
  std::vector<Piece> pieces;
  double target;
};
struct search_example {
  ShardRequest request;
  Options& options;
  MemoryLimits limits;
  std::int64_t trainers;
  void use(const Selection& selection, const Places& places);
};
struct selection_example {
  Options& options;
  struct {
    double milliseconds;
    Anything prices;
  } bound;
  Caps caps;
  double cap, bytes;
};
struct shard_example {
  std::vector<Table> tables;
};
struct exact_search_example {
  ShardRequest request;
  Options& options;
  MemoryLimits limits;
  double best_milliseconds;
};
struct trainer_loads_example {
  Decision decision;
};

struct record_example {
  ForwardGraph graph;
  TraceProducer producer;
};

}  // namespace plimsoll::examples
