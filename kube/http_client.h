// The production Client: HTTP/1.1 and TLS to a kube-apiserver, on cpprestsdk's http_client.
//
//   Result<ClientConfig> config = load_client_config(sources_from_environment(options.kubeconfig));
//   Result<std::unique_ptr<Client>> client = connect(*config);
//
// `connect` only prepares: the first call dials. Within a call's deadline it repeats what is safe to repeat:
// - not sent whole (a kept-alive connection that the server had closed): any call, at once;
// - answered 429, or 5xx with Retry-After: any call, after that delay;
// - answered 5xx, or cut off before the answer was complete: calls that may be done twice (all but create and
//   JSON patches), with back-off and jitter; a delete that then finds nothing counts as done.
// After a call that nobody answered in time, the next ones dial anew: connections that are kept alive may
// lead nowhere (half-open TCP), and say so to nobody. A 401 refreshes token files and credential plugins
// once. Failures to connect are not repeated: the caller decides how long to wait for a server that is down.
//
// Server-side apply always forces conflicts: our field manager owns what it applies. `create` refuses
// metadata.generateName without a name, because cpprestsdk may send a request again on a fresh connection
// when a kept-alive one turns out to be closed, and a second nameless object would go unnoticed.
// Thread-safe, see kube/client.h. Destroy it after its last call has returned.
#pragma once

#include <memory>

#include "base/result.h"
#include "kube/client.h"
#include "kube/kubeconfig.h"

namespace plimsoll::kube {

// Errors: kInvalid for a URL, certificate or key that cannot be used.
Result<std::unique_ptr<Client>> connect(const ClientConfig& config);

}  // namespace plimsoll::kube
