#include "cli/jobs.h"

#include <set>
#include <utility>

#include "base/json/edit.h"
#include "base/json/view.h"
#include "base/words.h"
#include "cli/command.h"
#include "crds/pod_fields.h"
#include "crds/unknown_fields.h"
#include "estimator/provisioner/model_source.h"
#include "workloads/description.h"

namespace plimsoll::cli {
namespace {

constexpr const char* kTrainingJob = "TrainingJob";
// What jobs refer to, and what a cluster consists of.
const std::set<std::string> kReferences = {"ConfigMap",
                                           "GPUModel",
                                           "MemoryProfile",
                                           "Node",
                                           "TrainingRuntime",
                                           "ClusterTrainingRuntime",
                                           "CustomResourceDefinition"};

Result<void> check(const crds::TrainingJob& job) {
  const std::vector<crds::FieldError> wrong = crds::validate(job);
  return wrong.empty() ? Result<void>() : invalid(crds::to_string(wrong));
}

// Decodes the job into `entry`, checks it, and reads what it refers to.
Result<void> read_training_job(const Json& object, const JobSources& sources, JobOrError& entry) {
  if (Result<void> known = crds::refuse_unknown_fields(JsonView(object)); !known) {
    return known;
  }
  entry.job = crds::decode_training_job(object);
  if (!entry.job) {
    return entry.job.error();
  }
  crds::TrainingJob& job = *entry.job;
  if (job.namespace_name.empty()) {
    job.namespace_name = sources.default_namespace;
  }
  if (Result<void> right = check(job); !right) {
    return right;
  }
  ConfigMapModels models(sources.config_maps);
  Result<estimator::SharedGraph> graph = estimator::resolve_model(job, &models, nullptr);
  if (!graph) {
    return graph.error();
  }
  entry.graph = *std::move(graph);
  return check(job);  // with the tables
}

Result<void> read_workload(const workloads::Kind& kind, const Document& document,
                           const std::string& namespace_name, const JobSources& sources, JobOrError& entry) {
  Result<std::shared_ptr<const WorkloadJob>> workload =
      read_workload_job(kind, document.object, namespace_name, sources);
  if (!workload) {
    return workload.error();
  }
  entry.workload = *std::move(workload);
  entry.job = entry.workload->sizing->job();
  entry.graph = entry.workload->graph;
  return {};
}

// Whether a field in it requests a GPU of any vendor. Recursion is as deep as the text, which the parser limits.
bool requests_gpus(const JsonView& value) {
  for (const auto& [name, each] : value.members()) {
    const bool gpu =
        name.starts_with("nvidia.com/") || (name.find('/') != name.npos && name.ends_with("gpu"));
    if (gpu || requests_gpus(each)) {
      return true;
    }
  }
  for (const JsonView each : value.elements()) {
    if (requests_gpus(each)) {
      return true;
    }
  }
  return false;
}

// Of an object that no command can answer for.
Error why_not(const Json& object) {
  const std::string kind = text_member(object, {"kind"});
  if (kind.empty()) {
    return invalid(
        member(object, {"model_type"}).isString()
            ? "it is a Hugging Face config.json; plimsoll estimate and plimsoll swap take it with --config"
            : "it is not a Kubernetes object: it has no kind");
  }
  if (text_member(object, {"apiVersion"}).starts_with(std::string(crds::kGroup) + "/")) {
    return invalid(std::string(crds::kGroup) + " has no kind " + kind +
                   did_you_mean(kind, {kTrainingJob, "GPUModel", "MemoryProfile"}));
  }
  std::vector<std::string> kinds = {kTrainingJob};
  for (const workloads::Kind& each : workloads::kinds()) {
    kinds.emplace_back(each.kind);
  }
  return Error(ErrorCode::kUnsupported,
               "Plimsoll does not size " + kind + " objects; it sizes " + listed(kinds, kinds.size()) +
                   ". To estimate it, describe its model in a TrainingJob (docs/jobs.md)");
}

// One document after another.
class JobReader {
 public:
  explicit JobReader(const JobSources& sources) : sources_(sources) {}

  void read(const Document& document) {
    const std::string kind = text_member(document.object, {"kind"});
    const std::string space =
        text_member(document.object, {"metadata", "namespace"}, sources_.default_namespace);
    std::string name = space + "/" + text_member(document.object, {"metadata", "name"}, "(no name)");
    if (kind == kTrainingJob) {
      JobOrError entry{.name = std::move(name), .job = Error()};
      const Result<void> done = read_training_job(document.object, sources_, entry);
      for (const std::string& warning : crds::warnings_of_unknown_fields(
               JsonView(member(document.object, {"spec", "template"})), "spec.template")) {
        input_.notes.push_back(entry.name + ": " + warning);
      }
      return add(done, document, std::move(entry));
    }
    if (kReferences.contains(kind)) {
      return;
    }
    name = (kind.empty() ? "an object without kind" : kind) + " " + name;
    const bool with_gpus = requests_gpus(JsonView(document.object));
    const workloads::Kind* const known = kind_of(document.object);
    if (known == nullptr) {
      const Error why = why_not(document.object);
      if (with_gpus || why.code == ErrorCode::kInvalid) {
        return add(why, document, {.name = std::move(name), .job = Error()});
      }
      return pass_over(document, name, "it requests no GPUs");
    }
    if (workloads::has_controller(JsonView(document.object))) {
      return pass_over(document, name, "another object made it, which is sized instead");
    }
    if (!text_member(document.object, {"spec", "nodeName"}).empty()) {
      return;  // a pod that runs: its GPUs are counted
    }
    JobOrError entry{.name = name, .job = Error()};
    const Result<void> done = read_workload(*known, document, space, sources_, entry);
    if (!done && done.error().code == ErrorCode::kUnsupported && !with_gpus) {
      return pass_over(document, name, "there is nothing to size: " + done.error().message);
    }
    if (done && !entry.workload->opted_in) {
      input_.notes.push_back(name + ": the webhook leaves it as it is, because it has no label " +
                             workloads::kFamilyLabel);
    }
    add(done, document, std::move(entry));
  }

  JobsOfInput take() && { return std::move(input_); }

 private:
  void add(const Result<void>& done, const Document& document, JobOrError entry) {
    if (!done) {
      entry.job = done.error().within(document.where);
    }
    input_.jobs.push_back(std::move(entry));
  }

  void pass_over(const Document& document, const std::string& name, const std::string& why) {
    input_.notes.push_back(document.where + ": " + name + " is passed over: " + why);
  }

  const JobSources& sources_;
  JobsOfInput input_;
};

}  // namespace

JobsOfInput read_jobs(const std::vector<Document>& documents, const JobSources& sources) {
  JobReader reader(sources);
  for (const Document& document : documents) {
    reader.read(document);
  }
  return std::move(reader).take();
}

void print_notes(Console& console, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) {
    console.err << "plimsoll: " << note << '\n';
  }
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
