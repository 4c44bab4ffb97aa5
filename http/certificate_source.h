// CertificateSource: gives a TLS server its certificate. Connections share one context for each certificate,
// so that sessions resume and a new certificate does not affect the connections on the old one.
//
//   auto certificates = std::make_shared<FileCertificateSource>(FileCertificateOptions{.directory = dir});
//   certificates->start();                          // watches until stop() or destruction
//   Server server(options, handler, certificates);
//
// FileCertificateSource reads tls.crt, tls.key and, if it exists, ca.crt: the layout of a kubernetes.io/tls
// Secret. The kubelet replaces a mounted Secret by changing a symlink in its directory, so the directory is
// watched (inotify), and read again every `poll` for file systems without notifications. A certificate is
// used only if it can be parsed, fits the key, is valid now, and leads to ca.crt if that is given. Before the
// first one current() is null; after that a bad file never replaces a good certificate. Thread-safe. stop()
// waits for the watching thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"

namespace boost::asio::ssl {
class context;
}

namespace plimsoll::http {

class CertificateSource {
 public:
  virtual ~CertificateSource() = default;
  // The context of the newest valid certificate; null while there is none.
  virtual std::shared_ptr<boost::asio::ssl::context> current() const = 0;
};

struct CertificateStatus {
  std::uint64_t loads = 0;                     // certificates that were loaded
  std::uint64_t failures = 0;                  // tries that did not lead to a certificate
  std::string problem;                         // why the last try failed; empty when it did not
  std::optional<Clock::WallTime> not_after{};  // of the current certificate
};

// One that looks for new certificates in the background.
class RenewedCertificateSource : public CertificateSource {
 public:
  // Errors: kUnavailable where the system has no resources for it. That there is no certificate yet is not an error.
  virtual Result<void> start() = 0;
  virtual void stop() = 0;  // waits

  virtual CertificateStatus status() const = 0;
  // Whether clients can be served. Errors: kUnavailable, with the reason.
  virtual Result<void> ready() const = 0;
};

struct ServerCertificate {
  std::shared_ptr<boost::asio::ssl::context> context;  // TLS 1.2 and up, ALPN http/1.1
  Clock::WallTime not_after;
};

// Checks a certificate chain and key (PEM) as described above and makes the context. `ca` may be empty.
// Errors: kInvalid, naming the file and the problem.
Result<ServerCertificate> make_server_certificate(std::string_view chain, std::string_view key,
                                                  std::string_view ca, Clock::WallTime now);

struct FileCertificateOptions {
  std::string directory;
  std::chrono::milliseconds poll{10'000};  // as controller-runtime's certwatcher
  const Clock* clock = &system_clock();
};

class FileCertificateSource : public RenewedCertificateSource {
 public:
  explicit FileCertificateSource(FileCertificateOptions options);
  ~FileCertificateSource() override;  // stop()
  FileCertificateSource(const FileCertificateSource&) = delete;
  FileCertificateSource& operator=(const FileCertificateSource&) = delete;

  // Reads the files once and begins to watch. Errors: kUnavailable when inotify fails. Missing or bad files
  // are not an error: current() stays null, and the log says why, until they are good.
  Result<void> start() override;
  void stop() override;

  std::shared_ptr<boost::asio::ssl::context> current() const override;
  CertificateStatus status() const override;
  Result<void> ready() const override;

 private:
  void watch(int inotify, int wake);
  void load_if_changed();

  const FileCertificateOptions options_;
  mutable Mutex mutex_;
  std::shared_ptr<boost::asio::ssl::context> current_ PLIMSOLL_GUARDED_BY(mutex_);
  CertificateStatus status_ PLIMSOLL_GUARDED_BY(mutex_);

  std::string last_read_;  // of the watching thread: the content of the files at the last reading
  int wake_ = -1;          // eventfd that ends the thread
  std::thread thread_;
};

}  // namespace plimsoll::http
