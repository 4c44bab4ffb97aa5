#include "cli/jobs.h"

#include "base/json/edit.h"
#include "cli/cluster_state.h"
#include "cli/command.h"
#include "crds/unknown_fields.h"
#include "estimator/provisioner/model_source.h"

namespace plimsoll::cli {
namespace {

Error of_config_map(const Error& error, const std::string& namespace_name, const std::string& name) {
  return error.within("ConfigMap " + namespace_name + "/" + name);
}

Result<void> check(const crds::TrainingJob& job) {
  const std::vector<crds::FieldError> wrong = crds::validate(job);
  return wrong.empty() ? Result<void>() : invalid(crds::to_string(wrong));
}

Result<void> read_tables(crds::TrainingJob& job, const ConfigMapReader& config_maps) {
  const crds::TablesFrom from = *job.spec.model.tables_from();
  const Result<Json> config_map = config_maps(job.namespace_name, from.config_map_name);
  if (!config_map) {
    return config_map.error();
  }
  const Result<std::vector<crds::EmbeddingTable>> tables = tables_of(*config_map, from.key);
  if (!tables) {
    return of_config_map(tables.error(), job.namespace_name, from.config_map_name);
  }
  std::vector<crds::EmbeddingTable>& all = job.spec.model.own_tables();
  all.insert(all.end(), tables->begin(), tables->end());
  return check(job);
}

Result<void> read_graph(crds::TrainingJob& job, const ConfigMapReader& config_maps,
                        std::shared_ptr<const estimator::TraceFile>& graph) {
  const crds::GraphReference& from = *job.spec.model.graph;
  const Result<Json> config_map = config_maps(job.namespace_name, from.config_map_name);
  if (!config_map) {
    return config_map.error();
  }
  Result<estimator::TraceFile> read = graph_of(*config_map, from.key);
  if (!read) {
    return of_config_map(read.error(), job.namespace_name, from.config_map_name);
  }
  graph = std::make_shared<const estimator::TraceFile>(*std::move(read));
  estimator::take_tables_of_graph(job, *graph);
  return {};
}

// Decodes the job into `entry`, checks it, and reads what it refers to.
Result<void> read_job(const Document& document, const std::string& default_namespace,
                      const ConfigMapReader& config_maps, JobOrError& entry) {
  if (Result<void> known = crds::refuse_unknown_fields(JsonView(document.object)); !known) {
    return known;
  }
  entry.job = crds::decode_training_job(document.object);
  if (!entry.job) {
    return entry.job.error();
  }
  crds::TrainingJob& job = *entry.job;
  if (job.namespace_name.empty()) {
    job.namespace_name = default_namespace;
  }
  Result<void> done = check(job);
  if (done && job.spec.model.tables_from()) {
    done = read_tables(job, config_maps);
  }
  return done && job.spec.model.graph ? read_graph(job, config_maps, entry.graph) : done;
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
    JobOrError entry{.name = std::move(name), .job = Error()};
    if (Result<void> read = read_job(document, default_namespace, config_maps, entry); !read) {
      entry.job = read.error().within(document.where);
    }
    jobs.push_back(std::move(entry));
  }
  return jobs;
}

estimator::Method read_method(OptionReader& options) {
  return options.choice<estimator::Method>(
      "method", {{"plimsoll", estimator::Method::kPlimsoll}, {"amp", estimator::Method::kAmp}},
      estimator::Method::kPlimsoll);
}

const char* name_of(estimator::Method method) {
  return method == estimator::Method::kAmp ? "amp" : "plimsoll";
}

void JobAnswers::refuse(const std::string& job, const Error& error) {
  complain(job + ": " + error.message);
  JsonObject json;
  json["job"] = job;
  json["code"] = name_of(error.code);
  json["reason"] = error.message;
  add(json);
}

void JobAnswers::complain(const std::string& message) {
  code_ = cli::complain(console_, kExitRefused, message);
}

int JobAnswers::finish() {
  if (format_ != OutputFormat::kTable) {
    print_answers(console_, format_, answers_);
  }
  return code_;
}

}  // namespace plimsoll::cli
