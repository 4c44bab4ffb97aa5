// TlsMaterial: the trusted CAs and the client certificate for the connections to one API server. Only the CAs
// of the kubeconfig are trusted (the system's when it names none), and the server's certificate must name the
// host or address of the URL. Thread-safe: the transport thread configures connections while the client
// certificate is replaced.
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
  // Errors: kInvalid for unreadable PEM or a key that does not belong to its certificate.
  static Result<std::shared_ptr<TlsMaterial>> make(const ClientConfig& config);

  // The host of the server's URL or tls-server-name: what its certificate must name.
  const std::string& server_name() const { return host_; }

  // For connections that are opened from now on. No effect for the same text as last time. Errors: as make;
  // the previous certificate then stays, and the same text again is not an error.
  Result<void> set_client_certificate(const std::string& certificate_pem, const std::string& key_pem);
  Result<void> set_trusted(const std::string& ca_pem);
  bool has_client_certificate() const;

  // Prepares the context of a new connection.
  void configure(SSL_CTX* context);

  // Why the last server certificate was rejected; empty when none was.
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

// True for "10.0.0.1": certificates name such a host as an address, and SNI does not name it.
bool is_ip_address(const std::string& host);

}  // namespace plimsoll::kube
