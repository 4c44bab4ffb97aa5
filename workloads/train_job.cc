#include "workloads/train_job.h"

#include <array>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/edit.h"
#include "base/number.h"
#include "crds/training_job.h"
#include "workloads/pod_groups.h"

namespace plimsoll::workloads {
namespace {

// Names of Trainer: pkg/constants/constants.go.
constexpr std::string_view kAncestorLabel = "trainer.kubeflow.org/trainjob-ancestor-step";
constexpr std::string_view kAncestorTrainer = "trainer";
constexpr std::string_view kNodeContainer = "node";
// Whose entry of spec.runtimePatches ours is; Trainer wants a path with a domain.
constexpr const char* kManager = "plimsoll.dev/webhook";

struct OverrideFieldName {
  OverrideField field;
  const char* name;
};
// The newest first: a definition may keep an older one.
constexpr std::array<OverrideFieldName, 3> kOverrideFields = {{
    {OverrideField::kRuntimePatches, "runtimePatches"},
    {OverrideField::kPodTemplateOverrides, "podTemplateOverrides"},
    {OverrideField::kPodSpecOverrides, "podSpecOverrides"},
}};

std::string name_of(OverrideField field) {
  for (const OverrideFieldName& each : kOverrideFields) {
    if (each.field == field) {
      return each.name;
    }
  }
  return {};
}

std::optional<OverrideField> field_of_definition(const Json& definition, std::string_view version) {
  for (const JsonView& each : member(JsonView(definition), {"spec", "versions"}).elements()) {
    const JsonView fields = member(each, {"schema", "openAPIV3Schema", "properties", "spec", "properties"});
    for (const OverrideFieldName& known : kOverrideFields) {
      if (member(each, {"name"}).text() == version && member(fields, {known.name}).is_object()) {
        return known.field;
      }
    }
  }
  return std::nullopt;
}

// What an entry of the field says of the pod spec of a replicated job; null: nothing.
JsonView override_of(OverrideField field, const JsonView& entry, std::string_view job) {
  if (field == OverrideField::kRuntimePatches) {
    const JsonView jobs = member(entry, {"trainingRuntimeSpec", "template", "spec", "replicatedJobs"});
    for (const JsonView& each : jobs.elements()) {
      if (member(each, {"name"}).text() == job) {
        return member(each, {"template", "spec", "template", "spec"});
      }
    }
    return {};
  }
  for (const JsonView& target : member(entry, {"targetJobs"}).elements()) {
    if (member(target, {"name"}).text() == job) {
      return field == OverrideField::kPodSpecOverrides ? entry : member(entry, {"spec"});
    }
  }
  return {};
}

// An entry that says what `said` has of the replicated job's pod spec.
Json entry_of(OverrideField field, const std::string& job, const Json& said) {
  JsonObject entry;
  if (field == OverrideField::kRuntimePatches) {
    JsonObject replicated;
    replicated["name"] = job;
    replicated["template"]["spec"]["template"]["spec"] = said;
    entry["manager"] = kManager;
    entry["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"].append(std::move(replicated).take());
    return std::move(entry).take();
  }
  entry["targetJobs"].append(json_object({{"name", job}}));
  if (field == OverrideField::kPodSpecOverrides) {
    for (const auto& [key, value] : JsonView(said).members()) {
      entry[key] = tree_of(value);
    }
  } else {
    entry["spec"] = said;
  }
  return std::move(entry).take();
}

// Whether entry_of() made it, with any selector and affinity.
bool is_ours(OverrideField field, const JsonView& entry, const std::string& job) {
  if (field == OverrideField::kRuntimePatches) {
    return member(entry, {"manager"}).text() == kManager;
  }
  JsonObject said;
  for (const char* key : {"nodeSelector", "affinity"}) {
    const JsonView value = member(override_of(field, entry, job), {key});
    if (!value.is_null()) {
      said[key] = tree_of(value);
    }
  }
  return entry == JsonView(entry_of(field, job, said));
}

// The changed value; `otherwise` where a change did not fit its shape.
Json taken(JsonEdit& edit, const JsonView& otherwise) {
  Result<Json> changed = std::move(edit).take();
  return changed ? *std::move(changed) : tree_of(otherwise);
}

// Objects member by member, all else as a whole, as a strategic merge does with selectors and affinities.
void merge(const JsonPlace& into, const JsonView& from) {
  for (const auto& [key, value] : from.members()) {
    const JsonPlace place = into[key];
    if (value.is_object() && place.value().isObject()) {
      merge(place, value);
    } else {
      place = tree_of(value);
    }
  }
}

// A list of environment variables with these, of which the last of a name counts. Both may be long, so each is read once.
Json with_variables(const JsonView& list, const std::vector<JsonView>& variables) {
  std::map<std::string_view, JsonView> said;
  for (const JsonView& variable : variables) {
    said[member(variable, {"name"}).text().value_or("")] = variable;
  }
  std::set<std::string_view> written;
  JsonArray merged;
  for (const JsonView& each : list.elements()) {
    const auto found = said.find(member(each, {"name"}).text().value_or(""));
    if (found != said.end()) {
      written.insert(found->first);
    }
    merged.append(tree_of(found == said.end() ? each : found->second));
  }
  for (const JsonView& variable : variables) {
    const std::string_view name = member(variable, {"name"}).text().value_or("");
    if (written.insert(name).second) {
      merged.append(tree_of(said.at(name)));
    }
  }
  return merged;
}

// The container as Trainer makes it: what spec.trainer says takes the place of what the runtime says.
Json with_trainer(const JsonView& container, const JsonView& trainer) {
  JsonEdit edit(tree_of(container));
  for (const char* field : {"command", "args"}) {
    if (const JsonView said = member(trainer, {field}); !said.is_null()) {
      edit[field] = tree_of(said);
    }
  }
  const JsonView resources = member(trainer, {"resourcesPerNode"});
  if (!member(resources, {"limits"}).is_null() || !member(resources, {"requests"}).is_null()) {
    edit["resources"] = tree_of(resources);
  }
  std::vector<JsonView> variables;
  for (const JsonView& variable : member(trainer, {"env"}).elements()) {
    variables.push_back(variable);
  }
  if (!variables.empty()) {
    edit["env"] = with_variables(member(container, {"env"}), variables);
  }
  return taken(edit, container);
}

std::vector<std::string> steps_of(std::string_view pointer) {
  std::vector<std::string> steps;
  for (std::size_t i = 0; i < pointer.size(); ++i) {
    if (pointer[i] == '/') {
      steps.emplace_back();
    } else if (pointer[i] == '~' && i + 1 < pointer.size()) {
      steps.back() += pointer[++i] == '1' ? '/' : '~';
    } else {
      steps.back() += pointer[i];
    }
  }
  return steps;
}

// Applies `add` and `replace`, of which our patches consist (ADR 0010). False where a step leads nowhere.
bool apply(Json& document, const JsonView& operation) {
  const std::vector<std::string> steps = steps_of(member(operation, {"path"}).text().value_or(""));
  Json* at = steps.empty() ? nullptr : &document;
  for (std::size_t i = 0; at != nullptr && i + 1 < steps.size(); ++i) {
    const std::optional<std::size_t> index = parse_number<std::size_t>(steps[i]);
    at = at->isArray() && index ? find_element(*at, *index) : find_member(*at, steps[i]);
  }
  if (at == nullptr) {
    return false;
  }
  Json value = tree_of(member(operation, {"value"}));
  if (!at->isArray()) {
    return set_member(*at, steps.back(), std::move(value));
  }
  if (steps.back() == "-") {
    return append_element(*at, std::move(value));
  }
  const std::optional<std::size_t> index = parse_number<std::size_t>(steps.back());
  Json* found = index ? find_element(*at, *index) : nullptr;
  if (found != nullptr) {
    *found = std::move(value);
  }
  return found != nullptr;
}

// Puts `value` at a member of a member of spec.
class SpecPatch {
 public:
  explicit SpecPatch(const JsonView& spec) : spec_(spec) {}

