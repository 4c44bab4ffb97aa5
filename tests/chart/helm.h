// The helm program and what it renders, for the chart's tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json/json.h"
#include "tests/checkout.h"
#include "tests/controlplane/api_server.h"

namespace plimsoll::testing {

inline constexpr const char* kChart = PLIMSOLL_SOURCE_DIR "/charts/plimsoll";
inline constexpr const char* kNamespace = "plimsoll-system";
// A webhook on this machine instead of in the cluster.
inline const std::vector<std::string> kOutside = {"--set", "webhook.deploy=false",
                                                  "--set", "webhook.url=https://127.0.0.1:9443",
                                                  "--set", "webhook.caBundle=-----BEGIN CERTIFICATE-----"};
// In the cluster, with a certificate of the user's.
inline const std::vector<std::string> kOwnSecret = {"--set", "certificates.source=secret",
                                                    "--set", "certificates.secretName=our-tls",
                                                    "--set", "webhook.caBundle=-----BEGIN CERTIFICATE-----"};

class HelmTest : public ::testing::Test {
 protected:
  void SetUp() override;  // skips when there is no helm

  CommandResult helm(std::vector<std::string> arguments) const;
  // `helm template` of the release "sail"; its text.
  CommandResult render_text(const std::vector<std::string>& values = {},
                            const std::string& chart = kChart) const;
  // The same, as objects; fails the test when it does not render.
  std::vector<Json> render(const std::vector<std::string>& values = {},
                           const std::string& chart = kChart) const;

 private:
  std::string helm_;
};

// "Kind/name" of each, sorted.
std::vector<std::string> names_of(const std::vector<Json>& objects);
// The one with this "Kind/name"; null when there is none.
const Json& find_object(const std::vector<Json>& objects, const std::string& name);

}  // namespace plimsoll::testing
