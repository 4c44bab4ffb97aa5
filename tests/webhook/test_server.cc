#include "tests/webhook/test_server.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "tests/webhook/samples.h"

namespace plimsoll::testing {

TestServer::TestServer(http::ServerOptions options)
    : server_(
          std::move(options), [this](const http::Request& request) { return handler_.handle(request); },
          certificate_) {
  configure_log(LogLevel::kError,
                LogFormat::kText);  // a warning for each bad request would hide the test's own
  cluster_.set(sample_view());
  const Result<void> started = server_.start();
  EXPECT_TRUE(started.ok()) << started.error().message;
}

}  // namespace plimsoll::testing
