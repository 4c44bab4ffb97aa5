#include "tests/controlplane/api_server.h"

#include <iostream>

#include "tests/controlplane/fake_api_server.h"
#include "tests/controlplane/real_api_server.h"

namespace plimsoll::testing {

std::unique_ptr<ApiServer> start_api_server(ApiServerKind kind, const ApiServerOptions& options,
                                            std::string* why) {
  Result<std::unique_ptr<ApiServer>> server =
      kind == ApiServerKind::kReal ? start_real_api_server(options) : start_fake_api_server();
  if (server) {
    return *std::move(server);
  }
  std::cerr << "No " << (kind == ApiServerKind::kReal ? "real" : "fake")
            << " API server: " << server.error().message << "\n";
  if (why != nullptr) {
    *why = server.error().message;
  }
  return nullptr;
}

}  // namespace plimsoll::testing
