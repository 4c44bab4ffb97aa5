// The options of both servers that say what the platform team of a cluster sets for all jobs.
//
//   description.add(describe(options));
//   Result<crds::ClusterPolicy> policy = policy_of(options);
//
// Plain values; any thread.
#pragma once

#include <boost/program_options/options_description.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "crds/cluster_policy.h"

namespace plimsoll::process {

struct PolicyOptions {
  std::string mode = "Auto";
  bool advice_only = false;
  std::string min_share_of_asked = crds::kMinShareOfAsked;
  std::vector<std::string> feature_gates;
};

boost::program_options::options_description describe(PolicyOptions& options);

// Errors: kInvalid, naming the option.
Result<crds::ClusterPolicy> policy_of(const PolicyOptions& options);

}  // namespace plimsoll::process
