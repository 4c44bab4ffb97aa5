#include "kube/transport.h"

// Boost 1.74's awaitable.hpp uses std::exchange without including its header.
#include <utility>

#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <pplx/threadpool.h>

#include <cstdlib>
#include <exception>
#include <optional>

namespace plimsoll::kube {
namespace {

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

Result<void> start_transport() {
  static const bool started = [] {
    try {
      // Before the pool's thread: what is initialised first is cleaned up last, and the thread has state of OpenSSL's.
      ::OPENSSL_init_ssl(0, nullptr);
      crossplat::threadpool::initialize_with_threads(1);
      return true;
    } catch (const std::exception&) {  // somebody's pool, of as many threads as they like
      return false;
    }
  }();
  return started
             ? Result<void>()
             : Error(ErrorCode::kInternal,
                     "other code of the process has started cpprestsdk's thread pool; the client needs one "
                     "of a single thread");
}

void run_on_transport(std::function<void()> work) {
  boost::asio::post(crossplat::threadpool::shared_instance().service(), std::move(work));
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
