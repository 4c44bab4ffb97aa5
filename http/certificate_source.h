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

struct CertificateStatus {
  std::uint64_t loads = 0;                     // certificates that were loaded
  std::uint64_t failures = 0;                  // readings of files that cannot be used
  std::string problem;                         // why the present files cannot be used; empty when they can
  std::optional<Clock::WallTime> not_after{};  // of the current certificate
};

class FileCertificateSource : public CertificateSource {
 public:
  explicit FileCertificateSource(FileCertificateOptions options);
  ~FileCertificateSource() override;  // stop()
  FileCertificateSource(const FileCertificateSource&) = delete;
  FileCertificateSource& operator=(const FileCertificateSource&) = delete;

  // Reads the files once and begins to watch. Errors: kUnavailable when inotify fails. Missing or bad files
  // are not an error: current() stays null, and the log says why, until they are good.
  Result<void> start();
  void stop();

  std::shared_ptr<boost::asio::ssl::context> current() const override;
  CertificateStatus status() const;

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
