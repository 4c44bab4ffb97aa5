// CertificateSource: where a TLS server gets its certificate from, one shared context a generation, so that
// sessions resume and a new certificate never disturbs the connections on the old one.
//
//   auto certificates = std::make_shared<FileCertificateSource>(FileCertificateOptions{.directory = dir});
//   certificates->start();                          // watches until stop() or destruction
//   Server server(options, handler, certificates);
//
// FileCertificateSource reads tls.crt and tls.key, and ca.crt where there is one: the layout of a
// kubernetes.io/tls Secret. A mounted Secret is swapped by a symlink in its directory, so the directory is
// watched (inotify), and read again every `poll` for file systems that notify of nothing. What is read is
// taken only when it can serve: parses, the key fits the certificate, it is valid now, and leads to ca.crt if
// given. Until something can, current() is null; after that a bad file never replaces a good one.
// Thread-safe. stop() waits for the watching thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "base/result.h"

namespace boost::asio::ssl {
class context;
}

namespace plimsoll::http {

class CertificateSource {
 public:
  virtual ~CertificateSource() = default;
  // The context of the newest good certificate; null while there is none.
  virtual std::shared_ptr<boost::asio::ssl::context> current() const = 0;
};

struct ServerCertificate {
  std::shared_ptr<boost::asio::ssl::context> context;  // TLS 1.2 and up, ALPN http/1.1
  Clock::WallTime not_after;
};

// Checks a certificate chain and key (PEM) as described above and makes the context. `ca` may be empty.
// Errors: kInvalid, saying which file is at fault and why.
Result<ServerCertificate> make_server_certificate(std::string_view chain, std::string_view key,
                                                  std::string_view ca, Clock::WallTime now);

struct FileCertificateOptions {
  std::string directory;
  std::chrono::milliseconds poll{10'000};  // as controller-runtime's certwatcher
  const Clock* clock = &system_clock();
};

class FileCertificateSource : public CertificateSource {
 public:
  explicit FileCertificateSource(FileCertificateOptions options);
  ~FileCertificateSource() override;  // stop()
  FileCertificateSource(const FileCertificateSource&) = delete;
  FileCertificateSource& operator=(const FileCertificateSource&) = delete;

  // Reads the files once and begins to watch. Errors: kUnavailable when the system gives no watch. Files that
  // are missing or bad are no error: current() stays null and the log says why, until they are good.
  Result<void> start();
  void stop();

  std::shared_ptr<boost::asio::ssl::context> current() const override;
  std::optional<Clock::WallTime> not_after() const;
  std::uint64_t loads() const;     // certificates taken
  std::uint64_t failures() const;  // files read that could not serve
  std::string problem() const;     // why the files as they are now do not serve; empty when they do

 private:
  void watch(int inotify, int wake);
  void load_if_changed();

  const FileCertificateOptions options_;
  mutable std::mutex mutex_;
  ServerCertificate certificate_;  // guarded by mutex_, as all below
  std::string problem_;
  std::uint64_t loads_ = 0;
  std::uint64_t failures_ = 0;

  std::string last_read_;  // of the watching thread: what the files held last time
  int wake_ = -1;          // eventfd that ends the thread
  std::thread thread_;
};

}  // namespace plimsoll::http
