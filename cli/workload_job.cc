#include "cli/workload_job.h"

#include <utility>

#include "base/json/edit.h"
#include "base/words.h"
#include "crds/cluster_policy.h"
#include "crds/unknown_fields.h"
#include "workloads/description.h"

namespace plimsoll::cli {
namespace {

std::string annotation(const Json& object, const char* name) {
  return text_member(object, {"metadata", "annotations", name});
}

// "4 pods of 8 GPUs".
std::string size_text(const workloads::Workload& workload) {
  return counted(workload.pods(), "pod") + " of " + counted(workload.gpus_per_pod(), "GPU");
}

// A misspelt field of a description would be ignored otherwise.
Result<void> check_description(const workloads::Description& description) {
  JsonObject job;
  job["apiVersion"] = std::string(crds::kApiVersion);
  job["kind"] = "TrainingJob";
  job["spec"]["model"] = description.model;
  job["spec"]["training"] = description.training;
  return crds::refuse_unknown_fields(JsonView(job.json()));
}

}  // namespace

const workloads::Kind* kind_of(const Json& object) {
  const std::string version = text_member(object, {"apiVersion"});
  const std::size_t slash = version.find('/');
  return workloads::find_kind(slash == version.npos ? "" : version.substr(0, slash),
                              text_member(object, {"kind"}));
}

Result<std::shared_ptr<const WorkloadJob>> read_workload_job(const workloads::Kind& kind, const Json& object,
                                                             const std::string& namespace_name,
                                                             const JobSources& sources) {
  auto made = std::make_shared<WorkloadJob>();
  made->kind = kind.kind;
  made->opted_in = workloads::opts_in(kind, JsonView(object));
  ReadObjects objects(sources.objects);
  Result<workloads::References> references =
      workloads::read_references(kind, JsonView(object), namespace_name, &objects, nullptr);
  if (!references) {
    return references.error();
  }
  made->references = *std::move(references);
  const Result<workloads::Workload> workload =
      workloads::read_workload(kind, JsonView(object), made->references);
  if (!workload) {
    return workload.error();
  }
  const std::string mode = annotation(object, crds::kModeKey);
  if (!mode.empty() && mode != "Auto" && mode != "Off") {
    return invalid(std::string("annotation ") + crds::kModeKey + " must be Auto or Off, is " + mode);
  }
  const std::string family = text_member(object, {"metadata", "labels", workloads::kFamilyLabel});
  ConfigMapModels models(sources.config_maps);
  const Result<workloads::Description> description = workloads::find_description(
      JsonView(object), namespace_name, sources.profiles(namespace_name, family), &models, nullptr);
  if (!description) {
    Error error = description.error().within(size_text(*workload));
    error.message += " (docs/workloads.md)";
    return error;
  }
  if (Result<void> known = check_description(*description); !known) {
    return known.error();
  }
  Result<workloads::WorkloadSizing> sizing = workloads::WorkloadSizing::of(
      kind, JsonView(object), made->references, namespace_name, *description,
      mode == "Off" ? crds::ProvisioningMode::kOff : crds::ProvisioningMode::kAuto);
  if (!sizing) {
    return sizing.error();
  }
  made->sizing.emplace(*std::move(sizing));
  Result<estimator::SharedGraph> graph = estimator::resolve_model(made->sizing->job(), &models, nullptr);
  if (!graph) {
    return graph.error();
  }
  made->graph = *std::move(graph);
  return std::shared_ptr<const WorkloadJob>(std::move(made));
}

}  // namespace plimsoll::cli
