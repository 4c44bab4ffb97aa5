#include "http/certificate_source.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/file.h"
#include "base/log.h"

namespace plimsoll::http {
namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;

// A chain of a few certificates has some KiB.
constexpr Bytes kFileLimit = 1_MiB;
// Writers replace the files one after the other; reading starts after this time without a change.
constexpr int kSettleMilliseconds = 50;
constexpr std::uint32_t kChanges = IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE | IN_ONLYDIR;

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

// Checks that the certificate of `server` leads to one of those in `ca_pem`.
Result<void> check_chain(SSL_CTX* server, std::string_view ca_pem, Clock::WallTime now) {
  ssl::context trusted(ssl::context::tls_client);
  boost::system::error_code problem;
  if (trusted.add_certificate_authority(asio::buffer(ca_pem), problem)) {
    return invalid("ca.crt holds no PEM certificate");
  }
  X509_STORE* store = SSL_CTX_get_cert_store(trusted.native_handle());
  X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN);  // an issuer that is not self-signed may be trusted
  STACK_OF(X509)* intermediates = nullptr;
  SSL_CTX_get_extra_chain_certs(server, &intermediates);
  const std::unique_ptr<X509_STORE_CTX, decltype(&X509_STORE_CTX_free)> context(X509_STORE_CTX_new(),
                                                                                X509_STORE_CTX_free);
  X509_STORE_CTX_init(context.get(), store, SSL_CTX_get0_certificate(server), intermediates);
  X509_VERIFY_PARAM_set_time(X509_STORE_CTX_get0_param(context.get()), seconds_of(now));
  if (X509_verify_cert(context.get()) != 1) {
    ERR_clear_error();
    return invalid(std::string("tls.crt does not lead to ca.crt: ") +
                   X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get())));
  }
  return {};
}

// The API server offers http/1.1 (or nothing) to webhooks; the handshake with a client that offers only other
// protocols fails.
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

void configure(SSL_CTX* context) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);              // less memory for idle connections
  SSL_CTX_set_cipher_list(context, "ECDHE+AESGCM:ECDHE+CHACHA20");  // of TLS 1.2; those of 1.3 are all good
  static constexpr unsigned char kSessions[] = "plimsoll";
  SSL_CTX_set_session_id_context(context, kSessions, sizeof kSessions - 1);
  SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
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
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  SSL_CTX* const native = context->native_handle();
  configure(native);
  // Without it OpenSSL would ask for the passphrase of an encrypted key on the terminal.
  context->set_password_callback([](std::size_t, ssl::context::password_purpose) { return std::string(); });
  boost::system::error_code problem;
  // The key first: a certificate that does not belong to it removes it from the context.
  if (context->use_private_key(asio::buffer(key_pem), ssl::context::pem, problem)) {
    return invalid("tls.key holds no PEM private key that can be read without a passphrase: " +
                   problem.message());
  }
  if (context->use_certificate_chain(asio::buffer(chain_pem), problem)) {
    return invalid("tls.crt holds no usable PEM certificate: " + problem.message());
  }
  if (SSL_CTX_check_private_key(native) != 1) {
    ERR_clear_error();
    return invalid("tls.key does not belong to tls.crt");
  }
  const X509* const leaf = SSL_CTX_get0_certificate(native);
  const Result<Clock::WallTime> not_before = time_of(X509_get0_notBefore(leaf));
  const Result<Clock::WallTime> not_after = time_of(X509_get0_notAfter(leaf));
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
    if (Result<void> leads = check_chain(native, ca_pem, now); !leads) {
      return leads.error();
    }
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
  ::inotify_add_watch(inotify, options_.directory.c_str(), kChanges);  // before reading, to miss no change
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
    // Adding the same watch again has no effect; a directory that was replaced or created later is found at
    // the next poll.
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
    // cert-manager writes an empty ca.crt for an issuer without CA.
    const std::string ca_pem = ca ? *ca : "";
    std::string all = *chain + '\0' + *key + '\0' + ca_pem;
    if (all == last_read_) {
      return;
    }
    last_read_ = std::move(all);
    made = make_server_certificate(*chain, *key, ca_pem, options_.clock->wall_now());
  }

  MutexLock lock(mutex_);
  if (made) {
    current_ = std::move(made->context);
    status_.not_after = made->not_after;
    status_.problem.clear();
    ++status_.loads;
    lock.unlock();
    log_info("Loaded the serving certificate",
             {{"directory", options_.directory}, {"notAfter", format_time(made->not_after)}});
    return;
  }
  ++status_.failures;
  last_read_.clear();  // the same files may become valid with time (notBefore)
  const bool is_new = status_.problem != made.error().message;
  status_.problem = made.error().message;
  const bool serving = current_ != nullptr;
  lock.unlock();
  if (is_new) {
    log_warning(serving ? "Kept the old serving certificate" : "Found no serving certificate",
                {{"problem", made.error().message}});
  }
}

std::shared_ptr<ssl::context> FileCertificateSource::current() const {
  const MutexLock lock(mutex_);
  return current_;
}

CertificateStatus FileCertificateSource::status() const {
  const MutexLock lock(mutex_);
  return status_;
}

Result<void> FileCertificateSource::ready() const {
  const MutexLock lock(mutex_);
  return current_ != nullptr ? Result<void>() : Error(ErrorCode::kUnavailable, status_.problem);
}

}  // namespace plimsoll::http
