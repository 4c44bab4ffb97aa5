// What the examples of estimator/ leave open.
#pragma once

#include "estimator/execute/prepared_trace.h"
#include "estimator/execute/recorded_run.h"
#include "estimator/execute/run_trace.h"
#include "estimator/execute/shared_parameters.h"
#include "estimator/execute/trace_run.h"
#include "estimator/layer_costs/graph_cut.h"
#include "estimator/layer_costs/profiled_layers.h"
#include "estimator/provisioner/candidates.h"
#include "estimator/provisioner/original_request.h"
#include "estimator/provisioner/provisioner.h"
#include "estimator/sharder/plan.h"
#include "estimator/spec/forward_graph.h"
#include "estimator/speed/data_parallel_time.h"
#include "estimator/speed/iteration_time.h"
#include "estimator/swap/packed_volumes.h"
#include "estimator/swap/planner.h"
#include "estimator/swap/simulator.h"
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
struct iteration_time_example {
  EstimateRequest request;
  Plan plan;
};
struct graph_time_example {
  Trace& trace;
  KernelTimes& kernel_times;
};
struct stage_time_example {
  ForwardGraph& graph;
  KernelTimes& times;
  StageOptions options;
};
struct data_parallel_time_example {
  StageTime stage;
  crds::TrainingSpec training;
  DataParallelGroups groups;
  KernelTimes& kernel_times;
};
struct operator_work_example {
  ForwardGraph& graph;
  std::int32_t i;
};
struct kernel_time_example {
  GpuModel gpu;
  crds::TrainingSpec training;
  OperatorWork work;
};
struct embedded_table_example {
  std::string text;
};
struct small_list_example {
  TensorId x, weight, bias;
};
struct profile_example {
  JsonView json;
};
struct volumes_example {
  std::vector<SwapLayer> layers;
};
struct packed_volumes_example {
  SwapPlan plan;
  SwapProfile profile;
};
struct simulator_example {
  SwapPlan plan;
  SwapProfile profile;
  SwapMachine machine;
};
struct task_loads_example {
  SwapPlan plan;
  SwapCosts& costs;
};
struct planner_example {
  SwapProfile profile;
  SwapMachine machine;
};
struct layer_profile_example {
  EstimateRequest request;
  SwapMachine machine;
};
struct layer_memory_example {
  Recording recording;
  TraceProducer producer;
};
struct layer_sizes_example {
  Trace trace;
  TraceShapes& shapes;
  OptimizerRun optimizer;
};
struct host_update_example {
  Bytes w, k;
};
struct graph_parts_example {
  Trace trace;
  Budget* budget;
};
struct graph_cut_example {
  Trace trace;
  GraphParts parts;
  Budget* budget;
};
struct layer_rows_example {
  GraphCut& graph_cut;
};
struct spec_layers_example {
  EstimateRequest request;
  crds::TrainingSpec training;
  HostTraining host;
};
struct graph_layers_example {
  EstimateRequest request;
  crds::TrainingSpec training;
  HostTraining host;
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
struct ordered_blocks_example {
  std::int64_t size, address, wanted, limit;
  std::int32_t block;
};
struct life_script_example {
  ParameterLifeCycle& life;
  Ledger& ledger;
  std::int32_t unit;
  Replication replication;
  BudgetVector<ReplicaParameter> parameters;
  OptimizerRun optimizer;
  crds::CheckpointSaving saving;
  Budget* budget;
  Anything use(const Ledger& other);
};
struct rules_example {
  KernelCall call;
};
struct ledger_example {
  std::int64_t kCudaGranule;
  Bytes weight, bytes;
};
struct card_limits_example {
  crds::TrainingJob job;
  const TraceFile* graph;
  AvailableGpu gpu;
};
struct host_link_example {
  GpuModel gpu;
};
struct host_step_example {
  crds::TrainingSpec training;
};
struct offload_search_example {
  EstimateRequest request;
};
struct remedy_search_example {
  EstimateRequest request;
};
struct explain_example {
  EstimateRequest request;
  Estimate estimate;
};
struct floor_example {
  EstimateRequest request;
  TraceRun& trace_run;
  Bytes capacity;
  Anything skip(int trainers);
};
struct graph_estimate_example {
  EstimateRequest request;
  KnownReplays replays;
};
struct initialisation_example {
  EstimateRequest request;
  SpecRun& spec_run;
  Estimate estimate;
};
struct margins_example {
  EstimateRequest request;
  Ledger& ledger;
  Breakdown breakdown;
  ConvolutionTotals convolutions;
};
struct config_keys_example {
  Json json;
  TransformerSpec spec;
};
struct gated_delta_mixer_example {
  TransformerContext& context;
  TensorId x;
};
struct state_space_mixer_example {
  TransformerContext& context;
  TensorId x;
};
struct transformer_feed_forward_example {
  TransformerContext& context;
  TensorId x;
};
struct transformer_front_end_example {
  TransformerContext& context;
  TensorId x;
};
struct transformer_part_example {
  Anything spec;
  Anything training, part, builder, patterns;
};
struct transformer_attention_example {
  TransformerContext& context;
  TensorId x;
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
struct spec_parts_example {
  crds::ModelSpec model;
  crds::TrainingSpec training;
  TransformerSpec spec;
  RecordOptions options;
};
struct other_passes_example {
  EstimateRequest request;
  const TransformerSpec* spec;
  Bytes inputs;
};
struct split_rules_example {
  KernelCall call;
  Anything operands;
};
struct tensor_split_example {
  Trace trace;
};
struct shared_parameters_example {
  TraceRunRequest request;
  Trace trace;
  PreparedTrace prepared;
  std::size_t storage;
  std::size_t parameter;
};
struct recorded_run_example {
  std::shared_ptr<const RecordedRun> recorded;
  std::vector<const Trace*> traces;
  TraceRunRequest request;
  OptimizerRun optimizer;
};
struct prepared_trace_example {
  Trace trace;
  Anything producer;
  TraceRunRequest request;
};
struct trace_run_example {
  const TraceRun& found;
  BlockId block;
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
struct host_memory_example {
  PlannedSwap plan;
  crds::TrainingJobSpec spec;
  Estimate estimate;
};
struct swap_machine_example {
  AvailableGpu gpu;
};
struct swap_search_example {
  EstimateRequest request;
};
struct swap_training_example {
  Decision decision;
};
struct through_host_example {
  ProvisionRequest request;
  OriginalRequest original;
  std::vector<Candidate> capable;
  std::function<Provision(const ProvisionRequest&)> decide;
};
struct candidates_example {
  crds::TrainingJob job;
  const TraceFile* graph;
  std::vector<AvailableGpu> gpus;
  std::vector<FailedSize> failed;
  void warn(const std::string& reason);
};
struct throughput_example {
  crds::TrainingJobSpec spec;
  std::optional<double> requested;
  Result<double> rate;
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
struct exchange_example {
  ShardRequest request;
  Plan plan;
};
struct graph_tables_example {
  Trace trace;
  std::vector<crds::EmbeddingTable> tables;
};
struct lookups_example {
  Trace trace;
  TraceOperator op;
};
struct import_tables_example {
  JsonView root;
  Budget* budget;
};

struct changes_that_fit_example {
  ProvisionRequest request;
  Decide decide;
  void warn(const std::string& text);
};
struct adapter_config_example {
  std::string text;
};
struct fine_tuning_example {
  crds::TrainingSpec training;
  TransformerSpec spec;
};

struct record_example {
  ForwardGraph graph;
  TraceProducer producer;
};

}  // namespace plimsoll::examples
