// The profiles that Harmony's authors published (github.com/msr-fiddle/harmony at 5fd838f, MIT; GTX 1080 Ti, fp32), with the
// microbatches that tests need: profiles/NAME.json.
#pragma once

#include <string>

#include "estimator/swap/profile.h"
#include "tests/estimator/data_files.h"

namespace plimsoll::estimator::testing {

inline SwapProfile published_profile(const std::string& model) {
  const Result<JsonText> json = JsonText::parse_as_tree(data_file("swap/profiles/" + model + ".json"));
  EXPECT_TRUE(json.ok()) << model;
  const Result<SwapProfile> profile = read_swap_profile(json->root());
  EXPECT_TRUE(profile.ok()) << to_string(profile.error());
  return profile ? *profile : SwapProfile();
}

}  // namespace plimsoll::estimator::testing
