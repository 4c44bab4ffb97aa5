// A kubeconfig. It names files and programs: this program has no files, for the function that reads them is
// replaced here, and parse_kubeconfig never starts a program.
#include "kube/kubeconfig.h"

#include "base/file.h"
#include "tests/fuzz/target.h"

namespace plimsoll {

// Instead of base/file.cc, which the linker then leaves out.
Result<std::string> read_file(const std::string& path, Bytes /*limit*/) {
  if (path.ends_with(".pem")) {
    return std::string("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  }
  return Error(ErrorCode::kNotFound, "there are no files here");
}

}  // namespace plimsoll

namespace plimsoll::testing {

FUZZ_TARGET(kubeconfig) {
  const Result<kube::ClientConfig> config = kube::parse_kubeconfig(input, "/home/someone/.kube");
  if (!config) {
    require(!config.error().message.empty(), "an error says what is wrong");
    return;
  }
  require(config->server.starts_with("https://") || config->server.starts_with("http://"),
          "a server is a URL");
  require(config->token.find_first_of("\r\n") == std::string::npos, "a token is one line");
  require(config->client_certificate_pem.empty() == config->client_key_pem.empty(),
          "certificate and key come together");
}

}  // namespace plimsoll::testing
