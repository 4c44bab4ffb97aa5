// The user's original request, without what an earlier admission wrote into the same object.
//
//   OriginalRequest original = original_request_of(job);
//   if (original.allows(gpu, "NVIDIA-A100-SXM4-80GB", cloud_values)) ...
//
// The first admission records the request in an annotation and later ones read it, so that a second admission
// of a job makes the same decision. Pure; any thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "crds/training_job.h"
#include "estimator/catalog/inventory.h"

namespace plimsoll::estimator::inline provisioner {

// One requirement on a label of the node.
struct LabelRequirement {
  std::string key;
  bool in = true;  // In these values, or NotIn them
  std::vector<std::string> values;
};

struct OriginalRequest {
  bool recorded = false;  // read from the annotation of an earlier admission
  // The product labels, in the inventory's spelling, that an earlier admission wrote into the selectors.
  std::vector<std::string> written_products;
  crds::Trainers trainers;
  std::map<std::string, std::string> node_selector;  // the template's, without what we wrote
  // The template's node affinity, without what we wrote: a node must meet all requirements of one term. Empty:
  // no affinity.
  std::vector<std::vector<LabelRequirement>> terms;

  // Whether the template's own selectors allow a node of this model with this product label (in the inventory's
  // spelling). Requirements on labels that do not describe the GPU count as met. `cloud_values` are the cloud
  // labels of all models that are present.
  bool allows(const AvailableGpu& gpu, const std::string& product_label,
              const std::set<std::string>& cloud_values) const;

  // Whether the template's selectors say anything about this label.
  bool selects_label(const std::string& key) const;
};

OriginalRequest original_request_of(const crds::TrainingJob& job);

// The annotation's content: {"gpuModel", "perNode"[, "replicas"][, "nodeSelector"]}.
Json to_json(const OriginalRequest& original);

// The node selector expression {key, operator: In, values} that takes any of these product labels.
Json product_expression(const std::vector<std::string>& labels);

// The template's required node affinity: an array of terms, or null.
const Json& required_terms(const crds::TrainingJob& job);

}  // namespace plimsoll::estimator::provisioner
