// CredentialSource: the token or certificate that requests carry, kept fresh: token files are read again
// every minute (the kubelet rotates them), so are files of client certificates, plugins run again when what
// they gave expires, and all of them when the server says 401. Thread-safe; `current` may read a file or wait
// for a plugin, never longer than the deadline.
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
  // The server refused what `current` gave. True when asking again may give something else.
  virtual bool refresh() = 0;
};

std::unique_ptr<CredentialSource> make_credential_source(const ClientConfig& config,
                                                         const Clock& clock = system_clock());

}  // namespace plimsoll::kube
