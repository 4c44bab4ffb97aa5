// Where the programs of the real control plane are. Looked up once a process, by scripts/controlplane --print
// ($KUBEBUILDER_ASSETS, /usr/local/kubebuilder/bin, the cache of what was built here).
// $PLIMSOLL_NO_CONTROL_PLANE says that there is none. Any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "tests/controlplane/api_server.h"

namespace plimsoll::testing {

// The folder with etcd and kube-apiserver, or why there is none.
const Result<std::string>& control_plane_folder();

// A program of that folder, else of PATH; an error that names it when it is in neither.
Result<std::string> find_program(const std::string& name);

// $PLIMSOLL_KUBECTL; else PATH's, else the built one, in this order for a fake server. For a real one the
// built kubectl comes first, because kubectl and server may lie one minor version apart and Debian's lies
// further. Empty when there is none.
std::string find_kubectl(ApiServerKind kind);

}  // namespace plimsoll::testing
