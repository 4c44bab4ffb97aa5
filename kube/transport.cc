#include "kube/transport.h"

// Boost 1.74's awaitable.hpp uses std::exchange without including its header.
#include <utility>

#include <openssl/x509.h>
#include <pplx/pplxtasks.h>
#include <pplx/threadpool.h>

#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>

namespace plimsoll::kube {
namespace {

constexpr std::size_t kPoolThreads = 4;

struct OriginalEnvironment {
  bool changed = false;
  std::optional<std::string> certificate_file;
};

// Written once before threads exist, read afterwards.
OriginalEnvironment& original() {
  static OriginalEnvironment environment;
  return environment;
}

}  // namespace

void initialise_transport() {
  if (!original().changed) {
    if (const char* file = std::getenv("SSL_CERT_FILE"); file != nullptr) {
      original().certificate_file = file;
    }
    original().changed = true;
    ::setenv("SSL_CERT_FILE", "/dev/null", 1);
  }
}

void start_transport_pool() {
  static std::once_flag once;
  std::call_once(once, [] {
    try {
      crossplat::threadpool::initialize_with_threads(kPoolThreads);
    } catch (const std::exception&) {
      // Other code of the process (a test's server) has started the pool; any size will do.
    }
    // The first task of a process creates it; here, no two threads do so at once.
    pplx::get_ambient_scheduler();
  });
}

std::string system_ca_file() {
  if (original().changed) {
    return original().certificate_file.value_or(X509_get_default_cert_file());
  }
  const char* file = std::getenv("SSL_CERT_FILE");
  return file != nullptr ? file : X509_get_default_cert_file();
}

void restore_tls_environment(std::map<std::string, std::string>& variables) {
  if (!original().changed) {
    return;
  }
  if (original().certificate_file) {
    variables["SSL_CERT_FILE"] = *original().certificate_file;
  } else {
    variables.erase("SSL_CERT_FILE");
  }
}

}  // namespace plimsoll::kube
