#include "cli/jobs.h"

#include "base/json/edit.h"
#include "cli/cluster_state.h"

namespace plimsoll::cli {
namespace {

Result<crds::TrainingJob> read_job(const Document& document, const std::string& default_namespace,
                                   const ConfigMapReader& config_maps) {
  Result<crds::TrainingJob> job = crds::decode_training_job(document.object);
  if (!job) {
    return job.error();
  }
  if (text_member(document.object, {"metadata", "namespace"}).empty()) {
    job->namespace_name = default_namespace;
  }
  if (const std::vector<crds::FieldError> wrong = crds::validate(*job); !wrong.empty()) {
    return invalid(crds::to_string(wrong));
  }
  if (!job->spec.model.dlrm || !job->spec.model.dlrm->tables_from) {
    return job;
  }
  const crds::TablesFrom from = *job->spec.model.dlrm->tables_from;
  const Result<Json> config_map = config_maps(job->namespace_name, from.config_map_name);
  if (!config_map) {
    return config_map.error();
  }
  Result<std::vector<crds::EmbeddingTable>> tables = tables_of(*config_map, from.key);
  if (!tables) {
    return tables.error().within("ConfigMap " + job->namespace_name + "/" + from.config_map_name);
  }
  std::vector<crds::EmbeddingTable>& all = job->spec.model.dlrm->tables;
  all.insert(all.end(), tables->begin(), tables->end());
  if (const std::vector<crds::FieldError> wrong = crds::validate(*job); !wrong.empty()) {
    return invalid(crds::to_string(wrong));
  }
  return job;
}

Result<std::shared_ptr<const estimator::TraceFile>> read_graph(const crds::TrainingJob& job,
                                                               const ConfigMapReader& config_maps) {
  const crds::GraphReference& from = *job.spec.model.graph;
  const Result<Json> config_map = config_maps(job.namespace_name, from.config_map_name);
  if (!config_map) {
    return config_map.error();
  }
  Result<estimator::TraceFile> graph = graph_of(*config_map, from.key);
  if (!graph) {
    return graph.error().within("ConfigMap " + job.namespace_name + "/" + from.config_map_name);
  }
  return std::make_shared<const estimator::TraceFile>(*std::move(graph));
}

}  // namespace

std::vector<JobOrError> read_jobs(const std::vector<Document>& documents,
                                  const std::string& default_namespace, const ConfigMapReader& config_maps) {
  std::vector<JobOrError> jobs;
  for (const Document& document : documents) {
    if (text_member(document.object, {"kind"}) != "TrainingJob") {
      continue;
    }
    std::string name = text_member(document.object, {"metadata", "namespace"}, default_namespace) + "/" +
                       text_member(document.object, {"metadata", "name"}, "(no name)");
    Result<crds::TrainingJob> job = read_job(document, default_namespace, config_maps);
    std::shared_ptr<const estimator::TraceFile> graph;
    if (job && job->spec.model.graph) {
      Result<std::shared_ptr<const estimator::TraceFile>> read = read_graph(*job, config_maps);
      if (read) {
        graph = *std::move(read);
      } else {
        job = read.error();
      }
    }
    jobs.push_back({.name = std::move(name),
                    .job = job ? std::move(job) : job.error().within(document.where),
                    .graph = std::move(graph)});
  }
  return jobs;
}

Result<estimator::Method> method_option(const boost::program_options::variables_map& values) {
  const std::string method = values["method"].as<std::string>();
  if (method != "plimsoll" && method != "amp") {
    return invalid("--method must be plimsoll or amp");
  }
  return method == "amp" ? estimator::Method::kAmp : estimator::Method::kPlimsoll;
}

Json refusal(const std::string& job, const Error& error) {
  JsonObject json;
  json["job"] = job;
  json["code"] = name_of(error.code);
  json["reason"] = error.message;
  return json;
}

}  // namespace plimsoll::cli
