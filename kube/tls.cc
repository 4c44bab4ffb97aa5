#include "kube/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <array>

#include "kube/transport.h"

namespace plimsoll::kube {
namespace {

std::shared_ptr<BIO> open_text(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free};
}

std::string openssl_reason() {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "not readable" : reason;
}

std::vector<std::shared_ptr<X509>> parse_certificates(const std::string& pem) {
  std::vector<std::shared_ptr<X509>> certificates;
  const std::shared_ptr<BIO> text = open_text(pem);
  while (X509* certificate = PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(certificate, X509_free);
  }
  ERR_clear_error();  // the end of the text counts as an error for OpenSSL
  return certificates;
}

// Encrypted keys are not supported: nobody can enter the passphrase.
int no_passphrase(char*, int, int, void*) {
  return -1;
}

// "h" of "https://h:6443/path".
std::string host_of(const std::string& url) {
  const std::size_t scheme = url.find("://");
  const std::size_t begin = scheme == std::string::npos ? 0 : scheme + 3;
  return url.substr(begin, url.find_first_of(":/", begin) - begin);
}

Result<std::shared_ptr<X509_STORE>> trusted_store(const std::string& ca_pem, bool system_by_default) {
  std::shared_ptr<X509_STORE> store(X509_STORE_new(), X509_STORE_free);
  if (ca_pem.empty() && !system_by_default) {
    return store;
  }
  if (ca_pem.empty()) {
    // Best effort, as OpenSSL's default: without a CA bundle no server is trusted, and the handshake reports
    // that.
    X509_STORE_load_file(store.get(), system_ca_file().c_str());
    X509_STORE_load_path(store.get(), X509_get_default_cert_dir());
    ERR_clear_error();
    return store;
  }
  const auto certificates = parse_certificates(ca_pem);
  if (certificates.empty()) {
    return invalid("certificate-authority holds no readable certificate");
  }
  for (const auto& certificate : certificates) {
    if (X509_STORE_add_cert(store.get(), certificate.get()) != 1) {
      return invalid("certificate-authority: " + openssl_reason());
    }
  }
  return store;
}

}  // namespace

bool is_ip_address(const std::string& host) {
  std::array<unsigned char, 16> address{};
  return ::inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), address.data()) == 1;
}

Result<std::shared_ptr<TlsMaterial>> TlsMaterial::make(const ClientConfig& config) {
  std::shared_ptr<TlsMaterial> material(new TlsMaterial());
  material->host_ = config.tls_server_name.empty() ? host_of(config.server) : config.tls_server_name;
  // Without verification the system's CAs are not needed; they take tens of milliseconds to load.
  material->insecure_ = config.insecure_skip_tls_verify || !config.server.starts_with("https:");
  Result<std::shared_ptr<X509_STORE>> store = trusted_store(config.ca_pem, !material->insecure_);
  if (!store) {
    return store.error();
  }
  material->trusted_ = *store;
  {
    const MutexLock lock(material->mutex_);
    material->ca_pem_ = config.ca_pem;
  }
  if (Result<void> set =
          material->set_client_certificate(config.client_certificate_pem, config.client_key_pem);
      !set) {
    return set.error();
  }
  return material;
}

Result<TlsMaterial::Identity> TlsMaterial::parse_identity(const std::string& certificate_pem,
                                                          const std::string& key_pem) {
  Identity identity;
  if (certificate_pem.empty()) {
    return identity;
  }
  identity.chain = parse_certificates(certificate_pem);
  if (identity.chain.empty()) {
    return invalid("client-certificate holds no readable certificate");
  }
  EVP_PKEY* key = PEM_read_bio_PrivateKey(open_text(key_pem).get(), nullptr, no_passphrase, nullptr);
  if (key == nullptr) {
    return invalid("client-key holds no readable, unencrypted private key: " + openssl_reason());
  }
  identity.key = {key, EVP_PKEY_free};
  if (X509_check_private_key(identity.chain.front().get(), key) != 1) {
    ERR_clear_error();
    return invalid("client-key does not belong to client-certificate");
  }
  return identity;
}

Result<void> TlsMaterial::set_client_certificate(const std::string& certificate_pem,
                                                 const std::string& key_pem) {
  const MutexLock lock(mutex_);
  if (certificate_pem == certificate_pem_ && key_pem == key_pem_) {
    return {};
  }
  Result<Identity> identity = parse_identity(certificate_pem, key_pem);
  if (identity || identity_.key) {  // without a previous one the same text must be an error again
    certificate_pem_ = certificate_pem;
    key_pem_ = key_pem;
  }
  if (!identity) {
    return identity.error();
  }
  identity_ = std::move(*identity);
  return {};
}

bool TlsMaterial::has_client_certificate() const {
  const MutexLock lock(mutex_);
  return identity_.key != nullptr;
}

Result<void> TlsMaterial::set_trusted(const std::string& ca_pem) {
  const MutexLock lock(mutex_);
  if (ca_pem == ca_pem_) {
    return {};
  }
  ca_pem_ = ca_pem;
  // An empty CA file must not mean "the system's CAs".
  Result<std::shared_ptr<X509_STORE>> store =
      ca_pem.empty() ? invalid("certificate-authority is empty") : trusted_store(ca_pem, false);
  if (!store) {
    return store.error();
  }
  trusted_ = *std::move(store);
  return {};
}

void TlsMaterial::configure(SSL_CTX* context) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  if (!insecure_) {
    SSL_CTX_set_cert_verify_callback(context, &TlsMaterial::verify, this);
  }
  const MutexLock lock(mutex_);
  SSL_CTX_set1_cert_store(context, trusted_.get());
  if (identity_.key) {
    SSL_CTX_use_certificate(context, identity_.chain.front().get());
    for (std::size_t i = 1; i < identity_.chain.size(); ++i) {
      SSL_CTX_add1_chain_cert(context, identity_.chain[i].get());
    }
    SSL_CTX_use_PrivateKey(context, identity_.key.get());
  }
}

int TlsMaterial::verify(X509_STORE_CTX* context, void* self) {
  auto& material = *static_cast<TlsMaterial*>(self);
  X509_VERIFY_PARAM* wanted = X509_STORE_CTX_get0_param(context);
  if (is_ip_address(material.host_)) {
    X509_VERIFY_PARAM_set1_ip_asc(wanted, material.host_.c_str());
  } else {
    // As in Go: the host must be one of the alternative names; the common name is ignored.
    X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    X509_VERIFY_PARAM_set1_host(wanted, material.host_.c_str(), 0);
  }
  const int verdict = X509_verify_cert(context);
  const MutexLock lock(material.mutex_);
  material.last_refusal_ =
      verdict == 1 ? "" : X509_verify_cert_error_string(X509_STORE_CTX_get_error(context));
  return verdict;
}

std::string TlsMaterial::last_refusal() const {
  const MutexLock lock(mutex_);
  return last_refusal_;
}

}  // namespace plimsoll::kube
