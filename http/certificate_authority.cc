#include "http/certificate_authority.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <array>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>

namespace plimsoll::http {
namespace {

constexpr const char* kCurve = "P-256";
constexpr std::size_t kCommonNameLimit = 64;  // ub-common-name of RFC 5280

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using X509Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using Memory = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using Extension = std::unique_ptr<X509_EXTENSION, Deleter<X509_EXTENSION_free>>;

Error openssl_error(const std::string& what) {
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  ERR_clear_error();
  return Error(ErrorCode::kInternal, what + ": " + text.data());
}

Memory open_text(std::string_view text) {
  return Memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string text_of(BIO* memory) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory, &data);
  return {data, static_cast<std::size_t>(size)};
}

Result<std::string> pem_of(EVP_PKEY* key) {
  const Memory memory(BIO_new(BIO_s_mem()));
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

// Nobody can enter the passphrase of an encrypted key.
int no_passphrase(char*, int, int, void*) {
  return -1;
}

Key read_key(std::string_view pem) {
  Key key(PEM_read_bio_PrivateKey(open_text(pem).get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  return key;
}

X509Certificate read_first(std::string_view pem) {
  X509Certificate certificate(PEM_read_bio_X509(open_text(pem).get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  return certificate;
}

bool is_address(const std::string& name) {
  std::array<unsigned char, 16> binary{};
  return inet_pton(AF_INET, name.c_str(), binary.data()) == 1 ||
         inet_pton(AF_INET6, name.c_str(), binary.data()) == 1;
}

// OpenSSL reads the names as a list with commas, so each must be a name and nothing else.
Result<std::string> alternative_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    if (!is_server_name(name)) {
      return invalid("a certificate cannot have this name", name.substr(0, 64));
    }
    text += (text.empty() ? "" : ",") + std::string(is_address(name) ? "IP:" : "DNS:") + name;
  }
  return text;
}

bool add_extension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

struct Issuer {
  X509* certificate = nullptr;  // null: the certificate signs itself
  EVP_PKEY* key = nullptr;
};

Result<std::string> certify(EVP_PKEY* key, const CertificateRequest& request, const Issuer& issuer) {
  if (request.common_name.size() > kCommonNameLimit) {
    return invalid("a certificate's common name has at most 64 characters",
                   request.common_name.substr(0, 64));
  }
  const Result<std::string> names = alternative_names(request.names);
  if (!names) {
    return names.error();
  }
  const X509Certificate certificate(X509_new());
  X509* const made = certificate.get();
  std::uint64_t serial = 0;
  bool good = RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial)) == 1;
  serial >>= 1U;  // a positive INTEGER
  X509* const signer = issuer.certificate == nullptr ? made : issuer.certificate;
  const auto seconds = [](Clock::WallTime time) { return std::chrono::system_clock::to_time_t(time); };
  good = good && X509_set_version(made, X509_VERSION_3) == 1 &&
         ASN1_INTEGER_set_uint64(X509_get_serialNumber(made), serial) == 1 &&
         ASN1_TIME_set(X509_getm_notBefore(made), seconds(request.validity.not_before)) != nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(made), seconds(request.validity.not_after)) != nullptr &&
         X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(request.common_name.c_str()), -1,
                                    -1, 0) == 1 &&
         X509_set_issuer_name(made, X509_get_subject_name(signer)) == 1 && X509_set_pubkey(made, key) == 1;
  if (issuer.certificate == nullptr) {
    good = good && add_extension(made, signer, NID_basic_constraints, "critical,CA:TRUE") &&
           add_extension(made, signer, NID_key_usage, "critical,keyCertSign,digitalSignature") &&
           add_extension(made, signer, NID_subject_key_identifier, "hash");
  } else {
    good = good && add_extension(made, signer, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(made, signer, NID_key_usage, "critical,digitalSignature") &&
           add_extension(made, signer, NID_ext_key_usage, request.extended_key_usage) &&
           add_extension(made, signer, NID_subject_key_identifier, "hash") &&
           add_extension(made, signer, NID_authority_key_identifier, "keyid:always") &&
           add_extension(made, signer, NID_subject_alt_name, *names);
  }
  if (!good || X509_sign(made, issuer.key, EVP_sha256()) == 0) {
    return openssl_error("make the certificate of " + request.common_name);
  }
  return pem_of(made);
}

Result<KeyPair> pair_of(EVP_PKEY* key, Result<std::string> certificate) {
  if (!certificate) {
    return certificate.error();
  }
  Result<std::string> key_pem = pem_of(key);
  if (!key_pem) {
    return key_pem.error();
  }
  return KeyPair{*std::move(certificate), *std::move(key_pem)};
}

std::optional<Clock::WallTime> time_of(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) {
    return std::nullopt;
  }
  return std::chrono::system_clock::from_time_t(::timegm(&parts));
}

}  // namespace

