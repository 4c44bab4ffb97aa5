// What `plimsoll swap --executor NAME --remedies` prints: each way alone in which a training fits its GPUs, and the cheapest of all together.
// Pure; any thread.
//
//   std::string table = remedies_text(search, answer);
#pragma once

#include <string>

#include "base/json/edit.h"
#include "estimator/host_training/remedy_search.h"

namespace plimsoll::cli {

// A table: what is changed, GPUs, memory, seconds and GPU-hours of a million samples.
std::string remedies_text(const estimator::RemedySearch& search, const estimator::RemedyAnswer& answer);

// {asRequested, recomputation, offload, moreGpus, smallerMicroBatches, together, considered, estimated}; null for what does not fit.
JsonObject remedies_json(const estimator::RemedyAnswer& answer);

}  // namespace plimsoll::cli
