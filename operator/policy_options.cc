#include "operator/policy_options.h"

#include "base/quantity.h"

namespace plimsoll::process {

namespace po = boost::program_options;

po::options_description describe(PolicyOptions& options) {
  po::options_description description("Policy of the cluster (the same for webhook and operator)");
  description.add_options()  //
      ("training-job-mode", po::value(&options.mode)->default_value(options.mode)->value_name("MODE"),
       "mode of TrainingJobs that name none, in namespaces without the label plimsoll.dev/mode: Auto, Initial or Off")  //
      ("advice-only",
       po::value(&options.advice_only)->default_value(options.advice_only, "false")->value_name("BOOL"),
       "only recommend, whatever jobs and namespaces say: as if all of them said Off")  //
      ("min-share-of-asked",
       po::value(&options.min_share_of_asked)
           ->default_value(options.min_share_of_asked)
           ->value_name("PERCENT"),
       "least share of the requested trainers that a job is given, except by a swap plan; 0% sets no limit")  //
      ("feature-gates", po::value(&options.feature_gates)->value_name("NAME=BOOL,..."),
       ("features that are not finished; may be repeated:" + crds::feature_gates_help()).c_str());
  return description;
}

Result<crds::ClusterPolicy> policy_of(const PolicyOptions& options) {
  const std::optional<crds::ProvisioningMode> mode = crds::mode_of_label(options.mode);
  if (!mode) {
    return invalid("--training-job-mode must be Auto, Initial or Off", options.mode);
  }
  const Result<double> share = parse_percentage(options.min_share_of_asked);
  if (!share) {
    return share.error().within("--min-share-of-asked");
  }
  const Result<crds::FeatureGates> gates = crds::FeatureGates::parse(options.feature_gates);
  if (!gates) {
    return gates.error().within("--feature-gates");
  }
  return crds::ClusterPolicy{
      .mode = *mode, .advice_only = options.advice_only, .min_share_of_asked = *share, .gates = *gates};
}

}  // namespace plimsoll::process