bool is_server_name(const std::string& name) {
  constexpr const char* kCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_*";
  return is_address(name) || (!name.empty() && name.find_first_not_of(kCharacters) == std::string::npos);
}

Result<std::string> make_private_key() {
  const Key key(EVP_EC_gen(kCurve));
  return key == nullptr ? openssl_error("generate a key") : pem_of(key.get());
}

Result<KeyPair> make_authority(const std::string& common_name, const Validity& validity) {
  const Key key(EVP_EC_gen(kCurve));
  if (key == nullptr) {
    return openssl_error("generate a key");
  }
  const CertificateRequest request{.common_name = common_name, .names = {}, .validity = validity};
  return pair_of(key.get(), certify(key.get(), request, {.certificate = nullptr, .key = key.get()}));
}

Result<KeyPair> issue_certificate(const KeyPair& authority, const CertificateRequest& request) {
  if (request.names.empty()) {
    return invalid("a server's certificate needs a name");
  }
  const X509Certificate issuer = read_first(authority.certificate_pem);
  const Key issuer_key = read_key(authority.key_pem);
  const Key key(EVP_EC_gen(kCurve));
  if (issuer == nullptr || issuer_key == nullptr || key == nullptr) {
    return invalid("the authority's certificate and key cannot be read");
  }
  return pair_of(key.get(),
                 certify(key.get(), request, {.certificate = issuer.get(), .key = issuer_key.get()}));
}

std::vector<Certificate> read_certificates(std::string_view pem) {
  std::vector<Certificate> certificates;
  const Memory text = open_text(pem);
  while (true) {
    const X509Certificate read(PEM_read_bio_X509(text.get(), nullptr, no_passphrase, nullptr));
    if (read == nullptr) {
      const unsigned long problem = ERR_peek_last_error();
      if (problem == 0 || ERR_GET_REASON(problem) == PEM_R_NO_START_LINE) {
        break;  // the end
      }
      ERR_clear_error();
      continue;  // each call reads past a line "BEGIN", so one that is malformed is passed
    }
    const auto from = time_of(X509_get0_notBefore(read.get()));
    const auto until = time_of(X509_get0_notAfter(read.get()));
    Result<std::string> one = pem_of(read.get());
    if (from && until && one) {
      certificates.push_back({*std::move(one), {*from, *until}});
    }
  }
  ERR_clear_error();
  return certificates;
}

bool is_key_of(std::string_view key_pem, std::string_view certificate_pem) {
  const X509Certificate certificate = read_first(certificate_pem);
  const Key key = read_key(key_pem);
  const bool fits =
      certificate != nullptr && key != nullptr && X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  return fits;
}

bool names_host(std::string_view certificate_pem, const std::string& host) {
  const X509Certificate certificate = read_first(certificate_pem);
  if (certificate == nullptr) {
    return false;
  }
  return is_address(host) ? X509_check_ip_asc(certificate.get(), host.c_str(), 0) == 1
                          : X509_check_host(certificate.get(), host.c_str(), host.size(), 0, nullptr) == 1;
}

}  // namespace plimsoll::http
