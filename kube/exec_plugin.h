// Runs a credential plugin (client.authentication.k8s.io) and reads its output. Blocks the calling thread at
// most until the deadline; then the plugin and its children are killed. Any thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "kube/kubeconfig.h"

namespace plimsoll::kube {

struct ExecCredential {
  std::string token;
  std::string client_certificate_pem;
  std::string client_key_pem;
  std::optional<Clock::WallTime> expires;
};

// Errors: kUnauthorized when the plugin cannot be started, fails, prints no credential, or is too slow.
Result<ExecCredential> run_exec_plugin(const ExecPlugin& plugin, std::chrono::milliseconds deadline);

// Errors: kInvalid.
Result<ExecCredential> parse_exec_credential(std::string_view text, const std::string& api_version);

}  // namespace plimsoll::kube