  void set(const std::string& pointer, Json value) {
    JsonObject operation;
    operation["op"] = "add";
    operation["path"] = "/spec" + pointer;
    operation["value"] = std::move(value);
    patch_.append(std::move(operation).take());
  }

  void set_of_trainer(const std::string& field, Json value) {
    if (!member(spec_, {"trainer"}).is_object() && !made_) {
      made_ = true;
      set("/trainer", Json(::Json::objectValue));
    }
    set("/trainer/" + field, std::move(value));
  }

  Json take() && { return std::move(patch_); }

 private:
  const JsonView spec_;
  bool made_ = false;
  JsonArray patch_;
};

// A TrainJob with the template that Trainer would make of it.
struct TrainJob {
  JsonView spec;
  std::string job;  // the runtime's replicated job of the trainers
  Json pod_template;
  std::optional<OverrideField> field;
  std::int64_t nodes = 0;
  JsonView processes;  // of a node

  JsonView trainer() const { return member(spec, {"trainer"}); }
  Result<Json> patch(const Json& template_patch, const JobSize& next, std::size_t container) const;

 private:
  void write_container(const JsonView& before, const JsonView& after, SpecPatch& patch_of_spec) const;
  Result<void> write_placement(const JsonView& before, const JsonView& after, SpecPatch& patch_of_spec) const;
};

void TrainJob::write_container(const JsonView& before, const JsonView& after,
                               SpecPatch& patch_of_spec) const {
  for (const char* list : {"command", "args"}) {
    if (!(member(before, {list}) == member(after, {list}))) {
      patch_of_spec.set_of_trainer(list, tree_of(member(after, {list})));
    }
  }
  std::vector<JsonView> changed;
  const auto variables_before = member(before, {"env"}).elements();
  auto old = variables_before.begin();
  for (const JsonView& variable : member(after, {"env"}).elements()) {
    const bool had_one = old != variables_before.end();
    if (!had_one || !(*old == variable)) {
      changed.push_back(variable);
    }
    if (had_one) {
      ++old;
    }
  }
  if (!changed.empty()) {
    patch_of_spec.set_of_trainer("env", with_variables(member(trainer(), {"env"}), changed));
  }
  const JsonView resources = member(after, {"resources"});
  if (!(member(before, {"resources"}) == resources)) {
    // Trainer 2.0 counts the processes of a node by its requests: pkg/runtime/framework/plugins/torch/torch.go.
    JsonEdit edit(tree_of(resources));
    edit["requests"][crds::kGpuResource] = tree_of(member(resources, {"limits", crds::kGpuResource}));
    patch_of_spec.set_of_trainer("resourcesPerNode", taken(edit, resources));
  }
}

Result<void> TrainJob::write_placement(const JsonView& before, const JsonView& after,
                                       SpecPatch& patch_of_spec) const {
  const JsonView old_selector = member(before, {"nodeSelector"});
  const JsonView selector = member(after, {"nodeSelector"});
  const JsonView affinity = member(after, {"affinity"});
  const bool other_affinity = !(member(before, {"affinity"}) == affinity);
  if (old_selector == selector && !other_affinity) {
    return {};
  }
  if (!field) {
    return Error(ErrorCode::kUnsupported,
                 "the definition of TrainJobs has none of the fields that change a node selector");
  }
  if (other_affinity && *field == OverrideField::kPodSpecOverrides) {
    return Error(ErrorCode::kUnsupported,
                 "the GPU model has several names in this cluster, and podSpecOverrides has no affinity");
  }
  const std::string name = name_of(*field);
  const JsonView list = member(spec, {name});
  std::optional<std::size_t> index;
  JsonView ours;
  std::size_t at = 0;
  for (const JsonView& entry : list.elements()) {
    if (is_ours(*field, entry, job)) {
      index = at;
      ours = override_of(*field, entry, job);
    }
    ++at;
  }
  JsonObject said;
  for (const auto& [key, value] : member(ours, {"nodeSelector"}).members()) {
    if (!member(selector, {key}).is_null()) {
      said["nodeSelector"][key] = tree_of(value);
    }
  }
  for (const auto& [key, value] : selector.members()) {
    if (!(member(old_selector, {key}) == value)) {
      said["nodeSelector"][key] = tree_of(value);
    }
  }
  if (other_affinity || !member(ours, {"affinity"}).is_null()) {
    said["affinity"] = tree_of(affinity);
  }
  Json entry = entry_of(*field, job, said);
  if (index) {
    patch_of_spec.set("/" + name + "/" + std::to_string(*index), std::move(entry));
  } else if (!list.elements().empty()) {
    patch_of_spec.set("/" + name + "/-", std::move(entry));
  } else {
    JsonArray entries;
    entries.append(std::move(entry));
    patch_of_spec.set("/" + name, std::move(entries));
  }
  return {};
}

Result<Json> TrainJob::patch(const Json& template_patch, const JobSize& next, std::size_t container) const {
  Json after = pod_template;
  for (const JsonView& operation : JsonView(template_patch).elements()) {
    if (!apply(after, operation)) {
      return Error(ErrorCode::kUnsupported,
                   "the runtime's template has no place for " + text_member(operation, {"path"}));
    }
  }
  SpecPatch patch_of_spec(spec);
  if (next.pods != nodes) {
    patch_of_spec.set_of_trainer("numNodes", next.pods);
  }
  if (const std::optional<std::int64_t> number = number_of(processes);
      number && *number != next.gpus_per_pod) {
    patch_of_spec.set_of_trainer("numProcPerNode", next.gpus_per_pod);
  }
  const Json& before_containers = member(pod_template, {"spec", "containers"});
  const Json& after_containers = member(after, {"spec", "containers"});
  write_container(JsonView(element(before_containers, container)),
                  JsonView(element(after_containers, container)), patch_of_spec);
  const Result<void> placed = write_placement(JsonView(member(pod_template, {"spec"})),
                                              JsonView(member(after, {"spec"})), patch_of_spec);
  return placed ? Result<Json>(std::move(patch_of_spec).take()) : placed.error();
}

// The runtime's replicated job whose pods are the trainers. Errors: kUnsupported where there is not one.
Result<JsonView> trainers_of(const JsonView& runtime_spec) {
  for (const char* launcher : {"mpi", "flux"}) {
    if (member(runtime_spec, {"mlPolicy", launcher}).is_object()) {
      return Error(ErrorCode::kUnsupported, std::string("its runtime is one of ") + launcher +
                                                ", whose launcher and nodes have templates of their own");
    }
  }
  std::optional<JsonView> found;
  for (const JsonView& each : member(runtime_spec, {"template", "spec", "replicatedJobs"}).elements()) {
    if (member(each, {"template", "metadata", "labels", kAncestorLabel}).text() == kAncestorTrainer) {
      if (found) {
        return Error(ErrorCode::kUnsupported, "several jobs of its runtime are trainers");
      }
      found = each;
    }
  }
  return found ? Result<JsonView>(*found)
               : Error(ErrorCode::kUnsupported, "no job of its runtime has the label " +
                                                    std::string(kAncestorLabel) + "=" +
                                                    std::string(kAncestorTrainer));
}

Json template_of(const TrainJob& train_job, const JsonView& replicated) {
  JsonEdit edit(tree_of(member(replicated, {"template", "spec", "template"})));
  if (train_job.field) {
    for (const JsonView& entry : member(train_job.spec, {name_of(*train_job.field)}).elements()) {
      const JsonView said = override_of(*train_job.field, entry, train_job.job);
      for (const char* key : {"nodeSelector", "affinity"}) {
        merge(edit["spec"][key], member(said, {key}));
      }
    }
  }
  JsonArray containers;
  for (const JsonPlace& place : edit["spec"]["containers"].elements()) {
    const JsonView container(place.value());
    containers.append(member(container, {"name"}).text() == kNodeContainer
                          ? with_trainer(container, train_job.trainer())
                          : tree_of(container));
  }
  edit["spec"]["containers"] = std::move(containers);
  return taken(edit, {});
}

}  // namespace

Result<ObjectName> runtime_of(const JsonView& object, const std::string& namespace_name) {
  const JsonView reference = member(object, {"spec", "runtimeRef"});
  // With the definition's defaults.
  const std::string group(member(reference, {"apiGroup"}).text().value_or(kTrainerGroup));
  const std::string kind(member(reference, {"kind"}).text().value_or("ClusterTrainingRuntime"));
  const std::string name = text_member(reference, {"name"});
  if (name.empty()) {
    return Error(ErrorCode::kInvalid, "spec.runtimeRef.name is missing");
  }
  const bool of_namespace = kind == "TrainingRuntime";
  if (group != kTrainerGroup || (!of_namespace && kind != "ClusterTrainingRuntime")) {
    return Error(ErrorCode::kUnsupported, "its runtime is a " + kind + " of " + group);
  }
  const std::string version = text_member(object, {"apiVersion"});
  return ObjectName{.group = group,
                    .version = version.substr(version.find('/') + 1),
                    .plural = of_namespace ? "trainingruntimes" : "clustertrainingruntimes",
                    .namespace_name = of_namespace ? namespace_name : "",
                    .name = name};
}

std::optional<OverrideField> override_field_of(const JsonView& object) {
  for (const OverrideFieldName& each : kOverrideFields) {
    if (!member(object, {"spec", each.name}).is_null()) {
      return each.field;
    }
  }
  return std::nullopt;
}

Result<Workload> read_train_job(const JsonView& object, const References& references) {
  const JsonView runtime_spec = member(JsonView(references.runtime), {"spec"});
  const Result<JsonView> replicated = trainers_of(runtime_spec);
  if (!replicated) {
    return replicated.error();
  }
  const Place trainer = Place{object, {}}.at("spec").at("trainer");
  if (!trainer.value.is_null() && !trainer.value.is_object()) {
    return Error(ErrorCode::kInvalid, trainer.pointer + " must be an object");
  }
  const Place nodes = trainer.at("numNodes");
  const Result<std::int64_t> of_runtime =
      count_at(Place{runtime_spec, "its runtime's /spec"}.at("mlPolicy").at("numNodes"), 1);
  const Result<std::int64_t> pods = of_runtime ? count_at(nodes, *of_runtime) : of_runtime.error();
  if (!pods) {
    return pods.error();
  }
  const std::string version = text_member(object, {"apiVersion"});
  const auto train_job = std::make_shared<TrainJob>();
  train_job->spec = member(object, {"spec"});
  train_job->job = std::string(member(*replicated, {"name"}).text().value_or(""));
  train_job->field = override_field_of(object);
  if (!train_job->field) {
    train_job->field =
        field_of_definition(references.definition, std::string_view(version).substr(version.find('/') + 1));
  }
  if (train_job->field) {
    const Place overrides = Place{object, {}}.at("spec").at(name_of(*train_job->field));
    if (!overrides.value.is_null() && !overrides.value.is_array()) {
      return Error(ErrorCode::kInvalid, overrides.pointer + " must be a list");
    }
  }
  train_job->nodes = *pods;
  train_job->processes = trainer.at("numProcPerNode").value;
  if (train_job->processes.is_null()) {
    train_job->processes = member(runtime_spec, {"mlPolicy", "torch", "numProcPerNode"});
  }
  train_job->pod_template = template_of(*train_job, *replicated);

  Collector collector;
  collector.add("the trainers", train_job->pod_template, *pods, {{nodes.pointer}});
  collector.may_repeat_gpus({train_job->processes, trainer.at("numProcPerNode").pointer});
  if (!member(runtime_spec, {"mlPolicy", "torch", "elasticPolicy"}).is_null()) {
    collector.fix("its runtime has an elasticPolicy, by which its number of nodes changes");
  }
  Result<Workload> workload = std::move(collector).take();
  if (!workload) {
    return workload;
  }
  const std::size_t container = workload->groups.front().container;
  if (text_member(element(member(train_job->pod_template, {"spec", "containers"}), container), {"name"}) !=
      kNodeContainer) {
    return Error(ErrorCode::kUnsupported, "the container that requests GPUs is not called " +
                                              std::string(kNodeContainer) +
                                              ", so that a TrainJob cannot change it");
  }
  workload->write = [train_job, container](const Json& template_patch, const JobSize& next) {
    return train_job->patch(template_patch, next, container);
  };
  return workload;
}

}  // namespace plimsoll::workloads
