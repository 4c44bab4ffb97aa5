// TlsMaterial: whom we trust and who we are, for the connections to one API server. Only the CAs of the
// kubeconfig are trusted (the system's when it names none), and the server's certificate must name the host
// or address that we dial. Thread-safe: cpprestsdk's threads configure connections while the client
// certificate is exchanged.
#pragma once

#include <openssl/ossl_typ.h>

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "kube/kubeconfig.h"

namespace plimsoll::kube {

class TlsMaterial {
 public:
  // Errors: kInvalid for PEM that cannot be read, or a key that does not belong to its certificate.
  static Result<std::shared_ptr<TlsMaterial>> make(const ClientConfig& config);

  // The host of the server's URL or tls-server-name: what its certificate must name.
  const std::string& server_name() const { return host_; }

  // Used by connections opened from now on. Do nothing for what was given last. Errors: as make; then it is
  // as it was, and the same text again is no error.
  Result<void> set_client_certificate(const std::string& certificate_pem, const std::string& key_pem);
  Result<void> set_trusted(const std::string& ca_pem);
  // Whether there is a client certificate to go on with.
  bool has_client_certificate() const;

  // Prepares the context of a new connection.
  void configure(SSL_CTX* context);

  // Why the last server certificate was refused; empty when none was.
  std::string last_refusal() const;

 private:
  struct Identity {
    std::vector<std::shared_ptr<X509>> chain;  // the leaf first
    std::shared_ptr<EVP_PKEY> key;
  };

  TlsMaterial() = default;
  static Result<Identity> parse_identity(const std::string& certificate_pem, const std::string& key_pem);
  static int verify(X509_STORE_CTX* context, void* self);

  std::string host_;
  bool insecure_ = false;
  std::shared_ptr<X509_STORE> trusted_;
  mutable Mutex mutex_;
  Identity identity_ PLIMSOLL_GUARDED_BY(mutex_);
  std::string certificate_pem_ PLIMSOLL_GUARDED_BY(mutex_);  // as given last, usable or not
  std::string key_pem_ PLIMSOLL_GUARDED_BY(mutex_);
  std::string ca_pem_ PLIMSOLL_GUARDED_BY(mutex_);
  std::string last_refusal_ PLIMSOLL_GUARDED_BY(mutex_);
};

// True for "10.0.0.1"; such a host takes part in certificates as an address, and never in SNI.
bool is_ip_address(const std::string& host);

}  // namespace plimsoll::kube
