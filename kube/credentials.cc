#include "kube/credentials.h"

#include <optional>

#include "base/file.h"
#include "base/mutex.h"
#include "kube/exec_plugin.h"
#include "kube/reloaded_file.h"

namespace plimsoll::kube {
namespace {

// client-go rereads a service account's token every minute (transport/token_source.go).
constexpr std::chrono::minutes kTokenFilePeriod{1};
// A plugin's credential is replaced this long before it expires, so that it is still valid when it arrives.
constexpr std::chrono::seconds kExpiryMargin{10};
constexpr std::chrono::seconds kPluginDeadline{60};

// A token from the configuration, and a client certificate with its key, inline or as files.
class ConfiguredCredential final : public CredentialSource {
 public:
  ConfiguredCredential(const ClientConfig& config, const Clock& clock)
      : token_(config.token),
        certificate_(config.client_certificate_file, config.client_certificate_pem, clock),
        key_(config.client_key_file, config.client_key_pem, clock) {}

  Result<Credential> current(std::chrono::milliseconds) override {
    return Credential{token_, certificate_.current(), key_.current()};
  }
  bool refresh() override {
    certificate_.expire();
    key_.expire();
    return certificate_.is_file();
  }

 private:
  const std::string token_;
  ReloadedFile certificate_;
  ReloadedFile key_;
};

class TokenFile final : public CredentialSource {
 public:
  TokenFile(std::string path, Credential rest, const Clock& clock)
      : path_(std::move(path)), clock_(clock), credential_(std::move(rest)) {}

  Result<Credential> current(std::chrono::milliseconds) override {
    const MutexLock lock(mutex_);
    if (read_at_ && clock_.steady_now() - *read_at_ < kTokenFilePeriod) {
      return credential_;
    }
    Result<std::string> text = read_file(path_, 1_MiB);
    const bool have_one = !credential_.token.empty();
    if (!text) {
      // The volume may be in the middle of a swap: keep the token that was valid a minute ago.
      return have_one ? Result<Credential>(credential_) : text.error();
    }
    const std::string token = text->substr(0, text->find_last_not_of(" \t\r\n") + 1);
    if (token.empty() || token.find_first_of("\r\n") != std::string::npos) {
      return have_one ? Result<Credential>(credential_)
                      : Error(ErrorCode::kUnauthorized, path_ + " must hold one token on one line");
    }
    credential_.token = token;
    read_at_ = clock_.steady_now();
    return credential_;
  }

  bool refresh() override {
    const MutexLock lock(mutex_);
    read_at_.reset();
    return true;
  }

 private:
  const std::string path_;
  const Clock& clock_;
  Mutex mutex_;
  Credential credential_ PLIMSOLL_GUARDED_BY(mutex_);
  std::optional<Clock::SteadyTime> read_at_ PLIMSOLL_GUARDED_BY(mutex_);
};

class PluginCredential final : public CredentialSource {
 public:
  PluginCredential(ExecPlugin plugin, const Clock& clock) : plugin_(std::move(plugin)), clock_(clock) {}

  Result<Credential> current(std::chrono::milliseconds deadline) override {
    // One plugin at a time: other callers wait for its output, at most as long as it may run.
    const MutexLock lock(mutex_);
    if (!known_ || (expires_ && clock_.wall_now() + kExpiryMargin >= *expires_)) {
      Result<ExecCredential> answer =
          run_exec_plugin(plugin_, std::min<std::chrono::milliseconds>(deadline, kPluginDeadline));
      if (!answer) {
        return answer.error();
      }
      credential_ = {answer->token, answer->client_certificate_pem, answer->client_key_pem};
      expires_ = answer->expires;
      known_ = true;
    }
    return credential_;
  }

  bool refresh() override {
    const MutexLock lock(mutex_);
    known_ = false;
    return true;
  }

 private:
  const ExecPlugin plugin_;
  const Clock& clock_;
  Mutex mutex_;
  bool known_ PLIMSOLL_GUARDED_BY(mutex_) = false;
  Credential credential_ PLIMSOLL_GUARDED_BY(mutex_);
  std::optional<Clock::WallTime> expires_ PLIMSOLL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<CredentialSource> make_credential_source(const ClientConfig& config, const Clock& clock) {
  Credential fixed{config.token, config.client_certificate_pem, config.client_key_pem};
  if (!config.token_file.empty()) {
    return std::make_unique<TokenFile>(config.token_file, std::move(fixed), clock);
  }
  if (config.exec && fixed.token.empty() && fixed.client_certificate_pem.empty()) {
    return std::make_unique<PluginCredential>(*config.exec, clock);
  }
  return std::make_unique<ConfiguredCredential>(config, clock);
}

}  // namespace plimsoll::kube
