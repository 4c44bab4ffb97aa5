// FakeApiServer: the fake API server (tests/fake_apiserver) with certificates, a token and a kubeconfig, on
// 127.0.0.1 and TLS.
//
//   Result<std::unique_ptr<FakeApiServer>> server = FakeApiServer::start();
//   run_kubectl(**server, {"get", "namespaces"});
//   (*server)->inject({.kind = Fault::Kind::kStatus, .verb = "update", .status = 409, .reason = "Conflict"});
//
// tests/fake_apiserver/README.md says what it does and does not do. Where it differs from the real one, it is
// wrong. Thread-safe; the destructor stops it and waits.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "tests/controlplane/api_server.h"
#include "tests/fake_apiserver/faults.h"

namespace plimsoll::testing {

struct FakeApiServerOptions {
  int port = 0;                        // 0: any free one
  std::size_t history_changes = 4096;  // older resourceVersions have expired
  std::chrono::milliseconds bookmark_interval{5'000};
};

class FakeApiServer : public ApiServer {
 public:
  static Result<std::unique_ptr<FakeApiServer>> start(const FakeApiServerOptions& options = {});

  ApiServerKind kind() const override { return ApiServerKind::kFake; }
  Result<void> restart(std::chrono::milliseconds) override {
    return Error(ErrorCode::kUnsupported, "the fake API server is no process");
  }

  Result<std::string> renew_certificate() override {
    return Error(ErrorCode::kUnsupported, "the fake API server keeps its certificate");
  }

  virtual std::string address() const = 0;  // "https://127.0.0.1:PORT"
  virtual std::string token() const = 0;

  // For the next requests that match; see faults.h.
  virtual void inject(const Fault& fault) = 0;
  virtual void clear_faults() = 0;
  // As etcd's compaction: watches and lists from the past end in 410.
  virtual void forget_history() = 0;
  // Ends all watches, as a restart of the server would.
  virtual void drop_watches() = 0;
  virtual std::size_t open_watches() const = 0;
};

Result<std::unique_ptr<ApiServer>> start_fake_api_server();

}  // namespace plimsoll::testing
