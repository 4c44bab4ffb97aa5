#include "http/certificate_source.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <utility>

#include <boost/asio/ssl/context.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/file.h"
#include "base/log.h"

namespace plimsoll::http {
namespace {

// A chain of a few certificates has some KiB; more is no certificate.
constexpr Bytes kFileLimit = 1_MiB;
// Writers replace the files one after the other; reading starts when they have been quiet for so long.
constexpr int kSettleMilliseconds = 50;
constexpr std::uint32_t kChanges = IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE | IN_ONLYDIR;

template <class T, void (*free_function)(T*)>
struct Free {
  void operator()(T* object) const { free_function(object); }
};
using Certificate = std::unique_ptr<X509, Free<X509, X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY, EVP_PKEY_free>>;
using Bio = std::unique_ptr<BIO, Free<BIO, BIO_free_all>>;
using Store = std::unique_ptr<X509_STORE, Free<X509_STORE, X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, Free<X509_STORE_CTX, X509_STORE_CTX_free>>;

std::string last_openssl_problem() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  std::array<char, 256> text{};
  ERR_error_string_n(code, text.data(), text.size());
  return code == 0 ? "unknown" : text.data();
}

Bio bio_of(std::string_view pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// All certificates of a PEM text, in its order.
std::vector<Certificate> certificates_in(std::string_view pem) {
  std::vector<Certificate> found;
  const Bio bio = bio_of(pem);
  while (X509* one = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    found.emplace_back(one);
  }
  ERR_clear_error();  // the end of the text is reported as an error
  return found;
}

// A key that wants a passphrase is refused rather than asked for on a terminal.
int no_passphrase(char*, int, int, void*) {
  return -1;
}

std::time_t seconds_of(Clock::WallTime time) {
  return std::chrono::system_clock::to_time_t(time);
}

Result<Clock::WallTime> time_of(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) {
    return invalid("tls.crt: its validity is not readable");
  }
  return std::chrono::system_clock::from_time_t(::timegm(&parts));
}

Result<void> check_chain(const std::vector<Certificate>& chain, std::string_view ca, Clock::WallTime now) {
  const std::vector<Certificate> roots = certificates_in(ca);
  if (roots.empty()) {
    return invalid("ca.crt holds no PEM certificate");
  }
  const Store store(X509_STORE_new());
  for (const Certificate& root : roots) {
    X509_STORE_add_cert(store.get(), root.get());
  }
  // An issuer that is not self-signed may still be the trusted one.
  X509_STORE_set_flags(store.get(), X509_V_FLAG_PARTIAL_CHAIN);
  STACK_OF(X509)* intermediates = sk_X509_new_null();
  for (std::size_t i = 1; i < chain.size(); ++i) {
    sk_X509_push(intermediates, chain[i].get());
  }
  const StoreContext context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), chain.front().get(), intermediates);
  X509_VERIFY_PARAM_set_time(X509_STORE_CTX_get0_param(context.get()), seconds_of(now));
  const bool good = X509_verify_cert(context.get()) == 1;
  const int problem = X509_STORE_CTX_get_error(context.get());
  sk_X509_free(intermediates);
  ERR_clear_error();
  if (!good) {
    return invalid(std::string("tls.crt does not lead to ca.crt: ") + X509_verify_cert_error_string(problem));
  }
  return {};
}

// The API server offers http/1.1 (or nothing) to webhooks; a client that offers only others is told so in the
// handshake.
int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* chosen_size,
                    const unsigned char* offered, unsigned int offered_size, void*) {
  static constexpr unsigned char kHttp11[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, chosen_size, kHttp11, sizeof kHttp11, offered, offered_size) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

Result<void> configure(SSL_CTX* context, const std::vector<Certificate>& chain, const PrivateKey& key) {
  const auto failed = [](const char* what) {
    return invalid(std::string(what) + ": " + last_openssl_problem());
  };
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);  // a thousand idle connections then cost little
  SSL_CTX_set_cipher_list(context, "ECDHE+AESGCM:ECDHE+CHACHA20");  // of TLS 1.2; those of 1.3 are all good
  static constexpr unsigned char kSessions[] = "plimsoll";
  SSL_CTX_set_session_id_context(context, kSessions, sizeof kSessions - 1);
  SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
  if (SSL_CTX_use_certificate(context, chain.front().get()) != 1) {
    return failed("tls.crt cannot be used");
  }
  for (std::size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context, chain[i].get()) != 1) {
      return failed("the chain in tls.crt cannot be used");
    }
  }
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1) {
    return failed("tls.key does not belong to tls.crt");
  }
  return {};
}

// Errors: those of read_file, and kInvalid for an empty file.
Result<std::string> read_pem_file(const std::string& path) {
  Result<std::string> content = read_file(path, kFileLimit);
  if (content && content->empty()) {
    return invalid(path + " is empty");
  }
  return content;
}

}  // namespace

