#include "estimator/catalog/gpu_catalog.h"

#include <strings.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/json/view.h"
#include "base/yaml.h"
#include "crds/unknown_fields.h"

namespace plimsoll::estimator::inline catalog {

extern const char* const kGpusYaml;  // gpus.yaml

namespace {

constexpr Bytes gigabytes(std::int64_t count) {
  return Bytes{count} * 1'000'000'000;
}

// For a model that only a GPUModel describes, without its bandwidths: the slowest values of gpus.yaml.
constexpr Bytes kUnknownHbm = gigabytes(300);
constexpr Bytes kUnknownNode = gigabytes(32);

// Per GPU, from its adapter's Gb/s. torchrec's planner uses 12.5 GiB/s for a 100 Gb/s adapter.
Bytes network_of(std::int64_t gbps) {
  return gbps == 100 ? Bytes{13'421'772'800} : gigabytes(gbps / 8);
}

// A field of a row of gpus.yaml. The file is compiled into the program, and a test reads every field of it.
JsonView field(JsonView gpu, const char* name) {
  return gpu.member(name).value_or(JsonView());
}
std::string text(JsonView value) {
  return std::string(value.text().value_or(""));
}
std::vector<std::string> texts(JsonView list) {
  std::vector<std::string> texts;
  for (const JsonView each : list.elements()) {
    texts.push_back(text(each));
  }
  return texts;
}
Bytes gigabytes(JsonView count) {
  return gigabytes(count.integer().value_or(0));
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

bool contains(const std::vector<std::string>& labels, std::string_view wanted) {
  return std::any_of(labels.begin(), labels.end(),
                     [&](const std::string& label) { return equal_ignoring_case(label, wanted); });
}

// A time-sliced GPU or a MIG slice does not have the memory of the whole GPU that the catalogue describes.
bool is_gpu_slice(std::string_view label) {
  return label.ends_with("-SHARED") || label.find("-MIG-") != std::string_view::npos;
}

Result<void> check(const crds::GpuModelSpec& spec) {
  const std::pair<const char*, std::optional<Bytes>> amounts[] = {
      {"spec.memory", spec.memory},
      {"spec.hbmBandwidth", spec.hbm_bandwidth},
      {"spec.intraNodeBandwidth", spec.intra_node_bandwidth},
      {"spec.interNodeBandwidth", spec.inter_node_bandwidth}};
  for (const auto& [field, amount] : amounts) {
    if (amount && amount->count <= 0) {
      return invalid(std::string(field) + " must be more than 0");
    }
  }
  if (spec.cuda_context && spec.cuda_context->count < 0) {
    return invalid("spec.cudaContext must not be negative");
  }
  if (spec.cost_per_hour && !(*spec.cost_per_hour > 0 && std::isfinite(*spec.cost_per_hour))) {
    return invalid("spec.costPerHour must be more than 0");
  }
  for (const std::string& label : spec.product_labels) {
    if (label.empty() || is_gpu_slice(label)) {
      return invalid("spec.productLabels must name whole GPUs; shared GPUs and MIG slices are not supported",
                     label);
    }
  }
  return {};
}

// The objects of a file: documents, lists of them, and Kubernetes List objects.
void flatten(const Json& value, std::vector<const Json*>& objects) {
  if (value.isArray()) {
    for (const Json& item : value) {
      flatten(item, objects);
    }
  } else if (value.isObject() && member(value, {"items"}).isArray()) {
    flatten(member(value, {"items"}), objects);
  } else {
    objects.push_back(&value);
  }
}

// At least what is known of any card in the catalogue: 5 % (RTX 4060), and no more than 1,110 MiB (GH200).
Bytes unknown_driver_memory(Bytes reported) {
  constexpr double kShare = 0.05;
  constexpr Bytes kMost = Bytes::from_mib(1110);
  return std::min(kMost, Bytes::ceil(static_cast<double>(reported.count) * kShare));
}

Bytes reported_memory_of(JsonView gpu) {
  return Bytes::from_mib(field(gpu, "memoryMiB").integer().value_or(0));
}

Bytes cuda_memory_of(JsonView gpu) {
  const std::optional<std::int64_t> mib = field(gpu, "cudaMiB").integer();
  const Bytes reported = reported_memory_of(gpu);
  return mib ? Bytes::from_mib(*mib) : reported - unknown_driver_memory(reported);
}

}  // namespace

GpuCatalog GpuCatalog::built_in() {
  static const GpuCatalog built_in = [] {
    GpuCatalog catalog;
    const Result<std::vector<Json>> documents = parse_yaml_documents(kGpusYaml);
    for (const JsonView gpu : JsonView(documents->front()).elements()) {
      catalog.models_.push_back(
          GpuModel{.name = text(field(gpu, "name")),
                   .product_labels = texts(field(gpu, "productLabels")),
                   .cloud_labels = texts(field(gpu, "cloudLabels")),
                   .family = text(field(gpu, "family")),
                   .compute_capability = parse_compute_capability(text(field(gpu, "computeCapability"))),
                   .cpu_architecture = text(field(gpu, "cpuArchitecture")),
                   .memory = cuda_memory_of(gpu),
                   .hbm_bandwidth = gigabytes(field(gpu, "hbmGBps")),
                   .intra_node_bandwidth = gigabytes(field(gpu, "nodeGBps")),
                   .inter_node_bandwidth = network_of(field(gpu, "networkGbps").integer().value_or(0)),
                   .relative_cost = field(gpu, "relativeCost").number().value_or(0),
                   .driver_memory = reported_memory_of(gpu) - cuda_memory_of(gpu)});
    }
    return catalog;
  }();
  return built_in;
}

Result<void> GpuCatalog::apply_file(std::string_view yaml) {
  Result<std::vector<Json>> documents = parse_yaml_documents(yaml);
  if (!documents) {
    return documents.error().within("GPU catalogue");
  }
  std::vector<const Json*> objects;
  for (const Json& document : *documents) {
    flatten(document, objects);
  }
  // Changes are made on a copy, so that a file with any invalid entry changes nothing.
  GpuCatalog changed = *this;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const std::string entry = "GPU catalogue entry " + std::to_string(i + 1);
    if (const Result<void> known = crds::refuse_unknown_fields(JsonView(*objects[i])); !known) {
      return known.error().within(entry);
    }
    Result<crds::GpuModel> resource = crds::decode_gpu_model(*objects[i]);
    if (!resource) {
      return resource.error().within(entry);
    }
    Result<void> applied = changed.apply(*resource);
    if (!applied) {
      return applied.error().within(entry);
    }
  }
  *this = std::move(changed);
  return {};
}

Result<void> GpuCatalog::apply(const crds::GpuModel& resource) {
  const crds::GpuModelSpec& spec = resource.spec;
  if (resource.name.empty()) {
    return invalid("a GPUModel needs metadata.name");
  }
  Result<void> well_formed = check(spec);
  if (!well_formed) {
    return well_formed.error().within("GPUModel " + resource.name);
  }
  GpuModel* model = find_name(resource.name);
  if (model == nullptr) {
    if (!spec.memory) {
      return invalid("GPUModel " + resource.name +
                     " is not in the built-in catalogue, so spec.memory is needed (what nvidia-smi reports)");
    }
    models_.push_back(GpuModel{
        .name = resource.name,
        .memory = *spec.memory - unknown_driver_memory(*spec.memory),
        .hbm_bandwidth = kUnknownHbm,
        .intra_node_bandwidth = kUnknownNode,
        .inter_node_bandwidth = network_of(100),
        // By its memory, until it has a price.
        .relative_cost = static_cast<double>(spec.memory->count) / static_cast<double>((80_GiB).count),
        .driver_memory = unknown_driver_memory(*spec.memory)});
    model = &models_.back();
  }
  for (const std::string& label : spec.product_labels) {
    for (GpuModel& other : models_) {
      std::erase_if(other.product_labels,
                    [&](const std::string& held) { return equal_ignoring_case(held, label); });
    }
    model->product_labels.push_back(label);
  }
  model->set_reported_memory(spec.memory.value_or(model->reported_memory()));
  model->hbm_bandwidth = spec.hbm_bandwidth.value_or(model->hbm_bandwidth);
  model->intra_node_bandwidth = spec.intra_node_bandwidth.value_or(model->intra_node_bandwidth);
  model->inter_node_bandwidth = spec.inter_node_bandwidth.value_or(model->inter_node_bandwidth);
  if (!spec.compute_capability.empty()) {
    model->compute_capability = parse_compute_capability(spec.compute_capability);
  }
  if (spec.host_links) {
    model->host_links = *spec.host_links;
  }
  if (spec.cuda_context) {
    model->cuda_context = spec.cuda_context;
  }
  if (spec.cost_per_hour) {
    const auto [price, first] = prices_.try_emplace(model->name, Price{0, model->relative_cost});
    price->second.per_hour = *spec.cost_per_hour;
    update_relative_costs();
  }
  return {};
}

// The unit of relative cost is the geometric mean of price / listed cost over the models with a price. Prices
// keep their exact ratios, and models without a price stay comparable with them.
void GpuCatalog::update_relative_costs() {
  double sum_of_logs = 0;
  for (const auto& [name, price] : prices_) {
    sum_of_logs += std::log(price.per_hour / price.listed_cost);
  }
  const double unit = std::exp(sum_of_logs / static_cast<double>(prices_.size()));
  for (const auto& [name, price] : prices_) {
    find_name(name)->relative_cost = price.per_hour / unit;
  }
}

GpuModel* GpuCatalog::find_name(std::string_view name) {
  const auto found = std::find_if(models_.begin(), models_.end(), [&](const GpuModel& model) {
    return equal_ignoring_case(model.name, name);
  });
  return found == models_.end() ? nullptr : &*found;
}

const GpuModel* GpuCatalog::find(std::string_view name_or_label) const {
  // Users, NVML and torch write blanks where names and labels have dashes.
  std::string wanted_name(name_or_label);
  std::replace(wanted_name.begin(), wanted_name.end(), ' ', '-');
  if (wanted_name.empty() || is_gpu_slice(wanted_name)) {
    return nullptr;
  }
  // Names come before product labels, then cloud labels: a cloud's label may be the name of another model.
  for (const auto matches :
       {+[](const GpuModel&model, std::string_view wanted) {
          return equal_ignoring_case(model.name, wanted);
        },
        +[](const GpuModel&model, std::string_view wanted) { return contains(model.product_labels, wanted); },
        +[](const GpuModel&model, std::string_view wanted) {
          return contains(model.cloud_labels, wanted);
        }}) {
    for (const GpuModel& model : models_) {
      if (matches(model, wanted_name)) {
        return &model;
      }
    }
  }
  return nullptr;
}

std::string gpus_text(std::int64_t count, const std::string& model) {
  return std::to_string(count) + " x " + model;
}

}  // namespace plimsoll::estimator::catalog
