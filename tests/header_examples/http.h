// What the examples of http/ leave open.
#pragma once

#include "http/certificate_source.h"
#include "http/server.h"
#include "tests/header_examples/anything.h"

namespace plimsoll::examples {
using namespace http;

struct certificate_source_example {
  std::string dir;
  ServerOptions options;
  Handler handler;
};
struct server_example {
  Handler handle;
  std::shared_ptr<CertificateSource> certificates;
};

}  // namespace plimsoll::examples
