#include "estimator/catalog/gpu_catalog.h"

#include <strings.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/yaml.h"

namespace plimsoll::estimator::inline catalog {
namespace {

constexpr Bytes gigabytes(std::int64_t count) {
  return Bytes{count} * 1'000'000'000;
}

// Memory bandwidth: vendors' data sheets. NVLink and PCIe: data sheets as well, both directions together,
// which is how torchrec's planner counts its 600 GiB/s default (an A100's NVLink).
constexpr Bytes kPcieGen3 = gigabytes(32);
constexpr Bytes kPcieGen4 = gigabytes(64);
constexpr Bytes kPcieGen5 = gigabytes(128);

// Network a GPU: torchrec's planner default, 12.5 GiB/s (a 100 Gb/s adapter); the Hopper and later SXM
// platforms are sold with a 400 Gb/s adapter a GPU. Assumptions about a cluster that nobody has measured:
// `GPUModel.spec.interNodeBandwidth` is there to correct them.
constexpr Bytes kNetwork100{13'421'772'800};
constexpr Bytes kNetwork400 = gigabytes(50);

// Bandwidths of a model that only a resource describes, and says nothing about: the slowest of the table.
constexpr Bytes kUnknownHbm = gigabytes(300);

struct Entry {
  const char* name;
  const char* family;
  std::int64_t memory_mib;
  std::int64_t hbm_gigabytes_a_second;
  Bytes intra_node;
  Bytes inter_node;
  double relative_cost;
  std::vector<std::string> product_labels;
  std::vector<std::string> cloud_labels;
};

// memory_mib is what GPU feature discovery writes as nvidia.com/gpu.memory; where several values were seen,
// the newest driver's, because the inventory takes the least that the nodes themselves report. "unverified":
// no node or nvidia-smi dump of it was at hand, the value is the card's nominal one. Relative costs are
// rounded ratios of public on-demand prices per GPU hour, A100-80GB = 1; all unverified and meant to be
// overridden by `GPUModel.spec.costPerHour`. Product labels: the k8s-device-plugin's rule (drop what a label
// cannot hold, join words by "-") applied to NVML names; old drivers leave "NVIDIA-" off. Cloud labels: the
// cluster-autoscaler's provider tables and GKE's documentation; a cloud that uses one value for two memory
// sizes is taken to mean the smaller.
const std::vector<Entry>& entries() {
  static const std::vector<Entry> kEntries = {
      // One of the two GPUs on the board; nvidia-smi dumps.
      {"K80", "kepler", 11441, 240, kPcieGen3, kNetwork100, 0.08, {"Tesla-K80"}, {"nvidia-tesla-k80"}},
      {"P4", "pascal", 7611, 192, kPcieGen3, kNetwork100, 0.08, {"Tesla-P4"}, {"nvidia-tesla-p4"}},
      {"P40", "pascal", 22919, 346, kPcieGen3, kNetwork100, 0.15, {"Tesla-P40"}, {}},
      // 16280 with ECC; the 12 GB card is another model.
      {"P100-16GB",
       "pascal",
       16280,
       732,
       kPcieGen3,
       kNetwork100,
       0.25,
       {"Tesla-P100-PCIE-16GB", "Tesla-P100-SXM2-16GB"},
       {"nvidia-tesla-p100"}},
      // 16384: device plugin fixtures and Karpenter's documentation; older drivers report less.
      {"V100-16GB",
       "volta",
       16384,
       900,
       gigabytes(300),
       kNetwork100,
       0.5,
       {"Tesla-V100-SXM2-16GB", "Tesla-V100-PCIE-16GB"},
       {"nvidia-tesla-v100", "v100"}},
      // 32768: dcgm-exporter#342.
      {"V100-32GB",
       "volta",
       32768,
       900,
       gigabytes(300),
       kNetwork100,
       0.6,
       {"Tesla-V100-SXM2-32GB", "Tesla-V100-PCIE-32GB", "Tesla-V100-SXM2-32GB-LS"},
       {}},
      // 15360: GPU feature discovery's README; 15109 on drivers 450 and 470 (gpu-operator#334).
      {"T4", "turing", 15360, 320, kPcieGen3, kNetwork100, 0.12, {"Tesla-T4"}, {"nvidia-tesla-t4", "t4"}},
      // 23028: nvidia-smi dumps.
      {"A10", "ampere", 23028, 600, kPcieGen4, kNetwork100, 0.3, {"NVIDIA-A10"}, {}},
      {"A10G", "ampere", 23028, 600, kPcieGen4, kNetwork100, 0.3, {"NVIDIA-A10G"}, {"nvidia-a10g", "a10g"}},
      // Unverified memory.
      {"A30", "ampere", 24576, 933, kPcieGen4, kNetwork100, 0.4, {"NVIDIA-A30"}, {}},
      {"A40", "ampere", 46068, 696, kPcieGen4, kNetwork100, 0.4, {"NVIDIA-A40"}, {}},
      {"RTX-A6000", "ampere", 49140, 768, kPcieGen4, kNetwork100, 0.35, {"NVIDIA-RTX-A6000"}, {}},
      // 40960, 40536 and 39538 were seen, by driver. The PCIe card has no NVLink switch.
      {"A100-40GB",
       "ampere",
       40960,
       1555,
       gigabytes(600),
       kNetwork100,
       0.75,
       {"NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB", "A100-SXM4-40GB", "A100-PCIE-40GB"},
       {"nvidia-tesla-a100", "a100"}},
      // Manifests name NVIDIA-A100-PCIE-80GB, though no node is known to have that label.
      {"A100-80GB",
       "ampere",
       81920,
       2039,
       gigabytes(600),
       kNetwork100,
       1.0,
       {"NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe", "A100-SXM4-80GB", "NVIDIA-A100-PCIE-80GB"},
       {"nvidia-a100-80gb"}},
      {"H100-80GB",
       "hopper",
       81559,
       3350,
       gigabytes(900),
       kNetwork400,
       2.0,
       {"NVIDIA-H100-80GB-HBM3"},
       {"nvidia-h100-80gb", "nvidia-h100-mega-80gb", "h100"}},
      // 81559: a node's own GPU feature discovery labels.
      {"H100-PCIe", "hopper", 81559, 2000, kPcieGen5, kNetwork100, 1.6, {"NVIDIA-H100-PCIe"}, {}},
      {"H100-NVL", "hopper", 95830, 3900, gigabytes(600), kNetwork100, 1.8, {"NVIDIA-H100-NVL"}, {}},
      // 97871: KubeAI's profile; the label is unverified.
      {"GH200", "hopper", 97871, 4000, gigabytes(900), kNetwork400, 2.0, {"NVIDIA-GH200-480GB"}, {}},
      // NVIDIA-H200-SXM5-141GB stands in manifests; GPU feature discovery does not write it.
      {"H200",
       "hopper",
       143771,
       4800,
       gigabytes(900),
       kNetwork400,
       2.5,
       {"NVIDIA-H200", "NVIDIA-H200-SXM5-141GB"},
       {"nvidia-h200-141gb", "h200"}},
      // Unverified label and memory.
      {"H200-NVL", "hopper", 143771, 4800, gigabytes(900), kNetwork100, 2.3, {"NVIDIA-H200-NVL"}, {}},
      // 23034: nvidia-smi dumps; Karpenter's documentation says 22888.
      {"L4", "ada-lovelace", 23034, 300, kPcieGen4, kNetwork100, 0.2, {"NVIDIA-L4"}, {"nvidia-l4", "l4"}},
      // Memory unverified, taken from the L40S.
      {"L40", "ada-lovelace", 46068, 864, kPcieGen4, kNetwork100, 0.5, {"NVIDIA-L40"}, {}},
      {"L40S",
       "ada-lovelace",
       46068,
       864,
       kPcieGen4,
       kNetwork100,
       0.55,
       {"NVIDIA-L40S"},
       {"nvidia-l40s", "l40s"}},
      // GeForce and workstation cards: nvidia-smi dumps. The names of some are shared by models of other
      // memory
      // sizes, which a GPUModel resource can tell apart.
      {"RTX-2080-Ti",
       "turing",
       11264,
       616,
       kPcieGen3,
       kNetwork100,
       0.1,
       {"NVIDIA-GeForce-RTX-2080-Ti", "GeForce-RTX-2080-Ti"},
       {}},
      // 12288 in nvidia-smi; torch sees 12622168064 B of them (xMem's raw files).
      {"RTX-3060", "ampere", 12288, 360, kPcieGen4, kNetwork100, 0.06, {"NVIDIA-GeForce-RTX-3060"}, {}},
      {"RTX-3060-Ti", "ampere", 8192, 448, kPcieGen4, kNetwork100, 0.06, {"NVIDIA-GeForce-RTX-3060-Ti"}, {}},
      {"RTX-3070", "ampere", 8192, 448, kPcieGen4, kNetwork100, 0.08, {"NVIDIA-GeForce-RTX-3070"}, {}},
      {"RTX-3080", "ampere", 10240, 760, kPcieGen4, kNetwork100, 0.1, {"NVIDIA-GeForce-RTX-3080"}, {}},
      {"RTX-3080-Ti", "ampere", 12288, 912, kPcieGen4, kNetwork100, 0.12, {"NVIDIA-GeForce-RTX-3080-Ti"}, {}},
      {"RTX-3090", "ampere", 24576, 936, kPcieGen4, kNetwork100, 0.15, {"NVIDIA-GeForce-RTX-3090"}, {}},
      {"RTX-4060", "ada-lovelace", 8188, 272, kPcieGen4, kNetwork100, 0.07, {"NVIDIA-GeForce-RTX-4060"}, {}},
      {"RTX-4070", "ada-lovelace", 12282, 504, kPcieGen4, kNetwork100, 0.12, {"NVIDIA-GeForce-RTX-4070"}, {}},
      {"RTX-4080", "ada-lovelace", 16376, 717, kPcieGen4, kNetwork100, 0.2, {"NVIDIA-GeForce-RTX-4080"}, {}},
      {"RTX-4090", "ada-lovelace", 24564, 1008, kPcieGen4, kNetwork100, 0.3, {"NVIDIA-GeForce-RTX-4090"}, {}},
      {"RTX-5090", "blackwell", 32607, 1792, kPcieGen5, kNetwork100, 0.45, {"NVIDIA-GeForce-RTX-5090"}, {}},
      {"RTX-A4000", "ampere", 16376, 448, kPcieGen4, kNetwork100, 0.12, {"NVIDIA-RTX-A4000"}, {}},
      {"RTX-A5000", "ampere", 24564, 768, kPcieGen4, kNetwork100, 0.2, {"NVIDIA-RTX-A5000"}, {}},
      // Memory of the Blackwell cards: nvidia-smi dumps and the profiles of NVIDIA's AIConfigurator.
      {"B200",
       "blackwell",
       183359,
       8000,
       gigabytes(1800),
       kNetwork400,
       3.5,
       {"NVIDIA-B200"},
       {"nvidia-b200", "b200"}},
      {"B300", "blackwell", 275040, 8000, gigabytes(1800), kNetwork400, 4.5, {"NVIDIA-B300-SXM6-AC"}, {}},
      {"GB200", "blackwell", 189471, 8000, gigabytes(1800), kNetwork400, 4.0, {"NVIDIA-GB200"}, {}},
      {"GB300", "blackwell", 284208, 8000, gigabytes(1800), kNetwork400, 5.0, {"NVIDIA-GB300"}, {}},
      // The label is unverified.
      {"RTX-PRO-6000",
       "blackwell",
       97887,
       1597,
       kPcieGen5,
       kNetwork100,
       0.8,
       {"NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"},
       {}},
      // Memory is shared with the CPU, and the memory label absent: unverified, what is left of 128 GB.
      {"GB10", "blackwell", 120 * 1024, 273, kPcieGen5, kNetwork100, 0.2, {"NVIDIA-GB10"}, {}},
  };
  return kEntries;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

bool contains(const std::vector<std::string>& labels, std::string_view wanted) {
  return std::any_of(labels.begin(), labels.end(),
                     [&](const std::string& label) { return equal_ignoring_case(label, wanted); });
}

// A time-sliced GPU, and a MIG slice, are not the whole card that the catalogue describes.
bool names_a_part_of_a_gpu(std::string_view label) {
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
    if (label.empty() || names_a_part_of_a_gpu(label)) {
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

}  // namespace

GpuCatalog GpuCatalog::built_in() {
  GpuCatalog catalog;
  for (const Entry& entry : entries()) {
    catalog.models_.push_back(GpuModel{.name = entry.name,
                                       .product_labels = entry.product_labels,
                                       .cloud_labels = entry.cloud_labels,
                                       .family = entry.family,
                                       .memory = Bytes::from_mib(entry.memory_mib),
                                       .hbm_bandwidth = gigabytes(entry.hbm_gigabytes_a_second),
                                       .intra_node_bandwidth = entry.intra_node,
                                       .inter_node_bandwidth = entry.inter_node,
                                       .cuda_context = {},
                                       .relative_cost = entry.relative_cost});
  }
  return catalog;
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
  // On a copy, so that a file that is wrong in its last entry changes nothing.
  GpuCatalog changed = *this;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const std::string entry = "GPU catalogue entry " + std::to_string(i + 1);
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
        .product_labels = {},
        .cloud_labels = {},
        .family = {},
        .memory = *spec.memory,
        .hbm_bandwidth = kUnknownHbm,
        .intra_node_bandwidth = kPcieGen3,
        .inter_node_bandwidth = kNetwork100,
        .cuda_context = {},
        // By its size, until somebody prices it.
        .relative_cost = static_cast<double>(spec.memory->count) / static_cast<double>((80_GiB).count)});
    model = &models_.back();
  }
  for (const std::string& label : spec.product_labels) {
    for (GpuModel& other : models_) {
      std::erase_if(other.product_labels,
                    [&](const std::string& held) { return equal_ignoring_case(held, label); });
    }
    model->product_labels.push_back(label);
  }
  model->memory = spec.memory.value_or(model->memory);
  model->hbm_bandwidth = spec.hbm_bandwidth.value_or(model->hbm_bandwidth);
  model->intra_node_bandwidth = spec.intra_node_bandwidth.value_or(model->intra_node_bandwidth);
  model->inter_node_bandwidth = spec.inter_node_bandwidth.value_or(model->inter_node_bandwidth);
  if (spec.cuda_context) {
    model->cuda_context = spec.cuda_context;
  }
  if (spec.cost_per_hour) {
    const auto [price, first] = prices_.try_emplace(model->name, Price{0, model->relative_cost});
    price->second.per_hour = *spec.cost_per_hour;
    settle_prices();
  }
  return {};
}

// One unit of relative cost is worth the geometric mean, over the priced models, of price by listed cost:
// prices keep their exact ratios, and the unpriced models stay comparable with them.
void GpuCatalog::settle_prices() {
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
  // People, NVML and torch write blanks where names and labels have dashes.
  std::string wanted_name(name_or_label);
  std::replace(wanted_name.begin(), wanted_name.end(), ' ', '-');
  if (wanted_name.empty() || names_a_part_of_a_gpu(wanted_name)) {
    return nullptr;
  }
  // Names before labels before clouds: a resource may be called what a cloud calls another model.
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

}  // namespace plimsoll::estimator::catalog
