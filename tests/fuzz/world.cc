#include "tests/fuzz/world.h"

#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "crds/embedding_tables_csv.h"
#include "crds/gpu_model.h"
#include "estimator/catalog/gpu_catalog.h"
#include "estimator/trace/import_graph.h"
#include "tests/checkout.h"
#include "tests/fuzz/long_graph.h"

namespace plimsoll::testing {
namespace {

Json gpu_model(const char* name, const char* label, std::int64_t memory_mib) {
  crds::GpuModelStatus status;
  status.total_gpus = status.free_gpus = 512;
  status.nodes.push_back({.gpus_per_node = 8, .nodes = 64});
  status.product_labels.emplace_back(label);
  status.memory = Bytes::from_mib(memory_mib);
  Json object;
  object["apiVersion"] = crds::kApiVersion;
  object["kind"] = "GPUModel";
  object["metadata"]["name"] = name;
  object["status"] = crds::encode_status(status);
  return object;
}

Json memory_profile() {
  return *parse_json(R"({"apiVersion": "plimsoll.dev/v1alpha1", "kind": "MemoryProfile",
    "metadata": {"name": "ads", "namespace": "ads"}, "spec": {"family": "ads"},
    "status": {"bounds": [{"gpuModel": "", "contextBytes": "600Mi", "communicationBytes": "1Gi"}]}})");
}

std::string some_tables(int count) {
  std::string csv = "name,rows,dim,pooling_factor\n";
  for (int i = 0; i < count; ++i) {
    const int rows = 1000 * (1 + i % 37) * (1 + i % 101);
    csv += "t" + std::to_string(i) + "," + std::to_string(rows) + "," + std::to_string(16 << (i % 4)) + "," +
           std::to_string(1 + i % 20) + "\n";
  }
  return csv;
}

estimator::SharedTables tables_of(const std::string& csv) {
  return std::make_shared<const std::vector<crds::EmbeddingTable>>(*crds::parse_embedding_tables_csv(csv));
}

// The trace also as if it were of a GPU: what a decision asks for.
estimator::SharedGraph graph_of(const std::string& text) {
  estimator::TraceFile file = *estimator::import_traces(text);
  estimator::Trace cuda = file.traces.front();
  cuda.device = estimator::Device::kCuda;
  file.traces.push_back(std::move(cuda));
  return std::make_shared<const estimator::TraceFile>(std::move(file));
}

std::string text_of_file(const char* path) {
  std::ifstream file(std::string(PLIMSOLL_SOURCE_DIR) + "/" + path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class FixedModels final : public estimator::ModelSource {
 public:
  Result<estimator::SharedTables> tables(const std::string& /*namespace_name*/, const crds::TablesFrom& from,
                                         Budget* /*budget*/) override {
    return find(tables_, from.key);
  }
  Result<estimator::SharedGraph> graph(const std::string& /*namespace_name*/,
                                       const crds::GraphReference& from, Budget* /*budget*/) override {
    return find(graphs_, from.key);
  }
  Result<estimator::SharedText> text(const std::string& /*namespace_name*/,
                                     const std::string& /*config_map_name*/, const std::string& key,
                                     Budget* /*budget*/) override {
    return Error(ErrorCode::kNotFound, "there is no " + key);
  }

 private:
  template <class T>
  static Result<T> find(const std::map<std::string, T>& known, const std::string& key) {
    const auto found = known.find(key);
    return found == known.end() ? Result<T>(Error(ErrorCode::kNotFound, "there is no " + key))
                                : Result<T>(found->second);
  }

  const std::map<std::string, estimator::SharedTables> tables_{{"tables.csv", tables_of(some_tables(40))},
                                                               {"many.csv", tables_of(some_tables(20'000))}};
  const std::map<std::string, estimator::SharedGraph> graphs_{
      {"graph.json", graph_of(text_of_file("tests/estimator/graphs/gpt.json"))},
      {"long.json", graph_of(long_graph(3000))}};
};

}  // namespace

const estimator::ClusterView& fuzz_cluster() {
  static const std::shared_ptr<const estimator::ClusterView> view = estimator::make_cluster_view(
      estimator::GpuCatalog::built_in(),
      {gpu_model("a100-40gb", "NVIDIA-A100-SXM4-40GB", 40960),
       gpu_model("a100-80gb", "NVIDIA-A100-SXM4-80GB", 81920),
       gpu_model("h100-80gb", "NVIDIA-H100-80GB-HBM3", 81559), gpu_model("h200", "NVIDIA-H200", 143771),
       gpu_model("v100-32gb", "Tesla-V100-SXM2-32GB", 32768)},
      {memory_profile()});
  return *view;
}

estimator::ModelSource& fuzz_models() {
  static FixedModels models;
  return models;
}

Result<DecidedJob> decide(const JsonView& object, Budget& budget) {
  Result<crds::TrainingJob> job = crds::decode_training_job(object);
  if (!job) {
    return job.error();
  }
  if (const std::vector<crds::FieldError> wrong = crds::validate(*job); !wrong.empty()) {
    return invalid(crds::to_string(wrong));
  }
  const Result<estimator::SharedGraph> graph = estimator::resolve_model(*job, &fuzz_models(), &budget);
  if (!graph) {
    return graph.error();
  }
  const estimator::ClusterView& cluster = fuzz_cluster();
  estimator::Provision provision =
      estimator::provision({.job = &*job,
                            .graph = graph->get(),
                            .gpus = &cluster.gpus,
                            .profile = cluster.profile_of(job->namespace_name, job->spec.model.family),
                            .budget = &budget});
  return DecidedJob{*std::move(job), std::move(provision)};
}

Budget::Limits decision_limits(std::chrono::milliseconds time) {
  return {.deadline = std::chrono::steady_clock::now() + time, .memory = estimator::kDecisionMemory};
}

}  // namespace plimsoll::testing
