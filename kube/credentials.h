// CredentialSource: the token or client certificate of requests, kept up to date. Token files (the kubelet
// rotates them) and files of client certificates are read again every minute; plugins run again when their
// credential expires; and all of them when the server answers 401. Thread-safe; `current` may read a file or
// wait for a plugin, never longer than the deadline.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "kube/kubeconfig.h"

namespace plimsoll::kube {

struct Credential {
  std::string token;  // empty: no Authorization header
  std::string client_certificate_pem;
  std::string client_key_pem;
};

class CredentialSource {
 public:
  virtual ~CredentialSource() = default;
  virtual Result<Credential> current(std::chrono::milliseconds deadline) = 0;
  // The server rejected what `current` returned. True when the next call may return something else.
  virtual bool refresh() = 0;
};

std::unique_ptr<CredentialSource> make_credential_source(const ClientConfig& config,
                                                         const Clock& clock = system_clock());

}  // namespace plimsoll::kube
