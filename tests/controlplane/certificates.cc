#include "tests/controlplane/certificates.h"

#include <fcntl.h>
#include <openssl/rand.h>
#include <unistd.h>

#include <cassert>
#include <chrono>

#include "base/clock.h"

namespace plimsoll::testing {
namespace {

http::Validity valid_for_a_day() {
  const Clock::WallTime now = system_clock().wall_now();
  return {now - std::chrono::minutes(5), now + std::chrono::hours(24)};
}

}  // namespace

Result<CertificateAuthority> CertificateAuthority::create(const std::string& common_name) {
  Result<KeyPair> pair = http::make_authority(common_name, valid_for_a_day());
  if (!pair) {
    return pair.error();
  }
  return CertificateAuthority(*std::move(pair));
}

Result<KeyPair> CertificateAuthority::issue(const std::string& common_name,
                                            const std::vector<std::string>& names) const {
  return http::issue_certificate(pair_, {.common_name = common_name,
                                         .names = names,
                                         .validity = valid_for_a_day(),
                                         .extended_key_usage = "serverAuth,clientAuth"});
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
