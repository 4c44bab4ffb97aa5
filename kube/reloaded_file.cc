#include "kube/reloaded_file.h"

#include <chrono>
#include <utility>

#include "base/file.h"

namespace plimsoll::kube {
namespace {

// As the token of a service account (credentials.cc).
constexpr std::chrono::minutes kPeriod{1};

}  // namespace

ReloadedFile::ReloadedFile(std::string path, std::string text, const Clock& clock)
    : path_(std::move(path)), clock_(clock), text_(std::move(text)), read_at_(clock.steady_now()) {}

std::string ReloadedFile::current() {
  const MutexLock lock(mutex_);
  const Clock::SteadyTime now = clock_.steady_now();
  if (is_file() && (!read_at_ || now - *read_at_ >= kPeriod)) {
    read_at_ = now;
    if (Result<std::string> text = read_file(path_, 1_MiB); text && !text->empty()) {
      text_ = *std::move(text);
    }
  }
  return text_;
}

void ReloadedFile::expire() {
  const MutexLock lock(mutex_);
  read_at_.reset();
}

}  // namespace plimsoll::kube
