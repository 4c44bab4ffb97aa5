#include "tests/controlplane/certificates.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <array>
#include <memory>

namespace plimsoll::testing {
namespace {

constexpr long kClockSkewSeconds = 5 * 60;
constexpr long kValidSeconds = 24 * 3600;

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using Memory = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using Extension = std::unique_ptr<X509_EXTENSION, Deleter<X509_EXTENSION_free>>;

Error openssl_error(const std::string& what) {
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  return Error(ErrorCode::kInternal, what + ": " + text.data());
}

std::string text_of(BIO* memory) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory, &data);
  return {data, static_cast<std::size_t>(size)};
}

Result<std::string> pem_of(EVP_PKEY* key) {
  const Memory memory(BIO_new(BIO_s_mem()));
  // "EC PRIVATE KEY": the one form of an EC key that kube-apiserver takes for service accounts.
  if (PEM_write_bio_PrivateKey_traditional(memory.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return openssl_error("write a private key");
  }
  return text_of(memory.get());
}

Result<std::string> pem_of(X509* certificate) {
  const Memory memory(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(memory.get(), certificate) != 1) {
    return openssl_error("write a certificate");
  }
  return text_of(memory.get());
}

bool add_extension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool is_address(const std::string& name) {
  std::array<unsigned char, 16> binary{};
  return inet_pton(AF_INET, name.c_str(), binary.data()) == 1 ||
         inet_pton(AF_INET6, name.c_str(), binary.data()) == 1;
}

std::string alternative_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : ",") + std::string(is_address(name) ? "IP:" : "DNS:") + name;
  }
  return text;
}

// A certificate for `key`, signed by `issuer_key`; a null issuer is the certificate itself.
Result<std::string> certify(EVP_PKEY* key, const std::string& common_name, X509* issuer, EVP_PKEY* issuer_key,
                            const std::vector<std::string>& names) {
  const Certificate certificate(X509_new());
  std::uint64_t serial = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial));
  serial >>= 1U;  // a positive INTEGER
  X509* const signer = issuer == nullptr ? certificate.get() : issuer;
  X509_NAME* const subject = X509_get_subject_name(certificate.get());
  bool good = X509_set_version(certificate.get(), X509_VERSION_3) == 1 &&
              ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), serial) == 1 &&
              X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kClockSkewSeconds) != nullptr &&
              X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kValidSeconds) != nullptr &&
              X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                                         reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                                         0) == 1 &&
              X509_set_issuer_name(certificate.get(), X509_get_subject_name(signer)) == 1 &&
              X509_set_pubkey(certificate.get(), key) == 1;
  if (issuer == nullptr) {
    good = good && add_extension(certificate.get(), signer, NID_basic_constraints, "critical,CA:TRUE") &&
           add_extension(certificate.get(), signer, NID_key_usage, "critical,keyCertSign,digitalSignature") &&
           add_extension(certificate.get(), signer, NID_subject_key_identifier, "hash");
  } else {
    good = good && add_extension(certificate.get(), signer, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(certificate.get(), signer, NID_key_usage, "critical,digitalSignature") &&
           add_extension(certificate.get(), signer, NID_ext_key_usage, "serverAuth,clientAuth") &&
           add_extension(certificate.get(), signer, NID_subject_key_identifier, "hash") &&
           add_extension(certificate.get(), signer, NID_authority_key_identifier, "keyid:always") &&
           add_extension(certificate.get(), signer, NID_subject_alt_name, alternative_names(names));
  }
  if (!good || X509_sign(certificate.get(), issuer_key, EVP_sha256()) == 0) {
    return openssl_error("make the certificate of " + common_name);
  }
  return pem_of(certificate.get());
}

}  // namespace

Result<std::string> generate_private_key_pem() {
  const Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) {
    return openssl_error("generate a key");
  }
  return pem_of(key.get());
}

Result<CertificateAuthority> CertificateAuthority::create(const std::string& common_name) {
  const Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) {
    return openssl_error("generate a key");
  }
  Result<std::string> certificate = certify(key.get(), common_name, nullptr, key.get(), {});
  if (!certificate) {
    return certificate.error();
  }
  Result<std::string> key_pem = pem_of(key.get());
  if (!key_pem) {
    return key_pem.error();
  }
  return CertificateAuthority(KeyPair{*std::move(certificate), *std::move(key_pem)});
}

Result<KeyPair> CertificateAuthority::issue(const std::string& common_name,
                                            const std::vector<std::string>& names) const {
  assert(!names.empty());
  const Memory certificate_memory(
      BIO_new_mem_buf(pair_.certificate_pem.data(), static_cast<int>(pair_.certificate_pem.size())));
  const Memory key_memory(BIO_new_mem_buf(pair_.key_pem.data(), static_cast<int>(pair_.key_pem.size())));
  const Certificate issuer(PEM_read_bio_X509(certificate_memory.get(), nullptr, nullptr, nullptr));
  const Key issuer_key(PEM_read_bio_PrivateKey(key_memory.get(), nullptr, nullptr, nullptr));
  const Key key(EVP_EC_gen("P-256"));
  if (issuer == nullptr || issuer_key == nullptr || key == nullptr) {
    return openssl_error("issue a certificate to " + common_name);
  }
  Result<std::string> certificate = certify(key.get(), common_name, issuer.get(), issuer_key.get(), names);
  if (!certificate) {
    return certificate.error();
  }
  Result<std::string> key_pem = pem_of(key.get());
  if (!key_pem) {
    return key_pem.error();
  }
  return KeyPair{*std::move(certificate), *std::move(key_pem)};
}

std::string random_hex(std::size_t bytes) {
  std::vector<unsigned char> random(bytes);
  [[maybe_unused]] const int good = RAND_bytes(random.data(), static_cast<int>(random.size()));
  assert(good == 1);
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : random) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

Result<void> write_private_file(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) {
    return Error(ErrorCode::kInternal, "cannot write " + path);
  }
  const ssize_t written = write(file, text.data(), text.size());
  if (close(file) != 0 || written != static_cast<ssize_t>(text.size())) {
    return Error(ErrorCode::kInternal, "cannot write " + path);
  }
  return {};
}

}  // namespace plimsoll::testing