Result<ServerCertificate> make_server_certificate(std::string_view chain_pem, std::string_view key_pem,
                                                  std::string_view ca_pem, Clock::WallTime now) {
  const std::vector<Certificate> chain = certificates_in(chain_pem);
  if (chain.empty()) {
    return invalid("tls.crt holds no PEM certificate");
  }
  const Bio key_bio = bio_of(key_pem);
  const PrivateKey key(PEM_read_bio_PrivateKey(key_bio.get(), nullptr, no_passphrase, nullptr));
  if (key == nullptr) {
    return invalid("tls.key holds no PEM private key that can be read without a passphrase: " +
                   last_openssl_problem());
  }
  const Result<Clock::WallTime> not_before = time_of(X509_get0_notBefore(chain.front().get()));
  const Result<Clock::WallTime> not_after = time_of(X509_get0_notAfter(chain.front().get()));
  if (!not_before || !not_after) {
    return !not_before ? not_before.error() : not_after.error();
  }
  if (now > *not_after) {
    return invalid("tls.crt expired at " + format_time(*not_after) + "; renew it");
  }
  if (now < *not_before) {
    return invalid("tls.crt is valid only from " + format_time(*not_before));
  }
  if (!ca_pem.empty()) {
    if (Result<void> leads = check_chain(chain, ca_pem, now); !leads) {
      return leads.error();
    }
  }
  auto context = std::make_shared<boost::asio::ssl::context>(boost::asio::ssl::context::tls_server);
  if (Result<void> configured = configure(context->native_handle(), chain, key); !configured) {
    return configured.error();
  }
  return ServerCertificate{.context = std::move(context), .not_after = *not_after};
}

FileCertificateSource::FileCertificateSource(FileCertificateOptions options) : options_(std::move(options)) {}

FileCertificateSource::~FileCertificateSource() {
  stop();
}

Result<void> FileCertificateSource::start() {
  const int inotify = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  wake_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (inotify < 0 || wake_ < 0) {
    const std::string reason = std::strerror(errno);
    ::close(inotify);
    ::close(std::exchange(wake_, -1));
    return Error(ErrorCode::kUnavailable, "cannot watch " + options_.directory + ": " + reason);
  }
  ::inotify_add_watch(inotify, options_.directory.c_str(), kChanges);  // before reading, to miss nothing
  load_if_changed();
  thread_ = std::thread([this, inotify] {
    watch(inotify, wake_);
    ::close(inotify);
  });
  return {};
}

void FileCertificateSource::stop() {
  if (!thread_.joinable()) {
    return;
  }
  ::eventfd_write(wake_, 1);
  thread_.join();
  ::close(std::exchange(wake_, -1));
}

void FileCertificateSource::watch(int inotify, int wake) {
  std::array<char, 4096> events{};
  for (;;) {
    // Adding the same watch again is free; a directory that was replaced or came late is found at the next
    // poll.
    ::inotify_add_watch(inotify, options_.directory.c_str(), kChanges);
    std::array<pollfd, 2> waiting{{{wake, POLLIN, 0}, {inotify, POLLIN, 0}}};
    ::poll(waiting.data(), waiting.size(), static_cast<int>(options_.poll.count()));
    while (waiting[0].revents == 0 && ::read(inotify, events.data(), events.size()) > 0) {
      waiting[1].revents = 0;
      ::poll(waiting.data(), waiting.size(), kSettleMilliseconds);
    }
    if (waiting[0].revents != 0) {
      return;
    }
    load_if_changed();
  }
}

void FileCertificateSource::load_if_changed() {
  const auto read = [this](const char* name) { return read_pem_file(options_.directory + "/" + name); };
  const Result<std::string> chain = read("tls.crt");
  const Result<std::string> key = read("tls.key");
  const Result<std::string> ca = read("ca.crt");

  Result<ServerCertificate> made = Error();
  if (!chain || !key) {
    made = !chain ? chain.error() : key.error();
  } else {
    // An empty ca.crt is what cert-manager writes for an issuer that knows none.
    const std::string ca_pem = ca ? *ca : "";
    std::string all = *chain + '\0' + *key + '\0' + ca_pem;
    if (all == last_read_) {
      return;
    }
    last_read_ = std::move(all);
    made = make_server_certificate(*chain, *key, ca_pem, options_.clock->wall_now());
  }

  std::unique_lock lock(mutex_);
  if (made) {
    certificate_ = *std::move(made);
    problem_.clear();
    ++loads_;
    const std::string not_after = format_time(certificate_.not_after);
    lock.unlock();
    log_info("Loaded the serving certificate", {{"directory", options_.directory}, {"notAfter", not_after}});
    return;
  }
  ++failures_;
  last_read_.clear();  // time alone can make it good (notBefore)
  const bool news = problem_ != made.error().message;
  problem_ = made.error().message;
  const bool serving = certificate_.context != nullptr;
  lock.unlock();
  if (news) {
    log_warning(serving ? "Kept the old serving certificate" : "Found no serving certificate",
                {{"problem", made.error().message}});
  }
}

std::shared_ptr<boost::asio::ssl::context> FileCertificateSource::current() const {
  const std::lock_guard lock(mutex_);
  return certificate_.context;
}

std::optional<Clock::WallTime> FileCertificateSource::not_after() const {
  const std::lock_guard lock(mutex_);
  return certificate_.context == nullptr ? std::nullopt : std::optional(certificate_.not_after);
}

std::uint64_t FileCertificateSource::loads() const {
  const std::lock_guard lock(mutex_);
  return loads_;
}

std::uint64_t FileCertificateSource::failures() const {
  const std::lock_guard lock(mutex_);
  return failures_;
}

std::string FileCertificateSource::problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

}  // namespace plimsoll::http
