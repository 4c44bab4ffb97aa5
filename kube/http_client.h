// The production Client: HTTP/1.1 and TLS to a kube-apiserver, on cpprestsdk's http_client.
//
//   Result<ClientConfig> config = load_client_config(sources_from_environment(options.kubeconfig));
//   Result<std::unique_ptr<Client>> client = connect(*config);
//
// `connect` does not open a connection; the first call does. Within its deadline a call is retried when that
// is safe:
// - not sent completely (the server had closed a kept-alive connection): any call, at once;
// - response 429, or 5xx with Retry-After: any call, after that delay;
// - response 5xx, or cut off before its end: calls that may be executed twice (all but create and JSON
//   patches), with backoff and jitter; a delete that then finds nothing counts as done.
// After a call without a response, the next calls open new connections: kept-alive ones may be half-open (the
// peer is gone, and TCP has not noticed). A 401 refreshes token files and credential plugins once. Failures
// to connect are not retried: the caller decides how long to wait for a server that is down.
//
// Server-side apply always forces conflicts: our field manager owns what it applies. `create` rejects
// metadata.generateName without a name: cpprestsdk may send a request again on a new connection when a
// kept-alive one was closed, and nobody would notice a second object of another name.
// A ClientObserver sees every request, each try and each watch.
// Thread-safe, see kube/client.h. Destroy it after its last call has returned.
#pragma once

#include <chrono>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "kube/client.h"
#include "kube/kubeconfig.h"

namespace plimsoll::kube {

// Called on the threads of the calls, several at once.
class ClientObserver {
 public:
  virtual ~ClientObserver() = default;
  // A request has its response, or will have none: `status` is then 0. `method` is "GET", "POST" and so on.
  virtual void requested(std::string_view method, int status) = 0;
  // How long a request that is no watch took, to the end of the response's body.
  virtual void took(std::string_view method, std::chrono::nanoseconds time) = 0;
};

// The observer, if there is one, must outlive the client. Errors: kInvalid for an invalid URL, certificate or key.
Result<std::unique_ptr<Client>> connect(const ClientConfig& config, ClientObserver* observer = nullptr);

}  // namespace plimsoll::kube
